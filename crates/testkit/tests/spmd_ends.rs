//! How jobs end: by themselves, by a rank that fails or dies, by a signal, and by the launcher's death.

mod jobs;

use jobs::{compiled, is_gone, job, run, running, scratch, started, text, Apart};
use shunt_testkit::running::Running;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[test]
fn jobs_end_with_a_sentence_and_a_status() {
    let program = compiled("ends");
    let rows: [(&str, i32, &str); 20] = [
        ("", 0, ""),
        ("never", 0, ""),
        ("twice", 0, ""),
        ("before", 5, "exited with status 5"),
        ("kill", 137, "rank 3 was killed by signal 9 (SIGKILL)"),
        ("segv", 139, "rank 3 was killed by signal 11 (SIGSEGV)"),
        ("exit", 7, "rank 3 exited with status 7"),
        ("leave", 1, "rank 3 ended without having finalized"),
        ("early", 1, "rank 3 finalized while others wait for it in a barrier"),
        ("absent", 1, "rank 1 ended without having finalized"),
        ("slow", 9, ""),
        ("reading", 1, "rank 3: shmem_long_p: there is no rank 4 among 4"),
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
        let output = job(4, &program, &[how]).env("SHMEM_SYMMETRIC_SIZE", "64M").output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{how}: {said}");
        assert!(said.contains(sentence), "{how}: {said}");
        assert_eq!(said.is_empty(), sentence.is_empty(), "{how}: {said}");
    }
    // Where each rank has a processor, barriers are others.
    let output = run(2, &program, &["early"]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("rank 1 finalized while others wait for it in a barrier"), "{output:?}");
    // Whoever fails after the end disturbs nobody, and is named.
    let output = run(4, &program, &["late"]);
    assert_eq!(output.status.code(), Some(6));
    assert!(text(&output.stderr).contains("rank 3 exited with status 6"), "{output:?}");
}

/// A job that has started, and its ranks' processes.
fn storm(program: &Path, ranks: usize) -> (Running, Vec<i32>) {
    started(&mut job(ranks, program, &["storm"]), ranks)
}

/// Where jobs run with a `/dev/shm`, abstract names and a directory for temporary files that no other program of this machine uses, so that
/// whatever is there was left by them. It lasts as long as its process's standard input.
struct Clean {
    holder: Child,
    temporary: PathBuf,
}

impl Clean {
    fn new() -> Clean {
        let script = "mount -t tmpfs shm /dev/shm && echo up && exec cat";
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "--net", "sh", "-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "up\n");
        let temporary = scratch().join(format!("temporary-{}", holder.id()));
        std::fs::create_dir_all(&temporary).unwrap();
        Clean { holder, temporary }
    }

    /// The command, there. It stays this process's child.
    fn inside(&self, command: &Command) -> Command {
        let mut inside = Command::new("nsenter");
        inside.args(["--target", &self.holder.id().to_string(), "--user", "--preserve-credentials", "--mount", "--net"]);
        inside.arg(command.get_program()).args(command.get_args()).env("TMPDIR", &self.temporary);
        inside
    }

    fn leftovers(&self) -> Vec<String> {
        let process = self.holder.id();
        let files = [PathBuf::from(format!("/proc/{process}/root/dev/shm")), self.temporary.clone()];
        let files = files.iter().flat_map(|place| std::fs::read_dir(place).unwrap());
        let mut found: Vec<String> = files.map(|entry| entry.unwrap().path().display().to_string()).collect();
        let names = std::fs::read_to_string(format!("/proc/{process}/net/unix")).unwrap();
        found.extend(names.lines().skip(1).map(str::to_owned));
        found
    }
}

impl Drop for Clean {
    fn drop(&mut self) {
        drop(self.holder.stdin.take());
        let _ = self.holder.wait();
        let _ = std::fs::remove_dir_all(&self.temporary);
    }
}

/// What is left there is seen, whatever its name.
#[test]
fn leftovers_are_found() {
    let place = Clean::new();
    assert_eq!(place.leftovers(), Vec::<String>::new());
    let script = "touch /dev/shm/a; mktemp";
    let output = place.inside(Command::new("sh").args(["-c", script])).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(place.leftovers().len(), 2, "{:?}", place.leftovers());
}

