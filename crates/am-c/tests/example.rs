//! Programs in C are compiled against the header and the static library, and say what they should.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Compiles a program of this repository, by its path from here.
fn compiled(source: &str) -> PathBuf {
    compiled_by("cc", &["-std=c11", "-D_DEFAULT_SOURCE"], source)
}

fn compiled_by(compiler: &str, options: &[&str], source: &str) -> PathBuf {
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
    let program = profile.join(format!("am-c-{name}-{compiler}{}-{}", options[0], std::process::id()));
    let output = Command::new(compiler)
        .args(options)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O1", "-I"])
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

/// Nothing else is included before it; the functions have the names of C in C++, too.
#[test]
fn the_header_stands_alone_in_c_and_cplusplus() {
    for (compiler, standard) in [("cc", "-std=c99"), ("c++", "-std=c++11")] {
        let program = compiled_by(compiler, &[standard], "tests/header.c");
        assert_eq!(said(&program, ""), "done\n", "{compiler}");
        std::fs::remove_file(&program).unwrap();
    }
}

/// What the header declares is what the library has.
#[test]
fn the_header_is_complete() {
    fn names(text: &str, before: &str) -> std::collections::BTreeSet<String> {
        let found = text.match_indices(before).map(|(at, _)| &text[at + before.len() - PREFIX.len()..]);
        let word = |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap().to_string();
        found.filter(|text| text[word(text).len()..].starts_with(['(', '<'])).map(word).collect()
    }
    const PREFIX: &str = "shunt_am_";
    let sources = [
        include_str!("../src/lib.rs"),
        include_str!("../src/connections.rs"),
        include_str!("../src/messages.rs"),
        include_str!("../src/program.rs"),
        include_str!("../src/regions.rs"),
    ]
    .concat();
    let (header, library) = (names(include_str!("../include/shunt_am.h"), PREFIX), names(&sources, &format!("fn {PREFIX}")));
    assert!(header.len() > 20);
    assert_eq!(header, library);
}
