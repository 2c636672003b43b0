//! What cannot be taken stays the kernel's, by name and unharmed; and what others do to a connection meanwhile.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use shunt_testkit::hosts::Host;
use shunt_xdp::escrow::{Escrow, Statement};
use shunt_xdp::protocol::Decline;

use crate::agent::{pair, Agent};
use crate::client::{Line, Queue, RINGS};

const PATIENCE: Duration = Duration::from_secs(20);

fn set(stream: &TcpStream, level: i32, name: i32, value: i32) {
    shunt_sys::calls::setsockopt_int(stream.as_raw_fd(), level, name, value).expect("an option");
}

/// Says something and hears it, wherever the connection is.
pub fn echo(queue: &mut Queue, lines: &mut [Line], said: &[u8]) {
    let until = Instant::now() + PATIENCE;
    let (mut written, mut heard, mut bytes) = (0, Vec::new(), vec![0; 64 << 10]);
    while heard.len() < said.len() {
        assert!(Instant::now() < until, "{written} written, {} heard, {:?}", heard.len(), lines[0].ended);
        queue.turn(lines);
        written += lines[0].write(&said[written..]);
        let count = lines[0].read(&mut bytes).expect("no end");
        heard.extend_from_slice(&bytes[..count]);
    }
    assert!(heard == said);
}

/// A connection that has been made odd in some way.
fn odd(server: SocketAddr, make: impl FnOnce(&TcpStream)) -> Line {
    let line = Line::connect(server);
    make(&line.stream);
    line
}

#[test]
fn an_agent_that_was_not_told_to_takes_none() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::that_takes_none(&hosts[0]);
    hosts[0].enter(|| {
        let device = Queue::attach(&hosts[0]);
        assert_eq!(device.agent().hands().map(|_| ()), Err(shunt_sys::Errno(libc::EOPNOTSUPP)));
    });
}

/// A client that waits no longer uses the connection.
#[test]
fn a_request_that_nobody_waits_for_is_passed_over() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut line = Line::connect(server);
        let escrow = Escrow::create(RINGS.0, RINGS.1).expect("an escrow");
        escrow.close();
        assert_eq!(queue.hands.take(line.stream.as_raw_fd(), &escrow), Err(shunt_sys::Errno(libc::EINVAL)));
        echo(&mut queue, core::slice::from_mut(&mut line), b"the kernel's");
    });
}

#[test]
fn each_reason_is_told_and_does_no_harm() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let filter = |stream: &TcpStream| {
            let mut all = libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: u32::MAX };
            let program = libc::sock_fprog { len: 1, filter: &mut all };
            let (value, size) = ((&raw const program).cast(), size_of_val(&program) as u32);
            shunt_sys::calls::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, value, size)
                .expect("a filter");
        };
        let (ip, tcp) = (libc::IPPROTO_IP, libc::IPPROTO_TCP);
        let cases: [(Decline, &dyn Fn(&TcpStream)); 9] = [
            (Decline::Filter, &filter),
            (Decline::Urgent, &|stream| set(stream, libc::SOL_SOCKET, libc::SO_OOBINLINE, 1)),
            (Decline::Options, &|stream| set(stream, libc::SOL_SOCKET, libc::SO_MARK, 5)),
            (Decline::Layered, &|stream| {
                let name = b"tls\0";
                let made =
                    shunt_sys::calls::setsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_ULP, name.as_ptr().cast(), 3);
                // A kernel without it has no such connections: then this one is made odd in another way.
                if made.is_err() {
                    set(stream, libc::SOL_SOCKET, libc::SO_OOBINLINE, 1);
                }
            }),
            (Decline::Options, &|stream| set(stream, ip, libc::IP_MINTTL, 1)),
            (Decline::Options, &|stream| set(stream, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)),
            (Decline::Options, &|stream| {
                // Of TCP from Linux 6.9 on; before, there is a clock of its own to make it odd.
                let made = shunt_sys::calls::setsockopt_int(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEEK_OFF, 0);
                if made.is_err() {
                    set(stream, libc::SOL_SOCKET, libc::SO_MARK, 5);
                }
            }),
            (Decline::Options, &|stream| set(stream, tcp, libc::TCP_REPAIR, 1)),
            (Decline::Ended, &|stream| stream.shutdown(std::net::Shutdown::Write).expect("an end")),
        ];
        for (expected, make) in cases {
            let mut line = odd(server, make);
            let refused = queue.take(&mut line).expect_err("it cannot be taken");
            let layered = expected == Decline::Layered && refused == Decline::Urgent;
            assert!(refused == expected || layered, "{refused:?}, not {expected:?}");
            let _ = shunt_sys::calls::setsockopt_int(line.stream.as_raw_fd(), tcp, libc::TCP_REPAIR, 0);
            if expected != Decline::Ended {
                echo(&mut queue, std::slice::from_mut(&mut line), b"as before");
            }
        }
        // A reader that reads no more: what comes is thrown away, and the peer is not told.
        let mut line = odd(server, |stream| stream.shutdown(std::net::Shutdown::Read).expect("an end"));
        assert_eq!(queue.take(&mut line), Err(Decline::Ended));
        // More waits than the ring holds.
        let mut line = Line::connect(server);
        assert_eq!(line.write(&[7; 8192]), 8192);
        let until = Instant::now() + PATIENCE;
        let waits = |line: &Line| shunt_sys::calls::bytes_waiting(line.stream.as_raw_fd()).expect("a number");
        while waits(&line) < 8192 {
            assert!(Instant::now() < until);
        }
        assert_eq!(queue.take_with(&mut line, (1 << 12, 1 << 12)), Err(Decline::Unread));
        queue.take_with(&mut line, (1 << 12, 1 << 13)).expect("as many as it holds");
        assert_eq!(line.read(&mut [0; 8192]), Some(8192));
        // Of loopback, and no stream at all.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
        let mut line = Line::connect(listener.local_addr().expect("an address"));
        assert_eq!(queue.take(&mut line), Err(Decline::Route));
        let datagrams = std::net::UdpSocket::bind("127.0.0.1:0").expect("a socket");
        let escrow = Escrow::create(RINGS.0, RINGS.1).expect("memory");
        assert_eq!(queue.hands.take(datagrams.as_raw_fd(), &escrow).expect("an answer"), Err(Decline::Kind));
        // ECN, which both hosts have to agree upon.
        for host in &hosts {
            host.enter(|| std::fs::write("/proc/sys/net/ipv4/tcp_ecn", "1")).expect("a setting");
        }
        let mut line = Line::connect(server);
        assert_eq!(queue.take(&mut line), Err(Decline::Congestion));
    });
}

