//! Several processes sleep in accept(2): a client wakes one of them, as on the kernel, where each of the others would look in vain and sleep
//! again.

use shunt_testkit::{in_every_mode, Host};
use std::path::PathBuf;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);
const CLIENTS: u32 = 100;
const PROCESSES: u32 = 4;

/// Says at its end how often its children have slept.
const SERVER: &str = r#"
import os, signal, socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])), backlog=64)
children = []
for _ in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        while True:
            connection, _ = listener.accept()
            connection.sendall(b"x")
            connection.close()
    children.append(child)
def end(_signal, _frame):
    status = [open(f"/proc/{child}/status").read() for child in children]
    print(sum(int(text.split("voluntary_ctxt_switches:")[1].split()[0]) for text in status), flush=True)
    for child in children:
        os.kill(child, signal.SIGKILL)
    os._exit(0)
signal.signal(signal.SIGTERM, end)
while True:
    signal.pause()
"#;

/// Between two connections all have time to fall asleep.
const CLIENT: &str = r#"
import socket, sys, time
for _ in range(int(sys.argv[2])):
    client = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    assert client.recv(2) == b"x"
    client.close()
    time.sleep(0.01)
"#;

fn a_client_wakes_one_process(host: &Host) {
    let python = || PathBuf::from("/usr/bin/python3");
    let server = host.server(python()).args(["-c", SERVER, "7000", &PROCESSES.to_string()]).start();
    host.wait_for_listener(&server, 7000);
    host.client(python()).args(["-c", CLIENT, "7000", &CLIENTS.to_string()]).run(DEADLINE).expect_success();
    let output = server.terminate(libc::SIGTERM).expect_success().text();
    let sleeps: u32 = output.trim().parse().unwrap_or_else(|_| panic!("no count of sleeps: {output}"));
    assert!(sleeps < CLIENTS * PROCESSES / 2, "{sleeps} sleeps for {CLIENTS} connections");
}
in_every_mode!(a_client_wakes_one_process);
