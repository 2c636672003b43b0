//! Two hosts, or three, and programs on them: on the kernel, and under shunt over each device.
#![allow(dead_code, reason = "each test program uses some of it")]

pub mod postgres;

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::{self, kernel_carries, Host, Joint};
use shunt_testkit::{has_listener, link_shunt, spawn, Scratch};

/// What carries the connections between the hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Programs without shunt.
    Kernel,
    /// Under shunt, which may not go to other hosts.
    FallBack,
    /// As `FallBack`, with an agent on either host that no stream uses.
    Agents,
    /// Under shunt, frames by UDP, however large a stream is.
    Udp,
    /// As `Udp`, by default: what sends much is left to its TCP connection.
    Default,
    /// As `Udp`, and what sends more than nothing ahead of its reader is left to its TCP connection.
    Left,
    /// As `Udp`, with an agent on either host: streams to other hosts need not be asked for.
    Auto,
    /// As `Auto`, with a queue of its own for one program of each host, whose frames go by AF_XDP.
    Xdp,
    /// Under shunt, with a directory in common: network namespaces of one host.
    Near,
    /// Under shunt, without an agent anywhere.
    Unasked,
    /// Under shunt, with an agent on the client's host alone.
    OneAgent,
}

impl Way {
    /// Whether streams have to be accelerated.
    pub fn accelerates(self) -> bool {
        matches!(self, Way::Udp | Way::Auto | Way::Xdp)
    }

    /// Whether they have to be at first.
    pub fn begins(self) -> bool {
        self.accelerates() || self.leaves()
    }

    /// Whether streams that send much do not stay accelerated.
    pub fn leaves(self) -> bool {
        matches!(self, Way::Default | Way::Left)
    }
}

/// The hosts of one test.
pub struct Site {
    pub hosts: Vec<Host>,
    /// What lies between them; without it they are alone.
    pub switch: Host,
    pub way: Way,
    pub agents: Vec<Agent>,
    pub scratch: Scratch,
    shunt: PathBuf,
    /// Agents write all frames to files.
    captures: bool,
}

/// Where `testkit-peer serve` listens.
pub const PORT: u16 = 7000;

/// Connections in a row that may fall back: each that does has waited for 100 ms in vain.
const ATTEMPTS: u64 = 50;

pub fn peer() -> PathBuf {
    PathBuf::from(env!("CARGO_BIN_EXE_testkit-peer"))
}

/// How long whatever a test waits for may take on a crowded machine: well beyond the 30 s after which the product falls back by itself.
pub const PATIENCE: Duration = Duration::from_secs(90);

impl Site {
    /// Two hosts on one Ethernet, or a sentence on the real standard error and nothing.
    pub fn new(label: &str, way: Way) -> Option<Site> {
        Site::of(label, way, 2)
    }

    /// So many hosts.
    pub fn of(label: &str, way: Way, count: u8) -> Option<Site> {
        Site::made(label, way, count, false)
    }

    /// Two hosts whose agents write all frames to files.
    pub fn capturing(label: &str, way: Way) -> Option<Site> {
        Site::made(label, way, 2, true)
    }

    /// The file of a host's agent.
    pub fn capture(&self, host: usize) -> PathBuf {
        self.scratch.join(format!("frames{host}.pcapng"))
    }

    fn made(label: &str, way: Way, count: u8, captures: bool) -> Option<Site> {
        // SAFETY: takes nothing.
        let root = unsafe { libc::geteuid() } == 0;
        let made = if root { hosts::segment(count, Joint::default()) } else { Err("needs root".to_string()) };
        let segment = match made {
            Ok(segment) => segment,
            Err(sentence) => {
                // The test harness captures `eprintln`.
                let _ = writeln!(std::io::stderr(), "skipped: {label}: {sentence}");
                return None;
            }
        };
        let scratch = Scratch::new(label);
        let shunt = link_shunt(&scratch);
        let mut site = Site { hosts: segment.hosts, switch: segment.switch, way, agents: Vec::new(), scratch, shunt, captures };
        let agents = match way {
            Way::Xdp | Way::Auto | Way::Agents => 2,
            Way::OneAgent => 1,
            Way::Kernel | Way::FallBack | Way::Udp | Way::Default | Way::Left | Way::Unasked | Way::Near => 0,
        };
        if way == Way::Near {
            let directory = site.scratch.join("near");
            std::fs::create_dir(&directory).expect("a directory");
            // As that of a tenant: all may put names there, and only remove their own.
            std::fs::set_permissions(&directory, std::os::unix::fs::PermissionsExt::from_mode(0o1777)).expect("its mode");
        }
        for host in 0..agents {
            site.agents.push(site.start_agent(host));
        }
        Some(site)
    }

