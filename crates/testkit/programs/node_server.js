// An HTTP server that returns bodies (PORT) and an echo server on a raw socket (PORT + 1). Ends with status 0 on SIGTERM.
//
// usage: node_server.js PORT [ADDRESS]
"use strict";
const http = require("http");
const net = require("net");
const port = Number(process.argv[2]);
const address = process.argv[3] ?? "127.0.0.1";

const server = http.createServer((request, response) => {
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", () => {
    response.setHeader("X-Path", request.url);
    response.end(Buffer.concat(parts));
  });
});
const echo = net.createServer((socket) => {
  socket.on("error", () => socket.destroy());
  socket.pipe(socket);
});
server.listen(port, address);
echo.listen(port + 1, address);
process.on("SIGTERM", () => {
  server.close();
  echo.close();
  server.closeAllConnections();
});