/// Frames of connections that a client never had are not handed on, and another's connection is not given back for it.
#[test]
fn nothing_of_others_can_be_handed_on() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut lines = vec![Line::connect(server)];
        let other = shunt_xdp::protocol::Connection::connect(&hosts[0].interface).expect("the agent");
        // A client without a queue: it has no descriptor to give, and is not heard.
        assert_eq!(other.hands().map(|_| ()), Err(shunt_sys::Errno(libc::ENOTCONN)));
        assert_eq!(queue.device.agent().hands().map(|_| ()), Err(shunt_sys::Errno(libc::EALREADY)));
        queue.take(&mut lines[0]).expect("it is taken");
        for number in 0..5 {
            assert_eq!(other.give(number), Err(shunt_sys::Errno(libc::EOPNOTSUPP)));
        }
        let mut frame = vec![0; 54];
        let at = 34;
        frame[at..at + 2].copy_from_slice(&lines[0].tuple.theirs.port().to_be_bytes());
        frame[at + 2..at + 4].copy_from_slice(&lines[0].tuple.ours.port().to_be_bytes());
        frame[at + 12] = 5 << 4;
        let way = shunt_xdp::tcp::Way {
            tuple: shunt_xdp::tcp::Tuple { ours: lines[0].tuple.theirs, theirs: lines[0].tuple.ours },
            from: [2; 6],
            to: [4; 6],
            service: 0,
            hops: 64,
        };
        way.prepare().complete(&mut frame);
        assert_eq!(other.pass(&frame), Err(shunt_sys::Errno(libc::EOPNOTSUPP)));
        assert_eq!(queue.hands.pass(&frame), Err(shunt_sys::Errno(libc::EBUSY)), "it is taken still");
        assert_eq!(queue.hands.pass(&frame[..40]), Err(shunt_sys::Errno(libc::EINVAL)));
        echo(&mut queue, &mut lines, b"still there");
        queue.give(&mut lines[0]);
        assert_eq!(queue.hands.pass(&frame), Ok(()), "it had that one");
        echo(&mut queue, &mut lines, b"and again");
    });
}

/// Rules of a host, if it has `nft`; else a sentence on the real standard error.
pub fn rules(host: &Host, text: &str) -> bool {
    let mut command = host.command("nft");
    match command.args(["-f", "-"]).stdin(std::process::Stdio::piped()).spawn() {
        Ok(mut child) => {
            child.stdin.take().expect("piped").write_all(text.as_bytes()).expect("a reader");
            assert!(child.wait().expect("a child").success(), "nft refused the rules");
            true
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "skipped: rules: nft: {error}");
            false
        }
    }
}

/// Connection tracking sees nothing of what goes at user level, and drops nothing of what the kernel goes on with.
#[test]
fn tracked_connections_go_on() {
    let Some(hosts) = pair() else { return };
    const RULES: &str = "table ip t {
        counter invalid { }
        chain i { type filter hook input priority 0; ct state invalid counter name invalid drop; ct state established accept; }
        chain o { type filter hook output priority 0; ct state invalid counter name invalid drop; }
    }
