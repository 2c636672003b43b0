//! Examples, which cargo builds with the tests.

use std::path::Path;
use std::process::Command;

/// What example `name` of the package whose test this is prints.
///
/// # Panics
/// When it is not there, or fails.
pub fn example(name: &str) -> String {
    let test = std::env::current_exe().expect("this program's path");
    let profile = test.parent().and_then(Path::parent).expect("a build's directory");
    let ran = Command::new(profile.join("examples").join(name)).output().expect("cargo builds examples with tests");
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}
