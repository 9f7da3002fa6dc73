// A server that answers each octet with 300 octets in two writes, without TCP_NODELAY, which Go
// sets by default.
package main

import (
	"fmt"
	"net"
)

//go:noinline
func putBody(c net.Conn) {
	c.Write(make([]byte, 200))
}

//go:noinline
func putAnswer(c net.Conn) {
	c.Write(make([]byte, 100))
	putBody(c)
}

func main() {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	fmt.Println(l.Addr().(*net.TCPAddr).Port)
	c, err := l.Accept()
	if err != nil {
		panic(err)
	}
	c.(*net.TCPConn).SetNoDelay(false)
	request := make([]byte, 1)
	for {
		if n, err := c.Read(request); n != 1 || err != nil {
			return
		}
		putAnswer(c)
	}
}
