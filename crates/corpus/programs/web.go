// A small net/http server, as most Go services have one.
package main

import (
	"flag"
	"log"
	"net/http"
	"strings"
)

func main() {
	listen := flag.String("listen", "", "address and port")
	size := flag.Int("size", 600, "octets of the body")
	flag.Parse()
	body := []byte(strings.Repeat("x", *size))
	http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.Write(body) })
	log.Fatal(http.ListenAndServe(*listen, nil))
}
