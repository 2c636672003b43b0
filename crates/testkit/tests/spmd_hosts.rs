//! One address space over two and three network namespaces: the programs that run on one host run there, and jobs end as they do there.

use shunt_testkit::hosts::{self, Host};
use shunt_testkit::running::Running;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

fn built(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release").join(name);
    assert!(path.exists(), "{} is missing; run: make build", path.display());
    path.canonicalize().unwrap()
}

fn compiled(from: &str) -> PathBuf {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    let scratch = SCRATCH.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("shunt-spmd-hosts-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    });
    let test = std::thread::current().name().unwrap_or("main").to_owned();
    let program = scratch.join(format!("{test}-{}", from.replace(['/', '.'], "-")));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(from);
    let mut command = Command::new(built("shunt-shmemcc"));
    command.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]).arg(source).arg("-o").arg(&program);
    let output = command.args(["-lpthread", "-lm"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    program
}

fn program(name: &str) -> PathBuf {
    compiled(&format!("crates/shmem/tests/programs/{name}.c"))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Hosts, as the command that reaches them knows them.
struct Apart {
    hosts: Vec<Host>,
    switch: Option<Host>,
    files: Vec<File>,
    device: &'static str,
}

impl Apart {
    fn of(made: Result<(Vec<Host>, Option<Host>), String>) -> Option<Apart> {
        let (hosts, switch) = made.map_err(|why| eprintln!("SKIPPED: {why}")).ok()?;
        let files = hosts.iter().map(|host| host.enter(|| File::open("/proc/thread-self/ns/net").unwrap())).collect();
        Some(Apart { hosts, switch, files, device: "udp" })
    }

    fn two() -> Option<Apart> {
        Apart::of(hosts::pair(Default::default()).map(|pair| (pair.into(), None)))
    }

    fn three() -> Option<Apart> {
        Apart::of(hosts::segment(3, Default::default()).map(|segment| (segment.hosts, Some(segment.switch))))
    }

    /// Two hosts on a switch that loses so many of a hundred datagrams, by chance.
    fn losing(percent: u64) -> Option<Apart> {
        let apart = Apart::of(hosts::segment(2, Default::default()).map(|segment| (segment.hosts, Some(segment.switch))))?;
        let chain = |port| {
            let hook = format!("type filter hook ingress device \"{port}\" priority 0;");
            let rules = format!("ip protocol udp counter; ip protocol udp numgen random mod 100 < {percent} counter drop;");
            format!("chain {port} {{ {hook} {rules} }};")
        };
        let table = format!("table netdev loss {{ {} {} }}", chain("port1"), chain("port2"));
        let made = apart.switch.as_ref()?.command("nft").arg(table).status().expect("nft runs");
        assert!(made.success());
        Some(apart)
    }

    fn name(&self, at: usize) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.files[at].as_raw_fd())
    }

    fn job(&self, shares: &[usize], program: &Path, arguments: &[&str]) -> Command {
        let list: Vec<String> = shares.iter().enumerate().map(|(at, ranks)| format!("{}:{ranks}", self.name(at))).collect();
        let mut command = Command::new(built("shunt"));
        command.args(["spmd", "--rsh", "nsenter --net={host}", "--hosts", &list.join(","), "--device", self.device, "--"]);
        command.arg(program).args(arguments);
        command
    }

    fn is_fine(&self, shares: &[usize], program: &Path) {
        let output = self.job(shares, program, &[]).output().unwrap();
        assert!(output.status.success(), "{shares:?}: {output:?}");
        assert_eq!(text(&output.stdout), "fine\n", "{shares:?} of {}", program.display());
    }
}

/// All operations of OpenSHMEM, and ranks that stand still while others work on their memory.
#[test]
fn programs_compute_what_they_should() {
    let Some(apart) = Apart::two() else { return };
    for name in ["types", "generics", "teams", "reuse", "forks", "threads", "stopped"] {
        let program = program(name);
        for shares in [[1, 1], [2, 3]] {
            apart.is_fine(&shares, &program);
        }
    }
}

#[test]
fn three_hosts_are_one_job() {
    let Some(apart) = Apart::three() else { return };
    for name in ["types", "teams", "reuse", "stopped"] {
        apart.is_fine(&[1, 2, 1], &program(name));
    }
}