";
    if !rules(&hosts[0], RULES) {
        return;
    }
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut lines = vec![Line::connect(server)];
        let said: Vec<u8> = (0..200_000).map(|byte| (byte * 11) as u8).collect();
        for _ in 0..20 {
            echo(&mut queue, &mut lines, b"by the kernel");
            let until = Instant::now() + PATIENCE;
            while queue.take(&mut lines[0]).is_err() {
                assert!(Instant::now() < until);
            }
            echo(&mut queue, &mut lines, &said);
            queue.give(&mut lines[0]);
        }
        echo(&mut queue, &mut lines, b"by the kernel");
    });
    let mut shown = String::new();
    let mut command: Command = hosts[0].command("nft");
    let output = command.args(["list", "counter", "ip", "t", "invalid"]).output().expect("nft");
    shown.push_str(&String::from_utf8_lossy(&output.stdout));
    assert!(shown.contains("packets 0 "), "{shown}");
}

/// An address that is translated is not the one on the wire.
#[test]
fn translated_connections_are_not_taken() {
    let Some(hosts) = pair() else { return };
    const RULES: &str = "table ip n {
        chain o { type nat hook output priority -100; tcp dport 7 dnat to 10.77.0.2:PORT; }
    }
";
    let server = crate::peer::serve(&hosts[1], false);
    if !rules(&hosts[0], &RULES.replace("PORT", &server.port().to_string())) {
        return;
    }
    let _agent = Agent::start(&hosts[0]);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut line = Line::connect((hosts[1].addresses[0], 7).into());
        assert_eq!(queue.take(&mut line), Err(Decline::Translated));
        line.stream.set_nonblocking(false).expect("a flag");
        line.stream.write_all(b"as before").expect("room");
        line.stream.read_exact(&mut [0; 9]).expect("an echo");
    });
}

/// While there is no way to the peer a connection cannot go back; it waits, as it would on Linux for its segments to get through.
#[test]
fn a_way_that_is_lost_for_a_while_loses_no_connection() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    let link = |state| {
        let done = hosts[0].command("ip").args(["link", "set", &hosts[0].interface, state]).status();
        assert!(done.expect("ip").success());
    };
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut lines = vec![Line::connect(server)];
        echo(&mut queue, &mut lines, b"before");
        let until = Instant::now() + PATIENCE;
        while queue.take(&mut lines[0]).is_err() {
            assert!(Instant::now() < until);
        }
        link("down");
        let mut taken = lines[0].taken.take().expect("it is");
        taken.give(&queue.hands).expect("an answer");
        assert!(!taken.is_given());
        link("up");
        lines[0].taken = Some(taken);
        while !lines[0].taken.as_ref().is_some_and(|taken| taken.is_given()) {
            assert!(Instant::now() < until);
        }
        lines[0].taken = None;
        echo(&mut queue, &mut lines, b"behind");
    });
}

/// What a process writes into its escrow against the rules costs it the connection, and other connections nothing.
#[test]
fn a_garbled_escrow_costs_its_own_connection() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server = crate::peer::serve(&hosts[1], false);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut lines = vec![Line::connect(server)];
        let garbled: [fn(&mut Statement); 6] = [
            |statement| statement.written = statement.state.unacknowledged.plus(RINGS.0 + 1),
            |statement| statement.state.sent = statement.written.plus(1),
            |statement| statement.unread = statement.state.expected.plus(1),
            |statement| statement.state.segment = 0,
            |statement| statement.state.scale = 200,
            // Numbers that could be right, and are not.
            |statement| {
                statement.unread = statement.unread.plus(1 << 30);
                statement.state.expected = statement.state.expected.plus(1 << 30);
                statement.state.promised_from = statement.state.expected;
            },
        ];
        for garble in garbled {
            let mut other = Line::connect(server);
            let escrow = Escrow::create(RINGS.0, RINGS.1).expect("memory");
            let number = queue.hands.take(other.stream.as_raw_fd(), &escrow).expect("an answer").expect("it is taken");
            let mut statement = escrow.statement();
            garble(&mut statement);
            escrow.open(&statement);
            assert_eq!(queue.hands.give(number), Ok(()));
            assert!(escrow.is_restored());
            assert!(!matches!(other.stream.read(&mut [0; 8]), Ok(1..)));
            let until = Instant::now() + PATIENCE;
            while queue.take(&mut lines[0]).is_err() {
                assert!(Instant::now() < until);
            }
            echo(&mut queue, &mut lines, b"beside");
            queue.give(&mut lines[0]);
            echo(&mut queue, &mut lines, b"behind");
        }
    });
}
