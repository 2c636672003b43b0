//! Programs in C are compiled against the header and the static library, and say what they should.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program of this repository, by its path from here.
fn compiled(source: &str) -> PathBuf {
    // The static library lies beside the test.
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let archives = std::fs::read_dir(test.parent().unwrap()).unwrap().map(|entry| entry.unwrap()).filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.starts_with("libshunt_am_c") && name.ends_with(".a")
    });
    // Older builds may lie there too.
    let library =
        archives.max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).unwrap()).map(|entry| entry.path());
    let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
    let program = profile.join(format!("am-c-{name}-{}", std::process::id()));
    let output = Command::new("cc")
        .args(["-std=c11", "-D_DEFAULT_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(here.join("include"))
        .arg(here.join(source))
        .arg(library.expect("cargo builds the static library with the tests"))
        .args(["-lpthread", "-ldl", "-lm", "-o"])
        .arg(&program)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

fn said(program: &Path, argument: &str) -> String {
    let ran = Command::new(program).arg(argument).output().unwrap();
    assert!(ran.status.success(), "{argument}: {ran:?}");
    String::from_utf8_lossy(&ran.stdout).into_owned()
}

#[test]
fn the_example_runs() {
    let program = compiled("../../examples/messages.c");
    assert_eq!(said(&program, ""), "20 + 22 = 42\n");
    std::fs::remove_file(&program).unwrap();
}

#[test]
fn all_of_the_header_works() {
    let program = compiled("tests/whole.c");
    let version_6 = std::net::UdpSocket::bind("[::1]:0").is_ok();
    for way in ["memory", "udp", "udp6"].iter().filter(|way| **way != "udp6" || version_6) {
        assert_eq!(said(&program, way), "fine\n", "{way}");
    }
    assert_eq!(said(&program, "no-such-interface"), "no port\n");
    std::fs::remove_file(&program).unwrap();
}
