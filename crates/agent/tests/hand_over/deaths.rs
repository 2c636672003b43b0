//! Whichever process is killed, the peer hears what Linux would have told it, and nothing stays.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::time::{Duration, Instant};

use shunt_testkit::hosts::Host;
use shunt_testkit::Random;

use crate::agent::{pair, Agent};
use crate::client::{Line, Queue};

/// Long for anything that is to come.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that connects, has its connection taken, writes `said`, reads `read` bytes, and then does nothing until it is killed. Both ends of
/// the connection, and of a pipe by which it tells that it is so far, are those of the test.
struct Victim {
    process: i32,
    peer: TcpStream,
}

impl Victim {
    fn start(hosts: &[Host; 2], said: &[u8], to_read: &[u8], reads: usize) -> Victim {
        let address = (hosts[1].addresses[0], 0);
        let listener = hosts[1].enter(|| TcpListener::bind(address)).expect("a listener");
        let server = listener.local_addr().expect("an address");
        let mut ends = [-1; 2];
        // SAFETY: two descriptors are written to the array.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        let process = hosts[0].enter(|| {
            // SAFETY: the child goes on with this thread alone, in memory of its own, and ends by _exit or a signal.
            let process = unsafe { libc::fork() };
            if process == 0 {
                let done = std::panic::catch_unwind(|| act(&hosts[0], server, (said, to_read.len(), reads), ends[1]));
                // SAFETY: ends the child; nothing of the test's is run.
                unsafe { libc::_exit(i32::from(done.is_err())) };
            }
            process
        });
        let (mut peer, _) = listener.accept().expect("a connection");
        peer.set_read_timeout(Some(PATIENCE)).expect("a limit");
        peer.write_all(to_read).expect("room");
        // SAFETY: ours; the child has the other end.
        let mut told = unsafe {
            libc::close(ends[1]);
            std::fs::File::from_raw_fd(ends[0])
        };
        assert_eq!(told.read(&mut [0]).expect("a pipe"), 1, "the process came so far");
        Victim { process, peer }
    }

    /// Kills it, and tells what the peer hears: bytes, and the end or the reset behind them.
    fn kill(mut self) -> (Vec<u8>, Option<ErrorKind>) {
        // SAFETY: a child that was not waited for.
        unsafe {
            libc::kill(self.process, libc::SIGKILL);
            libc::waitpid(self.process, std::ptr::null_mut(), 0);
        }
        let mut heard = Vec::new();
        let end = self.peer.read_to_end(&mut heard);
        (heard, end.err().map(|error| error.kind()))
    }
}

fn act(host: &Host, server: std::net::SocketAddr, (said, comes, reads): (&[u8], usize, usize), pipe: RawFd) {
    let mut queue = Queue::new(host);
    let mut lines = vec![Line::connect(server)];
    queue.take(&mut lines[0]).expect("it is taken");
    let mut written = 0;
    let mut bytes = vec![0; reads];
    let mut read = 0;
    let until = Instant::now() + PATIENCE;
    while written < said.len() || lines[0].taken.as_ref().expect("taken").ready().0 as usize + read < comes || read < reads {
        assert!(Instant::now() < until);
        queue.turn(&mut lines);
        written += lines[0].write(&said[written..]);
        read += lines[0].read(&mut bytes[read..]).expect("no end");
    }
    queue.turn(&mut lines);
    // SAFETY: a byte, to an open pipe.
    unsafe { libc::write(pipe, b"!".as_ptr().cast(), 1) };
    loop {
        std::thread::park();
    }
}

/// What it had written comes, and then the end, or a reset if it had not read all: as Linux does for a process that is killed.
#[test]
fn a_killed_process_ends_as_on_linux() {
    let Some(hosts) = pair() else { return };
    let _agent = Agent::start(&hosts[0]);
    let said: Vec<u8> = (0..50_000).map(|byte| (byte * 7) as u8).collect();
    let victim = Victim::start(&hosts, &said, b"hello", 5);
    assert_eq!(victim.kill(), (said.clone(), None));
    let victim = Victim::start(&hosts, b"", b"hello", 3);
    assert_eq!(victim.kill(), (Vec::new(), Some(ErrorKind::ConnectionReset)));
    let victim = Victim::start(&hosts, &said, b"", 0);
    assert_eq!(victim.kill(), (said, None));
}

