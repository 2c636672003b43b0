//! The Wireshark dissector reads what engines send, in captures made by hand and by the wrapper. `scripts/prepare test` installs
//! tshark.

use crate::network::*;
use shunt_am::{Config, Link};
use shunt_endpoint::conformance::direct::{import, update, AREA};
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::wrapper::capture::Capture;
use shunt_endpoint::{DirectAccess, Rights};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// A frame behind an endpoint's header.
fn framed(frame: &[u8]) -> Vec<u8> {
    let mut payload = b"sh\x01\x00".to_vec();
    payload.extend((frame.len() as u32).to_le_bytes());
    payload.extend(7u64.to_le_bytes());
    payload.extend(frame);
    payload
}

/// Frames as a capture file.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    packets(&frames.iter().map(|frame| framed(frame)).collect::<Vec<_>>())
}

/// Datagrams as a capture file of Ethernet, IPv4 and UDP.
fn packets(payloads: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![];
    for word in [0xa1b2_c3d4u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for payload in payloads {
        let mut packet = vec![2; 12];
        packet.extend([8, 0, 0x45, 0]);
        packet.extend((payload.len() as u16 + 28).to_be_bytes());
        packet.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(7000u16.to_be_bytes());
        packet.extend(7001u16.to_be_bytes());
        packet.extend((payload.len() as u16 + 8).to_be_bytes());
        packet.extend([0, 0]);
        packet.extend(payload);
        for word in [0, 0, packet.len() as u32, packet.len() as u32] {
            file.extend(word.to_le_bytes());
        }
        file.extend(packet);
    }
    file
}

struct Tap<'t>(&'t mut Vec<Vec<u8>>);

impl Link for Tap<'_> {
    fn send(&mut self, _: u32, head: &[u8], body: &[u8]) -> bool {
        self.0.push([head, body].concat());
        true
    }
}

/// What tshark says of these fields of a capture, a line for each packet.
fn tshark(bytes: &[u8], fields: &[&str]) -> String {
    tshark_with(&[], bytes, fields)
}

fn tshark_with(options: &[&str], bytes: &[u8], fields: &[&str]) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Relaxed);
    let file = std::env::temp_dir().join(format!("shunt-am-{}-{number}.pcap", std::process::id()));
    std::fs::write(&file, bytes).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/shunt-am.lua");
    let mut command = Command::new("tshark");
    command.arg("-X").arg(format!("lua_script:{}", script.display())).args(options).arg("-r").arg(&file).args(["-T", "fields"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.output().expect("tshark, which `scripts/prepare test` installs");
    std::fs::remove_file(&file).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A file in memory that outlives the capture.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn captured(file: &Shared) -> Capture<Udp, Shared> {
    let udp = Udp::bind(&ipv4([127, 0, 0, 1], 0), Options::default()).unwrap();
    Capture::new(udp, file.clone()).unwrap()
}

/// All packets of a whole conversation between two programs, by all verbs, are ours and whole.
#[test]
fn tshark_reads_a_captured_exchange() {
    let (file, other) = (Shared::default(), Shared::default());
    crate::ports::with_server(captured(&file), captured(&other), |config| config, crate::ports::exercise);
    let bytes = file.0.lock().unwrap();
    let text = tshark(&bytes, &["_ws.col.Protocol", "_ws.col.Info", "_ws.malformed", "_ws.lua.error"]);
    let lines: Vec<_> = text.lines().collect();
    assert!(lines.len() > 300, "{} packets", lines.len());
    for line in &lines {
        let fields: Vec<_> = line.split('\t').collect();
        assert_eq!((fields[0], &fields[2..]), ("shunt-am", &["", ""][..]), "{line}");
    }
    for what in ["ask", "answer", "data seq", "acknowledge", "request", "reply", "store", "get", "fetched", "bye"] {
        assert!(lines.iter().any(|line| line.contains(what)), "no {what} among {} packets", lines.len());
    }
}

#[test]
fn tshark_reads_updates() {
    let (file, other) = (Shared::default(), Shared::default());
    let (mut a, mut b) = (captured(&file), captured(&other));
    let (to_b, to_a) = shunt_endpoint::conformance::connect(&mut a, &mut b);
    let key = b.export(to_a, AREA, Rights::Write).unwrap();
    let import = import(&mut a, to_b, key);
    update(&mut a, &import, 5, b"quiet", false).unwrap();
    update(&mut a, &import, 4096, b"and loud", true).unwrap();
    let fields = ["_ws.col.Info", "shunt_am.update.key", "shunt_am.data"];
    let key = format!("0x{:016x}", key.0);
    let told =
        format!("update at 5, 5 bytes\t{key}\t7175696574\nupdate with notification at 4096, 8 bytes\t{key}\t616e64206c6f7564\n");
    assert_eq!(tshark(&file.0.lock().unwrap(), &fields), told);
}

#[test]
fn tshark_reads_our_frames() {
    let mut frames = vec![];
    let config = Config { combine: 1, ..Config::lossy(2, 1472) };
    let mut world = World::new(2, config, Faults::NONE, 5);
    world.at(0, |engine, now, _, _| engine.connect(now, 1, &mut Tap(&mut frames)).unwrap());
    world.run_until(world.now + SECOND);
    world.connect(0, 1);
    world.run_until(world.now + SECOND);
    world.at(0, |engine, now, _, program| {
        engine.request(now, 1, 0, ECHO, &[1, 2], b"data", &mut Tap(&mut frames)).unwrap();
        engine.request(now, 1, 0, COUNT, &[], &[], &mut Tap(&mut frames)).unwrap();
        engine.transmit(now, &mut Tap(&mut frames), program);
        engine.disconnect(now, 1, &mut Tap(&mut frames), program).unwrap();
    });
    let text = tshark(&capture(&frames), &["_ws.col.Info", "shunt_am.word", "shunt_am.handler"]);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), frames.len(), "{text}");
    assert!(lines[0].starts_with("ask"), "{text}");
    let data = lines.iter().find(|line| line.starts_with("data seq")).unwrap_or_else(|| panic!("{text}"));
    assert!(data.contains("request, request"), "{data}");
    assert!(data.contains("0x0000000000000001,0x0000000000000002"), "{data}");
    assert!(data.ends_with(&format!("{ECHO},{COUNT}")), "{data}");
    assert!(lines.last().unwrap().starts_with("bye"), "{text}");
}

