//! Two hosts, each with an agent.
#![allow(dead_code, reason = "each test program uses some of it")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use shunt_testkit::hosts::{self, Host, Joint};
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;

pub const SHUNT: &str = env!("CARGO_BIN_EXE_shunt");

/// An agent that is killed with its test.
pub struct Agent {
    pub child: Child,
    /// What it said when it started.
    pub said: String,
}

impl Agent {
    /// Starts one on the host's interface, and waits until it serves.
    pub fn start(host: &Host, arguments: &[&str]) -> Agent {
        let mut command = host.command(SHUNT);
        command.args(["agent", "--interface", &host.interface]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the agent starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut said = String::new();
        // Two lines say what it did; none come if it ends.
        for _ in 0..2 {
            lines.read_line(&mut said).expect("text");
        }
        if !said.contains("Addresses") {
            let output = child.wait_with_output().expect("it ended");
            panic!("the agent did not start: {said}{}", String::from_utf8_lossy(&output.stderr));
        }
        Agent { child, said }
    }

    pub fn signal(&mut self, signal: i32) {
        // SAFETY: a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
    }

    /// Waits for its end; the exit status, or `None` after a signal.
    pub fn wait(&mut self) -> Option<i32> {
        self.child.wait().expect("a child").code()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two hosts, or a sentence on the real standard error and nothing.
pub fn pair(joint: Joint) -> Option<[Host; 2]> {
    // SAFETY: takes nothing.
    let made = if unsafe { libc::geteuid() } == 0 { hosts::pair(joint) } else { Err("needs root".to_string()) };
    match made {
        Ok(hosts) => Some(hosts),
        Err(sentence) => {
            // The test harness captures `eprintln`.
            let _ = writeln!(std::io::stderr(), "skipped: endpoints over AF_XDP: {sentence}");
            None
        }
    }
}

/// An endpoint on a host. A queue that was given up a moment ago is another's still.
pub fn attach(host: &Host, kind: Kind, version_6: bool) -> Xdp {
    let try_it = || host.enter(|| Xdp::attach(&host.interface, kind, version_6, Sizes::default()));
    let mut made = try_it();
    for _ in 0..100 {
        if !made.as_ref().is_err_and(|errno| errno.0 == libc::EBUSY) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        made = try_it();
    }
    made.unwrap_or_else(|errno| panic!("an endpoint on {}: {errno:?}", host.interface))
}

/// Sends frames as they are: AF_PACKET.
pub struct Raw {
    socket: i32,
    index: u32,
}

impl Raw {
    /// Sends.
    pub fn new(host: &Host) -> Raw {
        Raw::of_kind(host, 0)
    }

    /// Hears all that comes in and goes out, from now on.
    pub fn listening(host: &Host) -> Raw {
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        let raw = Raw::of_kind(host, protocol);
        // SAFETY: zero is a valid address structure, as long as said.
        let bound = unsafe {
            let mut to: libc::sockaddr_ll = std::mem::zeroed();
            (to.sll_family, to.sll_protocol, to.sll_ifindex) = (libc::AF_PACKET as u16, protocol, raw.index as i32);
            libc::bind(raw.socket, (&raw const to).cast(), size_of_val(&to) as u32)
        };
        assert_eq!(bound, 0);
        raw
    }

    /// The next frame that it heard.
    pub fn next(&self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; 1 << 17];
        // SAFETY: as many bytes as said.
        let count = unsafe { libc::recv(self.socket, bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
        bytes.truncate(usize::try_from(count).ok()?);
        Some(bytes)
    }

    fn of_kind(host: &Host, protocol: u16) -> Raw {
        host.enter(|| {
            let name = std::ffi::CString::new(host.interface.as_str()).unwrap();
            // SAFETY: a string that ends with a zero byte; integers.
            let (socket, index) = unsafe {
                let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
                (libc::socket(libc::AF_PACKET, kind, protocol.into()), libc::if_nametoindex(name.as_ptr()))
            };
            assert!(socket >= 0 && index > 0);
            Raw { socket, index }
        })
    }

    /// Puts a frame on the wire.
    pub fn send(&self, frame: &[u8]) {
        // SAFETY: zero is a valid address structure, as long as said; as many bytes as said.
        let sent = unsafe {
            let mut to: libc::sockaddr_ll = std::mem::zeroed();
            to.sll_family = libc::AF_PACKET as u16;
            to.sll_ifindex = self.index as i32;
            let (address, size) = ((&raw const to).cast(), size_of_val(&to) as u32);
            libc::sendto(self.socket, frame.as_ptr().cast(), frame.len(), 0, address, size)
        };
        assert!(sent == frame.len() as isize || frame.len() < 14 || frame.len() > 1514, "{}", std::io::Error::last_os_error());
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // SAFETY: ours, used no more.
        unsafe { libc::close(self.socket) };
    }
}

/// Its interface's Ethernet address.
pub fn mac_of(host: &Host) -> [u8; 6] {
    host.enter(|| shunt_agent::Interface::find(&host.interface)).expect("an interface").mac
}

/// What `shunt agent status --json` says on a host.
pub fn status(host: &Host) -> serde_json::Value {
    let output = host.command(SHUNT).args(["agent", "status", "--json"]).output().expect("it runs");
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).expect("JSON")
}

/// A command as another user.
pub fn as_user(command: &mut Command, user: u32) -> &mut Command {
    use std::os::unix::process::CommandExt;
    command.uid(user).gid(user)
}

/// Attaches a program that passes everything.
pub fn foreign_program(interface: &str) -> impl Drop {
    use shunt_agent::ebpf::assembler::{Assembler, Register};
    use shunt_agent::ebpf::kernel::{Attachment, Program};
    struct Keep(#[allow(dead_code, reason = "held")] shunt_agent::ebpf::kernel::Link);
    impl Drop for Keep {
        fn drop(&mut self) {}
    }
    let mut code = Assembler::default();
    code.set(Register::R0, 2);
    code.exit();
    let program = Program::load("somebody_else", &code.finish(), false).expect("it loads");
    let index = shunt_agent::Interface::find(interface).expect("it is there").index;
    Keep(program.attach(index, Attachment::Native).expect("it attaches"))
}
