//! Programs in C are compiled against the header and the static library, and say what they should.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::{pair, Joint};

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
        name.starts_with("libshunt_buffers_c") && name.ends_with(".a")
    });
    // Older builds may lie there too.
    let library =
        archives.max_by_key(|entry| entry.metadata().and_then(|data| data.modified()).unwrap()).map(|entry| entry.path());
    let name = Path::new(source).file_stem().unwrap().to_str().unwrap();
    // Two tests have the same one.
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let program = profile.join(format!("buffers-c-{name}-{compiler}{}-{}-{number}", options[0], std::process::id()));
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
    let program = compiled("../../examples/regions.c");
    let pictures: String = (0..3).map(|number| format!("picture {number}: {}, in place\n", (number + 1) << 20)).collect();
    assert_eq!(said(&program, ""), pictures);
    std::fs::remove_file(&program).unwrap();
}

#[test]
fn all_of_the_header_works() {
    let program = compiled("tests/whole.c");
    assert_eq!(said(&program, ""), "fine\n");
    std::fs::remove_file(&program).unwrap();
}

/// Sanitizers have handlers of SIGSEGV, shadows of memory and their own idea of mappings; regions are none of their business.
#[test]
fn regions_are_fine_under_sanitizers() {
    for sanitizer in ["-fsanitize=address", "-fsanitize=thread", "-fsanitize=undefined"] {
        for (source, expected) in [
            ("../../examples/regions.c", "picture 2: 3145728, in place\n"),
            ("tests/whole.c", "fine\n"),
            ("tests/network.c", "fine\n"),
        ] {
            let program = compiled_by("cc", &[sanitizer, "-std=c11", "-D_DEFAULT_SOURCE", "-g"], source);
            let mut command = Command::new(&program);
            // To look for leaks it has to trace, which containers forbid.
            command.env("ASAN_OPTIONS", "detect_leaks=0").env("UBSAN_OPTIONS", "halt_on_error=1");
            let ran = command.output().unwrap();
            let (said, wrong) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
            assert!(ran.status.success() && said.ends_with(expected), "{sanitizer}, {source}: {said}\n{wrong}");
            assert!(wrong.is_empty(), "{sanitizer}, {source}: {wrong}");
            std::fs::remove_file(&program).unwrap();
        }
    }
}

/// Frames over a plain connection: the kernel copies them, and under shunt they go by reference once the receiver has come to the first.
/// The receiver reads them where they lie.
#[test]
fn sends_over_a_plain_connection_go_by_reference() {
    let program = compiled("../../examples/zerocopy.c");
    assert_eq!(said(&program, ""), "8 frames, 8 copied, 0 MiB by reference; 8192 KiB copied by the screen\n");
    let shunt = program.parent().unwrap().join("shunt");
    if shunt.is_file() && shunt.with_file_name("libshunt.so").is_file() {
        let ran = Command::new(&shunt).args(["run", "--"]).arg(&program).output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        let said = String::from_utf8_lossy(&ran.stdout);
        let by_reference: u32 = said.split(' ').nth(4).and_then(|mebibytes| mebibytes.parse().ok()).expect("a number");
        assert!(said.starts_with("8 frames, ") && by_reference >= 1, "{ran:?}");
        // What went by reference the screen has not copied: all but the first frame, of which it maps the pool, as a rule.
        let by_screen: u32 = said.split(' ').nth(8).and_then(|kibibytes| kibibytes.parse().ok()).expect("a number");
        assert!(by_screen <= (8 - by_reference) << 10, "{ran:?}");
    } else {
        println!("not under shunt: no command in {} (scripts/build makes it)", shunt.parent().unwrap().display());
    }
    std::fs::remove_file(&program).unwrap();
}

