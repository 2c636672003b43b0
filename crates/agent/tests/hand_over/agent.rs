//! An agent in a process of its own, which can be killed: this test program once more.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Stdio};

use shunt_testkit::hosts::{self, Host, Joint};

/// By this it knows what it is to be.
const INTERFACE: &str = "SHUNT_TEST_AGENT";
/// And by this whether it takes connections, and also where rules count.
const TAKES: &str = "SHUNT_TEST_AGENT_TAKES";
const DESPITE_RULES: &str = "SHUNT_TEST_AGENT_DESPITE_RULES";

/// An agent that is killed with its test, and lends queue 0.
pub struct Agent {
    child: Child,
    /// Kept open: what the harness says of a long test goes there.
    _output: ChildStdout,
}

impl Agent {
    pub fn start(host: &Host) -> Agent {
        Agent::started(host, true, false)
    }

    /// One that was not told to take connections.
    pub fn that_takes_none(host: &Host) -> Agent {
        Agent::started(host, false, false)
    }

    /// One that takes them where rules count, too.
    pub fn despite_rules(host: &Host) -> Agent {
        Agent::started(host, true, true)
    }

    fn started(host: &Host, takes: bool, despite_rules: bool) -> Agent {
        let mut command = host.command(std::env::current_exe().expect("this program"));
        command.args(["--exact", "agent::serve", "--nocapture"]).env(INTERFACE, &host.interface);
        command.env(TAKES, takes.to_string()).env(DESPITE_RULES, despite_rules.to_string());
        // The harness's threads take no signals, which are the agent's thread's to hear of.
        // SAFETY: two calls on a set of this closure's, between fork and exec.
        unsafe {
            command.pre_exec(|| {
                let mut set = std::mem::zeroed();
                libc::sigemptyset(&mut set);
                libc::sigaddset(&mut set, libc::SIGTERM);
                libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
                Ok(())
            });
        }
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("the agent starts");
        let mut output = child.stdout.take().expect("piped");
        let lines = BufReader::new(&mut output).lines();
        let said: Vec<String> = lines.map_while(Result::ok).take_while(|line| line != "serves").collect();
        assert!(child.try_wait().expect("a child").is_none(), "the agent ended: {said:?}");
        Agent { child, _output: output }
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&mut self, signal: i32) {
        // SAFETY: a child that was not waited for.
        assert_eq!(unsafe { libc::kill(self.child.id() as i32, signal) }, 0);
        let _ = self.child.wait();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Two hosts, or a sentence on the real standard error and nothing.
pub fn pair() -> Option<[Host; 2]> {
    // SAFETY: takes nothing.
    let made = if unsafe { libc::geteuid() } == 0 { hosts::pair(Joint::default()) } else { Err("needs root".to_string()) };
    match made {
        Ok(hosts) => Some(hosts),
        Err(sentence) => {
            // The test harness captures `eprintln`.
            let _ = writeln!(std::io::stderr(), "skipped: connections by AF_XDP: {sentence}");
            None
        }
    }
}

/// Is the agent, if it is told to be.
#[test]
fn serve() {
    let Ok(interface) = std::env::var(INTERFACE) else { return };
    let mut configuration = shunt_agent::Configuration::new(&interface);
    configuration.lend = Some(vec![0]);
    let told = |name| std::env::var(name).is_ok_and(|value| value == "true");
    (configuration.take, configuration.despite_rules) = (told(TAKES), told(DESPITE_RULES));
    let mut agent = shunt_agent::Agent::start(configuration).expect("an agent");
    println!("\nserves");
    agent.run().expect("a signal");
}
