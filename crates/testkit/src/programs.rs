//! Where the programs under test are found.

use std::path::{Path, PathBuf};

/// Directories searched after `PATH`: users' shells often lack the administrators' directories.
const ADMINISTRATORS_DIRECTORIES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];

/// The path of the executable `name`.
///
/// # Panics
/// If it is not installed. A missing program is a failed test, not a skipped one: `make test` installs them all,
/// and the message names the Debian package.
pub fn program(name: &str, debian_package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(ADMINISTRATORS_DIRECTORIES.iter().map(PathBuf::from))
        .map(|directory| directory.join(name))
        .find(|candidate| candidate.is_file())
        .unwrap_or_else(|| panic!("{name} is not installed: apt-get install {debian_package}"))
}

/// The distribution's python3, preferred over version managers' wrappers earlier in `PATH`, which are shell scripts.
pub fn python_program() -> PathBuf {
    let distribution = Path::new("/usr/bin/python3");
    if distribution.is_file() {
        return distribution.to_path_buf();
    }
    program("python3", "python3")
}

/// The path of a file in this crate's `programs/` directory.
///
/// # Panics
/// If it does not exist.
pub fn script(name: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name);
    assert!(path.is_file(), "{} does not exist", path.display());
    path
}
