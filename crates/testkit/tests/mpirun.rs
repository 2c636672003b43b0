//! Programs of OpenSHMEM under a launcher of others: Open MPI's `mpirun`, which speaks PMIx.

use shunt_testkit::running::Running;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

/// One test at a time compiles; a program is named after its source.
fn compiled(name: &str) -> PathBuf {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    let scratch = SCRATCH.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("shunt-mpirun-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    });
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let compiler = root.join("target/release/shunt-shmemcc");
    assert!(compiler.exists(), "{} is missing; run: make build", compiler.display());
    let test = std::thread::current().name().unwrap_or("main").to_owned();
    let program = scratch.join(format!("{test}-{name}"));
    let mut command = Command::new(compiler.canonicalize().unwrap());
    command.args(["-std=gnu11", "-O1"]).arg(root.join(format!("crates/shmem/tests/programs/{name}.c")));
    let output = command.arg("-o").arg(&program).args(["-lpthread", "-lm"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    program
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A job that does not end is ended, so that the test fails.
fn mpirun(ranks: usize, options: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-k", "5", "60", "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()]).args(options);
    command.env("SHMEM_SYMMETRIC_SIZE", "64M").env_remove("SHUNT_SPMD");
    command
}

fn run(ranks: usize, options: &[&str], program: &Path, arguments: &[&str]) -> Output {
    mpirun(ranks, options).arg(program).args(arguments).output().unwrap()
}

#[test]
fn programs_compute_what_they_should() {
    for name in ["types", "generics", "teams", "forks", "profile", "threads"] {
        let program = compiled(name);
        for ranks in [1, 2, 4] {
            let output = run(ranks, &[], &program, &[]);
            assert!(output.status.success(), "{ranks} ranks: {output:?}");
            assert_eq!(text(&output.stdout), "fine\n", "{ranks} ranks of {name}");
        }
    }
}

/// One after the other, in a script, they are the same ranks: however often, whichever rank is late, and if the machine has other things to do.
#[test]
fn programs_may_follow_each_other() {
    let program = compiled("types");
    let script = format!("{0} && {0}", program.display());
    let late = format!(
        "{0} && case $PMIX_RANK in 1) sleep 0.3;; esac && {0} && case $PMIX_RANK in 0) sleep 0.3;; esac && {0}",
        program.display()
    );
    let mut others = Vec::new();
    for times in 0..10 {
        let output = run(3, &[], Path::new("sh"), &["-c", &script]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "fine\n".repeat(2)), "{output:?}");
        if times == 4 {
            others = (0..4).map(|_| spinning()).collect();
            let output = run(3, &[], Path::new("sh"), &["-c", &late]);
            assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "fine\n".repeat(3)), "{output:?}");
        }
    }
    drop(others);
}

/// What else a machine has to do. It ends with the test, and has no descriptor of it.
fn spinning() -> Running {
    let mut command = Command::new("nice");
    command.args(["sh", "-c", "ulimit -t 60; while :; do :; done"]);
    Running::start(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null())).unwrap()
}

