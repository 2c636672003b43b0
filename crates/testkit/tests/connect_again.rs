//! Clients that connect again and again: their connections are made in memory, and nothing of an earlier one shows.
//!
//! How often the kernel was left out is seen in the inodes of the clients' sockets: a kept companion keeps its own, and its port.

use shunt_testkit::{in_every_mode, Host, Mode};
use std::path::PathBuf;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

/// A server of lines: answers each with the same in brackets, and forks at every `fork`th connection. Where a `life` is given, one child
/// alone, which has the listener for so many connections.
const SERVER: &str = r#"
import os, selectors, signal, socket, sys
fork, life = int(sys.argv[2]), int(sys.argv[3])
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
            if life and count == fork + life:
                os.kill(child, signal.SIGKILL)
            if fork and (count == fork if life else count % fork == 0):
                child = os.fork()
                if child == 0:
                    life and signal.pause()
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

/// Threads that connect, speak, and close in one of several ways.
const CLIENT: &str = r#"
import os, random, socket, struct, sys, threading
port, turns, ports, sockets = int(sys.argv[1]), int(sys.argv[2]), set(), set()
def work(seed):
    chance = random.Random(seed)
    for turn in range(turns):
        client = socket.socket()
        client.settimeout(30)
        client.connect(("127.0.0.1", port))
        ports.add(client.getsockname()[1])
        if turn >= turns // 2:
            sockets.add(os.fstat(client.fileno()).st_ino)
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
threads = [threading.Thread(target=work, args=(seed,)) for seed in range(int(sys.argv[3]))]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(len(ports), len(sockets))
"#;

/// Runs both, and gives the numbers of ports that the client's connections had, and of sockets in the second half of them.
fn used(host: &Host, threads: u32, fork: u32, life: u32) -> [usize; 2] {
    const TURNS: u32 = 1000;
    let python = || PathBuf::from("/usr/bin/python3");
    let server = host.server(python()).args(["-c", SERVER, "7000", &fork.to_string(), &life.to_string()]).start();
    host.wait_for_listener(&server, 7000);
    let client = host.client(python()).args(["-c", CLIENT, "7000", &TURNS.to_string(), &threads.to_string()]);
    let output = client.run(DEADLINE).expect_success().text();
    server.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
    let counts: Vec<usize> = output.split_whitespace().filter_map(|count| count.parse().ok()).collect();
    counts.try_into().unwrap_or_else(|_| panic!("no counts: {output}"))
}

fn expect_few(host: &Host, [ports, sockets]: [usize; 2]) {
    let few = ports <= 64 && sockets <= 64;
    assert!(host.mode() != Mode::Both || few, "{ports} ports, {sockets} sockets: connections went through the kernel");
}

fn connections_have_a_few_sockets(host: &Host) {
    expect_few(host, used(host, 4, 0, 0));
}
in_every_mode!(connections_have_a_few_sockets);

fn a_server_that_forks_is_served(host: &Host) {
    used(host, 4, 50, 0);
}
in_every_mode!(a_server_that_forks_is_served);

/// While there are two the client keeps its bell, and has to be asked for it afterwards.
fn a_server_whose_child_has_ended_is_alone_again(host: &Host) {
    expect_few(host, used(host, 1, 50, 200));
}
in_every_mode!(a_server_whose_child_has_ended_is_alone_again);
