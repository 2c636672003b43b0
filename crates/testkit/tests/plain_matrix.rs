//! Connections with kernels of every setting, taken (`--inet`) and carried at user level, and every byte compared.

use std::fs::File;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::{self, Host, Joint, Offload};
use shunt_testkit::{link_shunt, python_program, script, spawn, Scratch};

const PATIENCE: Duration = Duration::from_secs(90);
const PORT: u16 = 7000;

/// A setting of the peer's kernel, and perhaps of this one.
#[derive(Clone, Copy, Default)]
struct Cell {
    name: &'static str,
    /// Of both, and of the peer alone.
    both: &'static [(&'static str, &'static str)],
    peer: &'static [(&'static str, &'static str)],
    mtu: u32,
    version_6: bool,
    /// Offloads that are off at both ends.
    off: &'static [Offload],
    /// The reason for which nothing is taken.
    declined: Option<&'static str>,
}

const PLAIN: Cell = Cell { name: "", both: &[], peer: &[], mtu: 1500, version_6: false, off: &[], declined: None };

struct Site {
    hosts: [Host; 2],
    scratch: Scratch,
    shunt: PathBuf,
    _agent: Agent,
}

/// Killed when dropped.
struct Running(Child, PathBuf);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    /// `None`, and a sentence on the real standard error: there can be no such hosts here, or the kernel has no such setting.
    fn new(cell: &Cell) -> Option<Site> {
        // SAFETY: takes nothing.
        let root = unsafe { libc::geteuid() } == 0;
        let made = if root { hosts::pair(Joint { mtu: cell.mtu, ..Joint::default() }) } else { Err("needs root".to_string()) };
        let skip = |sentence: String| {
            // The test harness captures `eprintln`.
            let _ = writeln!(std::io::stderr(), "skipped: plain matrix, {}: {sentence}", cell.name);
        };
        let hosts = made.map_err(skip).ok()?;
        let settings =
            cell.both.iter().map(|setting| (0, setting)).chain(cell.both.iter().chain(cell.peer).map(|setting| (1, setting)));
        for (host, (name, value)) in settings {
            if let Err(error) = hosts[host].set(&format!("net/ipv4/{name}"), value) {
                skip(format!("{name}={value}: {error}"));
                return None;
            }
        }
        for host in &hosts {
            cell.off.iter().for_each(|what| host.offload(*what, false).expect("an offload"));
        }
        let scratch = Scratch::new(&format!("matrix-{}", cell.name.replace(' ', "-")));
        let shunt = link_shunt(&scratch);
        let agent = Agent::start(&hosts[0], &shunt, &["--lend", "0", "--take"]).expect("the agent starts");
        Some(Site { hosts, scratch, shunt, _agent: agent })
    }

    /// The role's program, under shunt on the first host.
    fn start(&self, host: usize, role: &str, address: &str) -> Running {
        let output = self.scratch.join(format!("{role}.{host}.out"));
        let file = File::create(&output).expect("a file");
        let python = python_program();
        let mut command = match host {
            0 => {
                let mut command: Command = self.hosts[0].command(&self.shunt);
                command.args(["run", "--inet", &PORT.to_string(), "--"]).arg(python).env("SHUNT_NEAR", "off");
                command
            }
            _ => self.hosts[1].command(python),
        };
        command.arg(script("plain_matrix.py")).args([role, address, &PORT.to_string()]);
        command.current_dir(self.scratch.path()).stdin(Stdio::null()).stderr(file.try_clone().expect("a number")).stdout(file);
        Running(spawn(&mut command).expect("it starts"), output)
    }

    fn wait_for_listener(&self, host: usize, cell: &Cell) {
        let (table, wanted) = (if cell.version_6 { "tcp6" } else { "tcp" }, format!(":{PORT:04X}"));
        let until = Instant::now() + PATIENCE;
        let is_there = || {
            let table = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
            table.lines().any(|line| line.split_ascii_whitespace().nth(1).is_some_and(|local| local.ends_with(&wanted)))
        };
        while !self.hosts[host].enter(is_there) {
            assert!(Instant::now() < until, "{}: a listener: in vain", cell.name);
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// How often the process has had this reason.
    fn count(&self, running: &Running, reason: &str) -> u64 {
        let output = self.hosts[0].command(&self.shunt).args(["why", &running.0.id().to_string()]).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = said.lines().find(|line| line.split_ascii_whitespace().any(|word| word == reason) && !line.contains("tcp"));
        line.and_then(|line| line.split_ascii_whitespace().find_map(|word| word.parse().ok())).unwrap_or(0)
    }
}

/// A server under shunt and a plain client.
fn serve(cell: &Cell) {
    let Some(site) = Site::new(cell) else { return };
    let address = site.hosts[0].addresses[usize::from(cell.version_6)].to_string();
    let server = site.start(0, "serve", &address);
    site.wait_for_listener(0, cell);
    let mut client = site.start(1, "talk", &address);
    let until = Instant::now() + PATIENCE;
    let status = loop {
        if let Some(status) = client.0.try_wait().expect("a child") {
            break status;
        }
        assert!(Instant::now() < until, "{}: stands still", cell.name);
        std::thread::sleep(Duration::from_millis(5));
    };
    let said = |running: &Running| std::fs::read_to_string(&running.1).unwrap_or_default();
    assert!(status.success(), "{}: {status} {}\n{}", cell.name, said(&client), said(&server));
    let taken = site.count(&server, "taken");
    match cell.declined {
        None => assert!(taken >= 4, "{}: {taken} of 4 were taken", cell.name),
        Some(_) => assert_eq!(taken, 0, "{}", cell.name),
    }
    println!("{}: {taken} taken", cell.name);
}

#[test]
fn congestion_controls() {
    serve(&Cell { name: "reno", peer: &[("tcp_congestion_control", "reno")], ..PLAIN });
    serve(&Cell { name: "cubic", peer: &[("tcp_congestion_control", "cubic")], ..PLAIN });
    serve(&Cell { name: "bbr", peer: &[("tcp_congestion_control", "bbr")], ..PLAIN });
}

/// The scale is what a buffer of the largest size needs.
#[test]
fn scales_of_windows() {
    serve(&Cell { name: "scale 0", both: &[("tcp_window_scaling", "0")], ..PLAIN });
    serve(&Cell { name: "scale 7", both: &[("tcp_rmem", "4096 131072 6291456")], ..PLAIN });
    serve(&Cell { name: "scale 14", both: &[("tcp_rmem", "4096 131072 1073741824")], ..PLAIN });
    serve(&Cell {
        name: "scales 2 and 14",
        peer: &[("tcp_rmem", "4096 131072 1073741824")],
        both: &[("tcp_rmem", "4096 65536 131072")],
        ..PLAIN
    });
}

#[test]
fn options() {
    serve(&Cell { name: "without SACK", peer: &[("tcp_sack", "0")], ..PLAIN });
    serve(&Cell { name: "without time stamps", peer: &[("tcp_timestamps", "0")], ..PLAIN });
    serve(&Cell { name: "with neither", peer: &[("tcp_timestamps", "0"), ("tcp_sack", "0")], ..PLAIN });
    serve(&Cell { name: "time stamps that begin at nought", both: &[("tcp_timestamps", "2")], ..PLAIN });
    serve(&Cell { name: "ECN", both: &[("tcp_ecn", "1")], declined: Some("ecn"), ..PLAIN });
}

#[test]
fn sizes_of_packets() {
    for (name, mtu) in [("576", 576), ("1280", 1280), ("1500", 1500), ("4000", 4000), ("9000", 9000)] {
        serve(&Cell { name, mtu, ..PLAIN });
    }
    serve(&Cell { name: "probing", both: &[("tcp_mtu_probing", "2")], ..PLAIN });
}

#[test]
fn version_6() {
    for (name, mtu) in [("v6 1280", 1280), ("v6 1500", 1500), ("v6 9000", 9000)] {
        serve(&Cell { name, mtu, version_6: true, ..PLAIN });
    }
}

#[test]
fn offloads() {
    serve(&Cell { name: "whole", off: &[Offload::Sums, Offload::Segments, Offload::Cutting, Offload::Joining], ..PLAIN });
    serve(&Cell { name: "cut by the kernel", off: &[Offload::Segments], ..PLAIN });
    serve(&Cell { name: "not joined", off: &[Offload::Joining], ..PLAIN });
    serve(&Cell { name: "sums by the kernel", off: &[Offload::Sums], ..PLAIN });
}
