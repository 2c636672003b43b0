//! The example of ten lines says what it should.

use std::path::Path;
use std::process::Command;

#[test]
fn the_example_runs() {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let ran = Command::new(profile.join("examples/messages")).output().expect("cargo builds examples with tests");
    assert!(ran.status.success(), "{ran:?}");
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "20 + 22 = 42\n");
}
