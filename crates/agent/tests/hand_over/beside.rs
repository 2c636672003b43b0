//! The socket itself, while its connection is taken: what other holders of the descriptor do with it, and what its options become.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use shunt_sys::{calls, Errno};
use shunt_testkit::hosts::Host;
use shunt_xdp::escrow::Escrow;
use shunt_xdp::protocol::{Decline, Request};
use shunt_xdp::tcp::{Tuple, Way, TCP};

use crate::agent::{pair, Agent};
use crate::client::{Line, Queue, RINGS};

const PATIENCE: Duration = Duration::from_secs(20);

fn option(fd: RawFd, level: i32, name: i32) -> i32 {
    calls::getsockopt_int(fd, level, name).expect("an option")
}

fn set(fd: RawFd, level: i32, name: i32, value: i32) -> Result<(), Errno> {
    calls::setsockopt_int(fd, level, name, value)
}

/// A connection that is taken, and its peer, which is the test's.
fn taken(hosts: &[Host; 2], queue: &mut Queue) -> (Line, TcpStream) {
    taken_with(hosts, queue, |_| ())
}

fn taken_with(hosts: &[Host; 2], queue: &mut Queue, make: impl FnOnce(&TcpStream)) -> (Line, TcpStream) {
    let (mut line, peer) = connected(hosts);
    make(&line.stream);
    take(queue, &mut line);
    (line, peer)
}

fn connected(hosts: &[Host; 2]) -> (Line, TcpStream) {
    let listener = hosts[1].enter(|| TcpListener::bind((hosts[1].addresses[0], 0))).expect("a listener");
    let line = Line::connect(listener.local_addr().expect("an address"));
    let (peer, _) = listener.accept().expect("a connection");
    peer.set_read_timeout(Some(PATIENCE)).expect("a limit");
    peer.set_nodelay(true).expect("an option");
    (line, peer)
}

fn take(queue: &mut Queue, line: &mut Line) {
    let until = Instant::now() + PATIENCE;
    while let Err(decline) = queue.take(line) {
        assert!(decline == Decline::Unacknowledged && Instant::now() < until, "{decline:?}");
    }
}

/// Turns until the peer has heard all of this.
fn hear(queue: &mut Queue, line: &mut Line, peer: &mut TcpStream, expected: &[u8]) {
    peer.set_nonblocking(true).expect("a flag");
    let until = Instant::now() + PATIENCE;
    let (mut heard, mut bytes) = (Vec::new(), vec![0; 64 << 10]);
    while heard.len() < expected.len() {
        assert!(Instant::now() < until, "{} of {}, {:?}", heard.len(), expected.len(), line.ended);
        queue.turn(std::slice::from_mut(line));
        match peer.read(&mut bytes) {
            Ok(0) => panic!("an end after {} of {}", heard.len(), expected.len()),
            Ok(count) => heard.extend_from_slice(&bytes[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => panic!("{error}"),
        }
    }
    peer.set_nonblocking(false).expect("a flag");
    assert!(heard == expected);
}

fn wait_given(line: &mut Line) {
    let until = Instant::now() + PATIENCE;
    while !line.taken.as_ref().is_some_and(|taken| taken.is_given()) {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    line.taken = None;
}

/// Whoever has the descriptor has no powers of TCP_REPAIR over it, and can make no other connection of it unseen.
#[test]
fn a_taken_socket_is_not_in_repair() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let (mut line, mut peer) = taken(&hosts, &mut queue);
        let fd = line.stream.as_raw_fd();
        assert_eq!(option(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR), 0);
        for (name, value) in [(libc::TCP_REPAIR_QUEUE, 1), (libc::TCP_QUEUE_SEQ, 7)] {
            assert_eq!(set(fd, libc::IPPROTO_TCP, name, value), Err(Errno(libc::EPERM)));
        }
        assert_eq!(option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR), 0);
        hear_after(&mut queue, &mut line, &mut peer, b"as before");
    });
}

fn hear_after(queue: &mut Queue, line: &mut Line, peer: &mut TcpStream, said: &[u8]) {
    assert_eq!(line.write(said), said.len());
    hear(queue, line, peer, said);
}

