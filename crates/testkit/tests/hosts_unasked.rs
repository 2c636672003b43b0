//! Between hosts, when nothing is asked for: where no agent runs programs have nothing that they would not have on one host, and a host
//! without shunt is asked once for all.

mod two_hosts;

use shunt_testkit::spawn;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;
use two_hosts::{peer, stop, until, Running, Site, Way, PORT};

/// What the descriptors of a process are, its threads, and how many processes are on the hosts.
fn belongings(site: &Site, program: &Child) -> (Vec<String>, usize, usize) {
    let of = |what: &str| std::fs::read_dir(format!("/proc/{}/{what}", program.id())).expect("a process");
    let kind = |entry: std::fs::DirEntry| {
        let name = std::fs::read_link(entry.path()).map(|link| link.to_string_lossy().into_owned()).unwrap_or_default();
        // Inodes, and files of this test's own directory.
        name.split([':', '/']).next().unwrap_or_default().to_string()
    };
    let mut descriptors: Vec<String> = of("fd").filter_map(Result::ok).map(kind).collect();
    descriptors.sort();
    (descriptors, of("task").count(), site.hosts.iter().map(|host| host.processes().len()).sum())
}

/// The lines of a table of the host's network namespace.
fn table(site: &Site, host: usize, name: &str) -> Vec<String> {
    let text = site.hosts[host].enter(|| std::fs::read_to_string(format!("/proc/thread-self/net/{name}")).unwrap_or_default());
    text.lines().map(String::from).collect()
}

/// Waits until the first thread has been found asleep for a while: before it waits for the next client the server has not got all that
/// it will have.
fn wait_for_next_accept(server: &Running) {
    const LOOKS: u32 = 20;
    let mut looks = 0;
    until("the server to wait for the next client", || {
        let text = std::fs::read_to_string(format!("/proc/{0}/task/{0}/stat", server.id())).unwrap_or_default();
        // proc(5): the state stands behind the name.
        looks = if text.contains(") S ") { looks + 1 } else { 0 };
        looks == LOOKS
    });
}

/// A conversation between the hosts that the kernel carries, and both ends' belongings.
fn conversation(label: &str, way: Way) -> Option<[(Vec<String>, usize, usize); 2]> {
    let site = Site::new(label, way)?;
    let server = site.serve("server");
    let bystander = site.bystander(&server);
    wait_for_next_accept(&server);
    let found = [&server, &bystander].map(|program| belongings(&site, &program.child));
    for host in [0, 1] {
        assert_eq!(table(&site, host, "udp").len() + table(&site, host, "udp6").len(), 2, "nobody has a port of UDP");
        assert!(!table(&site, host, "unix").iter().any(|line| line.contains("@shunt1-station")));
    }
    assert!(bystander.end_of_input().contains("fine "));
    drop(server);
    site.finish();
    Some(found)
}

#[test]
fn without_agents_nothing_is_there() {
    let Some(none) = conversation("hosts-none", Way::FallBack) else { return };
    assert_eq!(conversation("hosts-unasked", Way::Unasked).expect("two hosts"), none);
}

/// How many datagrams have left the first host.
fn sent(site: &Site) -> u64 {
    let lines: Vec<Vec<String>> = table(site, 0, "snmp")
        .iter()
        .filter(|line| line.starts_with("Udp:"))
        .map(|line| line.split_ascii_whitespace().map(String::from).collect())
        .collect();
    let place = lines[0].iter().position(|word| word == "OutDatagrams").expect("a column");
    lines[1][place].parse().expect("a number")
}

fn visit(site: &Site) {
    let visitor: Running = site.start(0, "visitor", &peer(), &["visit", &PORT.to_string()]);
    visitor.end_of_input();
}

