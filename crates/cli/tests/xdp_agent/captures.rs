//! `shunt agent --capture`: frames of each kind of endpoint; files that cannot be written, and readers that do not read.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use crate::agents::{attach, pair, status, Agent, SHUNT};
use crate::{pass, until};
use shunt_endpoint::conformance::{connect, provide};
use shunt_endpoint::{Arrival, Channel, Endpoint, Message, SendError};
use shunt_testkit::hosts::{Host, Joint};
use shunt_testkit::{captured, Scratch};
use shunt_xdp::protocol::Kind;
use shunt_xdp::Xdp;

fn started(host: &Host, lend: &str, file: &Path) -> Agent {
    Agent::start(host, &["--lend", lend, "--capture", file.to_str().expect("text")])
}

/// Two endpoints, and a channel from the first to the second.
fn ends(hosts: &[Host; 2], kinds: [Kind; 2]) -> (Xdp, Xdp, Channel) {
    let (mut a, mut b) = (attach(&hosts[0], kinds[0], false), attach(&hosts[1], kinds[1], false));
    provide(&mut a, 64);
    provide(&mut b, 64);
    let (to_b, _) = connect(&mut a, &mut b);
    (a, b, to_b)
}

/// Sends so many long messages, whether or not all arrive, and looks that one more does.
fn send_many(a: &mut Xdp, b: &mut Xdp, to_b: Channel, count: usize) {
    let mut arrival = Arrival::empty();
    for number in 0..count {
        match a.send(&Message::small(to_b, &[number as u8; 112])) {
            Ok(_) | Err(SendError::NoResource) => {}
            Err(error) => panic!("{error:?}"),
        }
        a.flush().expect("the device works");
        while b.receive(&mut arrival) {
            b.release(&mut arrival);
        }
    }
    pass(a, b, to_b, b"the last one");
}

fn capture(host: &Host) -> serde_json::Value {
    status(host)["agents"][0]["capture"].clone()
}

/// Each message once, in order, at the sender and at the receiver; the file is its owner's.
#[test]
fn frames_of_each_kind_are_captured() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let scratch = Scratch::new("agent-captures");
    for (lend, kind) in [("0", Kind::Own), ("none", Kind::Multiplexed)] {
        let files = [0, 1].map(|host| scratch.join(format!("{host}-{lend}.pcapng")));
        std::fs::write(&files[0], "what was there").expect("a file");
        std::fs::set_permissions(&files[0], std::fs::Permissions::from_mode(0o644)).expect("its mode");
        let mut agents = [0, 1].map(|host| started(&hosts[host], lend, &files[host]));
        let (mut a, mut b, to_b) = ends(&hosts, [kind, kind]);
        pass(&mut a, &mut b, to_b, b"before");
        let mut arrival = Arrival::empty();
        for number in 0..50 {
            a.send(&Message::small(to_b, &[number; 100])).expect("there is room");
        }
        let mut next = 0;
        until("all arrive", || {
            a.flush().expect("the device works");
            while b.receive(&mut arrival) {
                next += usize::from(arrival.head().len() == 100);
                b.release(&mut arrival);
            }
            next == 50
        });
        drop((a, b));
        for (agent, (file, is_sent)) in agents.iter_mut().zip(files.iter().zip([true, false])) {
            agent.signal(libc::SIGTERM);
            assert_eq!(agent.wait(), Some(0));
            let captured = captured::read(file).expect("a whole file");
            // Runs leave as they are: frames of 16 bytes and 100, one behind the other.
            let datagrams = captured.frames.iter().filter(|frame| frame.is_sent == is_sent).filter_map(|frame| frame.datagram());
            let numbers: Vec<u8> = datagrams
                .flat_map(|datagram| datagram.chunks(116))
                .filter(|frame| frame.len() == 116)
                .map(|frame| frame[60])
                .collect();
            assert_eq!(numbers, (0..50).collect::<Vec<u8>>(), "{kind:?} {is_sent}");
            assert_eq!(captured.missing(), 0);
            let seen: u64 = captured.counts.iter().map(|(_, seen, _)| seen).sum();
            assert_eq!(seen, captured.frames.len() as u64);
            let of = if kind == Kind::Own { format!("process {} (", std::process::id()) } else { "of the agent".to_string() };
            assert!(captured.interfaces.iter().any(|said| said.contains(&of)), "{:?}", captured.interfaces);
            assert_eq!(file.metadata().expect("a file").permissions().mode() & 0o777, 0o600);
        }
    }
}