/// What another holder of the descriptor writes is sent behind, and once; what it would read it does not get.
#[test]
fn what_other_holders_write_is_sent_when_it_is_given_back() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let (mut line, mut peer) = connected(&hosts);
        peer.write_all(b"unread").expect("room");
        let until = Instant::now() + PATIENCE;
        while calls::bytes_waiting(line.stream.as_raw_fd()) != Ok(6) {
            assert!(Instant::now() < until);
        }
        take(&mut queue, &mut line);
        let mut other = line.stream.try_clone().expect("a descriptor");
        hear_after(&mut queue, &mut line, &mut peer, b"first");
        assert_eq!(other.read(&mut [0; 6]).map_err(|error| error.kind()), Err(std::io::ErrorKind::WouldBlock));
        let foreign: Vec<u8> = (0..30_000).map(|byte| (byte * 13) as u8).collect();
        assert_eq!(other.write(&foreign).expect("room"), foreign.len());
        hear_after(&mut queue, &mut line, &mut peer, b"second");
        let mut bytes = [0; 16];
        assert_eq!(line.read(&mut bytes), Some(6));
        assert_eq!(&bytes[..6], b"unread");
        if line.taken.is_some() {
            queue.give(&mut line);
        }
        hear(&mut queue, &mut line, &mut peer, &foreign);
        hear_after(&mut queue, &mut line, &mut peer, b"behind");
        // And by itself within a second or two, where its program says nothing.
        take(&mut queue, &mut line);
        assert_eq!(other.write(b"late").expect("room"), 4);
        wait_given(&mut line);
        hear(&mut queue, &mut line, &mut peer, b"late");
    });
}

/// shutdown(2) by another holder: the connection goes back, and the end is told behind all bytes.
#[test]
fn an_end_by_another_holder_is_told_behind_the_bytes() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        for how in [Shutdown::Write, Shutdown::Both] {
            let (mut line, mut peer) = taken(&hosts, &mut queue);
            hear_after(&mut queue, &mut line, &mut peer, b"first");
            line.stream.shutdown(how).expect("it is connected");
            wait_given(&mut line);
            peer.write_all(b"answer").expect("room");
            let mut rest = Vec::new();
            peer.read_to_end(&mut rest).expect("an end");
            assert_eq!(rest, b"");
        }
    });
}

/// A program that dissolves its socket gives its ends up: frames of them are not steered to it any more, it can hand none on, and the peer is told.
#[test]
fn a_socket_that_is_dissolved_leaves_nothing() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let (mut line, mut peer) = taken(&hosts, &mut queue);
        hear_after(&mut queue, &mut line, &mut peer, b"first");
        let nobody = [0u8; 16];
        calls::connect(line.stream.as_raw_fd(), nobody.as_ptr().cast(), 16).expect("it is dissolved");
        wait_given(&mut line);
        assert_eq!(peer.read(&mut [0; 1]).map_err(|error| error.kind()), Err(std::io::ErrorKind::ConnectionReset));
        assert_eq!(queue.hands.pass(&frame_for(&line.tuple)), Err(Errno(libc::EPERM)));
    });
}

/// A segment that arrives for a connection.
fn frame_for(tuple: &Tuple) -> Vec<u8> {
    let way = Way { tuple: Tuple { ours: tuple.theirs, theirs: tuple.ours }, from: [2; 6], to: [4; 6], service: 0, hops: 64 };
    let at = way.header();
    let mut frame = vec![0; at + TCP];
    frame[at..at + 2].copy_from_slice(&tuple.theirs.port().to_be_bytes());
    frame[at + 2..at + 4].copy_from_slice(&tuple.ours.port().to_be_bytes());
    frame[at + 12] = 5 << 4;
    way.prepare().complete(&mut frame);
    frame
}

/// Frames of a connection that was given back are its client's to hand on for as long as the socket is there, and a moment at most.
#[test]
fn a_connection_that_was_had_is_forgotten() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let (mut line, _peer) = taken(&hosts, &mut queue);
        queue.give(&mut line);
        let frame = frame_for(&line.tuple);
        assert_eq!(queue.hands.pass(&frame), Ok(()));
        let until = Instant::now() + PATIENCE;
        while queue.hands.pass(&frame) == Ok(()) {
            assert!(Instant::now() < until);
        }
        assert_eq!(queue.hands.pass(&frame), Err(Errno(libc::EPERM)));
        let (mut line, peer) = taken(&hosts, &mut queue);
        queue.give(&mut line);
        // A reset leaves no socket with these ends.
        let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
        let (value, size) = ((&raw const at_once).cast(), size_of_val(&at_once) as u32);
        calls::setsockopt(peer.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, value, size).expect("an option");
        drop(peer);
        let ended =
            |stream: &mut TcpStream| stream.read(&mut [0; 1]).is_err_and(|error| error.kind() != std::io::ErrorKind::WouldBlock);
        while !ended(&mut line.stream) {
            assert!(Instant::now() < until);
        }
        assert_eq!(queue.hands.pass(&frame_for(&line.tuple)), Err(Errno(libc::EPERM)));
    });
}