/// The agent is killed at some moment of many: each connection goes on in its socket, every byte is right, and the guard is gone.
#[test]
fn a_killed_agent_leaves_connections_to_the_kernel() {
    let Some(hosts) = pair() else { return };
    let server = crate::peer::serve(&hosts[1], false);
    let mut random = Random::for_test();
    for _ in 0..20 {
        let mut agent = Agent::start(&hosts[0]);
        let guard = guard_of(agent.id());
        hosts[0].enter(|| {
            let mut queue = Queue::new(&hosts[0]);
            let mut lines: Vec<Line> = (0..4).map(|_| Line::connect(server)).collect();
            lines.iter_mut().for_each(|line| queue.take(line).expect("it is taken"));
            let mut rest = random.below(2_000);
            let mut all = vec![(Vec::new(), Vec::new()); lines.len()];
            let mut bytes = vec![0; 4096];
            let until = Instant::now() + PATIENCE;
            let mut killed = false;
            loop {
                if lines.iter().any(|line| line.taken.is_some()) {
                    queue.turn(&mut lines);
                }
                for (line, (sent, back)) in lines.iter_mut().zip(&mut all) {
                    if rest > 0 && sent.len() == back.len() {
                        let length = 1 + random.below(3_000) as usize;
                        let more = random.bytes(length);
                        let count = line.write(&more);
                        sent.extend_from_slice(&more[..count]);
                    }
                    let count = line.read(&mut bytes).expect("no end");
                    back.extend_from_slice(&bytes[..count]);
                }
                rest = rest.saturating_sub(1);
                if rest == 0 && !std::mem::replace(&mut killed, true) {
                    agent.signal(libc::SIGKILL);
                }
                if killed && all.iter().all(|(sent, back)| sent.len() == back.len()) {
                    break;
                }
                assert!(
                    Instant::now() < until,
                    "{:?}",
                    all.iter().map(|(sent, back)| (sent.len(), back.len())).collect::<Vec<_>>()
                );
            }
            assert!(all.iter().all(|(sent, back)| sent == back));
            // Once more by the kernel alone: each socket is what it was.
            for line in &mut lines {
                let until = Instant::now() + PATIENCE;
                while line.taken.as_ref().is_some_and(|taken| !taken.is_given()) {
                    assert!(Instant::now() < until);
                }
                line.taken = None;
                line.stream.set_nonblocking(false).expect("a flag");
                line.stream.set_read_timeout(Some(PATIENCE)).expect("a limit");
                line.stream.write_all(b"again").expect("room");
                line.stream.read_exact(&mut bytes[..5]).expect("an echo");
                assert_eq!((&bytes[..5], repair_of(line.stream.as_raw_fd())), (&b"again"[..], 0));
            }
        });
        let until = Instant::now() + PATIENCE;
        while std::path::Path::new(&format!("/proc/{guard}")).exists() && !is_zombie(guard) {
            assert!(Instant::now() < until, "the guard is there still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// An agent that is told to end gives back itself.
#[test]
fn an_agent_that_ends_gives_back() {
    let Some(hosts) = pair() else { return };
    let server = crate::peer::serve(&hosts[1], false);
    let mut agent = Agent::start(&hosts[0]);
    hosts[0].enter(|| {
        let mut queue = Queue::new(&hosts[0]);
        let mut line = Line::connect(server);
        queue.take(&mut line).expect("it is taken");
        agent.signal(libc::SIGTERM);
        assert!(line.taken.as_ref().is_some_and(|taken| taken.is_given()));
        line.taken = None;
        line.stream.set_nonblocking(false).expect("a flag");
        line.stream.write_all(b"again").expect("room");
        line.stream.read_exact(&mut [0; 5]).expect("an echo");
    });
}

/// The process that stands in for an agent, once it has its name.
fn guard_of(agent: u32) -> u32 {
    let until = Instant::now() + PATIENCE;
    let is_guard =
        |number: &u32| std::fs::read_to_string(format!("/proc/{number}/comm")).is_ok_and(|name| name.trim() == "shunt-guard");
    loop {
        let threads = std::fs::read_dir(format!("/proc/{agent}/task")).expect("a list");
        let children = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        let all = threads.map_while(Result::ok).map(children).fold(String::new(), |all, some| all + " " + &some);
        if let Some(guard) = all.split_whitespace().filter_map(|number| number.parse().ok()).find(is_guard) {
            return guard;
        }
        assert!(Instant::now() < until, "no guard: {all}");
    }
}

fn is_zombie(process: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|text| text.contains(") Z "))
}

fn repair_of(fd: RawFd) -> i32 {
    shunt_sys::calls::getsockopt_int(fd, libc::IPPROTO_TCP, libc::TCP_REPAIR).expect("an option")
}
