//! Programs of OpenSHMEM, compiled with shunt-shmemcc and started by `shunt spmd`: what they compute, and how jobs end.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

fn built(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release").join(name);
    assert!(path.exists(), "{} is missing; run: make build", path.display());
    path.canonicalize().unwrap()
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shmem/tests/programs").join(name)
}

fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        let path = std::env::temp_dir().join(format!("shunt-spmd-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    })
}

/// Compiles a program under a name of its own.
fn compiled_as(name: &str, compiler: &str, options: &[&str], from: &Path) -> PathBuf {
    let program = scratch().join(name);
    let mut command = Command::new(built(compiler));
    command.args(options).args(["-O1", "-Wall", "-Wextra"]).arg(from).arg("-o").arg(&program).args(["-lpthread", "-lm"]);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn compiled(name: &str) -> PathBuf {
    let test = std::thread::current().name().unwrap_or("main").replace("::", "-");
    compiled_as(&format!("{test}-{name}"), "shunt-shmemcc", &["-std=gnu11", "-Werror"], &source(&format!("{name}.c")))
}

fn job(ranks: usize, program: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(built("shunt"));
    command.args(["spmd", "-n", &ranks.to_string(), "--"]).arg(program).args(arguments);
    command
}

fn run(ranks: usize, program: &Path, arguments: &[&str]) -> Output {
    job(ranks, program, arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_fine(ranks: usize, program: &Path) {
    let output = run(ranks, program, &[]);
    assert!(output.status.success(), "{} ranks: {output:?}", ranks);
    assert_eq!(text(&output.stdout), "fine\n", "{} ranks of {}", ranks, program.display());
}

/// The same with options of the launcher.
fn is_fine_with(ranks: usize, options: &[&str], program: &Path) {
    let mut command = Command::new(built("shunt"));
    command.args(["spmd", "-n", &ranks.to_string()]).args(options).arg("--").arg(program);
    let output = command.output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "fine\n".into()), "{output:?}");
}

#[test]
fn programs_compute_what_they_should() {
    for name in ["types", "generics", "teams", "reuse", "forks", "roomless", "profile", "threads"] {
        let program = compiled(name);
        for ranks in [1, 2, 3, 5, 8] {
            is_fine(ranks, &program);
        }
        let alone = Command::new(&program).output().unwrap();
        assert!(alone.status.success() && alone.stdout == b"fine\n", "{name}: {alone:?}");
    }
}

#[test]
fn the_static_library_does_the_same() {
    for name in ["types", "forks", "profile"] {
        // The language is said for what follows, which is the program alone.
        let program =
            compiled_as(&format!("static-{name}"), "shunt-shmemcc", &["--static", "-x", "c"], &source(&format!("{name}.c")));
        is_fine(3, &program);
    }
}

/// The header stands alone in older C, and in C++.
#[test]
fn the_header_is_of_all_dialects() {
    let program = r#"#include <mpp/shmem.h>
    int main() { start_pes(0); int *p = (int *)shmalloc(4); *p = 1; shmem_barrier_all(); shmem_int_p(p, 2, _my_pe()); int v = *p; shfree(p); return v == 2 ? 0 : 1; }"#;
    for (compiler, standard, name) in [
        ("shunt-shmemcc", "-std=c99", "dialect.c"),
        ("shunt-shmemcc", "-std=c17", "dialect.c"),
        ("shunt-shmemc++", "-std=c++11", "dialect.cc"),
        ("shunt-shmemc++", "-std=c++20", "dialect.cc"),
    ] {
        let from = scratch().join(name);
        std::fs::write(&from, program).unwrap();
        let output = run(2, &compiled_as("dialect", compiler, &[standard, "-Werror"], &from), &[]);
        assert!(output.status.success(), "{standard}: {output:?}");
    }
}

/// Split-C's header is one of C and of C++.
#[test]
fn split_c_s_operations_do_what_they_should() {
    let cc = scratch().join("split.cc");
    std::fs::write(&cc, format!("#include \"{}\"\n", source("split.c").display())).unwrap();
    let programs = [
        compiled_as("split-c", "shunt-shmemcc", &["-std=gnu11", "-Werror"], &source("split.c")),
        compiled_as("split-cc", "shunt-shmemc++", &["-std=gnu++17", "-Werror"], &cc),
    ];
    for program in programs {
        for ranks in [1, 2, 3, 5] {
            is_fine(ranks, &program);
        }
    }
}

/// As other compilers of OpenSHMEM are asked and called: variables that waits and locks take may be volatile, and programs may be static of all kinds.
#[test]
fn the_compiler_takes_what_others_take() {
    let ask = |what: &str| text(&Command::new(built("shunt-shmemcc")).arg(what).output().unwrap().stdout);
    assert!(ask("--showme:compile").starts_with("-I/") && ask("-showme:link").ends_with("-lshunt_shmem\n"));
    assert!(ask("--showme:version").contains("OpenSHMEM 1.5") && ask("--showme:libs") == "shunt_shmem\n");
    let program = r#"#include <shmem.h>
    static volatile long word, lock;
    static volatile int count;
    int main() {
        shmem_init();
        shmem_long_p((long *)&word, 1, shmem_my_pe());
        shmem_long_wait_until(&word, SHMEM_CMP_EQ, 1);
        shmem_set_lock(&lock), shmem_clear_lock(&lock);
        int taken = shmem_test_lock(&lock) == 0;
        if (taken) shmem_clear_lock(&lock);
        int ready = shmem_int_test(&count, SHMEM_CMP_EQ, 0);
        shmem_finalize();
        return ready && word ? 0 : 1;
    }"#;
    for (compiler, name, options) in [
        ("shunt-shmemc++", "volatile.cc", &["-std=c++98", "-pedantic"][..]),
        ("shunt-shmemcc", "volatile.c", &["-std=c99", "-pedantic"]),
        ("shunt-shmemcc", "volatile.c", &["-static"]),
        ("shunt-shmemcc", "volatile.c", &["-static-pie"]),
        ("shunt-shmemcc", "volatile.c", &["--static", "-static-pie"]),
    ] {
        let from = scratch().join(name);
        std::fs::write(&from, program).unwrap();
        let options = [options, &["-Werror"]].concat();
        let output = run(2, &compiled_as("volatile", compiler, &options, &from), &[]);
        assert!(output.status.success(), "{options:?}: {output:?}");
    }
}

/// U-Net's seven programs with small sizes and awkward numbers of processors; each checks its answer.
#[test]
fn the_seven_programs_are_right() {
    let rows: [(&str, &[&str]); 13] = [
        ("matrix", &["4", "16"]),
        ("matrix", &["5", "7"]),
        ("sample-sort", &["small", "20000"]),
        ("sample-sort", &["small", "20000", "equal"]),
        ("sample-sort", &["bulk", "20000"]),
        ("sample-sort", &["bulk", "20000", "sorted"]),
        ("sample-sort", &["bulk", "20000", "zipf"]),
        ("radix-sort", &["small", "20000"]),
        ("radix-sort", &["bulk", "20000", "zipf"]),
        ("radix-sort", &["bulk", "20000", "sorted"]),
        ("components", &["50", "50"]),
        ("components", &["33", "60"]),
        ("gradient", &["40", "30"]),
    ];
    for (name, arguments) in rows {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../examples/split-c/{name}.c"));
        let program = compiled_as(name, "shunt-shmemcc", &["-std=gnu11", "-Werror"], &from);
        for ranks in [1, 2, 3, 4, 8] {
            let output = run(ranks, &program, arguments);
            let said = text(&output.stdout);
            assert!(output.status.success() && said.ends_with("right\n"), "{name} {arguments:?} of {ranks}: {output:?}");
        }
    }
}

/// Installed, the compiler script and pkg-config find what they need.
#[test]
fn what_is_installed_works() {
    let place = scratch().join("installed");
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let prefix = format!("PREFIX={}", place.display());
    let output = Command::new("make").current_dir(&root).args(["-s", "install", &prefix]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let program = scratch().join("types-installed");
    let compiled = Command::new(place.join("bin/shunt-shmemcc")).arg(source("types.c")).arg("-o").arg(&program).output().unwrap();
    assert!(compiled.status.success(), "{}", text(&compiled.stderr));
    let output = Command::new(place.join("bin/shunt")).args(["spmd", "-n", "2", "--"]).arg(&program).output().unwrap();
    assert_eq!(text(&output.stdout), "fine\n");
    let description = std::fs::read_to_string(place.join("lib/pkgconfig/shunt-shmem.pc")).unwrap();
    assert!(description.contains(&format!("prefix={}", place.display())) && !description.contains('@'));
}

/// Every function of the header can be linked, under both of its names, and nothing else of ours is exported.
#[test]
fn the_header_and_the_library_have_the_same_functions() {
    let header = std::fs::read_to_string(source("../../include/shmem.h")).unwrap();
    let prototypes = header.lines().filter(|line| {
        line.ends_with(';') && line.contains('(') && !line.starts_with(['#', ' ', '/', 't']) && !line.starts_with("extern")
    });
    let declared: BTreeSet<String> = prototypes
        .map(|line| {
            let before = line.split('(').next().unwrap();
            before.rsplit([' ', '*']).next().unwrap().to_owned()
        })
        .collect();
    assert!(declared.len() > 3000, "{}", declared.len());
    let symbols = Command::new("nm").args(["-D", "--defined-only"]).arg(built("libshunt_shmem.so")).output().unwrap();
    let exported: BTreeSet<String> =
        text(&symbols.stdout).lines().filter_map(|line| line.split_whitespace().nth(2)).map(str::to_owned).collect();
    let missing: Vec<_> = declared.difference(&exported).collect();
    let unknown: Vec<_> = exported.difference(&declared).filter(|name| *name != "rust_eh_personality").collect();
    assert!(missing.is_empty() && unknown.is_empty(), "missing {missing:?}, unknown {unknown:?}");
}

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

/// What a wrong address or call was compared with is in the sentence. Calls of the heap are compared only if it is asked for.
#[test]
fn wrong_calls_are_told_with_what_would_be_right() {
    let program = compiled("wrong");
    let rows = [
        ("", "1", ""),
        ("sizes", "0", ""),
        ("sizes", "1", "rank 1: shmem_malloc: 5056 bytes, offset 64; rank 0 calls it with 128 bytes, offset 64"),
        ("calls", "1", "rank 1: shmem_malloc: rank 0 is in another call of the symmetric heap"),
        ("stack", "", "are not in symmetric memory (neither in the heap, 0x"),
        ("behind", "", "shmem_putmem: 8 bytes at 0x"),
        ("data", "", "of static data)"),
        ("lock", "", "shmem_set_lock: an atomic operation of 8 bytes at 0x"),
        ("member", "", "shmem_ctx_long_p: there is no rank 1 among the 1 of the context's team"),
        ("above", "", "for rank 1 are not allocated (offset 1048640 of a heap of 67108864 bytes; the last object before that is 40 bytes at offset 64)"),
        ("end", "", "8 bytes at 0x"),
        ("wait", "", "shmem_int_wait_until: 4 bytes at 0x"),
        ("test", "", "shmem_int_test_all: 4 bytes at 0x"),
    ];
    for (how, debug, sentence) in rows {
        let output = job(2, &program, &[how]).env("SHMEM_SYMMETRIC_SIZE", "64M").env("SHMEM_DEBUG", debug).output().unwrap();
        let (said, right) = (text(&output.stderr), sentence.is_empty());
        assert_eq!(output.status.code(), Some(if right { 0 } else { 1 }), "{how}: {said}");
        assert!(said.contains(sentence) && said.is_empty() == right, "{how}: {said}");
    }
}

/// With --check an address must be within one object that is allocated.
#[test]
fn addresses_are_looked_up_if_it_is_asked_for() {
    let program = compiled("wrong");
    let rows = [
        ("", ""),
        ("freed", "shmem_int_g: 4 bytes at 0x"),
        ("padding", "for rank 1 are not allocated (offset 60 of a heap of 67108864 bytes; no object is before that)"),
        ("above", "the last object before that is 40 bytes at offset 64)"),
        ("wait", "shmem_int_wait_until: 4 bytes at 0x"),
    ];
    for (how, sentence) in rows {
        let mut command = Command::new(built("shunt"));
        command.args(["spmd", "-n", "2", "--heap", "64M", "--check", "--"]).arg(&program).arg(how);
        let output = command.output().unwrap();
        let (said, right) = (text(&output.stderr), sentence.is_empty());
        assert_eq!(output.status.code(), Some(if right { 0 } else { 1 }), "{how}: {said}");
        assert!(said.contains(sentence) && said.is_empty() == right, "{how}: {said}");
        // Otherwise only what is behind all objects is found.
        if ["freed", "padding"].contains(&how) {
            assert!(run(2, &program, &["freed"]).status.success());
        }
    }
    is_fine_with(2, &["--check"], &compiled("types"));
}

/// Heaps of no process, by whatever way they are asked for, and limits of files' sizes.
#[test]
fn heaps_that_cannot_be_had_are_refused_with_a_sentence() {
    let program = compiled("ends");
    for (size, limit) in [("16777216T", "unlimited"), ("5592405.3333344245T", "unlimited"), ("1G", "1000")] {
        let script = format!("ulimit -f {limit}; exec \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, "sh"]).arg(built("shunt")).args(["spmd", "-n", "3", "--"]).arg(&program);
        let output = command.env("SHMEM_SYMMETRIC_SIZE", size).output().unwrap();
        let said = text(&output.stderr);
        assert!(output.status.code().is_some_and(|status| status != 0 && status < 128), "{size}: {output:?}");
        assert!(said.contains("no process has address space") || said.contains("ulimit -f"), "{size}: {said}");
    }
    let output = Command::new(&program).env("SHMEM_SYMMETRIC_SIZE", "16777216T").output().unwrap();
    assert!(text(&output.stderr).contains("no process has address space"), "{output:?}");
}

/// More of them than there may be teams; and arrays that a compiler puts apart.
#[test]
fn all_active_sets_and_all_data_are_there() {
    is_fine(24, &compiled("sets"));
    let large = ["-mcmodel=medium", "-mlarge-data-threshold=65536"];
    for (name, position) in [("sets-pie", "-pie"), ("sets-no-pie", "-no-pie")] {
        let how = [large[0], large[1], if position == "-pie" { "-fPIE" } else { "-fno-pie" }, position];
        is_fine(3, &compiled_as(name, "shunt-shmemcc", &how, &source("sets.c")));
    }
}

/// A script's programs, one after the other, are the same ranks.
#[test]
fn programs_may_follow_each_other() {
    let program = compiled("types");
    let script = format!("{0} && {0} && {0}", program.display());
    for ranks in [2, 3] {
        let output = run(ranks, Path::new("/bin/sh"), &["-c", &script]);
        assert_eq!(text(&output.stdout), "fine\n".repeat(3), "{output:?}");
    }
}

/// Programs that destroy none of their teams: each has as many as ever, though a job has room for 256 at a time.
#[test]
fn teams_end_with_their_program() {
    let program = compiled("reuse");
    let script = format!("for i in 1 2 3 4 5 6 7; do {0} leave || exit 1; done; exec {0}", program.display());
    for ranks in [2, 3] {
        let output = run(ranks, Path::new("/bin/sh"), &["-c", &script]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "fine\n".repeat(8)), "{output:?}");
    }
}

#[test]
fn a_program_that_cannot_start_is_named() {
    let output = run(2, Path::new("/nonexistent/program"), &[]);
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output.stderr).contains("/nonexistent/program"));
}

/// By a launcher without standard input, or with few descriptors.
#[test]
fn jobs_start_in_poor_surroundings() {
    let program = compiled("ends");
    for how in ["exec \"$@\" <&-", "exec \"$@\" <&- >&- 2>&-", "ulimit -n 20; exec \"$@\""] {
        let mut command = Command::new("sh");
        command.args(["-c", how, "sh"]).arg(built("shunt")).args(["spmd", "-n", "3", "--"]).arg(&program).arg("");
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{how}: {output:?}");
    }
}

/// By a launcher whose own parent ignores signals, as `nohup` does, and shells for what runs in the background.
#[test]
fn signals_that_are_ignored_stay_so() {
    let program = compiled("ends");
    let started = |ignored: &str, how: &str| {
        let mut command = Command::new("env");
        command
            .arg(format!("--ignore-signal={ignored}"))
            .arg(built("shunt"))
            .args(["spmd", "-n", "2", "--"])
            .arg(&program)
            .arg(how);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let output = started("CHLD", "").wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let mut child = started("HUP,INT", "storm");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    // The last of them alone has an effect.
    for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGTERM] {
        // SAFETY: a process that this test has started.
        unsafe { libc::kill(child.id() as i32, signal) };
    }
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(128 + libc::SIGTERM), "{output:?}");
}