    /// The server's address: the second host's.
    pub fn address(&self) -> String {
        self.hosts[1].addresses[0].to_string()
    }

    /// A command on a host, under shunt where this way wants it.
    pub fn command(&self, host: usize, program: &Path) -> Command {
        let mut command = match self.way {
            Way::Kernel => self.hosts[host].command(program),
            _ => {
                let mut command = self.hosts[host].command(&self.shunt);
                command.args(["run", "--"]).arg(program);
                command
            }
        };
        match self.way {
            Way::Near => command.env("SHUNT_NEAR", self.scratch.path().join("near")),
            _ => command.env("SHUNT_NEAR", "off"),
        };
        match self.way {
            Way::Udp => command.env("SHUNT_HOSTS", "10.77.0.0/24").env("SHUNT_BULK", "0"),
            Way::Default => command.env("SHUNT_HOSTS", "10.77.0.0/24").env_remove("SHUNT_BULK"),
            Way::Left => command.env("SHUNT_HOSTS", "10.77.0.0/24").env("SHUNT_BULK", "64"),
            Way::Xdp | Way::Auto => command.env_remove("SHUNT_HOSTS").env("SHUNT_BULK", "0"),
            Way::Unasked | Way::OneAgent => command.env_remove("SHUNT_HOSTS"),
            Way::Kernel | Way::FallBack | Way::Agents | Way::Near => command.env("SHUNT_HOSTS", "none"),
        };
        command.env("TESTKIT_ADDRESS", self.address()).stdin(Stdio::null());
        command
    }

    /// A program in the background, what it writes in a file; killed when dropped.
    pub fn start(&self, host: usize, name: &str, program: &Path, arguments: &[&str]) -> Running {
        let output = self.scratch.join(format!("{name}.out"));
        let mut command = self.command(host, program);
        command.args(arguments).current_dir(self.scratch.path()).stdin(Stdio::piped());
        command
            .stdout(File::create(&output).expect("a file"))
            .stderr(File::create(self.scratch.join(format!("{name}.err"))).expect("a file"));
        let child = spawn(&mut command).unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Running { child, output, name: name.to_string() }
    }

    /// A program until it ends well; what it wrote.
    pub fn run(&self, host: usize, program: &Path, arguments: &[&str]) -> Vec<u8> {
        let mut command = self.command(host, program);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let output = spawn(&mut command).and_then(Child::wait_with_output).expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{} {arguments:?} on host {host}: {}\n{said}", program.display(), output.status);
        output.stdout
    }

    /// Waits until somebody listens at a port of the server's host.
    pub fn wait_for_listener(&self, port: u16) {
        until("a listener", || self.hosts[1].enter(|| has_listener(port)));
    }

    /// A program on the first host that makes one connection to a `testkit-peer serve`, which is what this way promises:
    /// accelerated, or the kernel's. `arguments` are drawn for each attempt: on a crowded machine a host may be asked for a
    /// stream, and answer later than a connection waits for; such connections rightly are the kernel's, and made again.
    pub fn client(&self, server: &Running, name: &str, arguments: &dyn Fn(u64) -> Vec<String>, said: &str) -> (Running, u64) {
        assert!(!self.way.accelerates() || !kernel_carries(server.child.id(), PORT), "others may not fall back");
        for attempt in 0..ATTEMPTS {
            let accepted = server.text().matches("open ").count();
            let arguments = arguments(attempt);
            let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
            let client = self.start(0, &format!("{name}{attempt}"), &peer(), &words);
            client.wait_for(said);
            until("the server to accept", || server.text().matches("open ").count() > accepted);
            match (kernel_carries(server.child.id(), PORT), self.way.accelerates()) {
                _ if self.way.leaves() => return (client, attempt),
                (carries, accelerates) if carries != accelerates => return (client, attempt),
                (false, false) => panic!("{:?}: it is not to be accelerated", self.way),
                _ => client.kill(),
            }
            until("the server to see its end", || !kernel_carries(server.child.id(), PORT));
        }
        panic!("{:?}: {ATTEMPTS} connections in a row fell back", self.way);
    }