/// A host that says nothing: who comes first waits for it, the agent knows it then, and no program makes anything for it.
#[test]
fn a_silent_host_is_asked_once() {
    let Some(site) = Site::new("silent-host", Way::OneAgent) else { return };
    let server = site.serve("server");
    let silent = &site.hosts[1];
    // Dropped as they come in, without a word: the table of local addresses is asked second.
    silent.ip("rule add pref 100 lookup local");
    silent.ip("rule del pref 0");
    silent.ip(&format!("rule add pref 1 iif {} ipproto udp blackhole", silent.interface));
    let before = sent(&site);
    visit(&site);
    // Asked, and asked again.
    until("the questions", || sent(&site) == before + 2);
    for _ in 0..5 {
        visit(&site);
    }
    let bystander = site.bystander(&server);
    assert_eq!(sent(&site), before + 2);
    let names = site.hosts[0].processes().into_iter().map(|pid| std::fs::read_to_string(format!("/proc/{pid}/comm")));
    assert!(!names.flatten().any(|name| name.contains("keeper")), "nothing is made for it");
    assert!(bystander.end_of_input().contains("fine "));
    stop(server, libc::SIGTERM);
    site.finish();
}

/// Forbids the process, and the programs that it becomes, the fork of a keeper (EAGAIN, as where there are too many processes).
fn no_keeper() -> std::io::Result<()> {
    const fn step(code: u32, k: u32, [jt, jf]: [u8; 2]) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt, jf, k }
    }
    const LOAD: u32 = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    const IS: u32 = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    const RETURN: u32 = libc::BPF_RET | libc::BPF_K;
    // The number of the call, and the lower half of its first argument.
    let mut steps = [
        step(LOAD, 0, [0, 0]),
        step(IS, libc::SYS_clone as u32, [0, 3]),
        step(LOAD, 16, [0, 0]),
        step(IS, libc::CLONE_UNTRACED as u32, [0, 1]),
        step(RETURN, libc::SECCOMP_RET_ERRNO | libc::EAGAIN as u32, [0, 0]),
        step(RETURN, libc::SECCOMP_RET_ALLOW, [0, 0]),
    ];
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: as many steps as said.
    match unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// `testkit-peer listen` on the first host.
struct Listener {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Listener {
    fn new(mut command: Command) -> Listener {
        let mut child = spawn(command.arg("listen").stdin(Stdio::piped()).stdout(Stdio::piped())).expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        Listener { child, lines }
    }

    /// Has it listen, and gives what it says.
    fn listen(&mut self) -> String {
        self.child.stdin.as_mut().expect("a pipe").write_all(b"\n").expect("it reads");
        self.lines.next().expect("a line").expect("text")
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("its end").success());
    }
}

/// Where no keeper can be forked that is tried again and again, and each time leaves nothing.
#[test]
fn a_station_without_a_keeper_leaves_nothing() {
    let Some(site) = Site::new("no-keeper", Way::OneAgent) else { return };
    let mut command = site.command(0, &peer());
    // SAFETY: a system call.
    unsafe { command.pre_exec(no_keeper) };
    let mut listener = Listener::new(command);
    let first = listener.listen();
    // For so long it is remembered that there is none.
    std::thread::sleep(Duration::from_millis(1200));
    assert_eq!(listener.listen(), first);
    assert!(site.shunt(0, &["why", &listener.child.id().to_string()]).contains("no-station"));
    listener.end();
    site.finish();
}

/// However often an agent is started again, a program has one station, and one keeper.
#[test]
fn an_agent_that_is_started_again_leaves_nothing() {
    let Some(mut site) = Site::new("agent-again", Way::OneAgent) else { return };
    let mut listener = Listener::new(site.command(0, &peer()));
    let first = listener.listen();
    for _ in 0..3 {
        site.agents.clear();
        let agent = site.start_agent(0);
        site.agents.push(agent);
        assert_eq!(listener.listen(), first);
        let name = |process: &u32| std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        let keepers = || site.hosts[0].processes().iter().filter(|process| name(process).contains("keeper")).count();
        until("one keeper", || keepers() == 1);
    }
    listener.end();
    site.finish();
}
