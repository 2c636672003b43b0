//! Compiles the scenarios, which are C programs over the libc API, into two dynamically linked multi-call binaries:
//! a plain one, and a fortified one whose calls reach libc under their `_chk` and `64` names.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let sources = c_sources(Path::new("scenarios"));
    println!("cargo:rerun-if-changed=scenarios");
    println!("cargo:rerun-if-env-changed=CC");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    compile(&sources, &["-O1"], &out.join("scenarios"), "SHUNT_SCENARIOS");
    compile(
        &sources,
        &["-O2", "-D_FORTIFY_SOURCE=2", "-D_FILE_OFFSET_BITS=64"],
        &out.join("scenarios-fortified"),
        "SHUNT_SCENARIOS_FORTIFIED",
    );
}

fn c_sources(directory: &Path) -> Vec<PathBuf> {
    let mut sources: Vec<PathBuf> = std::fs::read_dir(directory)
        .expect("scenarios/ is readable")
        .map(|entry| entry.expect("scenarios/ is readable").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
        .collect();
    // The order of constructors is the order of linking, so it must not depend on the file system.
    sources.sort();
    sources
}

fn compile(sources: &[PathBuf], flags: &[&str], output: &Path, variable: &str) {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let status = Command::new(&compiler)
        .args([
            "-std=gnu11",
            "-D_GNU_SOURCE",
            "-g",
            "-Wall",
            "-Wextra",
            "-Wno-unused-parameter",
            "-Wno-unused-result",
            "-Wno-nonnull",
        ])
        .args(["-pthread", "-Iscenarios"])
        .args(flags)
        .args(sources)
        .arg("-o")
        .arg(output)
        .status()
        .unwrap_or_else(|error| panic!("{compiler} compiles the scenarios and could not be started: {error}"));
    assert!(status.success(), "{compiler} could not compile the scenarios");
    println!("cargo:rustc-env={variable}={}", output.display());
}
