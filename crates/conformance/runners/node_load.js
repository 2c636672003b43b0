// Node's net and http under load, server and clients in processes of their own; a verdict for each case in the file $VERDICTS.
'use strict';
const { fork } = require('child_process');
const fs = require('fs');
const http = require('http');
const net = require('net');

if (process.argv[2] === 'server') {
  const echo = net.createServer({ allowHalfOpen: true }, (socket) => {
    socket.on('error', () => {});
    socket.pipe(socket);
  });
  const web = http.createServer((request, response) => request.pipe(response));
  echo.listen(0, '127.0.0.1', 2048, () => web.listen(0, '127.0.0.1', 2048, () => {
    process.send({ echo: echo.address().port, web: web.address().port });
  }));
  process.on('disconnect', () => process.exit(0));
} else {
  main();
}

const pattern = (seed, size) => Buffer.from(Uint8Array.from({ length: size }, (_, i) => (seed * 131 + i * 7) & 255));

// Sends `messages` buffers of `size` bytes without waiting for their echoes, ends, and compares all that comes back.
function exchange(port, seed, messages, size) {
  return new Promise((resolve, reject) => {
    const sent = pattern(seed, size);
    const socket = net.connect(port, '127.0.0.1');
    let got = 0;
    socket.on('connect', () => {
      for (let i = 0; i < messages; i++) socket.write(sent);
      socket.end();
    });
    socket.on('data', (bytes) => {
      for (const byte of bytes) if (byte !== sent[got++ % size]) return socket.destroy(new Error('a wrong byte'));
    });
    socket.on('error', reject);
    socket.on('end', () => (got === messages * size ? resolve() : reject(new Error(`${got} bytes came back`))));
  });
}

// Sends a message, waits for its echo, sends the next.
function converse(port, seed, turns) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, '127.0.0.1');
    let turn = 0, wanted, got;
    const next = () => {
      wanted = pattern(seed + turn, 1 + ((seed * 37 + turn * 101) % 3000));
      got = Buffer.alloc(0);
      socket.write(wanted);
    };
    socket.on('connect', next);
    socket.on('data', (bytes) => {
      got = Buffer.concat([got, bytes]);
      if (got.length < wanted.length) return;
      if (!got.equals(wanted)) return socket.destroy(new Error('wrong bytes'));
      if (++turn === turns) { socket.end(); resolve(); } else next();
    });
    socket.on('error', reject);
  });
}

function request(port, agent, body) {
  return new Promise((resolve, reject) => {
    const call = http.request({ port, host: '127.0.0.1', agent, method: 'POST' }, (response) => {
      const pieces = [];
      response.on('data', (piece) => pieces.push(piece));
      response.on('end', () => (Buffer.concat(pieces).equals(body) ? resolve() : reject(new Error('wrong body'))));
      response.on('error', reject);
    });
    call.on('error', reject);
    call.end(body);
  });
}

const many = (count, make) => Promise.all(Array.from({ length: count }, (_, i) => make(i)));

async function main() {
  const child = fork(__filename, ['server']);
  const ports = await new Promise((resolve) => child.once('message', resolve));
  const cases = {
    '500 connections converse at once': () => many(500, (i) => converse(ports.echo, i, 20)),
    '100 connections stream a megabyte each': () => many(100, (i) => exchange(ports.echo, i, 16, 65536)),
    '2000 short connections, 50 at a time': async () => {
      for (let round = 0; round < 40; round++) await many(50, (i) => exchange(ports.echo, i, 1, 100));
    },
    'an HTTP agent that keeps 20 connections': async () => {
      const agent = new http.Agent({ keepAlive: true, maxSockets: 20 });
      await many(1000, (i) => request(ports.web, agent, pattern(i, 1 + i * 13)));
      agent.destroy();
    },
    'HTTP with a connection for each request': () =>
      many(300, (i) => request(ports.web, new http.Agent({ keepAlive: false }), pattern(i, 1 + i * 13))),
  };
  for (const [name, run] of Object.entries(cases)) {
    fs.appendFileSync(process.env.VERDICTS, `running\t${name}\n`);
    let verdict = 'ok';
    try {
      await run();
    } catch (error) {
      console.error(name, error);
      verdict = `failed: ${error.message}`;
    }
    fs.appendFileSync(process.env.VERDICTS, `${verdict}\t${name}\n`);
  }
  child.disconnect();
}