    /// A conversation to which nothing may happen. It ends well if its last round, after its input has ended, came back whole.
    pub fn bystander(&self, server: &Running) -> Running {
        let arguments = |_| vec!["bystander".to_string(), PORT.to_string()];
        self.client(server, "bystander", &arguments, "connected").0
    }

    /// One that suffers by `letter`; the seed it took.
    pub fn victim(&self, server: &Running, name: &str, letter: &str, seed: u64) -> (Running, u64) {
        let arguments =
            |attempt: u64| vec!["connect".to_string(), PORT.to_string(), letter.to_string(), (seed + attempt).to_string()];
        let (victim, attempt) = self.client(server, name, &arguments, "connected");
        (victim, seed + attempt)
    }

    /// Takes the way away by which streams between the first two hosts are accelerated, and leaves TCP's.
    pub fn lose_path(&mut self) {
        self.agents.clear();
        for host in &self.hosts {
            // Dropped as they come in, without a word: the table of local addresses is asked second.
            host.ip("rule add pref 100 lookup local");
            host.ip("rule del pref 0");
            host.ip(&format!("rule add pref 1 iif {} ipproto udp blackhole", host.interface));
        }
    }

    /// Waits until the stream of a program on the first host, which was accelerated, goes by TCP.
    pub fn wait_for_tcp(&self, client: &Running) {
        if self.way.accelerates() {
            let program = format!("testkit-peer/{}", client.child.id());
            let is_it = |line: &str| line.starts_with("tcp ") && line.split_ascii_whitespace().any(|word| word == program);
            until("the stream to go by TCP", || {
                assert!(!client.is_ending(), "{} ended before\n{}", client.name, client.said_by_all());
                std::thread::sleep(Duration::from_millis(100)); // it is much to look at
                self.shunt(0, &["ss"]).lines().any(is_it)
            });
        }
    }

    /// An agent on a host.
    pub fn start_agent(&self, host: usize) -> Agent {
        let file = text(&self.capture(host));
        let lend: &[&str] = if self.way == Way::Xdp { &["--lend", "0"] } else { &[] };
        let capture: &[&str] = if self.captures { &["--capture", &file] } else { &[] };
        Agent::start(&self.hosts[host], &self.shunt, &[lend, capture].concat()).expect("the agent starts")
    }

    /// `testkit-peer serve` on the second host.
    pub fn serve(&self, name: &str) -> Running {
        self.serve_as("serve", name)
    }

    /// A server of `testkit-peer` on the second host.
    pub fn serve_as(&self, word: &str, name: &str) -> Running {
        let server = self.start(1, name, &peer(), &[word, &PORT.to_string()]);
        self.wait_for_listener(PORT);
        server
    }

    /// Waits until no keeper has been found awake for a while: one that has nothing to do sleeps for milliseconds at least.
    pub fn wait_for_sleeping_keepers(&self) {
        const LOOKS: u32 = 20;
        let asleep = |process: u32| {
            let text = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            // proc(5): the state stands behind the name.
            !text.contains("(shunt-keeper)") || text.contains(") S ")
        };
        let mut looks = 0;
        until("the keepers to sleep", || {
            looks = if self.hosts.iter().flat_map(Host::processes).all(asleep) { looks + 1 } else { 0 };
            looks == LOOKS
        });
    }

    /// What `shunt` says on a host.
    pub fn shunt(&self, host: usize, arguments: &[&str]) -> String {
        let mut command = self.hosts[host].command(&self.shunt);
        let output = spawn(command.args(arguments).stdout(Stdio::piped())).and_then(Child::wait_with_output).expect("it runs");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// How many connections to other hosts process `pid`, on any host, has had accelerated.
    pub fn accelerated(&self, pid: u32) -> u64 {
        self.counted(pid, "other-host")
    }

    /// The command by which the programs of the site run.
    pub fn shunt_path(&self) -> PathBuf {
        self.shunt.clone()
    }

    /// How many names of connections there are in the directory of [`Way::Near`].
    pub fn names(&self) -> usize {
        self.all_names().iter().filter(|name| !name.starts_with("serv-")).count()
    }

    /// All names there, also those of addresses at which servers listen.
    pub fn all_names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.scratch.join("near")).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    /// How often process `pid`, on any host, has had this reason.
    pub fn counted(&self, pid: u32, reason: &str) -> u64 {
        let mut command = Command::new(&self.shunt);
        command.args(["why", "--json", &pid.to_string()]).stdout(Stdio::piped());
        let output = spawn(&mut command).and_then(Child::wait_with_output).expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let count = text.rsplit_once("\"counters\"").and_then(|(_, counters)| counters.split_once(&format!("\"{reason}\":")));
        count.map_or(0, |(_, rest)| {
            rest.trim_start().chars().map_while(|digit| digit.to_digit(10)).fold(0, |sum, digit| 10 * sum + u64::from(digit))
        })
    }

