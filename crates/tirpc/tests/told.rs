//! What a process tells of layers that are collapsed and of those that are not: every case that a program can bring about.

mod common;

use common::{gcc, library};
use shunt_tirpc::reason::Reason;
use shunt_tirpc::told::{role, Told, MAGIC, NAME};
use std::io::{BufRead, BufReader};
use std::mem::offset_of;
use std::path::Path;
use std::process::{Command, Stdio};

/// What a program of one part tells: reasons with their counts, and the roles of descriptors that are collapsed now.
fn told(programs: &Path, part: &str, shunt: bool) -> (Vec<(&'static str, u64)>, Vec<u8>) {
    let libraries: Vec<String> = [shunt.then(|| library("libshunt.so")), Some(library("libshunt_tirpc.so"))]
        .into_iter()
        .flatten()
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    let mut child = Command::new("unshare")
        .args(["-n", "sh", "-c", "ip link set lo up && LD_PRELOAD=\"$1\" exec timeout 30 \"$2\" \"$3\"", "row"])
        .arg(libraries.join(":"))
        .arg(programs)
        .arg(part)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n", "{part}, shunt {shunt}");
    // `timeout` waits for the program, its only child.
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", child.id())).unwrap();
    let pid: u32 = children.trim().parse().unwrap_or_else(|_| panic!("not one child: {children:?}"));
    let name = format!("/memfd:{NAME} (deleted)");
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten().map(|entry| entry.path());
    let file = files.into_iter().find(|file| std::fs::read_link(file).is_ok_and(|to| to == Path::new(&name)));
    let file = file.unwrap_or_else(|| panic!("{part}, shunt {shunt}: nothing is told"));
    let number: u32 = file.file_name().unwrap().to_str().unwrap().parse().unwrap();
    assert!(number >= 256, "it has a number of the program's next ones: {number}");
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(bytes.len(), size_of::<Told>());
    let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
    assert_eq!(word(offset_of!(Told, magic)), MAGIC);
    assert_eq!(word(offset_of!(Told, pid)) as u32, pid);
    let count = |reason: &Reason| (reason.word(), word(offset_of!(Told, counts) + *reason as usize * 8));
    let counts = Reason::ALL.iter().map(count).filter(|(_, count)| *count > 0).collect();
    let rows = &bytes[offset_of!(Told, rows)..];
    let mut roles: Vec<u8> = rows.iter().copied().filter(|row| *row != role::NONE).collect();
    roles.sort_unstable();
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
    (counts, roles)
}

#[test]
fn every_case_is_told_by_its_name() {
    let scratch = tempfile::tempdir().unwrap();
    let programs = scratch.path().join("told");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/told.c");
    gcc(&["-O1", "-Wall", "-o", programs.to_str().unwrap(), source, "-ltirpc", "-lpthread"]);
    let (client, server) = (role::CLIENT, role::SERVER);
    for shunt in [false, true] {
        let told = |part: &str| told(&programs, part, shunt);
        // Two clients and their transports, of which one client is destroyed; its transport may have ended or not.
        let (counts, roles) = told("stream");
        assert_eq!(counts, [("rpc-collapsed", 4)], "shunt {shunt}");
        assert!(roles == [client, server] || roles == [client, server, server], "shunt {shunt}: {roles:?}");
        // The server's connection is libtirpc's from its first call on.
        assert_eq!(told("limit"), (vec![("rpc-collapsed", 2), ("rpc-limited", 1)], vec![client]), "shunt {shunt}");
        let kinds = vec![("rpc-not-stream", 1), ("rpc-not-datagrams", 1), ("rpc-foreign", 2)];
        assert_eq!(told("kinds"), (kinds, vec![]), "shunt {shunt}");
        let datagrams = vec![
            ("rpc-collapsed", 5),
            ("rpc-asynchronous", 1),
            ("rpc-connected", 1),
            ("rpc-signed-call", 1),
            ("rpc-no-wait-call", 1),
            ("rpc-long-call", 1),
        ];
        assert_eq!(told("datagrams"), (datagrams, vec![client, client, server]), "shunt {shunt}");
    }
}