/// A disk that is full, in the middle: the file is whole as far as it goes, the reason is told, and endpoints go on.
#[test]
fn a_full_disk_ends_the_capture_alone() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let scratch = Scratch::new("agent-full");
    let file = scratch.join("frames.pcapng");
    let _other = Agent::start(&hosts[1], &["--lend", "0"]);
    let mut agent = started(&hosts[0], "0", &file);
    let child = agent.child.id() as i32;
    let limit_files = |most| {
        let limit = libc::rlimit { rlim_cur: most, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: a child of ours; the structure is read.
        assert_eq!(unsafe { libc::prlimit(child, libc::RLIMIT_FSIZE, &limit, std::ptr::null_mut()) }, 0);
    };
    let (mut a, mut b, to_b) = ends(&hosts, [Kind::Own; 2]);
    // Behind the endpoints, whose memory is a file, too.
    limit_files(100_001);
    until("the capture has ended", || {
        send_many(&mut a, &mut b, to_b, 200);
        capture(&hosts[0])["failure"].as_str().is_some_and(|failure| failure.contains("File too large"))
    });
    send_many(&mut a, &mut b, to_b, 50);
    drop((a, b));
    limit_files(libc::RLIM_INFINITY);
    let (mut a, mut b, to_b) = ends(&hosts, [Kind::Own; 2]);
    pass(&mut a, &mut b, to_b, b"another");
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait(), Some(0));
    let mut said = String::new();
    agent.child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(said.contains("the capture ends") && said.contains("File too large"), "{said}");
    let captured = captured::read(&file).expect("a whole file");
    let length = file.metadata().expect("a file").len();
    assert!(length <= 100_001 && length > 99_000 && captured.frames.len() > 300, "{length} bytes");
}

/// Nobody waits for a reader that does not read: what finds no room is counted. One that ends, ends the capture alone.
#[test]
fn readers_of_pipes_hold_nothing_up() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let scratch = Scratch::new("agent-pipes");
    let pipe = scratch.join("pipe");
    let name = std::ffi::CString::new(pipe.to_str().expect("text")).expect("a path");
    // SAFETY: a string that ends with a zero byte.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let open = || File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&pipe).expect("its reader");
    let _other = Agent::start(&hosts[1], &["--lend", "0"]);
    // 4 MiB of notes of 136 bytes, and some more.
    const MANY: usize = 45_000;
    for drains in [false, true] {
        let reader = open();
        let mut agent = started(&hosts[0], "0", &pipe);
        let (mut a, mut b, to_b) = ends(&hosts, [Kind::Own; 2]);
        send_many(&mut a, &mut b, to_b, MANY);
        let drain = drains.then(|| {
            // SAFETY: a descriptor that is open.
            unsafe { libc::fcntl(std::os::fd::AsRawFd::as_raw_fd(&reader), libc::F_SETFL, 0) };
            let mut reader = reader.try_clone().expect("a number");
            std::thread::spawn(move || {
                let mut bytes = Vec::new();
                reader.read_to_end(&mut bytes).expect("until its end");
                bytes
            })
        });
        if drains {
            until("some are missing", || capture(&hosts[0])["lost"].as_u64().is_some_and(|lost| lost > 0));
        }
        drop((a, b));
        agent.signal(libc::SIGTERM);
        assert_eq!(agent.wait(), Some(0));
        let mut said = String::new();
        agent.child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        match drain {
            None => assert!(said.contains("its reader does not read"), "{said}"),
            Some(drain) => {
                let captured = captured::of(&drain.join().expect("bytes")).expect("whole blocks");
                let (seen, missing) = captured.counts.iter().fold((0, 0), |sum, count| (sum.0 + count.1, sum.1 + count.2));
                assert!(
                    missing > 0 && seen - missing == captured.frames.len() as u64,
                    "{seen} {missing} {}",
                    captured.frames.len()
                );
                assert!(said.contains("are missing"), "{said}");
            }
        }
    }
    let reader = open();
    let mut agent = started(&hosts[0], "0", &pipe);
    let (mut a, mut b, to_b) = ends(&hosts, [Kind::Own; 2]);
    pass(&mut a, &mut b, to_b, b"one");
    drop(reader);
    until("the capture has ended", || {
        capture(&hosts[0])["failure"].as_str().is_some_and(|failure| failure.contains("reader has ended"))
    });
    pass(&mut a, &mut b, to_b, b"two");
    agent.signal(libc::SIGTERM);
    assert_eq!(agent.wait(), Some(0));
}

/// Sentences, before anything is touched; a second agent leaves the first one's file alone.
#[test]
fn files_that_cannot_be_written() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let scratch = Scratch::new("agent-refused");
    let run = |file: &Path| {
        let mut command = hosts[0].command(SHUNT);
        let output =
            command.args(["agent", "--interface", &hosts[0].interface, "--capture"]).arg(file).output().expect("it runs");
        assert_eq!(output.status.code(), Some(1));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    std::os::unix::fs::symlink("/nowhere", scratch.join("link")).expect("a link");
    for (file, sentence) in [
        (scratch.join("missing/file"), "No such file or directory"),
        (scratch.join("link"), "symbolic link"),
        (scratch.path().to_path_buf(), "Is a directory"),
        ("/dev/full".into(), "No space left on device"),
    ] {
        let said = run(&file);
        assert!(said.contains("--capture") && said.contains(sentence), "{}: {said}", file.display());
    }
    let file = scratch.join("file");
    let first = started(&hosts[0], "0", &file);
    let length = file.metadata().expect("a file").len();
    assert!(length > 0 && run(&file).contains("has an agent already"));
    assert_eq!(file.metadata().expect("a file").len(), length);
    drop(first);
}
