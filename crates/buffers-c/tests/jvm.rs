//! A Java virtual machine, which has a handler of SIGSEGV that it lives by, and compiled code that writes to regions under way.

use std::path::{Path, PathBuf};
use std::process::Command;

fn ran(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{said}{}", output.status, String::from_utf8_lossy(&output.stderr));
    said
}

/// The JDK whose `javac` is in PATH (Debian: default-jdk-headless).
fn development_kit() -> PathBuf {
    let paths = std::env::var_os("PATH").unwrap();
    let compiler = std::env::split_paths(&paths).map(|path| path.join("javac")).find(|path| path.is_file());
    let compiler = compiler.expect("a javac; scripts/prepare test installs it").canonicalize().unwrap();
    compiler.parent().and_then(Path::parent).unwrap().to_owned()
}

#[test]
fn a_virtual_machine_and_its_regions_have_faults_of_their_own() {
    let kit = development_kit();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // The static library lies beside the test; older builds may lie there too.
    let test = std::env::current_exe().unwrap();
    let archives = std::fs::read_dir(test.parent().unwrap()).unwrap().map(|entry| entry.unwrap()).filter(|entry| {
        let name = entry.file_name().into_string().unwrap_or_default();
        name.starts_with("libshunt_buffers_c") && name.ends_with(".a")
    });
    let archive =
        archives.max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).unwrap()).map(|entry| entry.path());
    let directory = std::env::temp_dir().join(format!("shunt-jvm-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    ran(Command::new(kit.join("bin/javac")).arg("-d").arg(&directory).arg(here.join("tests/jvm/Buffers.java")));
    let library = directory.join("libbuffers.so");
    ran(Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-I"])
        .arg(here.join("include"))
        .arg("-I")
        .arg(kit.join("include"))
        .arg("-I")
        .arg(kit.join("include/linux"))
        .arg(here.join("tests/jvm/buffers.c"))
        .arg(archive.expect("cargo builds the static library with the tests"))
        .args(["-Wl,-Bsymbolic", "-lpthread", "-ldl", "-lm", "-o"])
        .arg(&library));
    for options in [&["-Xmx256m"][..], &["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]] {
        let mut command = Command::new(kit.join("bin/java"));
        let said = ran(command.args(options).arg("-cp").arg(&directory).arg("Buffers").arg(&library));
        assert_eq!(said, "under way\nfaults\n", "{options:?}");
    }
    std::fs::remove_dir_all(&directory).unwrap();
}