/// A bound on unsent bytes is the program's, and no reason to lose what it had written; so with the window that it allows.
#[test]
fn options_are_kept() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let tcp = libc::IPPROTO_TCP;
        let (mut line, mut peer) = taken_with(&hosts, &mut queue, |stream| {
            let fd = stream.as_raw_fd();
            set(fd, tcp, libc::TCP_NOTSENT_LOWAT, 1).expect("an option");
            set(fd, tcp, libc::TCP_WINDOW_CLAMP, 6000).expect("an option");
            set(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1).expect("an option");
            set(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR, 1).expect("an option");
        });
        let fd = line.stream.as_raw_fd();
        let said: Vec<u8> = (0..RINGS.0).map(|byte| (byte * 3) as u8).collect();
        assert_eq!(line.write(&said), said.len());
        // Some of it leaves, and most does not.
        let mut frames = queue.device.frames().expect("a queue");
        let _ = line.taken.as_mut().expect("taken").turn(&mut frames, shunt_sys::clock::monotonic_ns());
        queue.give(&mut line);
        assert_eq!(option(fd, tcp, libc::TCP_NOTSENT_LOWAT), 1);
        assert_eq!(option(fd, tcp, libc::TCP_WINDOW_CLAMP), 6000);
        assert_eq!(option(fd, libc::SOL_SOCKET, libc::SO_KEEPALIVE), 1);
        assert_eq!(option(fd, libc::SOL_SOCKET, libc::SO_REUSEADDR), 1);
        hear(&mut queue, &mut line, &mut peer, &said);
        // At user level the peer may not send more ahead either.
        take(&mut queue, &mut line);
        let told = line.taken.as_ref().expect("taken").window();
        assert!(told <= 6000, "{told}");
    });
}

/// A thread that is stuck in send(2) holds the socket's lock, for as long as the memory that it sends is not there: its own client waits, and no other.
#[test]
fn a_lock_that_is_held_holds_up_its_own_client_alone() {
    let Some(hosts) = pair() else { return };
    let agent = Agent::start(&hosts[0]);
    hosts[0].enter(|| {
        let Some(missing) = Missing::new() else { return };
        let queue = Queue::new(&hosts[0]);
        let (line, _peer) = connected(&hosts);
        let fd = line.stream.as_raw_fd();
        set(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, 1 << 20).expect("an option");
        let address = missing.address as usize;
        let sender = std::thread::spawn(move || {
            // SAFETY: memory of the test's, which the kernel waits for.
            unsafe { libc::send(fd, address as *const libc::c_void, 4096, libc::MSG_DONTWAIT) }
        });
        missing.wait();
        let escrow = Escrow::create(RINGS.0, RINGS.1).expect("memory");
        let hands = &queue.hands;
        let asker = std::thread::scope(|scope| {
            let asked = scope.spawn(move || hands.take(fd, &escrow));
            // The agent itself answers all others.
            for _ in 0..20 {
                let other = shunt_xdp::protocol::Connection::connect(&hosts[0].interface).expect("the agent");
                let (_, [file]) = other.ask::<1>(&Request::new(shunt_xdp::protocol::Operation::Status)).expect("an answer");
                // SAFETY: it came for us.
                drop(unsafe { OwnedFd::from_raw_fd(file) });
            }
            asked.join().expect("a thread")
        });
        assert_eq!(asker, Err(Errno(libc::EAGAIN)), "it waits for the lock, and its client not for ever");
        // And it ends when it is told to.
        // SAFETY: a child that was not waited for.
        assert_eq!(unsafe { libc::kill(agent.id() as i32, libc::SIGTERM) }, 0);
        let until = Instant::now() + PATIENCE;
        while shunt_xdp::protocol::Connection::connect(&hosts[0].interface).is_ok() {
            assert!(Instant::now() < until);
        }
        missing.give();
        sender.join().expect("a thread");
    });
}

