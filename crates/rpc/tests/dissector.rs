//! Wireshark, with docs/shunt-am.lua, shows the calls of a conversation between two hosts, as tcpdump took it: which is answered by which, of
//! which program, with which status. It takes root, for the hosts; `scripts/prepare test` installs tshark and tcpdump.

mod common;

use common::*;
use shunt_rpc::*;
use shunt_testkit::hosts::{pair, Host, Joint};
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// What the host's interface carries meanwhile, as a file. A datagram to `peer` behind the work says when all before it is in the file.
fn captured(host: &Host, peer: &str, file: &Path, work: impl FnOnce() + Send) {
    const END: &[u8] = b"the end of the capture";
    let mut command = host.command("tcpdump");
    command.args(["--immediate-mode", "-U", "-s", "0", "-Z", "root", "-i", &host.interface, "-w"]).arg(file);
    let mut dump = command.stderr(Stdio::piped()).spawn().expect("tcpdump, which `scripts/prepare test` installs");
    let mut said = BufReader::new(dump.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.contains("listening on")), "tcpdump did not start");
    host.enter(|| {
        work();
        UdpSocket::bind("0.0.0.0:0").unwrap().send_to(END, (peer, 9)).unwrap();
    });
    let begun = Instant::now();
    while !std::fs::read(file).is_ok_and(|bytes| bytes.windows(END.len()).any(|window| window == END)) {
        assert!(begun.elapsed() < Duration::from_secs(30), "tcpdump does not see the last datagram");
        std::thread::sleep(Duration::from_millis(5));
    }
    // SAFETY: a child that was not waited for. It writes what it has, and ends.
    unsafe { libc::kill(dump.id() as i32, libc::SIGINT) };
    said.for_each(drop);
    dump.wait().unwrap();
}

/// What tshark says of these fields, a line for each packet.
fn tshark(file: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/shunt-am.lua");
    let mut command = Command::new("tshark");
    // Twice: an answer is known when its call is shown.
    command.args(["-2", "-X", &format!("lua_script:{}", script.display()), "-o", "shunt_am.calls:TRUE", "-T", "fields"]);
    command.arg("-r").arg(file).args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.output().expect("tshark, which `scripts/prepare test` installs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(|line| line.split('\t').map(String::from).collect()).collect()
}

#[test]
fn tshark_shows_calls_and_their_answers() {
    let hosts = match pair(Joint::default()) {
        Ok(hosts) => hosts,
        Err(sentence) => {
            // The test harness captures `eprintln`.
            let _ = writeln!(std::io::stderr(), "skipped: calls in a capture: {sentence}");
            return;
        }
    };
    let at = format!("udp:{}:0", hosts[0].addresses[0]).parse().unwrap();
    let server = hosts[0].enter(|| Server::bind(&at, ServerOptions::default()).unwrap().spawn(Test::default).unwrap());
    let file = std::env::temp_dir().join(format!("shunt-rpc-{}.pcap", std::process::id()));
    captured(&hosts[1], &hosts[0].addresses[0].to_string(), &file, || {
        let client = client(server.address());
        assert_eq!(client.call::<_, i32>(ADD, &(1, 2)).unwrap(), 3);
        assert_eq!(client.call::<_, ()>(99, &()).unwrap_err().kind(), Kind::NoProcedure);
        let data = Data::from(vec![7; 500]);
        assert!(client.call::<_, Data>(ECHO, &data).unwrap() == data);
    });
    let fields = [
        "_ws.col.Info",
        "shunt_am.rpc.program",
        "shunt_am.rpc.version",
        "shunt_am.rpc.procedure",
        "shunt_am.rpc.status",
        "shunt_am.rpc.answered",
        "shunt_am.rpc.asked",
        "frame.number",
        "_ws.lua.error",
    ];
    let lines = tshark(&file, &fields);
    std::fs::remove_file(&file).unwrap();
    let infos: Vec<&str> = lines.iter().map(|line| line[0].as_str()).collect();
    assert!(infos.contains(&"bind program 0x20000042, versions 1 to 2"), "{infos:?}");
    assert!(infos.contains(&"answer to a binding: bound, version 2"), "{infos:?}");
    assert!(lines.iter().all(|line| line[8].is_empty()), "{lines:?}");
    for (procedure, status, told) in [(ADD, 0, "results"), (99, 1, "no such procedure"), (ECHO, 0, "results")] {
        let text = format!("of program 0x20000042 version 2 procedure {procedure}");
        // Frames that are sent again are shown again.
        let of = |what: &str| lines.iter().find(|line| line[0].ends_with(what)).unwrap_or_else(|| panic!("no {what}: {infos:?}"));
        let (call, answer) = (of(&format!("call {text}")), of(&format!("answer {text}: {told}")));
        assert_eq!(call[1..5], ["0x20000042", "2", &procedure.to_string(), ""], "{call:?}");
        assert_eq!(answer[1..5], ["0x20000042", "2", &procedure.to_string(), &status.to_string()], "{answer:?}");
        assert_eq!((&call[5], &answer[6]), (&answer[7], &call[7]), "which is whose: {call:?}, {answer:?}");
    }
}
