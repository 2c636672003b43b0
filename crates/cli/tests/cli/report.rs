//! `shunt report`: all parts are there, and no secret.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use crate::common::{library, plain, quiet_output, SHUNT};

#[test]
fn it_holds_what_helps_and_no_secret() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.txt");
    let mut program = plain(SHUNT);
    program.args([
        "run",
        "--",
        "python3",
        "-c",
        "import sys,socket; s=socket.socket(); print(1, flush=True); sys.stdin.read()",
        "--password=hunter2",
    ]);
    program.env("SHUNT_LIBRARY", library()).env("DATABASE_PASSWORD", "hunter2").env("SHUNT_SPIN", "11us");
    let mut program = program.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(program.stdout.as_mut().unwrap()), &mut line).unwrap();

    let said = quiet_output(plain(SHUNT).args(["report", "-o"]).arg(&file).env("SHUNT_LIBRARY", library()));
    drop(program.stdin.take());
    program.wait().unwrap();
    assert!(said.contains("look at it before you send it"), "{said}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let text = std::fs::read_to_string(&file).unwrap();
    let pid = program.id();
    for words in [
        "==== shunt\ncommand ".to_owned(),
        "==== machine\n".into(),
        "PRETTY_NAME".into(),
        "==== shunt doctor\n".into(),
        "==== shunt config\n".into(),
        "==== shunt ss --all --json\n".into(),
        "==== shunt metrics\n".into(),
        format!("==== shunt why {pid}\n"),
        format!("==== /proc/{pid}\n"),
        "SHUNT_SPIN=11us".into(),
        "libshunt.so".into(),
        "Max open files".into(),
        "memfd shunt-process".into(),
    ] {
        assert!(text.contains(&words), "{words:?}:\n{text}");
    }
    assert!(!text.contains("hunter2"), "{text}");
    assert!(!text.contains("DATABASE_PASSWORD"), "{text}");
}
