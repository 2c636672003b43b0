//! Two hosts, of which the first has an agent and shunt, the second neither.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::{self, Host, Joint, Segment};
use shunt_testkit::wire::{self, Wire};
use shunt_testkit::{has_listener, link_shunt, spawn, Scratch};

/// The file in the scratch directory.
const CAPTURE: &str = "frames.pcapng";

const PATIENCE: Duration = Duration::from_secs(90);

/// In place of a port: servers are learned.
pub const LEARNED: u16 = 0;

/// Both of them.
pub struct Site {
    /// See above.
    pub hosts: [Host; 2],
    /// What lies between them; `None`: nothing.
    pub wire: Option<Wire>,
    /// A third host on their Ethernet, and the switch, where there is one.
    pub stranger: Option<[Host; 2]>,
    /// The first host's.
    pub agent: Option<Agent>,
    /// Where programs run.
    pub scratch: Scratch,
    shunt: PathBuf,
}

/// A program in the background; killed when dropped.
pub struct Running {
    /// Its process.
    pub child: Child,
    output: PathBuf,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// What it has written.
    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }
}

/// Waits until the condition holds.
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    within(PATIENCE, what, condition);
}

/// The same, for as long as that.
pub fn within(patience: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + patience;
    while !condition() {
        assert!(Instant::now() < deadline, "{what}: in vain");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What makes hosts, or a sentence.
fn on_hosts<T>(label: &str, make: impl FnOnce() -> Result<T, String>) -> Option<T> {
    // SAFETY: takes nothing.
    let root = unsafe { libc::geteuid() } == 0;
    let made = if root { make() } else { Err("needs root".to_string()) };
    // The test harness captures `eprintln`.
    made.inspect_err(|sentence| _ = writeln!(std::io::stderr(), "skipped: {label}: {sentence}")).ok()
}

/// Two hosts, and the path between them.
fn join(path: Option<wire::Path>) -> Result<([Host; 2], Option<Wire>), String> {
    let Some(path) = path else { return Ok((hosts::pair(Joint::default())?, None)) };
    let Segment { hosts, switch } = hosts::segment(2, Joint::default())?;
    let hosts = hosts.try_into().map_err(|_| "two hosts were asked for".to_string())?;
    let wire = Wire::new(switch, &hosts, path).map_err(|error| format!("a wire: {error}"))?;
    Ok((hosts, Some(wire)))
}

impl Site {
    /// Or a sentence on the real standard error and nothing.
    pub fn new(label: &str) -> Option<Site> {
        Site::over(label, None)
    }

    /// The same, whose agent is told more.
    pub fn with_agent(label: &str, arguments: &[&str]) -> Option<Site> {
        Site::made(label, None, arguments)
    }

    /// The same, with such a path between the hosts.
    pub fn over(label: &str, path: Option<wire::Path>) -> Option<Site> {
        Site::made(label, path, &[])
    }

    /// The agent writes all frames to a file.
    pub fn capturing(label: &str) -> Option<Site> {
        Site::made(label, None, &["--capture", CAPTURE])
    }

    /// On an Ethernet with a third host.
    pub fn with_stranger(label: &str) -> Option<Site> {
        let joined = || {
            let Segment { hosts, switch } = hosts::segment(3, Joint::default())?;
            let [one, two, third] = hosts.try_into().map_err(|_| "three hosts were asked for".to_string())?;
            Ok(([one, two], Some([third, switch])))
        };
        let (hosts, stranger) = on_hosts(label, joined)?;
        Some(Site { stranger, ..Site::on(label, hosts, None, &[]) })
    }

    /// See above.
    pub fn capture(&self) -> PathBuf {
        self.scratch.join(CAPTURE)
    }

    fn made(label: &str, path: Option<wire::Path>, arguments: &[&str]) -> Option<Site> {
        let (hosts, wire) = on_hosts(label, || join(path))?;
        Some(Site::on(label, hosts, wire, arguments))
    }

    fn on(label: &str, hosts: [Host; 2], wire: Option<Wire>, arguments: &[&str]) -> Site {
        let scratch = Scratch::new(label);
        let shunt = link_shunt(&scratch);
        let mut site = Site { hosts, wire, stranger: None, agent: None, scratch, shunt };
        site.begin_agent(arguments);
        site
    }

    fn begin_agent(&mut self, arguments: &[&str]) {
        let arguments = [&["--lend", "0", "--take"][..], arguments].concat();
        let agent = Agent::start_in(&self.hosts[0], &self.shunt, &arguments, self.scratch.path());
        self.agent = Some(agent.expect("the agent starts"));
    }

    /// The first host has an agent, a new one.
    pub fn start_agent(&mut self) {
        self.begin_agent(&[]);
    }

    /// What the first host's agent says of itself: on a crowded machine it is asked more than once.
    pub fn agent_says(&self) -> serde_json::Value {
        let mut said = serde_json::Value::Null;
        until("the agent answers", || {
            let output = self.hosts[0].command(&self.shunt).args(["agent", "status", "--json"]).output().expect("it runs");
            let all: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
            said = all["agents"][0].clone();
            said["connections"].is_object()
        });
        said
    }

    /// Of a host.
    pub fn address(&self, host: usize) -> String {
        self.hosts[host].addresses[0].to_string()
    }

    /// On the first host under shunt, its connections at `port` taken; on the second one plain.
    fn command(&self, host: usize, port: u16, program: &Path) -> Command {
        let mut command = match host {
            0 => {
                let mut command = self.hosts[0].command(&self.shunt);
                let ports = if port == LEARNED { "auto".to_string() } else { port.to_string() };
                command.args(["run", "--inet", &ports, "--"]).arg(program).env("SHUNT_NEAR", "off");
                command
            }
            _ => self.hosts[host].command(program),
        };
        command.current_dir(self.scratch.path()).stdin(Stdio::null());
        command
    }

    /// A program in the background.
    pub fn start(&self, host: usize, port: u16, name: &str, program: &Path, arguments: &[&str]) -> Running {
        let output = self.scratch.join(format!("{name}.out"));
        let file = File::create(&output).expect("a file");
        let mut command = self.command(host, port, program);
        command.args(arguments).stderr(file.try_clone().expect("a number")).stdout(file);
        let child = spawn(&mut command).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Running { child, output }
    }

    /// A program until it ends well; what it wrote.
    pub fn run(&self, host: usize, port: u16, program: &Path, arguments: &[&str]) -> String {
        let mut command = self.command(host, port, program);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = spawn(&mut command).and_then(Child::wait_with_output).expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?}: {}\n{said}", program.display(), output.status);
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Until something listens there.
    pub fn wait_for_listener(&self, host: usize, port: u16) {
        until("a listener", || self.hosts[host].enter(|| has_listener(port)));
    }

    /// What a command of shunt's tells on the first host.
    pub fn tool(&self, arguments: &[&str]) -> String {
        let output = self.hosts[0].command(&self.shunt).args(arguments).output().expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// How often the process has had this reason; `given-back`: whatever the cause.
    pub fn count(&self, running: &Running, reason: &str) -> u64 {
        self.count_of(running.child.id(), reason)
    }

    /// How often connections were given back for that cause, or since the process was not scheduled, as may be on a machine in use.
    pub fn given_back(&self, running: &Running, cause: &str) -> u64 {
        [cause, "silent"].map(|cause| self.count(running, &format!("given-back-{cause}"))).iter().sum()
    }

    /// The same, by the process's number.
    pub fn count_of(&self, pid: u32, reason: &str) -> u64 {
        let said = self.tool(&["why", &pid.to_string()]);
        let counts = said.lines().find_map(|line| line.strip_prefix("since it started: ")).unwrap_or_default();
        let is_meant = |name: &str| name == reason || reason == "given-back" && name.starts_with("given-back-");
        let counts = counts.split(", ").filter_map(|count| count.split_once(' ')).filter(|(name, _)| is_meant(name));
        counts.filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
    }
}
