//! `shunt agent --capture` holds what a taken connection says, which no capture of the kernel's does.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use shunt_testkit::captured::{self, Captured, Frame};
use shunt_testkit::{program, Random};

use crate::site::Site;

/// Connections until one is taken, and stays so on a crowded machine.
const ATTEMPTS: usize = 30;

/// What one end sent, by the segments of the file: each byte once, none missing between the first and the last.
fn reassembled(frames: &[Frame], ports: [u16; 2], is_sent: bool) -> Vec<u8> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut first = None;
    for frame in frames.iter().filter(|frame| frame.is_sent == is_sent) {
        let Some(segment) = frame.segment().filter(|segment| segment.ports == ports && !segment.bytes.is_empty()) else {
            continue;
        };
        assert_eq!(frame.length as usize, frame.bytes.len(), "nothing of it is cut");
        let at = segment.sequence.wrapping_sub(*first.get_or_insert(segment.sequence)) as usize;
        assert!(at <= bytes.len(), "bytes are missing: {at} follows {}", bytes.len());
        let known = (bytes.len() - at).min(segment.bytes.len());
        assert_eq!(bytes[at..at + known], segment.bytes[..known], "what was sent again is the same");
        bytes.extend_from_slice(&segment.bytes[known..]);
    }
    bytes
}

/// A conversation of so many rounds: what the client sent, and what it got.
fn talk(stream: &mut TcpStream, random: &mut Random, rounds: usize) -> [Vec<u8>; 2] {
    let mut said = [Vec::new(), Vec::new()];
    for _ in 0..rounds {
        let text: Vec<u8> = (0..1 + random.below(600)).map(|_| b'a' + random.below(26) as u8).collect();
        let question = [format!("*2\r\n$4\r\nECHO\r\n${}\r\n", text.len()).as_bytes(), &text, b"\r\n"].concat();
        let mut answer = vec![0; format!("${}\r\n\r\n", text.len()).len() + text.len()];
        stream.write_all(&question).expect("it is sent");
        stream.read_exact(&mut answer).expect("an answer");
        said[0].extend(question);
        said[1].extend(answer);
    }
    said
}

fn is_part(part: &[u8], of: &[u8]) -> bool {
    part.is_empty() || of.windows(part.len()).any(|window| window == part)
}

#[test]
fn a_capture_holds_every_byte_of_a_taken_connection() {
    let Some(mut site) = Site::capturing("plain-capture") else { return };
    let (address, file) = (site.address(0), site.capture());
    let options = ["--port", "6379", "--bind", &address, "--save", "", "--protected-mode", "no"];
    let server = site.start(0, 6379, "server", &program("redis-server", "redis-server"), &options);
    site.wait_for_listener(0, 6379);
    let mut random = Random::seeded(7);
    let mut found = None;
    for _ in 0..ATTEMPTS {
        let before = ["taken", "given-back"].map(|reason| site.count(&server, reason));
        let mut stream = site.hosts[1].enter(|| TcpStream::connect((address.as_str(), 6379))).expect("a connection");
        // Until it is taken the kernel carries it.
        talk(&mut stream, &mut random, 20);
        let said = talk(&mut stream, &mut random, 300);
        let after = ["taken", "given-back"].map(|reason| site.count(&server, reason));
        let port = stream.local_addr().expect("an address").port();
        if after == [before[0] + 1, before[1]] {
            found = Some((said, port, stream));
            break;
        }
    }
    let ([sent, received], port, stream) = found.expect("a connection that is taken");
    site.agent.take().expect("an agent").stop();
    drop(stream);

    let captured = captured::read(&file).expect("a whole file");
    assert_eq!(captured.missing(), 0, "{:?}", captured.counts);
    let Captured { frames, interfaces, .. } = &captured;
    let came = reassembled(frames, [port, 6379], false);
    let left = reassembled(frames, [6379, port], true);
    assert!(is_part(&sent, &came), "{} bytes of {} came", came.len(), sent.len());
    assert!(is_part(&received, &left), "{} bytes of {} left", left.len(), received.len());
    assert!(frames.windows(2).all(|pair| pair[0].time <= pair[1].time), "in order of time");
    assert!(interfaces.iter().any(|said| said.contains("queue 0, process") && said.contains("redis")), "{interfaces:?}");
    // What the stranger reads is the same, and has no objection.
    let tshark = |arguments: &[&str]| {
        let output = Command::new(program("tshark", "tshark")).arg("-r").arg(&file).args(arguments).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let ends = format!("follow,tcp,raw,{}:{port},{address}:6379", site.address(1));
    let follow = tshark(&["-q", "-z", &ends]);
    // Either end may have been heard first.
    let server_is_first = follow.contains(&format!("Node 0: {address}:6379"));
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let lines = |answers: bool| {
        follow.lines().filter(|line| line.starts_with('\t') == (answers != server_is_first)).map(str::trim).collect::<String>()
    };
    assert!(lines(false).contains(&hex(&sent)) && lines(true).contains(&hex(&received)), "{follow}");
    // What a veth hands over has the sum of the pseudo-header alone.
    let odd = format!("tcp.port == {port} && (tcp.analysis.lost_segment || (ip.src == {address} && tcp.checksum.status == 0))");
    assert_eq!(tshark(&["-o", "tcp.check_checksum:TRUE", "-Y", &odd]), "");
}