/// A page that is not there until it is given (userfaultfd(2)).
struct Missing {
    faults: OwnedFd,
    address: *mut u8,
}

impl Missing {
    fn new() -> Option<Missing> {
        const API: u64 = 0xc018_aa3f;
        const REGISTER: u64 = 0xc020_aa00;
        // SAFETY: structures of the kernel's, as long as their requests say; a mapping of a page.
        unsafe {
            let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC | libc::O_NONBLOCK);
            if fd < 0 {
                let error = std::io::Error::last_os_error();
                let _ = writeln!(std::io::stderr(), "skipped: a lock that is held: userfaultfd: {error}");
                return None;
            }
            let faults = OwnedFd::from_raw_fd(fd as i32);
            let mut api = [0xaau64, 0, 0];
            assert_eq!(libc::ioctl(faults.as_raw_fd(), API as _, api.as_mut_ptr()), 0);
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            let address: *mut u8 = libc::mmap(std::ptr::null_mut(), 4096, access, kind, -1, 0).cast();
            let mut register = [address as u64, 4096, 1, 0];
            assert_eq!(libc::ioctl(faults.as_raw_fd(), REGISTER as _, register.as_mut_ptr()), 0);
            Some(Missing { faults, address })
        }
    }

    /// Until a thread waits for it.
    fn wait(&self) {
        let events = calls::poll_one(self.faults.as_raw_fd(), libc::POLLIN, 20_000_000_000);
        assert!(events.is_ok_and(|events| events & libc::POLLIN != 0), "nothing waits for the page");
    }

    fn give(&self) {
        const ZEROPAGE: u64 = 0xc020_aa04;
        let mut zero = [self.address as u64, 4096, 0, 0];
        // SAFETY: a structure of the kernel's.
        assert_eq!(unsafe { libc::ioctl(self.faults.as_raw_fd(), ZEROPAGE as _, zero.as_mut_ptr()) }, 0);
    }
}

/// A socket whose last close(2) waits for its bytes holds nobody up.
#[test]
fn a_slow_close_holds_nobody_up() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut others = Vec::new();
        for _ in 0..8 {
            let (mut line, peer) = taken(&hosts, &mut queue);
            let fd = line.stream.as_raw_fd();
            // More than the peer takes, which does not read.
            let slow = libc::linger { l_onoff: 1, l_linger: 1000 };
            let (value, size) = ((&raw const slow).cast(), size_of_val(&slow) as u32);
            calls::setsockopt(fd, libc::SOL_SOCKET, libc::SO_LINGER, value, size).expect("an option");
            set(peer.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, 2048).expect("an option");
            let bytes = vec![1; 64 << 10];
            assert!(line.write(&bytes) > 0);
            queue.give(&mut line);
            while line.write(&bytes) > 0 {}
            // Its own descriptor goes with a process, which waits for nothing; those that the agent has may be the last.
            close_with_a_process(line);
            others.push(peer);
        }
        // Others are taken and given back as ever, more of them than the guard's queue holds.
        let (mut line, mut peer) = taken(&hosts, &mut queue);
        queue.give(&mut line);
        for _ in 0..500 {
            take(&mut queue, &mut line);
            queue.give(&mut line);
        }
        hear_after(&mut queue, &mut line, &mut peer, b"as ever");
    });
}

fn close_with_a_process(line: Line) {
    let mut ends = [-1; 2];
    calls::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()).expect("a pair");
    // SAFETY: the child makes two calls and ends; the pair is this function's.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::close(ends[0]);
            libc::read(ends[1], [0u8; 1].as_mut_ptr().cast(), 1);
            libc::_exit(0);
        }
        libc::close(ends[1]);
        drop(line);
        libc::close(ends[0]);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}

