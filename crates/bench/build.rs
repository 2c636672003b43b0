//! Compiles the measuring programs and leaves each for `src/programs.rs` to embed, so that the
//! installed command carries them and needs no compiler where it runs.

use std::path::PathBuf;
use std::process::Command;

/// Every file of `programs/` that becomes a program.
const PROGRAMS: [&str; 9] = ["pingpong", "stream", "connect", "idle", "floor", "load", "datagrams", "zerocopy", "udp"];

fn main() {
    let output = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    println!("cargo:rerun-if-changed=programs/common.h");
    println!("cargo:rerun-if-env-changed=CC");
    for program in PROGRAMS {
        let source = format!("programs/{program}.c");
        println!("cargo:rerun-if-changed={source}");
        let status = Command::new(&compiler)
            .args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-pthread", "-o"])
            .arg(output.join(program))
            .arg(&source)
            .status()
            .unwrap_or_else(|error| panic!("cannot run the C compiler `{compiler}`: {error}"));
        assert!(status.success(), "{compiler} could not compile {source}");
    }
}
