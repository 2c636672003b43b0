//! A peer that is no Linux, and knows of windows, losses and SACK what Linux does: gVisor's TCP, a program in Go (`gvisor/main.go`) that has its frames from this test.

use std::io::Write;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use shunt_testkit::hosts::Host;
use shunt_testkit::spawn;

use crate::wire::{self, Trouble, Wire, PORT};

/// Where the program expects its frames.
const FRAMES: i32 = 3;
/// How long the wire sleeps for nothing (ms): until then a frame that may be overtaken waits.
const LOOK: i32 = 1;

/// A tool of Go's, from where Debian or Go's own archive has it.
fn go(what: &str) -> Command {
    let own = Path::new("/usr/local/go/bin/go");
    let mut command = Command::new(if own.exists() { own } else { Path::new("go") });
    command.args(what.split(' ')).env("GOTOOLCHAIN", "local").env_remove("GOFLAGS").env("CGO_ENABLED", "0");
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hand_over/gvisor"));
    command
}

/// The program, built once; or a sentence on the real standard error and nothing, where there is no Go, or none of its modules.
fn program() -> Option<&'static Path> {
    static BUILT: OnceLock<Option<PathBuf>> = OnceLock::new();
    let build = || {
        let said = go("mod download").output().map_err(|error| format!("no Go: {error}")).and_then(|output| {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            if output.status.success() {
                Ok(())
            } else {
                Err(said)
            }
        });
        if let Err(sentence) = said {
            // The test harness captures `eprintln`.
            let _ = writeln!(std::io::stderr(), "skipped: gVisor's TCP as a peer: {}", sentence.trim_end());
            return None;
        }
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gvisor");
        let output = go("build -o").arg(&path).output().expect("Go runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Some(path)
    };
    BUILT.get_or_init(build).as_deref()
}

/// The program, and the thread that carries frames between it and the wire until it ends.
struct Stranger(Child);

impl Drop for Stranger {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Stranger {
    fn start(host: &Host, ips: [IpAddr; 2], trouble: Trouble) -> Option<Stranger> {
        let program = program()?;
        let mut ends = [-1; 2];
        // SAFETY: room for two numbers, which are the caller's.
        let [own, its] = unsafe {
            let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
            assert_eq!(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()), 0);
            ends.map(|fd| OwnedFd::from_raw_fd(fd))
        };
        let mut command = Command::new(program);
        command.args(ips.map(|ip| ip.to_string())).arg(PORT.to_string()).stdin(Stdio::null()).stdout(Stdio::null());
        let number = its.as_raw_fd();
        // SAFETY: calls on numbers, between fork and exec. dup3 on itself would leave the flag.
        unsafe {
            command.pre_exec(move || match number {
                FRAMES => Ok(_ = libc::fcntl(FRAMES, libc::F_SETFD, 0)),
                _ if libc::dup2(number, FRAMES) == FRAMES => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            });
        }
        let child = spawn(&mut command).expect("the program starts");
        let wire = Wire::open(host, trouble);
        std::thread::spawn(move || carry(wire, &own));
        Some(Stranger(child))
    }
}

/// Frames to and fro, until the program has closed its end.
fn carry(mut wire: Wire, program: &OwnedFd) {
    let mut bytes = [0; 4096];
    loop {
        let mut set = [wire.fd.as_raw_fd(), program.as_raw_fd()].map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        // SAFETY: two entries.
        unsafe { libc::poll(set.as_mut_ptr(), 2, LOOK) };
        wire.hear();
        for frame in wire.arrived.drain(..) {
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: bytes that are there. A frame that finds no room is lost.
            unsafe { libc::send(program.as_raw_fd(), frame.as_ptr().cast(), frame.len(), flags) };
        }
        loop {
            // SAFETY: room of that size.
            match unsafe { libc::recv(program.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) } {
                0 => return,
                count if count > 0 => wire.leave(bytes[..count as usize].to_vec()),
                _ => break,
            }
        }
        wire.send();
    }
}

wire::on_every_path!(Stranger::start);