fn is_gone(process: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// Killed, it ends no rank. They do so themselves, whether they compute or wait, and whether or not a shell stands between; one says why.
#[test]
fn a_killed_launcher_takes_its_ranks_along() {
    let program = compiled("ends");
    for (ranks, how) in [(1, "spin"), (3, "spin"), (3, "wait")] {
        let said = program.with_extension(format!("said-{ranks}-{how}"));
        let script = format!("{} {how} 2>>{}; true", program.display(), said.display());
        let mut job = mpirun(ranks, &["sh", "-c", &script]);
        let mut job = Running::start(job.stdout(Stdio::piped()).stderr(Stdio::null())).unwrap();
        let mut lines = BufReader::new(job.stdout.take().unwrap()).lines().map(Result::unwrap);
        let processes: Vec<i32> = (0..ranks).map(|_| lines.next().expect("a rank's process").parse().unwrap()).collect();
        // `timeout` has one child, which is the launcher.
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", job.id())).unwrap();
        // SAFETY: a process of the job just started.
        assert_eq!(unsafe { libc::kill(children.trim().parse().unwrap(), libc::SIGKILL) }, 0);
        job.wait().unwrap();
        let limit = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while !processes.iter().all(|process| is_gone(*process)) {
            assert!(std::time::Instant::now() < limit, "{ranks} {how}: {processes:?}");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let said = std::fs::read_to_string(said).unwrap();
        assert_eq!(
            said.matches("shunt: the launcher of this job has gone; the job is over\n").count(),
            1,
            "{ranks} {how}: {said}"
        );
    }
}

/// What it does not know a program may close, the connection to its launcher among it.
#[test]
fn a_program_may_close_what_it_does_not_know() {
    let program = compiled("ends");
    for how in ["close", "close-early"] {
        let output = run(2, &[], &program, &[how]);
        assert_ne!(output.status.code(), Some(124), "{how}: {output:?}");
        assert_eq!(text(&output.stdout).matches("closed\n").count(), 2, "{how}: {output:?}");
    }
}

#[test]
fn jobs_end_with_a_sentence_and_a_status() {
    let program = compiled("ends");
    let rows: [(&str, i32, &str); 11] = [
        ("", 0, ""),
        ("never", 0, ""),
        ("twice", 0, ""),
        ("before", 5, "Exit code:    5"),
        ("kill", 137, "exited on signal 9"),
        ("segv", 139, "exited on signal 11"),
        ("exit", 7, "Exit code:    7"),
        ("leave", 1, "exiting improperly"),
        ("global", 9, ""),
        ("global0", 0, ""),
        ("rank", 1, "shunt: rank 3: shmem_long_p: there is no rank 4 among 4"),
    ];
    for (how, status, sentence) in rows {
        let output = run(4, &[], &program, &[how]);
        let said = text(&output.stderr) + &text(&output.stdout);
        assert_eq!(output.status.code(), Some(status), "{how}: {said}");
        assert!(said.contains(sentence), "{how}: {said}");
    }
}

/// Told to go on when a rank dies, the launcher leaves it to the ranks to notice, whichever it is. Its own status is 0 then.
#[test]
fn a_death_that_the_launcher_ignores_is_noticed() {
    let program = compiled("ends");
    for victim in [0, 1, 3] {
        // The shell of a rank becomes the rank's process.
        let script = format!("echo $PMIX_RANK $$; exec {} storm", program.display());
        let mut job = mpirun(4, &["--enable-recovery", "sh", "-c", &script]);
        let mut job = Running::start(job.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap();
        let mut processes = [0; 4];
        let mut lines = BufReader::new(job.stdout.take().unwrap()).lines().map(Result::unwrap);
        let (mut up, mut known) = (false, 0);
        while !up || known < 4 {
            let line = lines.next().expect("four ranks and a sign of life");
            match line.split_once(' ') {
                Some((rank, process)) => {
                    processes[rank.parse::<usize>().unwrap()] = process.parse().unwrap();
                    known += 1;
                }
                None => up = line == "up",
            }
        }
        // SAFETY: a process of the job just started.
        assert_eq!(unsafe { libc::kill(processes[victim], libc::SIGKILL) }, 0);
        let output = job.wait_with_output().unwrap();
        let said = text(&output.stderr);
        assert!(
            said.contains(&format!("shunt: rank {victim} ended without having finalized; the job is over")),
            "{victim}: {said}"
        );
        assert_ne!(output.status.code(), Some(124), "{victim}: {output:?}");
    }
}

/// What the variables name does not answer, or the library is not there.
#[test]
fn without_a_server_or_a_library_it_is_said() {
    let program = compiled("types");
    let start = |command: &mut Command| {
        let variables = [("PMIX_NAMESPACE", "x"), ("PMIX_RANK", "0"), ("PMIX_SERVER_URI2", "x.0;tcp4://127.0.0.1:1")];
        command.envs(variables).output().unwrap()
    };
    let output = start(Command::new("timeout").arg("60").arg(&program).env_remove("SHUNT_SPMD"));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text(&output.stderr).contains("shunt: start: PMIx: PMIx_Init answered"), "{output:?}");
    let output = start(Command::new("timeout").arg("60").arg(&program).env("SHUNT_SPMD", "alone"));
    assert_eq!(text(&output.stdout), "fine\n", "{output:?}");
    // In a namespace of its own, the library's file is empty.
    let script = format!("for f in /usr/lib/*/libpmix.so.2; do mount --bind /dev/null $f; done; exec {}", program.display());
    let output = start(Command::new("timeout").args(["60", "unshare", "-rm", "sh", "-c", &script]).env_remove("SHUNT_SPMD"));
    assert_eq!(text(&output.stdout), "fine\n", "{output:?}");
    assert_eq!(text(&output.stderr).matches("a job of one; install libpmix2").count(), 1, "{output:?}");
}
