// http.js PORT [ADDRESS]: Node's http server, with answers in one piece, in chunks and in many writes.
const http = require("http");
const port = Number(process.argv[2]);
const big = Buffer.alloc(3000000);
for (let i = 0; i < big.length; i++) big[i] = (i * 7 + (i >> 9)) & 255;

const server = http.createServer((request, response) => {
  if (request.url === "/small") {
    response.setHeader("Content-Length", 5);
    response.write("he");
    response.end("llo");
  } else if (request.url === "/chunks") {
    for (let i = 0; i < 200; i++) response.write(`chunk ${i};`);
    setTimeout(() => response.end("end"), 3);
  } else if (request.url === "/big") {
    response.setHeader("Content-Length", big.length);
    response.end(big);
  } else {
    response.statusCode = 404;
    response.end("no\n");
  }
});
process.on("SIGTERM", () => process.exit(0));
server.listen(port, process.argv[3] ?? "127.0.0.1");
