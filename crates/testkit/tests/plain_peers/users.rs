//! Servers that begin as root and become another user before they serve: their connections are taken where the agent trusts that user with a queue.

use shunt_testkit::{program, python_program};

use crate::site::{until, Running, Site};

/// Says something on three connections, and hears the answer.
const CLIENT: &str = "
import socket, sys
address, port, said, answer = sys.argv[1], int(sys.argv[2]), *(text.encode().decode('unicode_escape').encode() for text in sys.argv[3:])
ends = [socket.create_connection((address, port)) for _ in range(3)]
for _ in range(100):
    for end in ends:
        end.sendall(said)
        heard = b''
        while not heard.endswith(answer):
            heard += end.recv(4096)
print('fine')
";

/// Processes that it has started.
fn children(of: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{of}/task/{of}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// What the process `serves` that was asked, of a user that is trusted or not.
fn is_taken_if_trusted(
    name: &str,
    start: impl Fn(&Site) -> Running,
    port: u16,
    [said, answer]: [&str; 2],
    serves: impl Fn(&Running) -> u32,
) {
    for (arguments, expected) in [(&[][..], "inet-queue"), (&["--trust", "nobody"], "taken")] {
        let Some(site) = Site::with_agent(name, arguments) else { return };
        let server = start(&site);
        site.wait_for_listener(0, port);
        let address = site.address(0);
        let asked = site.run(1, 0, &python_program(), &["-c", CLIENT, &address, &port.to_string(), said, answer]);
        let counts = ["inet-queue", "taken"].map(|reason| site.count_of(serves(&server), reason));
        assert_eq!(asked, "fine\n", "{}", server.text());
        let [refused, taken] = counts;
        assert!(
            if expected == "taken" { (refused, taken) == (0, 3) } else { refused == 3 && taken == 0 },
            "{expected}: {counts:?}"
        );
    }
}

#[test]
fn memcached_as_another_user() {
    let start = |site: &Site| {
        let options = ["-u", "nobody", "-l", &site.address(0), "-p", "11211", "-U", "0", "-t", "1"];
        site.start(0, 11211, "memcached", &program("memcached", "memcached"), &options)
    };
    let words = ["set a 0 0 1\\r\\nx\\r\\n", "STORED\\r\\n"];
    is_taken_if_trusted("plain-memcached", start, 11211, words, |server| server.child.id());
}

/// Its worker has connections, and the master never one.
#[test]
fn a_worker_of_nginx() {
    let start = |site: &Site| {
        let (file, place) = (site.scratch.join("nginx.conf"), site.scratch.path().display());
        let text = format!(
            "user nobody nogroup; worker_processes 1; daemon off; pid {place}/pid; error_log {place}/errors;
            events {{ }}
            http {{
                access_log off;
                client_body_temp_path {place}/1; proxy_temp_path {place}/2; fastcgi_temp_path {place}/3;
                uwsgi_temp_path {place}/4; scgi_temp_path {place}/5;
                server {{ listen {}:8080; return 200 \"hello\"; }}
            }}
",
            site.address(0)
        );
        std::fs::write(&file, text).expect("a file");
        site.start(0, 8080, "nginx", &program("nginx", "nginx"), &["-c", &file.display().to_string()])
    };
    let words = ["GET / HTTP/1.1\\r\\nHost: a\\r\\n\\r\\n", "hello"];
    is_taken_if_trusted("plain-nginx", start, 8080, words, |server| {
        until("a worker", || !children(server.child.id()).is_empty());
        children(server.child.id())[0]
    });
}
