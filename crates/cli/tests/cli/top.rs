//! `shunt top` in a terminal of 80 columns, with real keys, a resize and programs that end; and into pipes.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::common::{library, plain, quiet_output, SHUNT};
use rustix::termios::Winsize;
use serde_json::Value;

/// Programs that end with the test.
struct Programs {
    children: Vec<Child>,
    port: u16,
}

impl Programs {
    /// A server and a client with two connections that never rest, both under shunt.
    fn start() -> Programs {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut programs = Programs { children: vec![], port };
        programs.run(&["redis-server", "--port", &port.to_string(), "--save", "", "--bind", "127.0.0.1"]);
        wait("the server", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        programs.run(&["redis-benchmark", "-p", &port.to_string(), "-t", "get", "-n", "2000000000", "-c", "2", "-q"]);
        wait("two connections", || !look(port, "0.1")["connections"].as_array().unwrap().is_empty());
        programs
    }

    fn run(&mut self, words: &[&str]) {
        let mut command = plain(SHUNT);
        command.args(["run", "--"]).args(words).env("SHUNT_LIBRARY", library());
        self.children.push(command.stdout(Stdio::null()).spawn().unwrap());
    }

    fn end_last(&mut self) {
        let mut child = self.children.pop().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One line of `shunt top --json`.
fn look(port: u16, interval: &str) -> Value {
    let filter = format!("dport = :{port}");
    let text = quiet_output(plain(SHUNT).args(["top", "--json", "-n", "1", "-d", interval, &filter]));
    assert_eq!(text.lines().count(), 1);
    serde_json::from_str(&text).unwrap()
}

/// A terminal with a program in it.
struct Terminal {
    controller: OwnedFd,
    screen: Arc<Mutex<vt100::Parser>>,
    child: Child,
}

impl Terminal {
    fn start(arguments: &[&str], rows: u16, columns: u16) -> Terminal {
        use rustix::pty::{grantpt, openpt, ptsname, unlockpt, OpenptFlags};
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&controller, size).unwrap();
        let terminal = std::fs::File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let mut command = plain(SHUNT);
        command.args(arguments).env("TERM", "xterm-256color");
        command.stdin(terminal.try_clone().unwrap()).stdout(terminal.try_clone().unwrap()).stderr(terminal);
        // SAFETY: both calls are async-signal-safe.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop(command);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(rows, columns, 0)));
        let (shown, mut reader) = (screen.clone(), std::fs::File::from(controller.try_clone().unwrap()));
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // The terminal's other end is closed with EIO.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        Terminal { controller, screen, child }
    }

    fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    fn keys(&self, keys: &str) {
        let mut writer = std::fs::File::from(self.controller.try_clone().unwrap());
        writer.write_all(keys.as_bytes()).unwrap();
    }

    fn shows(&self, text: &str) {
        let end = Instant::now() + Duration::from_secs(60);
        while !self.text().contains(text) {
            assert!(Instant::now() < end, "the screen does not show {text:?}:\n{}", self.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn resize(&self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&self.controller, size).unwrap();
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn keys_a_resize_and_programs_that_end() {
    let mut programs = Programs::start();
    let filter = format!("dport = :{}", programs.port);
    let mut terminal = Terminal::start(&["top", "-d", "0.2", &filter], 24, 80);
    terminal.shows("redis-server/");
    terminal.shows("2 connections");
    let text = terminal.text();
    for word in ["CLIENT", "SERVER", "RATE", "Connections", "every 0.2s", "q end"] {
        assert!(text.contains(word), "{word}:\n{text}");
    }
    assert!(!text.contains("CARRIER"), "80 columns have no room for it:\n{text}");

    terminal.resize(40, 200);
    terminal.shows("CARRIER");
    terminal.shows("shared-memory");
    terminal.resize(24, 80);

    terminal.keys("2");
    terminal.shows("SENDS");
    terminal.shows("redis-benchmark");
    terminal.keys("s");
    terminal.shows("sort: bytes");
    terminal.keys("3");
    // The look whether the server listens came without shunt.
    terminal.shows("accepted-from-kernel: The client came");
    terminal.keys("h");
    terminal.shows("longer, shorter interval");
    terminal.keys("x1");
    terminal.shows("CLIENT");
    terminal.keys("\x1b[B\x1b[A");
    terminal.keys("/");
    terminal.shows(&format!("filter: {filter}_"));
    terminal.keys(&"\x7f".repeat(filter.len()));
    terminal.keys("dport x\r");
    terminal.shows("has no port");
    terminal.keys("\x7f1\r");
    terminal.shows("nothing that the filter lets through");
    terminal.keys(&format!("/{}{filter}\r", "\x7f".repeat(7)));
    terminal.shows("redis-benchmark/");

    programs.end_last();
    terminal.shows("0 connections");
    terminal.keys(" ");
    terminal.shows("stopped");
    programs.end_last();
    terminal.keys(" ");
    terminal.shows("0 processes");
    terminal.keys("q");
    assert!(terminal.child.wait().unwrap().success());
    wait("the terminal is as it was", || !terminal.screen.lock().unwrap().screen().alternate_screen());
}

#[test]
fn pipes_get_lines() {
    let programs = Programs::start();
    let line = look(programs.port, "0.5");
    assert_eq!(line["schema"], "shunt.top/1");
    let connections = line["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 2, "{line}");
    for connection in connections {
        assert!(connection["bytes_per_second"].as_f64().unwrap() > 0.0, "{connection}");
        assert_eq!(connection["server"]["program"], "redis-server");
        assert_eq!(connection["server"]["port"], programs.port);
    }
    let server = programs.children[0].id();
    let processes = line["processes"].as_array().unwrap();
    let process = processes.iter().find(|process| process["pid"] == server).unwrap();
    assert_eq!(process["connections"], 2);
    for rate in ["sent_bytes_per_second", "received_bytes_per_second", "cpu_share"] {
        assert!(process[rate].as_f64().unwrap() > 0.0, "{rate}: {process}");
    }
    // What waits are made of is bounded by what there is: two programs of one thread.
    for share in ["spun_share", "slept_share"] {
        assert!((0.0..=1.2).contains(&process[share].as_f64().unwrap()), "{share}: {process}");
    }

    let text = quiet_output(plain(SHUNT).args(["top", "-b", "-n", "1", "-d", "0.2", "program", "redis-server"]));
    assert!(text.contains("WAKE-UPS") && text.contains("redis-benchmark/"), "{text}");

    // A reader that has seen enough ends it without a word.
    let mut top = plain(SHUNT).args(["top", "--json", "-d", "0.1"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(top.stdout.take());
    assert!(!top.wait().unwrap().success());
}

#[test]
fn mistakes_are_told() {
    for (arguments, told) in [
        (&["top"][..], "no terminal"),
        (&["top", "-b", "dport", "x"], "has no port"),
        (&["top", "-b", "-d", "0.01"], "0.1 to 3600"),
    ] {
        let output = Command::new(SHUNT).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(told), "{arguments:?}: {output:?}");
    }
}
