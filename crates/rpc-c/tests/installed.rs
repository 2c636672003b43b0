//! What `make install` puts somewhere is enough for projects of cmake and pkg-config, in C and C++.

use std::path::Path;
use std::process::Command;

const PROJECT: &str = r#"
cmake_minimum_required(VERSION 3.13)
project(installed C)
find_package(shunt-rpc REQUIRED)
add_executable(static EXAMPLE.c)
shunt_rpc_sources(static EXAMPLE.x)
add_executable(shared EXAMPLE.c)
shunt_rpc_sources(shared SHARED EXAMPLE.x)
"#;

const SAID: &str = "1 records\nrecord 0: first\nfault 404\n1 2 3\n";

/// Without cargo's search path for libraries, which leads to those that are not installed.
fn clean(command: &mut Command) -> &mut Command {
    command.env_remove("LD_LIBRARY_PATH")
}

fn run(command: &mut Command) -> String {
    let output = clean(command).output().unwrap_or_else(|error| panic!("{command:?}: {error} (scripts/prepare test)"));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {said}{}", String::from_utf8_lossy(&output.stderr));
    said
}

/// A server and a caller of the example: the caller says the same as ever.
fn calls_itself(program: &Path) {
    let name = format!("installed-{}-{}", program.file_name().unwrap().to_str().unwrap(), std::process::id());
    let mut server = clean(Command::new(program).args(["serve", &name])).spawn().unwrap();
    let said = clean(Command::new(program).args(["call", &name])).output().unwrap();
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), SAID, "{program:?}: {said:?}");
}

#[test]
fn projects_are_built_with_what_is_installed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let destination = format!("DESTDIR={}", at("root").display());
    run(Command::new("make").current_dir(&root).args(["-s", "install", "PREFIX=/usr", &destination]));
    // A package's path in the staging directory is what a build on another machine finds in its root.
    let usr = at("root").join("usr");
    std::fs::create_dir(at("source")).unwrap();
    let example = root.join("examples/log");
    std::fs::write(at("source/CMakeLists.txt"), PROJECT.replace("EXAMPLE", example.to_str().unwrap())).unwrap();
    let prefix = format!("-DCMAKE_PREFIX_PATH={}", usr.display());
    run(Command::new("cmake").arg("-S").arg(at("source")).arg("-B").arg(at("built")).arg(prefix));
    run(Command::new("cmake").arg("--build").arg(at("built")));
    calls_itself(&at("built/static"));
    calls_itself(&at("built/shared"));
    let linked = run(Command::new("ldd").arg(at("built/shared")));
    let ours = linked.lines().find(|line| line.contains("libshunt_rpc_c.so")).unwrap_or_else(|| panic!("{linked}"));
    assert!(ours.contains(usr.to_str().unwrap()), "{ours}");

    run(Command::new(usr.join("bin/shunt-rpcgen")).arg("--c").arg(example.with_extension("x")).arg("--output").arg(at("log")));
    let flags = run(Command::new("pkg-config").env("PKG_CONFIG_PATH", usr.join("lib/pkgconfig")).args([
        &format!("--define-variable=prefix={}", usr.display()),
        "--cflags",
        "--libs",
        "shunt-rpc",
    ]));
    run(Command::new("cc")
        .current_dir(scratch.path())
        .args(["-I.", "log.c"])
        .arg(example.with_extension("c"))
        .args(flags.split_whitespace())
        .args(["-o", "packaged"]));
    calls_itself(&at("packaged"));
}

/// Server and client of a program of libtirpc's; the client tells last which library has its calls.
const ROW: &str = r#"
ip link set lo up
timeout 60 ./programs server port run 2>/dev/null & server=$!
for i in $(seq 500); do [ -s port ] && break; sleep 0.02; done
timeout 60 ./programs client "$(cat port)" run 2>client.err >said || exit 1
kill $server
grep -h '^end$' said
grep -h '^call in ' client.err | uniq
"#;

#[test]
fn programs_of_libtirpc_are_linked_with_the_library() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let usr = scratch.path().join("usr");
    run(Command::new("make").current_dir(&root).args(["-s", "install"]).arg(format!("PREFIX={}", usr.display())));
    let packages = usr.join("lib/pkgconfig");
    let flags = run(Command::new("pkg-config").env("PKG_CONFIG_PATH", &packages).args(["--cflags", "--libs", "shunt-tirpc"]));
    let source = root.join("crates/tirpc/tests/programs.c");
    run(Command::new("cc").current_dir(&scratch).arg(source).args(flags.split_whitespace()).args([
        "-lpthread",
        "-o",
        "programs",
    ]));
    let said = run(Command::new("unshare").args(["-n", "bash", "-c", ROW]).current_dir(&scratch));
    assert_eq!(said, format!("end\ncall in {}\n", usr.join("lib/shunt/libshunt_tirpc.so").display()));
}

/// A block of shell of the tutorial, behind a heading.
fn block<'t>(tutorial: &'t str, heading: &str) -> &'t str {
    let section = tutorial.split_once(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("{heading}")).1;
    section.split_once("```sh\n").unwrap().1.split_once("```").unwrap().0
}

/// What the tutorial tells to type gives what it says: its C program is built, serves and is called, and tools call it.
#[test]
fn the_tutorial_says_what_happens() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let usr = scratch.path().join("usr");
    run(Command::new("make").current_dir(&root).args(["-s", "install"]).arg(format!("PREFIX={}", usr.display())));
    std::os::unix::fs::symlink(root.join("examples"), scratch.path().join("examples")).unwrap();
    let tutorial = std::fs::read_to_string(root.join("docs/RPC.md")).unwrap();
    let (c, shell) = (block(&tutorial, "In C"), block(&tutorial, "From the shell"));
    let mut script = format!("set -e\n{c}kill %1\nwait %1 || true\n./log-program serve log & sleep 0.1\n");
    let mut said = SAID.to_string();
    for line in shell.lines() {
        let (command, comment) = line.split_once(" # ").unwrap();
        // A trace has no end of its own, and other hosts are not here.
        if command.contains("trace") || command.contains("sunrpc") {
            continue;
        }
        let answer = comment.trim().starts_with(['{', '"', '0']);
        let silent = if answer { "" } else { " > /dev/null" };
        script += &format!("{}{silent}\n", command.trim());
        said += if answer { comment.trim() } else { "" };
        said += if answer { "\n" } else { "" };
    }
    script += "kill %1\n";
    let path = format!("{}:{}", usr.join("bin").display(), std::env::var("PATH").unwrap());
    // A network of its own: the name is nobody else's there.
    let mut shell = Command::new("unshare");
    shell.args(["-n", "bash", "-mc", &script]).current_dir(scratch.path());
    shell.env("PATH", path).env("PKG_CONFIG_PATH", usr.join("lib/pkgconfig"));
    assert_eq!(run(&mut shell), said, "{script}");
    assert!(said.lines().count() > 6, "{said}");
}
