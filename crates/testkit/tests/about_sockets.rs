//! A program asks about its own socket at shunt's level of getsockopt(2): what carries it, and why. The kernel does not know the level.

use shunt_testkit::{in_every_mode, Host, Mode};
use std::path::PathBuf;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_secs(60);

const SERVER: &str = r#"
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
while True:
    connection, _ = listener.accept()
    connection.sendall(connection.recv(100))
    connection.close()
"#;

/// `crates/buffers-c/include/shunt_socket.h`.
const CLIENT: &str = r#"
import errno, socket, struct, sys
LEVEL, CARRIER, REASON, QUOTA, OUTPUT = 0x53484e54, 1, 2, 8, 9
client = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 30)
client.sendall(b"x")
assert client.recv(10) == b"x"
def ask(option, room):
    try:
        return client.getsockopt(LEVEL, option, room)
    except OSError as error:
        return errno.errorcode[error.errno]
carrier = ask(CARRIER, 4)
reason = ask(REASON, 64)
print(carrier if isinstance(carrier, str) else struct.unpack("i", carrier)[0])
print(reason if isinstance(reason, str) else reason.rstrip(b"\0").decode())
print(ask(3, 4))
try:
    client.setsockopt(LEVEL, CARRIER, 0)
except OSError as error:
    print(errno.errorcode[error.errno])
for option, value, of in ((QUOTA, bytes(8), socket.socket()), (OUTPUT, 1, socket.socket()), (OUTPUT, 2, client), (OUTPUT, b"x", client), (OUTPUT, 1, client)):
    try:
        of.setsockopt(LEVEL, option, value)
        print("set")
    except OSError as error:
        print(errno.errorcode[error.errno])
"#;

fn a_program_asks_what_carries_its_socket(host: &Host) {
    let python = || PathBuf::from("/usr/bin/python3");
    let server = host.server(python()).args(["-c", SERVER, "7000"]).start();
    host.wait_for_listener(&server, 7000);
    let said = host.client(python()).args(["-c", CLIENT, "7000"]).run(DEADLINE).expect_success().text();
    server.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
    let lines: Vec<&str> = said.lines().collect();
    let unknown = "ENOPROTOOPT";
    let known = [unknown, unknown, "ENOTCONN", "ENOTCONN", "EINVAL", "EINVAL", "set"];
    match host.mode() {
        Mode::Both => assert_eq!((&lines[..2], &lines[2..]), (&["1", "accelerated"][..], &known[..])),
        Mode::ClientOnly => {
            assert_eq!((lines[0], &lines[2..]), ("0", &known[..]));
            assert!(!["accelerated", "unknown", "ENOTSUP"].contains(&lines[1]), "{said}");
        }
        _ => assert_eq!((&lines[..3], &lines[3..]), (&["ENOTSUP"; 3][..], &[unknown; 6][..])),
    }
}
in_every_mode!(a_program_asks_what_carries_its_socket);
