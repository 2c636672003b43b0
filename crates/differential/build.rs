//! Compiles the scenarios, which are C programs over the libc API, into two dynamically linked multi-call binaries:
//! a plain one, and a fortified one whose calls reach libc under their `_chk` and `64` names.
//!
//! Every source has an object file of its own, compiled again when the source or the header is newer: whoever changes one scenario waits
//! for one compilation and two links.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

const COMMON: &[&str] = &[
    "-std=gnu11",
    "-D_GNU_SOURCE",
    "-g",
    "-Wall",
    "-Wextra",
    "-Wno-unused-parameter",
    "-Wno-unused-result",
    "-Wno-nonnull",
    "-pthread",
    "-Iscenarios",
];

/// A binary: its name, the flags of its own, and the variable that tells the crate where it is.
const BINARIES: &[(&str, &[&str], &str)] = &[
    ("scenarios", &["-O1"], "SHUNT_SCENARIOS"),
    // With exceptions cancellation unwinds the stack, as in C++.
    (
        "scenarios-fortified",
        &["-O2", "-D_FORTIFY_SOURCE=2", "-D_FILE_OFFSET_BITS=64", "-fexceptions"],
        "SHUNT_SCENARIOS_FORTIFIED",
    ),
];

fn main() {
    println!("cargo:rerun-if-changed=scenarios");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=CC");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let sources = c_sources(Path::new("scenarios"));
    let mut jobs = Vec::new();
    for (name, flags, _) in BINARIES {
        let objects = out.join(format!("{name}-objects"));
        fs::create_dir_all(&objects).expect("OUT_DIR is writable");
        jobs.extend(sources.iter().map(|source| (source.clone(), object_of(source, &objects), *flags)));
    }
    let common_inputs = newest(&[Path::new("scenarios/laboratory.h"), Path::new("build.rs")]);
    compile_stale(&jobs, common_inputs);
    for (name, flags, variable) in BINARIES {
        let binary = out.join(name);
        let objects = sources.iter().map(|source| object_of(source, &out.join(format!("{name}-objects"))));
        run(Command::new(compiler()).args(COMMON).args(*flags).args(objects).arg("-o").arg(&binary));
        println!("cargo:rustc-env={variable}={}", binary.display());
    }
    // For scenarios that start a program into which no library can be loaded: they find it beside themselves.
    let objects = sources.iter().map(|source| object_of(source, &out.join("scenarios-objects")));
    run(Command::new(compiler()).args(COMMON).arg("-static").args(objects).arg("-o").arg(out.join("scenarios-static")));
    // For one that loads a library of a kind which this machine may have no compiler for.
    let library = ["-shared", "-fPIC", "scenarios/libraries/of_go.c"];
    run(Command::new(compiler()).args(COMMON).args(library).arg("-o").arg(out.join("library-of-go.so")));
}

fn c_sources(directory: &Path) -> Vec<PathBuf> {
    let mut sources: Vec<PathBuf> = fs::read_dir(directory)
        .expect("scenarios/ is readable")
        .map(|entry| entry.expect("scenarios/ is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    // The order of constructors is the order of linking, so it must not depend on the file system.
    sources.sort();
    sources
}

fn object_of(source: &Path, objects: &Path) -> PathBuf {
    objects.join(source.file_name().expect("a source has a name")).with_extension("o")
}

/// Compiles what is older than its source, the header or the flags; a few at a time.
fn compile_stale(jobs: &[(PathBuf, PathBuf, &[&str])], common_inputs: SystemTime) {
    let stale: Vec<_> =
        jobs.iter().filter(|(source, object, _)| modified(object) <= newest(&[source]).max(common_inputs)).collect();
    let next = AtomicUsize::new(0);
    let workers = std::thread::available_parallelism().map_or(2, |count| count.get());
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some((source, object, flags)) = stale.get(next.fetch_add(1, Ordering::Relaxed)) {
                    run(Command::new(compiler()).args(COMMON).args(*flags).arg("-c").arg(source).arg("-o").arg(object));
                }
            });
        }
    });
}

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).and_then(|status| status.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

fn newest(paths: &[&Path]) -> SystemTime {
    paths.iter().map(|path| modified(path)).max().unwrap_or(SystemTime::UNIX_EPOCH)
}

fn compiler() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".into())
}

fn run(command: &mut Command) {
    let status = command.status().unwrap_or_else(|error| panic!("{command:?} could not be started: {error}"));
    assert!(status.success(), "the scenarios could not be compiled: {command:?}");
}
