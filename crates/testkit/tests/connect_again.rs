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

/// Many connections at once, of which one has ended when the server forks, and the others end when there are two of it: it closes
/// them, but the other process has them, and says nothing when it is killed. Then connections one after another, a few of them
/// before the server notices that it is alone.
const CROWD: &str = r#"
import os, socket, sys, time
port, many = (int(word) for word in sys.argv[1:])
def dial():
    client = socket.create_connection(("127.0.0.1", port), 30)
    ask(client)
    return client
def ask(client):
    client.sendall(b"word")
    assert client.recv(100) == b"<word>"
def end(client):
    client.close()
    ask(guard), ask(guard) # the server is done with it
guard = socket.create_connection(("127.0.0.1", port), 30)
[end(client) for client in [dial() for _ in range(many)]]
crowd = [dial() for _ in range(many)]
end(crowd.pop(15))
end(crowd.pop(15))
crowd.append(dial()) # the server forks
[end(client) for client in crowd]
def turns(count, pause):
    sockets = set()
    for _ in range(count):
        client = dial()
        sockets.add(os.fstat(client.fileno()).st_ino)
        time.sleep(pause)
        end(client)
    return len(sockets)
turns(30, 0.002)
for _ in range(100): # on a crowded machine the child ends late, and its parent hears of it late
    if turns(10, 0.002) <= 6:
        break
print(1, turns(100, 0))
"#;

/// Runs both, and gives the numbers of ports that the client's connections had, and of sockets in the second half of them.
fn used(host: &Host, threads: u32, fork: u32, life: u32) -> [usize; 2] {
    served(host, fork, life, CLIENT, &[1000, threads])
}

/// The same of any client.
fn served(host: &Host, fork: u32, life: u32, client: &str, arguments: &[u32]) -> [usize; 2] {
    let python = || PathBuf::from("/usr/bin/python3");
    let server = host.server(python()).args(["-c", SERVER, "7000", &fork.to_string(), &life.to_string()]).start();
    host.wait_for_listener(&server, 7000);
    let arguments: Vec<String> = arguments.iter().map(u32::to_string).collect();
    let client = host.client(python()).args(["-c", client, "7000"]).args(&arguments);
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

/// One of 32 pairs can be had, and none of the others ever again.
fn connections_that_a_killed_child_had_are_in_nobodys_way(host: &Host) {
    const MANY: u32 = 31;
    expect_few(host, served(host, 1 + 2 * MANY + 1, 1, CROWD, &[MANY]));
}
in_every_mode!(connections_that_a_killed_child_had_are_in_nobodys_way);

/// The server says so in the link whose bell it has, though there is a younger one with room.
fn a_client_with_two_links_hears_that_its_server_is_alone(host: &Host) {
    const MANY: u32 = 40;
    expect_few(host, served(host, 1 + 2 * MANY + 1, 1, CROWD, &[MANY]));
}
in_every_mode!(a_client_with_two_links_hears_that_its_server_is_alone);