/// U-Net's seven programs; each checks its answer.
#[test]
fn the_seven_programs_are_right() {
    let Some(apart) = Apart::two() else { return };
    let rows: [(&str, &[&str]); 7] = [
        ("matrix", &["4", "16"]),
        ("sample-sort", &["small", "2000"]),
        ("sample-sort", &["bulk", "20000"]),
        ("radix-sort", &["small", "2000"]),
        ("radix-sort", &["bulk", "20000", "zipf"]),
        ("components", &["33", "60"]),
        ("gradient", &["20", "20"]),
    ];
    for (name, arguments) in rows {
        let program = compiled(&format!("examples/split-c/{name}.c"));
        for shares in [[1, 1], [2, 2]] {
            let output = apart.job(&shares, &program, arguments).output().unwrap();
            assert!(output.status.success() && text(&output.stdout).ends_with("right\n"), "{name} {arguments:?}: {output:?}");
        }
    }
}

/// Past the kernel's stack: an agent on each host moves the frames of ranks and keepers.
#[test]
fn frames_go_past_the_kernel() {
    let Some(mut apart) = Apart::two() else { return };
    let start = |host| shunt_testkit::agent::Agent::start(host, built("shunt"), &[]).unwrap();
    let agents: Vec<_> = apart.hosts.iter().map(start).collect();
    apart.device = "xdp";
    for name in ["types", "stopped"] {
        apart.is_fine(&[2, 1], &program(name));
    }
    agents.into_iter().for_each(|agent| agent.stop());
}

/// A path whose queue is shorter than what a put in bulk sends at once drops frames.
#[test]
fn frames_that_are_lost_are_sent_again() {
    let Some(apart) = Apart::two() else { return };
    for host in &apart.hosts {
        let tc = format!("qdisc add dev {} root tbf rate 400mbit burst 6k limit 9k", host.interface);
        let status = host.command("tc").args(tc.split(' ')).status().unwrap();
        assert!(status.success());
    }
    for name in ["types", "stopped"] {
        apart.is_fine(&[2, 1], &program(name));
    }
    let shown = apart.hosts[0].command("tc").args(["-s", "qdisc", "show", "dev", &apart.hosts[0].interface]).output().unwrap();
    let shown = text(&shown.stdout);
    assert!(shown.contains("dropped") && !shown.contains("dropped 0,"), "no frame was lost: {shown}");
}

/// How many frames a filter of [`Apart::losing`] has dropped, and how many it saw.
fn lost(apart: &Apart) -> (u64, u64) {
    let switch = apart.switch.as_ref().unwrap();
    let shown = text(&switch.command("nft").args(["list", "ruleset"]).output().unwrap().stdout);
    let counts: Vec<u64> = shown
        .split("packets ")
        .skip(1)
        .map(|rest| rest.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number of packets"))
        .collect();
    assert_eq!(counts.len(), 4, "{shown}");
    (counts[1] + counts[3], counts[0] + counts[2])
}

/// Each frame is lost with the same probability, whatever it carries: every operation is right all the same, and a death is told.
#[test]
fn frames_that_are_lost_at_random_are_sent_again() {
    // At 20 % the long programs would take minutes.
    for (percent, names) in [(2, &["types", "teams", "threads", "stopped"][..]), (6, &["threads", "stopped"])] {
        let Some(apart) = Apart::losing(percent) else { return };
        for name in names {
            apart.is_fine(&[2, 1], &program(name));
        }
        for (name, arguments) in [("sample-sort", ["small", "500"]), ("radix-sort", ["bulk", "20000"]), ("gradient", ["20", "5"])]
        {
            let output = apart.job(&[1, 1], &compiled(&format!("examples/split-c/{name}.c")), &arguments).output().unwrap();
            assert!(output.status.success() && text(&output.stdout).ends_with("right\n"), "{name} {percent} %: {output:?}");
        }
        let output = apart.job(&[2, 2], &program("ends"), &["kill"]).output().unwrap();
        assert_eq!(output.status.code(), Some(137), "{percent} %: {output:?}");
        let (lost, all) = lost(&apart);
        assert!(all > 1000 && lost * 200 > all * percent && lost * 50 < all * percent, "{percent} %: {lost} of {all}");
    }
}

/// The same past the kernel's stack.
#[test]
fn frames_past_the_kernel_are_lost_at_random() {
    let Some(mut apart) = Apart::losing(5) else { return };
    let start = |host| shunt_testkit::agent::Agent::start(host, built("shunt"), &[]).unwrap();
    let agents: Vec<_> = apart.hosts.iter().map(start).collect();
    apart.device = "xdp";
    for name in ["threads", "stopped"] {
        apart.is_fine(&[2, 1], &program(name));
    }
    agents.into_iter().for_each(|agent| agent.stop());
    let (lost, all) = lost(&apart);
    assert!(all > 1000 && lost * 200 > all * 5 && lost * 50 < all * 5, "{lost} of {all}");
}

/// A rank that computes after its puts makes no call that would go on with them: a thread does, if it is asked for.
#[test]
fn puts_go_on_while_a_rank_computes() {
    let Some(apart) = Apart::two() else { return };
    let program = program("computes");
    let file = program.with_extension("seen");
    let mut job = apart.job(&[1, 1], &program, &[file.to_str().unwrap()]);
    let output = job.env("SHMEM_PROGRESS", "thread").output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "fine\n".into()), "{output:?}");
}