/// Routes that depend on more than the destination, IPsec, and programs of the socket's own control group decide about packets: these stay the kernel's.
#[test]
fn what_the_kernel_decides_by_other_rules_stays_its_own() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let server: SocketAddr = crate::peer::serve(&hosts[1], false);
    let ip = |arguments: &str| {
        let done = hosts[0].command("ip").args(arguments.split(' ')).status();
        done.expect("ip").success()
    };
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let settles = |queue: &mut Queue, expected: Result<(), Decline>| {
            // What was found is believed for a second.
            let until = Instant::now() + PATIENCE;
            let mut line = Line::connect(server);
            loop {
                let got = queue.take(&mut line);
                queue.give(&mut line);
                if got == expected {
                    return;
                }
                assert!(Instant::now() < until, "{got:?}, not {expected:?}");
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        settles(&mut queue, Ok(()));
        for rule in ["uidrange 5-6 table main", "ipproto tcp dport 80 table main", "from 10.9.9.9 table main"] {
            assert!(ip(&format!("rule add {rule}")), "{rule}");
            settles(&mut queue, Err(Decline::Policy));
            assert!(ip(&format!("rule del {rule}")), "{rule}");
            settles(&mut queue, Ok(()));
        }
        if ip("xfrm policy add src 10.9.9.9 dst 10.9.9.8 dir out") {
            settles(&mut queue, Err(Decline::Policy));
            assert!(ip("xfrm policy flush"));
            settles(&mut queue, Ok(()));
        } else {
            let _ = writeln!(std::io::stderr(), "skipped: IPsec: this kernel has none");
        }
    });
}

/// A holder that waits for the moment of repair, and connects to another then, without a handshake: nothing of that stays.
#[test]
fn the_moment_of_repair_is_of_no_use() {
    in_the_moment_of_repair(false);
}

/// And one that listens then: in a socket that does repair cannot be switched off.
#[test]
fn who_listens_in_the_moment_of_repair_has_no_powers_left() {
    in_the_moment_of_repair(true);
}

fn in_the_moment_of_repair(listens: bool) {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    // Nobody listens there.
    let (mut to, ip) = ([0u8; 16], hosts[1].addresses[0]);
    let std::net::IpAddr::V4(ip) = ip else { panic!("an address of IPv4 comes first") };
    to[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
    to[2..4].copy_from_slice(&9u16.to_be_bytes());
    to[4..8].copy_from_slice(&ip.octets());
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut used = 0;
        for turn in 0..300 {
            let (mut line, _peer) = connected(&hosts);
            let fd = line.stream.as_raw_fd();
            let is_over = AtomicBool::new(false);
            let mut outcome = None;
            std::thread::scope(|scope| {
                let racer = scope.spawn(|| {
                    // In every other turn at the give-back, or later at the take.
                    for _ in 0..turn % 2 {
                        while !is_over.load(SeqCst) && option(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR) == 0 {
                            std::hint::spin_loop();
                        }
                        while !is_over.load(SeqCst) && option(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR) != 0 {
                            std::hint::spin_loop();
                        }
                    }
                    while !is_over.load(SeqCst) {
                        if option(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR) != 0 {
                            let _ = calls::connect(fd, [0u8; 16].as_ptr().cast(), 16);
                            if listens {
                                // SAFETY: integers.
                                return unsafe { libc::listen(fd, 1) } == 0
                                    && option(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR) != 0;
                            }
                            return calls::connect(fd, to.as_ptr().cast(), 16).is_ok();
                        }
                    }
                    false
                });
                let until = Instant::now() + PATIENCE;
                loop {
                    match queue.take(&mut line) {
                        Err(Decline::Unacknowledged) if Instant::now() < until => {}
                        Err(decline) => {
                            outcome = Some(decline);
                            break;
                        }
                        Ok(()) => {
                            // The agent may have found by itself that it was dissolved.
                            let mut taken = line.taken.take().expect("taken");
                            let _ = taken.give(&queue.hands);
                            while !taken.is_given() {
                                assert!(Instant::now() < until);
                                std::hint::spin_loop();
                            }
                            break;
                        }
                    }
                }
                is_over.store(true, SeqCst);
                used += u32::from(racer.join().expect("a thread"));
            });
            let peer = line.stream.peer_addr();
            let mut info = [0u8; 8];
            let mut length = 8;
            calls::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, info.as_mut_ptr().cast(), &mut length).expect("an answer");
            let what = (info[0], turn, outcome, used, option(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR));
            assert!(peer.as_ref().map_or(true, |peer| peer.port() != 9), "{what:?}: connected to {peer:?}");
            assert_eq!(option(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR), 0);
        }
        println!("{used} of 300 came in time");
    });
}