/// Nobody reads what the ranks have written, and the job ends all the same.
#[test]
fn a_reader_that_does_not_read_holds_nothing_up() {
    let mut command = Command::new(built("shunt"));
    command
        .args(["spmd", "-n", "2", "--label", "--", "sh", "-c", "echo up >&2; yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let (unread, mut said) = (child.stdout.take(), BufReader::new(child.stderr.take().unwrap()));
    (0..2).for_each(|_| assert!(said.read_line(&mut String::new()).unwrap() > 0));
    // SAFETY: a process that this test has started.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    assert_eq!(child.wait().unwrap().code(), Some(128 + libc::SIGTERM));
    drop(unread);
}

#[test]
fn lines_are_labelled() {
    let mut command = Command::new(built("shunt"));
    let output = command.args(["spmd", "-n", "3", "--label", "--", "sh", "-c", "echo one; echo two >&2"]).output().unwrap();
    let sorted = |bytes: &[u8]| text(bytes).lines().map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    assert_eq!(sorted(&output.stdout), ["[0] one", "[1] one", "[2] one"]);
    assert_eq!(sorted(&output.stderr), ["[0] two", "[1] two", "[2] two"]);
}

/// A job that has started, and its ranks' processes.
fn storm(program: &Path, ranks: usize) -> (Child, Vec<i32>) {
    started(&mut job(ranks, program, &["storm"]), ranks)
}

fn started(job: &mut Command, ranks: usize) -> (Child, Vec<i32>) {
    let mut child = job.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let processes: Vec<i32> = children.split_whitespace().map(|number| number.parse().unwrap()).collect();
    assert_eq!(processes.len(), ranks);
    (child, processes)
}

fn is_gone(process: i32) -> bool {
    // SAFETY: signal 0 asks only whether the process exists.
    unsafe { libc::kill(process, 0) != 0 }
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

/// What each rank waits for, as the ranks have written it before they slept: looked at until all sleep.
#[test]
fn the_view_tells_what_ranks_wait_for() {
    let program = compiled("waits");
    let mut job = job(4, &program, &[]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(job.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    let wanted = [
        "barrier of ranks 0 to 3; not there: ranks 1 to 3",
        "-",
        "a lock that rank 1 has",
        "a value at offset 0x0 of the own heap",
    ];
    let limit = std::time::Instant::now() + std::time::Duration::from_secs(60);
    let number = job.id().to_string();
    let view = || Command::new(built("shunt")).args(["spmd", "--view", &number]).output().unwrap();
    loop {
        let said = text(&view().stdout);
        let rows: Vec<&str> = said.lines().skip(1).collect();
        if rows.len() == 4 && rows.iter().zip(wanted).all(|(row, wait)| row.contains("runs") && row.trim_end().ends_with(wait)) {
            break;
        }
        assert!(std::time::Instant::now() < limit, "{said}");
    }
    // SAFETY: a process that this test has started.
    unsafe { libc::kill(job.id() as i32, libc::SIGTERM) };
    job.wait().unwrap();
    let output = view();
    assert!(text(&output.stderr).contains("there is no process"), "{output:?}");
}

/// Runs `traced.c` on three ranks, traced; how it ended, and the file.
fn traced(how: &str) -> (Output, serde_json::Value) {
    let program = compiled("traced");
    let file = scratch().join(format!("trace-{how}.json"));
    let mut command = Command::new(built("shunt"));
    command.args(["spmd", "-n", "3", "--trace"]).arg(&file).arg("--").arg(&program).arg(how);
    let output = command.output().unwrap();
    (output, serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap())
}

/// Nanoseconds of a number of microseconds with three digits behind the point.
fn nanoseconds(value: &serde_json::Value) -> i64 {
    (value.as_f64().unwrap() * 1000.0).round() as i64
}

/// The events of a rank's track: names, begin and end; those that cross are refused here.
fn events(trace: &serde_json::Value, rank: usize) -> Vec<(String, i64, i64, serde_json::Value)> {
    let of_rank = |event: &&serde_json::Value| event["tid"] == rank && event["ph"] == "X";
    let events: Vec<_> = trace["traceEvents"].as_array().unwrap().iter().filter(of_rank).collect();
    let event = |event: &&serde_json::Value| {
        let (begin, length) = (nanoseconds(&event["ts"]), nanoseconds(&event["dur"]));
        assert!(begin >= 0 && length >= 0, "{event}");
        (event["name"].as_str().unwrap().to_owned(), begin, begin + length, event["args"].clone())
    };
    let events: Vec<_> = events.iter().map(event).collect();
    for (at, (name, begin, end, _)) in events.iter().enumerate() {
        // Ordered by their ends: the next few are enough, and a trace may have many.
        for (other, later, last, _) in events[at + 1..].iter().take(20) {
            assert!(end <= last && (end <= later || later <= begin), "{name} and {other} of rank {rank}");
        }
    }
    events
}

#[test]
fn a_trace_tells_what_each_rank_did() {
    let (output, trace) = traced("whole");
    assert!(output.status.success() && output.stdout == b"fine\n", "{output:?}");
    assert_eq!(trace["otherData"], serde_json::json!({ "ranks": 3, "lost": [0, 0, 0], "refused": [0, 0, 0] }));
    for rank in 0..3 {
        let named = |event: &serde_json::Value| event["tid"] == rank && event["args"]["name"] == format!("rank {rank}");
        assert!(trace["traceEvents"].as_array().unwrap().iter().any(named), "{trace}");
        let events = events(&trace, rank);
        let find =
            |name: &str| -> Vec<_> { events.iter().filter(|event| event.0 == name).map(|event| event.3.clone()).collect() };
        let next = (rank + 1) % 3;
        let all = serde_json::json!({ "start": 0, "stride": 1, "size": 3 });
        assert!(find("barrier").len() > 3 && find("barrier").iter().all(|group| *group == all), "{trace}");
        assert_eq!(find("sync"), std::slice::from_ref(&all));
        for name in ["put", "get"] {
            assert_eq!(find(name), [serde_json::json!({ "bytes": 65536, "rank": next })], "{name}");
        }
        let waits = find("wait_until");
        assert_eq!(waits.len(), 2, "{waits:?}");
        // The signal is the second word of what was allocated after 64 KiB.
        assert!(waits[0]["offset"].as_u64().unwrap() >= 65536 + 8 && waits[1]["static_offset"].is_u64(), "{waits:?}");
        let lock = find("set_lock");
        assert!(lock.len() == 1 && lock[0]["static_offset"].is_u64(), "{lock:?}");
        assert_eq!(find("reduce"), [serde_json::json!({ "start": 0, "stride": 1, "size": 3, "bytes": 8 })]);
    }
}

#[test]
fn a_trace_counts_what_it_lost() {
    let (output, trace) = traced("many");
    assert!(output.status.success(), "{output:?}");
    for rank in 0..3 {
        let events = events(&trace, rank);
        assert_eq!(events.len(), 65536);
        assert!(trace["otherData"]["lost"][rank].as_u64().unwrap() > 2 * 40000 - 65536);
        assert_eq!(trace["otherData"]["refused"][rank], 0);
    }
}

#[test]
fn a_killed_rank_leaves_a_trace() {
    let (output, trace) = traced("kill");
    assert_eq!(output.status.code(), Some(137), "{output:?}");
    for rank in 0..3 {
        let events = events(&trace, rank);
        for name in ["barrier", "put", "wait_until", "set_lock"] {
            assert!(events.iter().any(|event| event.0 == name), "{name} of rank {rank}");
        }
    }
}

#[test]
fn a_trace_that_cannot_be_written_is_refused_before_the_start() {
    let refused = |words: &[&str]| {
        let output = Command::new(built("shunt")).arg("spmd").args(words).args(["--", "echo", "started"]).output().unwrap();
        assert!(!output.status.success() && output.stdout.is_empty(), "{output:?}");
        text(&output.stderr)
    };
    let said = refused(&["-n", "2", "--trace", "/no/such/directory/file"]);
    assert!(said.contains("--trace /no/such/directory/file: cannot be written") && said.lines().count() == 1, "{said}");
    let said = refused(&["--hosts", "a:1,b:1", "--trace", "file"]);
    assert!(said.contains("--trace is not there for jobs with --hosts"), "{said}");
    let output = Command::new(built("shunt")).args(["spmd", "--view", "1", "--trace", "file"]).output().unwrap();
    assert!(output.status.code() == Some(2) && text(&output.stderr).contains("--trace"), "{output:?}");
    let full = Command::new(built("shunt")).args(["spmd", "-n", "1", "--trace", "/dev/full", "--", "true"]).output().unwrap();
    assert!(full.status.code() == Some(1) && text(&full.stderr).contains("cannot be written"), "{full:?}");
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

/// `shunt spmd` over two network namespaces joined by a cable; none, said loudly, where they are not to be had.
struct Apart {
    _hosts: [shunt_testkit::hosts::Host; 2],
    names: [String; 2],
    _files: [std::fs::File; 2],
}

impl Apart {
    fn new() -> Option<Apart> {
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

    fn job(&self, shares: [usize; 2], arguments: &[&str]) -> Command {
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

/// Ranks on two hosts: each where it should be, with output in whole lines, arguments, directory and variables.
#[test]
fn ranks_start_on_their_hosts() {
    let Some(apart) = Apart::new() else { return };
    let script = "echo $(pwd) \"$1\" $SHMEM_SAMPLE $(ip -br -4 addr show up | grep -o '10.77.0.[12]'); echo two >&2";
    let mut command = apart.job([2, 1], &["--label", "--", "sh", "-c", script, "sh", "a  b"]);
    let output = command.env("SHMEM_SAMPLE", "v").current_dir("/usr").output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let sorted = |bytes: &[u8]| text(bytes).lines().map(str::to_owned).collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
    let lines = ["[0] /usr a  b v 10.77.0.1", "[1] /usr a  b v 10.77.0.1", "[2] /usr a  b v 10.77.0.2"];
    assert_eq!(sorted(&output.stdout), lines);
    assert_eq!(sorted(&output.stderr), ["[0] two", "[1] two", "[2] two"]);
    // More than a frame and more than a pipe holds.
    let output = apart.job([1, 1], &["--", "head", "-c", "3000000", "/dev/zero"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 6_000_000));
}

/// A job whose ranks all live on another host shares a heap there, as one of both hosts does (`spmd_hosts.rs`).
#[test]
fn a_heap_on_another_host() {
    let Some(apart) = Apart::new() else { return };
    let program = compiled("types").display().to_string();
    let output = apart.job([0, 3], &["--", &program]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "fine\n".into()), "{output:?}");
    let output = apart.job([1, 1], &["--", &program]).output().unwrap();
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(0), "fine\n".into()), "{output:?}");
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
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
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

#[test]
fn hosts_that_cannot_start_are_named() {
    let Some(apart) = Apart::new() else { return };
    let output = apart.job([1, 1], &["--", "/nonexistent/program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    assert!(text(&output.stderr).contains(&format!("host {}", apart.names[0])) || text(&output.stderr).contains(&apart.names[1]));
    for (rsh, sentence) in [
        ("/nonexistent/rsh", "host left: cannot run /nonexistent/rsh"),
        ("false", "the agent on host left was lost"),
        ("echo", "what host left says is no agent's"),
    ] {
        let output = Command::new(built("shunt")).args(["spmd", "--rsh", rsh, "--hosts", "left", "--", "true"]).output().unwrap();
        assert_ne!(output.status.code(), Some(0));
        assert!(text(&output.stderr).contains(sentence), "{rsh}: {output:?}");
    }
}

/// Output that cannot be written is an error in words, whichever host it came from.
#[test]
fn output_that_cannot_be_written_is_an_error() {
    let check = |mut command: Command| {
        let output = command.stdout(std::fs::File::create("/dev/full").unwrap()).stderr(Stdio::piped()).spawn().unwrap();
        let output = output.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(text(&output.stderr).contains("the ranks' output cannot be written: No space left on device"), "{output:?}");
    };
    let mut command = Command::new(built("shunt"));
    command.args(["spmd", "-n", "2", "--label", "--", "echo", "words"]);
    check(command);
    let mut command = Command::new(built("shunt"));
    command.args(["spmd", "-n", "2", "--label", "--", "sh", "-c", "yes"]);
    check(command);
    if let Some(apart) = Apart::new() {
        check(apart.job([1, 1], &["--", "sh", "-c", "yes"]));
    }
}