    /// After the programs are gone, so is all that shunt had for them on the hosts.
    pub fn finish(self) {
        let agents: Vec<u32> = self.agents.iter().map(Agent::id).collect();
        until("everything of shunt's to leave the hosts", || {
            self.hosts.iter().flat_map(Host::processes).all(|process| agents.contains(&process))
        });
        // The kernel frees what a process had behind its end.
        until("shunt's names to leave the hosts", || {
            self.hosts.iter().all(|host| {
                let table = host.enter(|| std::fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default());
                !table.lines().any(|line| line.contains("@shunt1-") && !line.contains("@shunt1-agent"))
            })
        });
    }
}

pub fn text(path: &Path) -> String {
    path.to_str().expect("text").to_string()
}

/// Asks a program to end, and waits until it has.
pub fn stop(mut program: Running, signal: i32) {
    program.signal(signal);
    until("its end", || program.has_ended());
}

/// Waits until `condition` holds.
pub fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < PATIENCE, "waited for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A program in the background.
pub struct Running {
    pub child: Child,
    output: PathBuf,
    name: String,
}

impl Running {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has written.
    pub fn text(&self) -> String {
        std::fs::read_to_string(&self.output).unwrap_or_default()
    }

    /// Waits until its output holds this.
    pub fn wait_for(&self, wanted: &str) {
        until(&format!("{wanted:?} of {}, which wrote {}", self.name, self.text()), || self.text().contains(wanted));
    }

    /// Closes its standard input and waits for its end, which is to be a good one.
    pub fn end_of_input(mut self) -> String {
        drop(self.child.stdin.take());
        let mut status = None;
        until(&format!("the end of {}", self.name), || {
            status = self.child.try_wait().expect("a child");
            status.is_some()
        });
        assert!(status.is_some_and(|status| status.success()), "{}: {status:?}\n{}", self.name, self.said_by_all());
        self.text()
    }

    /// The last lines of each program of the test: what one of them did not expect is often another's word.
    pub fn said_by_all(&self) -> String {
        const LINES: usize = 40;
        let entries = self.output.parent().and_then(|folder| std::fs::read_dir(folder).ok()).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
        files.retain(|path| path.extension().is_some_and(|kind| kind == "out" || kind == "err"));
        files.sort();
        let mut all = String::new();
        for path in files {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            if !lines.is_empty() {
                let last = lines[lines.len().saturating_sub(LINES)..].join("\n");
                all += &format!("{}:\n{last}\n", path.file_name().unwrap_or_default().to_string_lossy());
            }
        }
        all
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: a child that was not waited for: the number is its.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Whether it has ended, and was not waited for.
    fn is_ending(&self) -> bool {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.id())).unwrap_or_default();
        // proc(5): the state stands behind the name.
        text.is_empty() || text.contains(") Z ")
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.try_wait().expect("a child").is_some()
    }

    /// `kill -9`.
    pub fn kill(mut self) {
        self.child.kill().expect("a child");
        self.child.wait().expect("a child");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tests of one function: on the kernel, falling back, and over each device.
#[macro_export]
macro_rules! between_hosts {
    ($scenario:ident) => {
        mod $scenario {
            $crate::between_hosts!($scenario, kernel, Kernel);
            $crate::between_hosts!($scenario, falling_back, FallBack);
            $crate::between_hosts!($scenario, udp, Udp);
            $crate::between_hosts!($scenario, left, Left);
            $crate::between_hosts!($scenario, xdp, Xdp);
        }
    };
    ($scenario:ident, $name:ident, $way:ident) => {
        #[test]
        fn $name() {
            let label = concat!(stringify!($scenario), "-", stringify!($name));
            if let Some(site) = $crate::two_hosts::Site::new(label, $crate::two_hosts::Way::$way) {
                super::$scenario(site);
            }
        }
    };
}
