//! Connections of one process, some the kernel's, some taken: a queue, and where bytes are read and written.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use shunt_sys::clock::monotonic_ns;
use shunt_sys::Errno;
use shunt_testkit::hosts::Host;
use shunt_xdp::escrow::Escrow;
use shunt_xdp::protocol::{Connection, Decline, Kind, Sizes};
use shunt_xdp::taken::{Ended, Taken};
use shunt_xdp::tcp::{Envelope, Tuple, LONGEST_FRAME};
use shunt_xdp::Xdp;

/// Bytes of the rings of a connection.
pub const RINGS: (u32, u32) = (64 << 10, 256 << 10);

/// The queue of the process.
pub struct Queue {
    pub device: Xdp,
    /// By which connections are handed over.
    pub hands: Connection,
    buffer: Vec<u8>,
}

/// A connection, wherever it is.
pub struct Line {
    pub stream: TcpStream,
    pub tuple: Tuple,
    pub taken: Option<Taken>,
    /// Why it was given back last.
    pub ended: Option<Ended>,
}

impl Queue {
    pub fn new(host: &Host) -> Queue {
        let device = Queue::attach(host);
        let hands = device.agent().hands().expect("the agent takes connections");
        Queue { device, hands, buffer: vec![0; LONGEST_FRAME] }
    }

    /// A queue alone.
    pub fn attach(host: &Host) -> Xdp {
        // The kernel frees a queue a little after its last owner has gone.
        let until = Instant::now() + Duration::from_secs(20);
        let mut device = loop {
            match Xdp::attach(&host.interface, Kind::Own, false, Sizes::default()) {
                Err(Errno(libc::EBUSY)) if Instant::now() < until => std::thread::yield_now(),
                made => break made.expect("a queue"),
            }
        };
        device.post_all();
        device
    }

    /// Takes a connection.
    pub fn take(&mut self, line: &mut Line) -> Result<(), Decline> {
        self.take_with(line, RINGS)
    }

    /// With rings of these sizes.
    pub fn take_with(&mut self, line: &mut Line, rings: (u32, u32)) -> Result<(), Decline> {
        let escrow = Escrow::create(rings.0, rings.1).expect("memory");
        let taken = Taken::take(&self.hands, line.stream.as_raw_fd(), line.tuple, escrow, monotonic_ns()).expect("an answer");
        taken.map(|taken| line.taken = Some(taken))
    }

    /// Gives it back.
    pub fn give(&mut self, line: &mut Line) {
        if let Some(mut taken) = line.taken.take() {
            match taken.give(&self.hands) {
                Ok(()) => {}
                // The agent has given it back, as the test did something else while frames waited.
                Err(Errno(libc::ENOENT)) => line.ended = Some(Ended::Given),
                Err(errno) => panic!("give: {errno:?}"),
            }
            assert!(taken.is_given());
        }
    }

    /// One turn for all: frames in, frames out.
    pub fn turn(&mut self, lines: &mut [Line]) {
        let now = monotonic_ns();
        loop {
            let mut frames = self.device.frames().expect("a queue of its own");
            let Some(frame) = frames.next(&mut self.buffer) else { break };
            let Some(envelope) = Envelope::parse(frame) else { continue };
            if let Some(line) = lines.iter_mut().find(|line| line.tuple == envelope.tuple) {
                match line.taken.as_mut().map(|taken| taken.frame(&envelope, frame, now)) {
                    Some(Ok(())) => continue,
                    Some(Err(ended)) => self.end(line, ended),
                    None => {}
                }
            }
            let length = envelope.at + envelope.length;
            let _ = self.hands.pass(&self.buffer[..length]);
        }
        for line in lines {
            let Some(taken) = &mut line.taken else { continue };
            let mut frames = self.device.frames().expect("a queue of its own");
            if let Err(ended) = taken.turn(&mut frames, now) {
                self.end(line, ended);
            }
        }
    }

    fn end(&mut self, line: &mut Line, ended: Ended) {
        line.ended = Some(ended);
        if ended == Ended::Given {
            line.wait();
        } else {
            self.give(line);
        }
    }
}

impl Line {
    pub fn connect(server: SocketAddr) -> Line {
        let stream = TcpStream::connect(server).expect("a connection");
        stream.set_nodelay(true).expect("an option");
        stream.set_nonblocking(true).expect("a flag");
        let tuple = Tuple { ours: stream.local_addr().expect("an address"), theirs: server };
        Line { stream, tuple, taken: None, ended: None }
    }

    /// It is being given back by another: the socket is of use when that is done.
    fn wait(&mut self) {
        while self.taken.as_ref().is_some_and(|taken| !taken.is_given()) {
            std::thread::yield_now();
        }
        self.taken = None;
    }

    /// Writes as much as there is room for now.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        if let Some(taken) = &mut self.taken {
            match taken.write(bytes, monotonic_ns()) {
                Ok(count) => return count,
                Err(_) => self.wait(),
            }
        }
        match self.stream.write(bytes) {
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("write: {error}"),
        }
    }

    /// Reads what there is now; `None`: the end.
    pub fn read(&mut self, bytes: &mut [u8]) -> Option<usize> {
        if let Some(taken) = &mut self.taken {
            match taken.read(bytes, monotonic_ns()) {
                Ok(count) => return Some(count),
                Err(_) => self.wait(),
            }
        }
        match self.stream.read(bytes) {
            Ok(0) => None,
            Ok(count) => Some(count),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
            Err(error) => panic!("read: {error}"),
        }
    }
}
