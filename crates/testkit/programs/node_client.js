// Requests through agents with and without keep-alive, twenty at a time, then a large echo on a raw socket.
//
// usage: node_client.js PORT [ADDRESS]
"use strict";
const assert = require("assert");
const crypto = require("crypto");
const http = require("http");
const net = require("net");
const port = Number(process.argv[2]);
const address = process.argv[3] ?? "127.0.0.1";

function request(agent, path, body) {
  return new Promise((resolve, reject) => {
    const options = { host: address, port, path, method: "POST", agent, headers: { "Content-Length": body.length } };
    const call = http.request(options, (response) => {
      const parts = [];
      response.on("data", (part) => parts.push(part));
      response.on("error", reject);
      response.on("end", () => {
        assert.strictEqual(response.headers["x-path"], path);
        assert(Buffer.concat(parts).equals(body), `body of ${body.length} bytes differs`);
        resolve();
      });
    });
    call.on("error", reject);
    call.end(body);
  });
}

function echo(length) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port + 1, address);
    const data = crypto.randomBytes(length);
    const parts = [];
    socket.on("data", (part) => parts.push(part));
    socket.on("error", reject);
    socket.on("end", () => {
      assert(Buffer.concat(parts).equals(data), "the echo differs");
      resolve();
    });
    socket.end(data);
  });
}

async function main() {
  for (const keepAlive of [true, false]) {
    const agent = new http.Agent({ keepAlive, maxSockets: 20 });
    const sizes = [0, 1, 100, 10000, 300000];
    const requests = [];
    for (let number = 0; number < 400; number++) {
      requests.push(request(agent, `/${keepAlive}/${number}`, crypto.randomBytes(sizes[number % sizes.length])));
    }
    await Promise.all(requests);
    agent.destroy();
  }
  await Promise.all([echo(1), echo(100000), echo(8000000), echo(8000000)]);
  console.log("fine");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