#[test]
fn jobs_end_with_a_sentence_and_a_status() {
    let Some(apart) = Apart::two() else { return };
    let program = program("ends");
    let rows: [(&str, i32, &str); 15] = [
        ("", 0, ""),
        ("never", 0, ""),
        ("twice", 0, ""),
        ("kill", 137, "rank 3 was killed by signal 9 (SIGKILL)"),
        ("segv", 139, "rank 3 was killed by signal 11 (SIGSEGV)"),
        ("exit", 7, "rank 3 exited with status 7"),
        ("leave", 1, "rank 3 ended without having finalized"),
        ("global", 9, ""),
        ("global0", 0, ""),
        ("rank", 1, "rank 3: shmem_long_p: there is no rank 4 among 4"),
        ("negative", 1, "rank 3: shmem_long_g: there is no rank -1 among 4"),
        ("local", 1, "rank 3: shmem_putmem: 4 bytes at 0x"),
        ("behind", 1, "for rank 0 are not allocated (offset 0 of a heap of 67108864 bytes; the last object before that is 100 bytes at offset 0)"),
        ("unaligned", 1, "is not aligned"),
        ("free", 1, "nothing is allocated at"),
    ];
    for (how, status, sentence) in rows {
        let output = apart.job(&[2, 2], &program, &[how]).env("SHMEM_SYMMETRIC_SIZE", "64M").output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{how}: {said}");
        assert!(said.contains(sentence), "{how}: {said}");
        assert_eq!(said.is_empty(), sentence.is_empty(), "{how}: {said}");
    }
    let output = apart.job(&[1, 1], &program, &["early"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("rank 1 finalized while others wait for it in a barrier"), "{output:?}");
}

/// Processes below the launcher: the agents, then each one's ranks.
fn below(process: u32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    children.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

fn is_gone(process: i32) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    status.rsplit(") ").next().is_none_or(|rest| rest.is_empty() || rest.starts_with('Z'))
}

/// A death in the midst of barriers, puts, waits and locks between hosts: all end, and the sentence names the dead.
#[test]
fn deaths_end_the_job_on_all_hosts() {
    let Some(apart) = Apart::two() else { return };
    let program = program("ends");
    for turn in 0..14 {
        let mut job = apart.job(&[2, 2], &program, &["storm"]);
        let mut child = Running::start(job.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "up");
        let agents = below(child.id());
        let ranks: Vec<i32> = agents.iter().flat_map(|agent| below(*agent as u32)).collect();
        assert_eq!((agents.len(), ranks.len()), (2, 4));
        let at = turn / 7 * 2;
        let (victim, sentence) = match turn % 7 {
            rank @ 0..4 => (ranks[rank], format!("rank {rank} was killed by signal 9 (SIGKILL)")),
            4 => (agents[0], "was lost, with ranks 0 to 1".into()),
            5 => (agents[1], "was lost, with ranks 2 to 3".into()),
            _ => (child.id() as i32, String::new()),
        };
        std::thread::sleep(std::time::Duration::from_millis(at as u64 * 7));
        // SAFETY: a process that this test has started.
        unsafe { libc::kill(victim, libc::SIGKILL) };
        let output = child.wait_with_output().unwrap();
        assert!(!output.status.success() && text(&output.stderr).contains(&sentence), "turn {turn}: {output:?}");
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while !agents.iter().chain(&ranks).all(|process| is_gone(*process)) {
            assert!(std::time::Instant::now() < limit, "turn {turn}");
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}