/// `kill -9` of any rank, at any moment: the job ends, names the rank, and leaves nothing. SHUNT_TEST_KILLS=1000 for more; how long jobs took to
/// end is said.
#[test]
fn a_killed_rank_ends_the_job() {
    let kills: u32 = std::env::var("SHUNT_TEST_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(200);
    let program = compiled("ends");
    let place = Clean::new();
    let mut random = u64::from(std::process::id()) | 1;
    let mut times = Vec::new();
    for turn in 0..kills {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let ranks = 2 + (random >> 33) as usize % 4;
        let victim = (random >> 40) as usize % ranks;
        let (child, processes) = started(&mut place.inside(&job(ranks, &program, &["storm"])), ranks);
        std::thread::sleep(std::time::Duration::from_micros((random >> 20) % 3000));
        // The launcher starts ranks in their order.
        // SAFETY: a process that this test has started.
        unsafe { libc::kill(processes[victim], libc::SIGKILL) };
        let killed = std::time::Instant::now();
        let output = child.wait_with_output().unwrap();
        times.push(killed.elapsed().as_secs_f64() * 1e3);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(137), "turn {turn}: {said}");
        assert!(said.contains(&format!("rank {victim} was killed by signal 9")), "turn {turn}: {said}");
        assert!(processes.iter().all(|process| is_gone(*process)), "turn {turn}");
    }
    assert_eq!(place.leftovers(), Vec::<String>::new());
    times.sort_by(f64::total_cmp);
    let part = |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1))).unwrap_or(&0.0);
    println!(
        "{kills} jobs ended after {:.1} ms (median), {:.1} ms (99 of 100), {:.1} ms (longest)",
        part(0.5),
        part(0.99),
        part(1.0)
    );
}

#[test]
fn signals_at_the_launcher_end_the_job() {
    let program = compiled("ends");
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let (child, processes) = storm(&program, 3);
        // SAFETY: a process that this test has started.
        unsafe { libc::kill(child.id() as i32, signal) };
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(128 + signal), "{output:?}");
        assert!(processes.iter().all(|process| is_gone(*process)), "{signal}");
    }
}

#[test]
fn a_killed_launcher_takes_its_ranks_along() {
    let program = compiled("ends");
    let (mut child, processes) = storm(&program, 3);
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !processes.iter().all(|process| is_gone(*process)) {
        assert!(std::time::Instant::now() < limit);
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    // Ranks that a shell has started end with it.
    let script = format!("{} storm; true", program.display());
    let (mut child, shells) = started(&mut job(2, Path::new("/bin/sh"), &["-c", &script]), 2);
    let ranks: Vec<i32> = shells.iter().flat_map(|shell| below(*shell as u32)).collect();
    assert_eq!(ranks.len(), 2);
    child.kill().unwrap();
    child.wait().unwrap();
    all_gone(&ranks);
}

/// Processes below the launcher: the agents, then each one's ranks.
fn below(process: u32) -> Vec<i32> {
    let children = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
    children.split_whitespace().map(|number| number.parse().unwrap()).collect()
}

fn all_gone(processes: &[i32]) {
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !processes.iter().all(|process| is_gone(*process)) {
        assert!(std::time::Instant::now() < limit, "{processes:?}");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

/// The death of a rank, an agent, or the launcher, and ctrl-C, end the job on both hosts.
#[test]
fn deaths_are_named_with_their_host() {
    let Some(apart) = Apart::new() else { return };
    for turn in 0..24 {
        // The ranks sleep in a child, which has to go, too.
        let mut command = apart.job([2, 2], &["--", "sh", "-c", "echo up; sleep 1000; true"]);
        let mut child = running(&mut command);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        (0..4).for_each(|_| assert_eq!(lines.next().unwrap().unwrap(), "up"));
        let agents = below(child.id());
        assert_eq!(agents.len(), 2);
        let ranks: Vec<i32> = agents.iter().flat_map(|agent| below(*agent as u32)).collect();
        assert_eq!(ranks.len(), 4);
        let at = turn / 6;
        let host = &apart.names[at / 2];
        let (victim, signal, status, sentence) = match turn % 6 {
            0 => (
                agents[at / 2],
                libc::SIGKILL,
                Some(1),
                format!("the agent on host {host} was lost, with ranks {} to", at / 2 * 2),
            ),
            1 => (child.id() as i32, libc::SIGINT, Some(130), "the launcher got signal 2".into()),
            2 => (child.id() as i32, libc::SIGKILL, None, String::new()),
            3 => (ranks[at], libc::SIGTERM, Some(143), format!("rank {at} was killed by signal 15 (SIGTERM) (host {host}")),
            _ => (ranks[at], libc::SIGKILL, Some(137), format!("rank {at} was killed by signal 9 (SIGKILL) (host {host}")),
        };
        // SAFETY: a process that this test has started.
        unsafe { libc::kill(victim, signal) };
        let output = child.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), status, "turn {turn}: {said}");
        assert!(said.contains(&sentence), "turn {turn}: {said}");
        all_gone(&[&agents[..], &ranks].concat());
    }
}
