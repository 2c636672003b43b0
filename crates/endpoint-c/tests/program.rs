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
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = std::env::temp_dir().join(format!("shunt-{name}-{}", std::process::id()));
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-I"])
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
