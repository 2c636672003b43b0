//! Clients that connect again and again: their connections are made in memory, and nothing of an earlier one shows.
//!
//! How often the kernel was left out is seen in the clients' ports: a kept companion keeps its port.

use shunt_testkit::{in_every_mode, Host, Mode};
use std::path::PathBuf;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

/// A server of lines: answers each with the same in brackets, and forks at every `fork`th connection.
const SERVER: &str = r#"
import os, selectors, signal, socket, sys
fork = int(sys.argv[2])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
listener.setblocking(False)
selector = selectors.DefaultSelector()
selector.register(listener, selectors.EVENT_READ)
count = 0
while True:
    for key, _ in selector.select():
        if key.fileobj is listener:
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                sys.exit("readable, and nothing to accept")
            count += 1
            if fork and count % fork == 0 and os.fork() == 0:
                os._exit(0)
            connection.setblocking(False)
            selector.register(connection, selectors.EVENT_READ)
            continue
        try:
            line = key.fileobj.recv(100)
        except ConnectionResetError:
            line = b""
        if line:
            key.fileobj.sendall(b"<" + line + b">")
        else:
            selector.unregister(key.fileobj)
            key.fileobj.close()
"#;

/// Four threads that connect, speak, and close in one of several ways.
const CLIENT: &str = r#"
import random, socket, struct, sys, threading
port, turns, ports = int(sys.argv[1]), int(sys.argv[2]), set()
def work(seed):
    chance = random.Random(seed)
    for turn in range(turns):
        client = socket.socket()
        client.settimeout(30)
        client.connect(("127.0.0.1", port))
        ports.add(client.getsockname()[1])
        for _ in range(chance.choice([0, 1, 1, 3])):
            word = b"%d" % chance.randrange(10**9)
            client.sendall(word)
            answer = client.recv(100)
            assert answer == b"<" + word + b">", (answer, word)
        way = chance.random()
        if way < 0.1:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif way < 0.2:
            client.shutdown(socket.SHUT_WR)
            assert client.recv(1) == b""
        elif way < 0.3:
            client.sendall(b"unread answer")
        client.close()
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print("ports", len(ports))
"#;

/// Runs both, and gives the number of ports that the client's connections had.
fn ports_used(host: &Host, fork: u32) -> usize {
    const TURNS: u32 = 1000;
    let python = || PathBuf::from("/usr/bin/python3");
    let server = host.server(python()).args(["-c", SERVER, "7000", &fork.to_string()]).start();
    host.wait_for_listener(&server, 7000);
    let output = host.client(python()).args(["-c", CLIENT, "7000", &TURNS.to_string()]).run(DEADLINE).expect_success().text();
    server.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
    let ports = output.trim().strip_prefix("ports ").and_then(|count| count.parse().ok());
    ports.unwrap_or_else(|| panic!("no count of ports: {output}"))
}

fn connections_have_a_few_ports(host: &Host) {
    let ports = ports_used(host, 0);
    assert!(host.mode() != Mode::Both || ports <= 64, "{ports} ports: connections went through the kernel");
}
in_every_mode!(connections_have_a_few_ports);

fn a_server_that_forks_is_served(host: &Host) {
    ports_used(host, 50);
}
in_every_mode!(a_server_that_forks_is_served);
