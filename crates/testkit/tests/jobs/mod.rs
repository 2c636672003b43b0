//! Programs of OpenSHMEM, compiled with shunt-shmemcc, and jobs of them, on this host and on two.
#![allow(dead_code, reason = "each test program uses some of it")]

use shunt_testkit::running::Running;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

pub fn built(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release").join(name);
    assert!(path.exists(), "{} is missing; run: make build", path.display());
    path.canonicalize().unwrap()
}

pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shmem/tests/programs").join(name)
}

pub fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("shunt-spmd-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    })
}

/// Compiles a program under a name of its own.
pub fn compiled_as(name: &str, compiler: &str, options: &[&str], from: &Path) -> PathBuf {
    let program = scratch().join(name);
    let mut command = Command::new(built(compiler));
    command.args(options).args(["-O1", "-Wall", "-Wextra"]).arg(from).arg("-o").arg(&program).args(["-lpthread", "-lm"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

pub fn compiled(name: &str) -> PathBuf {
    let test = std::thread::current().name().unwrap_or("main").replace("::", "-");
    compiled_as(&format!("{test}-{name}"), "shunt-shmemcc", &["-std=gnu11", "-Werror"], &source(&format!("{name}.c")))
}

pub fn job(ranks: usize, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(built("shunt"));
    command.args(["spmd", "-n", &ranks.to_string(), "--"]).arg(program).args(arguments);
    command
}

pub fn run(ranks: usize, program: &Path, arguments: &[&str]) -> Output {
    job(ranks, program, arguments).output().unwrap()
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn is_fine(ranks: usize, program: &Path) {
    let output = run(ranks, program, &[]);
    assert!(output.status.success(), "{} ranks: {output:?}", ranks);
    assert_eq!(text(&output.stdout), "fine\n", "{} ranks of {}", ranks, program.display());
}

/// With its output to be read; it ends with the test at the latest.
pub fn running(job: &mut Command) -> Running {
    Running::start(job.stdout(Stdio::piped()).stderr(Stdio::piped())).unwrap()
}

pub fn started(job: &mut Command, ranks: usize) -> (Running, Vec<i32>) {
    let mut child = running(job);
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let processes: Vec<i32> = children.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert_eq!(processes.len(), ranks);
    (child, processes)
}

pub fn is_gone(process: i32) -> bool {
    // SAFETY: signal 0 asks only whether the process exists.
    unsafe { libc::kill(process, 0) != 0 }
}

/// `shunt spmd` over two network namespaces joined by a cable; none, said loudly, where they are not to be had.
pub struct Apart {
    _hosts: [shunt_testkit::hosts::Host; 2],
    pub names: [String; 2],
    _files: [std::fs::File; 2],
}

impl Apart {
    pub fn new() -> Option<Apart> {
        use std::os::fd::AsRawFd;
        let hosts = match shunt_testkit::hosts::pair(Default::default()) {
            Ok(hosts) => hosts,
            Err(why) => {
                eprintln!("SKIPPED: {why}");
                return None;
            }
        };
        let files = [0, 1].map(|at: usize| hosts[at].enter(|| std::fs::File::open("/proc/thread-self/ns/net").unwrap()));
        let names = [0, 1].map(|at: usize| format!("/proc/{}/fd/{}", std::process::id(), files[at].as_raw_fd()));
        Some(Apart { _hosts: hosts, names, _files: files })
    }

    pub fn job(&self, shares: [usize; 2], arguments: &[&str]) -> Command {
        let list: Vec<String> = self
            .names
            .iter()
            .zip(shares)
            .filter(|(_, ranks)| *ranks > 0)
            .map(|(name, ranks)| format!("{name}:{ranks}"))
            .collect();
        let mut command = Command::new(built("shunt"));
        command.args(["spmd", "--rsh", "nsenter --net={host}", "--hosts", &list.join(",")]).args(arguments);
        command
    }
}