/// A connection that two programs have anyway, of the kernel's and under shunt: by reference where nobody asks for copies.
#[test]
fn a_connection_becomes_a_port() {
    let program = compiled("tests/over.c");
    assert_eq!(said(&program, "0"), "the kernel's, by reference\n");
    assert_eq!(said(&program, "1"), "the kernel's, copied\n");
    let shunt = program.parent().unwrap().join("shunt");
    if shunt.is_file() && shunt.with_file_name("libshunt.so").is_file() {
        for (argument, expected) in [("0", "accelerated, by reference\n"), ("1", "accelerated, copied\n")] {
            let ran = Command::new(&shunt).args(["run", "--"]).arg(&program).arg(argument).output().unwrap();
            assert!(ran.status.success(), "{ran:?}");
            assert_eq!(String::from_utf8_lossy(&ran.stdout), expected, "{ran:?}");
        }
    } else {
        println!("not under shunt: no command in {} (scripts/build makes it)", shunt.parent().unwrap().display());
    }
    std::fs::remove_file(&program).unwrap();
}

#[test]
fn every_semantics_passes_over_udp() {
    let program = compiled("tests/network.c");
    assert_eq!(said(&program, ""), "fine\n");
    std::fs::remove_file(&program).unwrap();
}

/// Between two hosts (network namespaces, and a veth), by agents.
#[test]
fn every_semantics_passes_over_xdp() {
    let shunt = std::env::current_exe().unwrap().ancestors().nth(2).unwrap().join("shunt");
    let hosts = match pair(Joint::default()) {
        Ok(hosts) if shunt.is_file() => hosts,
        Ok(_) => return println!("skipped: no {}", shunt.display()),
        Err(why) => return println!("skipped: {why}"),
    };
    let program = compiled("tests/network.c");
    let agents = hosts.each_ref().map(|host| Agent::start(host, &shunt, &["--lend", "none"]).unwrap());
    let [here, there] = &hosts;
    let mut receiver = here.command(&program);
    let receiver = receiver.args(["receive", &here.interface, "7000"]).stdout(Stdio::piped()).spawn().unwrap();
    let address = here.addresses[0].to_string();
    let sent = there.command(&program).args(["send", &there.interface, &address, "7000"]).output().unwrap();
    let received = receiver.wait_with_output().unwrap();
    assert!(sent.status.success() && received.status.success(), "{sent:?}, {received:?}");
    assert_eq!(String::from_utf8_lossy(&received.stdout), "fine\n");
    drop(agents);
    std::fs::remove_file(&program).unwrap();
}

/// Nothing else is included before it; the functions have the names of C in C++, too.
#[test]
fn the_header_stands_alone_in_c_and_cplusplus() {
    for (compiler, standard) in [("cc", "-std=c99"), ("c++", "-std=c++11")] {
        let program = compiled_by(compiler, &[standard], "tests/header.c");
        assert_eq!(said(&program, ""), "region-pool-shape\n", "{compiler}");
        std::fs::remove_file(&program).unwrap();
    }
}

/// What the header declares is what the library has.
#[test]
fn the_header_is_complete() {
    fn names(text: &str, before: &str) -> std::collections::BTreeSet<String> {
        let found = text.match_indices(before).map(|(at, _)| &text[at + before.len() - PREFIX.len()..]);
        let word = |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap().to_string();
        found.filter(|text| text[word(text).len()..].starts_with('(')).map(word).collect()
    }
    const PREFIX: &str = "shunt_";
    let ports = [include_str!("../src/lib.rs"), include_str!("../src/windows.rs"), include_str!("../src/network.rs")].concat();
    let sources = [&ports, include_str!("../src/results.rs")].concat();
    let headers = [include_str!("../include/shunt_buffers.h"), include_str!("../include/shunt_network.h")].concat();
    let (header, library) = (names(&headers, PREFIX), names(&sources, &format!("fn {PREFIX}")));
    assert!(header.len() > 30);
    assert_eq!(header, library);
}

/// The header's numbers are the crate's.
#[test]
fn the_header_numbers_semantics_as_the_tables_do() {
    let header = include_str!("../include/shunt_buffers.h");
    for (number, semantics) in shunt_buffers::Semantics::ALL.into_iter().enumerate() {
        let name = semantics.name().to_uppercase().replace(' ', "_");
        assert!(header.contains(&format!("    SHUNT_{name} = {number}")), "{name}");
    }
}
