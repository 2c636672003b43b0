//! Generated C is compiled as C99 and C++11, with warnings as errors; its bytes are those of the generated Rust, and callers and servers
//! of both languages talk to each other.

use shunt_rpc::xdr::{from_bytes, to_bytes};
use shunt_rpc::{Context, Fault, Kind, Server, ServerOptions, Shared};
use shunt_rpc_examples::kv::KeyValueV1Server;
use shunt_rpc_examples::log::*;
use shunt_rpc_examples::store::Store;
use shunt_rpc_examples::torture::Everything;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const LANGUAGES: [(&str, &[&str]); 2] = [("cc", &["-std=c99"]), ("c++", &["-std=c++11", "-x", "c++"])];

/// The static library, beside this test program; the newest of them.
fn library() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let all = std::fs::read_dir(own.parent().unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let ours = all.filter(|path| {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        name.starts_with("libshunt_rpc_c") && name.ends_with(".a")
    });
    ours.max_by_key(|path| path.metadata().unwrap().modified().unwrap()).expect("cargo builds the static library with the tests")
}

/// A program of a definition, and of a file that uses it.
fn compiled(definition: &str, source: &str, (compiler, options): (&str, &[&str]), extra: &[&str]) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let definition = here.join(definition);
    let name = definition.file_stem().unwrap().to_str().unwrap();
    let directory = std::env::temp_dir().join(format!("shunt-rpc-c-{}-{name}-{compiler}{}", std::process::id(), extra.len()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = shunt_rpcgen::parse(&std::fs::read_to_string(&definition).unwrap()).unwrap();
    let made = shunt_rpcgen::c(&file, name).unwrap();
    std::fs::write(directory.join(format!("{name}.h")), made.header).unwrap();
    std::fs::write(directory.join(format!("{name}.c")), made.source).unwrap();
    let output = Command::new(compiler)
        .args(options)
        .args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-O2"])
        .args(extra)
        .arg("-I")
        .arg(here.join("include"))
        .args(["-I.", &format!("{name}.c")])
        .arg(here.join(source))
        .args(["-x", "none"])
        .arg(library())
        .args(["-lpthread", "-ldl", "-lm", "-o", "program"])
        .current_dir(&directory)
        .output()
        .unwrap();
    assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
    directory.join("program")
}

fn remove(program: &Path) {
    let _ = std::fs::remove_dir_all(program.parent().unwrap());
}

/// Ended with the test.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(program: &Path, name: &str) -> String {
    let output = Command::new(program).args(["call", name]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const SAID: &str = "1 records\nrecord 0: first\nfault 404\n1 2 3\n";

#[test]
fn the_example_calls_itself() {
    for language in LANGUAGES {
        let program = compiled("../../examples/log.x", "../../examples/log.c", language, &[]);
        let name = format!("{}-{}", if language.0 == "cc" { "c" } else { "cplusplus" }, std::process::id());
        let _server = Ended(Command::new(&program).args(["serve", &name]).spawn().unwrap());
        assert_eq!(said(&program, &name), SAID, "{}", language.0);
        remove(&program);
    }
}

/// As the example in C.
#[derive(Default)]
struct Log(Vec<OpaqueRecord>);

impl LogV1 for Log {
    fn append(&mut self, _: &Context<'_>, record: OpaqueRecord) -> Result<Stat, Fault> {
        self.0.push(record);
        Ok(Stat { bytes: self.0.iter().map(|record| record.len() as u64).sum(), records: self.0.len() as u32 })
    }
    fn read(&mut self, _: &Context<'_>, number: u32) -> Result<OpaqueRecord, Fault> {
        self.0.get(number as usize).cloned().ok_or_else(|| Fault::new(404, "no such record"))
    }
    fn sort(&mut self, _: &Context<'_>, mut keys: Shared<'_, u32>) -> Result<(), Fault> {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        keys.copy_from(&sorted);
        Ok(())
    }
}

#[test]
fn arguments_that_are_not_sent_are_told_as_such() {
    let server = Server::bind(&format!("c-refused-{}", std::process::id()).parse().unwrap(), ServerOptions::default()).unwrap();
    let server = server.spawn(|| LogV1Server(Log::default())).unwrap();
    let program = compiled("../../examples/log.x", "tests/refused.c", LANGUAGES[0], &["-Wall"]);
    let told = "-14: ran 2, fault 404\n-12: ran 0, fault 0: the arguments could not be encoded\n";
    assert_eq!(said(&program, &server.address().to_string()), told);
    remove(&program);
}

#[test]
fn both_languages_talk_to_each_other() {
    let program = compiled("../../examples/log.x", "../../examples/log.c", LANGUAGES[0], &["-g"]);
    // A caller in C, a server in Rust.
    for at in [format!("c-calls-rust-{}", std::process::id()), "udp:127.0.0.1:0".into()] {
        let server = Server::bind(&at.parse().unwrap(), ServerOptions::default()).unwrap();
        let server = server.spawn(|| LogV1Server(Log::default())).unwrap();
        assert_eq!(said(&program, &server.address().to_string()), SAID);
    }
    // And the other way.
    let name = format!("rust-calls-c-{}", std::process::id());
    let server = Ended(Command::new(&program).args(["serve", &name]).spawn().unwrap());
    let log = LogV1Client::connect(&name).unwrap();
    for length in [0, 1, 20, 21, 30_000, 100_000] {
        let record = vec![7; length].into();
        let number = log.append(&record).unwrap().records - 1;
        assert_eq!(log.read(&number).unwrap(), record);
    }
    let error = log.read(&1000).unwrap_err();
    assert_eq!(error.fault(), Some(&Fault::new(404, "no such record")));
    let keys = log.0.buffer::<u32>(1000).unwrap();
    log.sort(&keys).unwrap();
    drop(keys);
    drop(server);
    assert_eq!(log.read(&0).unwrap_err().kind(), Kind::Lost);
    remove(&program);
}

const TRIED: &str = "put b: 1, -1 before\nput a: 2, -1 before\nput c: 3, -1 before\nput a: 4, 2 before\n\
    a: 4 bytes, 2 puts, created 2, modified 4\nb: 1 bytes, 1 puts, created 1, modified 1\n1 of 2\n2 deleted: 5\n";

/// The store of `kv.x`: a caller in C says the same of both servers, and calls with many outstanding get through.
#[test]
fn the_store_is_the_same_in_both_languages() {
    let program = compiled("../../examples/kv.x", "../../examples/kv.c", LANGUAGES[0], &["-g"]);
    let run = |arguments: &[&str]| {
        let output = Command::new(&program).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let names = [format!("kv-rust-{}", std::process::id()), format!("kv-c-{}", std::process::id())];
    let _rust = Server::bind(&names[0].parse().unwrap(), ServerOptions::default())
        .unwrap()
        .spawn(|| KeyValueV1Server(Store::default()))
        .unwrap();
    let _c = Ended(Command::new(&program).args(["serve", &names[1]]).spawn().unwrap());
    for name in &names {
        assert_eq!(run(&["try", name]), TRIED, "{name}");
        for row in ["put/1024/64", "range/65536/64"] {
            assert!(run(&["bench", name, row, "20"]).trim().parse::<f64>().unwrap() > 0.0);
        }
    }
    remove(&program);
}

#[test]
fn calls_are_begun_told_and_held() {
    for language in LANGUAGES {
        let program = compiled("tests/many.x", "tests/many.c", language, &["-D_POSIX_C_SOURCE=200809L"]);
        let name = format!("many-{}-{}", language.0.len(), std::process::id());
        let mut server = Ended(Command::new(&program).args(["serve", &name]).stdout(Stdio::piped()).spawn().unwrap());
        server.0.stdout.take().unwrap().read_exact(&mut [0; 7]).unwrap();
        let told = "sums 165, then 145\nlate -6\nlong 1\nlonger -12\ntwice 42\nthird -8\n";
        assert_eq!(said(&program, &name), told, "{}", language.0);
        remove(&program);
    }
}

/// Values, and the same with a byte changed: what either language refuses, so does the other.
#[test]
fn both_languages_have_the_same_bytes() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/rpc_values/all");
    let bytes = std::fs::read(corpus).unwrap();
    let first = to_bytes(&from_bytes::<Everything>(&bytes).unwrap());
    assert_eq!(first, bytes);
    let mut all = vec![bytes.clone()];
    for at in 0..bytes.len() {
        for change in [1u8, 2, 0x80, 0xff] {
            let mut changed = bytes.clone();
            changed[at] = changed[at].wrapping_add(change);
            all.push(changed);
        }
        all.push(bytes[..at].to_vec());
    }
    for language in LANGUAGES {
        let program = compiled("../rpc-examples/tests/torture.x", "tests/codec.c", language, &["-fsanitize=address,undefined"]);
        let mut child = Command::new(&program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (mut taken, mut refused) = (0, 0);
        std::thread::scope(|scope| {
            let all = &all;
            scope.spawn(move || {
                for bytes in all {
                    to.write_all(&(bytes.len() as u32).to_ne_bytes()).unwrap();
                    to.write_all(bytes).unwrap();
                }
            });
            for bytes in all {
                let mut length = [0; 4];
                from.read_exact(&mut length).expect("the C program lives");
                let length = u32::from_ne_bytes(length);
                let theirs = (length != u32::MAX).then(|| {
                    let mut bytes = vec![0; length as usize];
                    from.read_exact(&mut bytes).unwrap();
                    bytes
                });
                match from_bytes::<Everything>(bytes) {
                    Ok(value) => {
                        taken += 1;
                        // C's strings hold no zero: those are refused there.
                        assert!(theirs.is_none() || theirs == Some(to_bytes(&value)), "{value:?}");
                    }
                    Err(_) => {
                        refused += 1;
                        assert_eq!(theirs, None);
                    }
                }
            }
        });
        assert!(child.wait().unwrap().success(), "leaks, or worse");
        assert!(taken > 300 && refused > 300, "{taken} {refused}");
        remove(&program);
    }
}

#[test]
fn values_that_hold_others_of_their_type_have_an_end() {
    for language in LANGUAGES {
        let program = compiled("tests/tree.x", "tests/tree.c", language, &["-fsanitize=address,undefined"]);
        let done = Command::new(&program).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), "1 1 1\n1 1\n0 0 0\n1 0\n0 999999\n1 0\n", "{done:?}");
        remove(&program);
    }
}

/// What the header declares is what the library has.
#[test]
fn the_header_is_complete() {
    let header = include_str!("../include/shunt_rpc.h");
    let sources = [include_str!("../src/callers.rs"), include_str!("../src/servers.rs")].concat();
    let word = |text: &str| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap().to_string();
    let defined: std::collections::BTreeSet<String> =
        sources.match_indices("extern \"C\" fn ").map(|(at, found)| word(&sources[at + found.len()..])).collect();
    assert!(defined.len() > 25);
    for name in &defined {
        assert!(header.contains(&format!("{name}(")), "{name}");
    }
    let inline =
        ["shunt_rpc_typed", "shunt_rpc_begin_typed", "shunt_rpc_finish_typed", "shunt_rpc_tell_typed", "shunt_rpc_answer_typed"];
    for (at, _) in header.match_indices("shunt_rpc_") {
        let name = word(&header[at..]);
        if header[at + name.len()..].starts_with('(') && !inline.contains(&name.as_str()) {
            assert!(defined.contains(&name), "{name}");
        }
    }
}
