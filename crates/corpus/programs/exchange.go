// The same exchange as exchange.py, in Go: static, with its own runtime, and with TCP_NODELAY on
// every connection unless the program says otherwise.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

var (
	host    = flag.String("host", "", "address")
	port    = flag.Int("port", 0, "port")
	read    = flag.Int("read", 0, "octets of the other's message")
	write   = flag.String("write", "", "pieces of the own message")
	count   = flag.Int("count", 20, "requests")
	gap     = flag.Float64("gap", 0, "pause between requests, ms")
	nagle   = flag.Bool("nagle", false, "SetNoDelay(false)")
	pieces  [][]byte
	inbound []byte
)

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func prepare(c net.Conn) {
	if *nagle {
		check(c.(*net.TCPConn).SetNoDelay(false))
	}
}

func answer(c net.Conn) error {
	for _, p := range pieces {
		if _, err := c.Write(p); err != nil {
			return err
		}
	}
	return nil
}

func serve(c net.Conn) {
	prepare(c)
	buffer := make([]byte, *read)
	for {
		if _, err := io.ReadFull(c, buffer); err != nil {
			c.Close()
			return
		}
		if answer(c) != nil {
			return
		}
	}
}

func main() {
	role := os.Args[1]
	check(flag.CommandLine.Parse(os.Args[2:]))
	for _, p := range strings.Split(*write, ",") {
		n, err := strconv.Atoi(p)
		check(err)
		pieces = append(pieces, make([]byte, n))
	}
	address := net.JoinHostPort(*host, strconv.Itoa(*port))
	if role == "server" {
		l, err := net.Listen("tcp", address)
		check(err)
		for {
			c, err := l.Accept()
			check(err)
			go serve(c)
		}
	}
	c, err := net.Dial("tcp", address)
	check(err)
	prepare(c)
	inbound = make([]byte, *read)
	each := []float64{}
	for i := 0; i < *count; i++ {
		began := time.Now()
		check(answer(c))
		_, err := io.ReadFull(c, inbound)
		check(err)
		each = append(each, float64(time.Since(began).Microseconds())/1000)
		time.Sleep(time.Duration(*gap * float64(time.Millisecond)))
	}
	line, err := json.Marshal(map[string]interface{}{
		"ports":   []int{c.LocalAddr().(*net.TCPAddr).Port},
		"each_ms": each,
	})
	check(err)
	fmt.Println(string(line))
}
