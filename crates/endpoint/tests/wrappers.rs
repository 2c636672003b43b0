//! What a trace and a capture say.

use shunt_endpoint::conformance::connect;
use shunt_endpoint::device::local::{Local, Switch};
use shunt_endpoint::device::udp::{ipv4, ipv6, Options, Udp};
use shunt_endpoint::wrapper::capture::Capture;
use shunt_endpoint::wrapper::trace::{Event, Trace};
use shunt_endpoint::{Arrival, Endpoint, Message};
use std::io::Write;
use std::process::{Command, Stdio};

fn couple() -> (Local, Local) {
    let switch = Switch::new().unwrap();
    (switch.plug().unwrap(), switch.plug().unwrap())
}

#[test]
fn a_trace_tells_each_call() {
    let (a, mut b) = couple();
    let mut told = Vec::new();
    let mut a = Trace::new(a, |event: Event<'_>| told.push(format!("{event:?}").split(['(', ' ']).next().unwrap().to_string()));
    let (to_b, to_a) = connect(&mut a, &mut b);
    a.send(&Message::small(to_b, b"x")).unwrap();
    a.flush().unwrap();
    b.send(&Message::small(to_a, b"y")).unwrap();
    b.flush().unwrap();
    let mut arrival = Arrival::empty();
    assert!(a.receive(&mut arrival));
    a.release(&mut arrival);
    assert!(!a.receive(&mut arrival));
    assert!(a.arm());
    a.disarm();
    a.close(to_b);
    drop(a);
    assert_eq!(told, ["Open", "Send", "Flush", "Receive", "Release", "Arm", "Disarm", "Close"]);
}

/// The blocks of a pcapng file: kind and body.
fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
    let mut all = Vec::new();
    while !file.is_empty() {
        let length = word(&file[4..]) as usize;
        assert_eq!(length % 4, 0);
        assert_eq!(word(&file[length - 4..]), length as u32, "both lengths of a block are equal");
        all.push((word(file), file[8..length - 4].to_vec()));
        file = &file[length..];
    }
    all
}

/// What tcpdump, which `scripts/prepare test` installs, makes of a capture.
fn tcpdump(file: &[u8]) -> String {
    let child = Command::new("tcpdump").args(["-n", "-v", "-r", "-"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("tcpdump");
    child.stdin.take().unwrap().write_all(file).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "tcpdump cannot read the capture");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_capture_holds_every_message_as_a_packet() {
    let v4 = || Udp::bind(&ipv4([127, 0, 0, 1], 0), Options::default()).unwrap();
    let v6 = || Udp::bind(&ipv6([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], 0, 0), Options::default());
    let mut pairs = vec![(v4(), v4())];
    // A machine without IPv6 has only the first pair.
    pairs.extend(v6().and_then(|a| v6().map(|b| (a, b))));
    for (a, mut b) in pairs {
        let mut a = Capture::new(a, Vec::new()).unwrap();
        let (to_b, to_a) = connect(&mut a, &mut b);
        a.send(&Message::small(to_b, b"request")).unwrap();
        a.flush().unwrap();
        b.send(&Message::small(to_a, b"reply")).unwrap();
        b.flush().unwrap();
        let mut arrival = Arrival::empty();
        while !a.receive(&mut arrival) {}
        let v6 = a.address().bytes().len() == 28;
        let file = a.finish().unwrap();
        let blocks = blocks(&file);
        assert_eq!(blocks.iter().map(|(kind, _)| *kind).collect::<Vec<_>>(), [0x0a0d_0d0a, 1, 6, 6]);
        for ((_, body), text) in blocks[2..].iter().zip([&b"request"[..], b"reply"]) {
            let length = u32::from_le_bytes(body[12..16].try_into().unwrap()) as usize;
            let packet = &body[20..20 + length];
            assert_eq!(packet[0] >> 4, if v6 { 6 } else { 4 });
            assert!(packet.ends_with(text));
            assert_eq!(length, if v6 { 40 } else { 20 } + 8 + 16 + text.len());
        }
        let said = tcpdump(&file);
        assert!(said.contains("UDP, length 23") && said.contains("UDP, length 21"), "{said}");
        assert!(!said.contains("bad"), "{said}");
    }
}
