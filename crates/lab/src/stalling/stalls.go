package main

import (
	"fmt"
	"io"
	"net"
	"time"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	go func() {
		peer, _ := listener.Accept()
		request := make([]byte, 30)
		for {
			if _, err := io.ReadFull(peer, request); err != nil {
				return
			}
			peer.Write(request[:10])
		}
	}()
	fmt.Println(listener.Addr().(*net.TCPAddr).Port)
	s, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		panic(err)
	}
	s.(*net.TCPConn).SetNoDelay(false)
	bytes := make([]byte, 20)
	for {
		begin := time.Now()
		s.Write(bytes[:10])
		s.Write(bytes)
		if _, err := io.ReadFull(s, bytes[:10]); err != nil {
			return
		}
		fmt.Println(time.Since(begin).Microseconds())
		time.Sleep(2 * time.Millisecond)
	}
}
