//! `shunt metrics --listen` while clients of it misbehave, and `--output` where others may write.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use crate::common::{plain, SHUNT};

struct Served {
    command: Child,
    address: String,
}

impl Served {
    fn new() -> Served {
        let mut command = plain(SHUNT).args(["metrics", "--listen", "127.0.0.1:0"]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(command.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().trim_start_matches("http://").trim_end_matches("/metrics").to_owned();
        Served { command, address }
    }

    fn client(&self) -> TcpStream {
        TcpStream::connect(&self.address).unwrap()
    }

    fn asks(&self, request: &str) -> String {
        let mut client = self.client();
        client.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        answer
    }

    fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.command.id())).unwrap();
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok()).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.command.kill();
        let _ = self.command.wait();
    }
}

const SCRAPE: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

#[test]
fn clients_that_do_not_read_or_do_not_end_hold_up_nobody() {
    let served = Served::new();
    let answer = served.asks(SCRAPE);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("\nshunt_build_info{"), "{answer}");
    // More than there are places, and all of them silent; one whose body is announced and does not come.
    let silent: Vec<TcpStream> = (0..100).map(|_| served.client()).collect();
    let mut unfinished = served.client();
    unfinished.write_all(b"POST /x HTTP/1.1\r\nContent-Length: 1000000000\r\n\r\n").unwrap();
    assert!(served.asks(SCRAPE).starts_with("HTTP/1.1 200 OK\r\n"));
    // A head without an end: refused once it is too long, whatever comes after.
    let before = served.memory_kib();
    let mut endless = served.client();
    let _ = endless.write_all(b"GET /metrics HTTP/1.1\r\nA: ");
    while endless.write_all(&[b'a'; 1 << 16]).is_ok() {}
    assert!(served.asks(SCRAPE).starts_with("HTTP/1.1 200 OK\r\n"));
    assert!(served.memory_kib() < before + (8 << 10), "{} KiB before, {} after", before, served.memory_kib());
    drop(silent);
}

#[test]
fn a_link_in_the_directory_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (victim, path) = (directory.path().join("victim"), directory.path().join("shunt.prom"));
    std::fs::write(&victim, "kept").unwrap();
    std::os::unix::fs::symlink(&victim, &path).unwrap();
    assert!(plain(SHUNT).args(["metrics", "--output"]).arg(&path).status().unwrap().success());
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "kept");
    let about = std::fs::symlink_metadata(&path).unwrap();
    assert!(about.is_file() && about.permissions().mode() & 0o777 == 0o644);
    assert!(std::fs::read_to_string(&path).unwrap().contains("shunt_build_info"));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 2);
}
