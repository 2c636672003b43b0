// An HTTP server on Node.js: answers each request on a kept connection. Usage: node server.js PORT
"use strict";

require("node:http")
  .createServer((request, response) => {
    response.writeHead(200, { "Content-Type": "text/plain", "Content-Length": 13 });
    response.end("Hello, world\n");
  })
  .listen(Number(process.argv[2]), "127.0.0.1");