/// docs/WIRE.md, hello: each field, as it is sent.
#[test]
fn tshark_reads_hellos() {
    let (mut frames, config) = (vec![], Config { channels: 5, window: 64, held: 64, replies: 7, ..Config::lossy(2, 1024) });
    let mut world = World::new(2, config, Faults::NONE, 5);
    world.at(0, |engine, now, _, _| engine.connect(now, 1, &mut Tap(&mut frames)).unwrap());
    let names = ["window", "channels", "frame", "limit", "reliable"].map(|name| format!("shunt_am.hello.{name}"));
    let fields: Vec<_> = ["_ws.col.Info"].into_iter().chain(names.iter().map(String::as_str)).collect();
    assert_eq!(tshark(&capture(&frames[..1]), &fields), "ask\t64\t5\t1024\t7\t0\n");
}

/// docs/WIRE.md, streams of sockets: by their names, when they are asked for. And flags of messages.
#[test]
fn tshark_names_what_streams_say() {
    let plain = |task: u8, handler: u8, flags: u8| {
        framed(&[&[0x26, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, task, handler, 1, flags, 0, 0, 0, 0][..], &[9; 8]].concat())
    };
    let file = packets(&[plain(1, 4, 0), plain(2, 3, 0), plain(6, 4, 3), plain(1, 99, 0)]);
    let fields = ["_ws.col.Info", "shunt_am.last", "shunt_am.refused", "_ws.lua.error"];
    let lines = |names: [&str; 4]| {
        let flags = |at| if at == 2 { "1\t1" } else { "0\t0" };
        names.iter().enumerate().map(|(at, name)| format!("plain: {name}\t{}\t\n", flags(at))).collect::<String>()
    };
    let told = |options: &[&str]| tshark_with(options, &file, &fields).replace("True", "1").replace("False", "0");
    assert_eq!(told(&[]), lines(["request", "reply", "fetched", "request"]));
    assert_eq!(told(&["-o", "shunt_am.streams:TRUE"]), lines(["fin", "refused", "fetched", "request"]));
}

/// A run that nobody has cut is all of its frames.
#[test]
fn tshark_reads_runs() {
    let message = |word: u64| {
        let mut frame = vec![0x26, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, COUNT, 1, 0, 0, 0, 0, 0];
        frame.extend(word.to_le_bytes());
        framed(&frame)
    };
    let run = [message(1), message(2), message(3)].concat();
    let text = tshark(&packets(&[run, message(4)]), &["_ws.col.Info", "shunt_am.word", "_ws.lua.error"]);
    let words = |all: &[u64]| all.iter().map(|word| format!("0x{word:016x}")).collect::<Vec<_>>().join(",");
    let told = format!("plain: request, and 2 more in its run\t{}\t\nplain: request\t{}\t\n", words(&[1, 2, 3]), words(&[4]));
    assert_eq!(text, told);
}

/// docs/WIRE.md, the gate's datagrams.
#[test]
fn tshark_reads_questions() {
    let datagram = |kind: u8, status: u8| {
        let mut bytes = vec![0; 120];
        bytes[..8].copy_from_slice(b"shuntgat");
        (bytes[8], bytes[12], bytes[116]) = (3, kind, status);
        for (at, last) in [(48, 1), (64, 2)] {
            bytes[at + 10..at + 16].copy_from_slice(&[0xff, 0xff, 10, 77, 0, last]);
        }
        bytes[80..84].copy_from_slice(&[0x40, 0x9c, 80, 0]);
        bytes
    };
    let fields = ["_ws.col.Protocol", "_ws.col.Info", "shunt_gate.client", "shunt_gate.client_port", "_ws.lua.error"];
    let text = tshark(&packets(&[datagram(1, 0), datagram(2, 0), datagram(3, 1)]), &fields);
    let line = |info: &str| format!("shunt-gate\t{info}\t::ffff:10.77.0.1\t40000\t\n");
    assert_eq!(text, ["ask port 80", "cookie port 80", "answer port 80: no station"].map(line).concat());
}
