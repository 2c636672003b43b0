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

/// An endpoint on a host.
pub fn attach(host: &Host, kind: Kind, version_6: bool) -> Xdp {
    let made = host.enter(|| Xdp::attach(&host.interface, kind, version_6, Sizes::default()));
    made.unwrap_or_else(|errno| panic!("an endpoint on {}: {errno:?}", host.interface))
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
