//! The C example compiles with the header, links with the library, and runs; so does a program over UDP that sleeps.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The static library, beside this test program.
fn library() -> PathBuf {
    let own = std::env::current_exe().expect("this program's path");
    let directories = own.ancestors().skip(1).take(2);
    let found = directories.flat_map(|directory| std::fs::read_dir(directory).expect("the build's directory"));
    let library = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("libshunt_endpoint_c") && name.ends_with(".a")
    };
    // The newest: older builds may lie beside it.
    let all = found.filter_map(|entry| Some(entry.ok()?.path())).filter(library);
    all.max_by_key(|path| path.metadata().and_then(|data| data.modified()).ok()).expect("libshunt_endpoint_c*.a")
}

fn run(source: &Path, name: &str) -> String {
    run_by("cc", "-std=gnu11", source, name)
}

fn run_by(compiler: &str, standard: &str, source: &Path, name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = std::env::temp_dir().join(format!("shunt-{name}-{}", std::process::id()));
    let compiled = Command::new(compiler)
        .args([standard, "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
        .arg(root.join("include"))
        .arg(source)
        .arg(library())
        .args(["-o"])
        .arg(&program)
        .output()
        .expect("a C compiler");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&program).output().expect("the program runs");
    let _ = std::fs::remove_file(&program);
    assert!(output.status.success(), "{:?}", output);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_example_says_hello() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(run(&root.join("../../examples/endpoint.c"), "example"), "hello\n");
}

#[test]
fn a_program_sleeps_on_the_descriptor() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    assert_eq!(run(&root.join("tests/sleeper.c"), "sleeper"), "3000 bytes, last 55\n");
}

/// Nothing else is included before it; the functions have the names of C in C++, too.
#[test]
fn the_header_stands_alone_in_c_and_cplusplus() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/header.c");
    assert_eq!(run_by("cc", "-std=c99", &source, "header-c"), "112 bytes inline, aligned\n");
    assert_eq!(run_by("c++", "-std=c++11", &source, "header-c++"), "112 bytes inline, aligned\n");
}

/// What the header declares is what the library has.
#[test]
fn the_header_is_complete() {
    fn names(text: &str, before: &str) -> std::collections::BTreeSet<String> {
        let found = text.match_indices(before).map(|(at, _)| &text[at + before.len() - PREFIX.len()..]);
        let word = |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap().to_string();
        found.filter(|text| text[word(text).len()..].starts_with(['(', '<'])).map(word).collect()
    }
    const PREFIX: &str = "shunt_";
    let sources = [include_str!("../src/lib.rs")].concat();
    let (header, library) =
        (names(include_str!("../include/shunt/endpoint.h"), PREFIX), names(&sources, &format!("fn {PREFIX}")));
    assert!(header.len() > 20);
    assert_eq!(header, library);
}
