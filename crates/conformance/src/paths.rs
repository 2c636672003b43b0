//! Where things are.

use std::path::{Path, PathBuf};

/// This crate's directory: suites and runners.
pub fn own() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The workspace's root.
pub fn workspace() -> PathBuf {
    own().ancestors().nth(2).expect("the crate lies in crates/").to_path_buf()
}

/// Everything that is downloaded, built and measured here.
pub fn work() -> PathBuf {
    workspace().join("target/conformance")
}

/// Unpacked source packages, one directory each.
pub fn sources() -> PathBuf {
    work().join("sources")
}

/// Unpacked packages, one directory each.
pub fn packages() -> PathBuf {
    work().join("packages")
}

/// What the last run of each part said, a file for each suite: part of the repository, as the documents are.
pub fn records() -> PathBuf {
    own().join("results")
}

/// What the runs left that the documents do not know yet.
pub fn results() -> PathBuf {
    work().join("results")
}

/// The `shunt` command: `SHUNT_CONFORMANCE_COMMAND` if set, or the release build.
///
/// # Errors
/// A sentence when it is not built.
pub fn shunt() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("SHUNT_CONFORMANCE_COMMAND") {
        return Ok(named.into());
    }
    let built = workspace().join("target/release/shunt");
    if built.is_file() {
        return Ok(built);
    }
    Err(format!("the shunt command is not built ({}): run `make build`", built.display()))
}
