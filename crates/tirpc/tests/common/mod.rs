//! What the tests with programs of libtirpc share.

use std::path::{Path, PathBuf};
use std::process::Command;

/// A library that was built.
pub fn library(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/release").join(name);
    path.canonicalize().unwrap_or_else(|_| panic!("there is no {}; run: scripts/build", path.display()))
}

/// Compiles a program of libtirpc's.
pub fn gcc(words: &[&str]) {
    let done = Command::new("gcc").args(["-I/usr/include/tirpc"]).args(words).output().expect("gcc (scripts/prepare test)");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
