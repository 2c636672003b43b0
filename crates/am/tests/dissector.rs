//! The Wireshark dissector reads what engines send. Without tshark there is nothing to ask.

mod network;

use network::*;
use shunt_am::{Config, Link};
use std::path::Path;
use std::process::Command;

/// Frames as a capture file of Ethernet, IPv4 and UDP, each behind an endpoint's header.
fn capture(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = vec![];
    for word in [0xa1b2_c3d4u32, 4 << 16 | 2, 0, 0, 65_535, 1] {
        file.extend(word.to_le_bytes());
    }
    for frame in frames {
        let mut payload = b"sh\x01\x00".to_vec();
        payload.extend((frame.len() as u32).to_le_bytes());
        payload.extend(7u64.to_le_bytes());
        payload.extend(frame);
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

#[test]
fn tshark_reads_our_frames() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("tshark is not installed: nothing to ask");
        return;
    }
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
    let file = std::env::temp_dir().join(format!("shunt-am-{}.pcap", std::process::id()));
    std::fs::write(&file, capture(&frames)).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/shunt-am.lua");
    let output = Command::new("tshark")
        .arg("-X")
        .arg(format!("lua_script:{}", script.display()))
        .arg("-r")
        .arg(&file)
        .args(["-T", "fields", "-e", "_ws.col.Info", "-e", "shunt_am.word", "-e", "shunt_am.handler"])
        .output()
        .unwrap();
    std::fs::remove_file(&file).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), frames.len(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    assert!(lines[0].starts_with("ask"), "{text}");
    let data = lines.iter().find(|line| line.starts_with("data seq")).unwrap_or_else(|| panic!("{text}"));
    assert!(data.contains("request, request"), "{data}");
    assert!(data.contains("0x0000000000000001,0x0000000000000002"), "{data}");
    assert!(data.ends_with(&format!("{ECHO},{COUNT}")), "{data}");
    assert!(lines.last().unwrap().starts_with("bye"), "{text}");
}
