//! A connection to a plain peer that spins: by the kernel's socket, and taken from it; and what taking and giving back cost.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::Host;
use shunt_xdp::escrow::Escrow;
use shunt_xdp::protocol::{Connection, Kind, Sizes};
use shunt_xdp::taken::Taken;
use shunt_xdp::tcp::{Envelope, Tuple, LONGEST_FRAME};
use shunt_xdp::Xdp;

use super::contender::{pin, time_round_trips};
use super::record::{Record, Sheet};
use super::tables::median;
use super::Plan;

/// The table of round trips.
pub const ROUND_TRIPS: &str = "8 B with a kernel that spins: us";
/// The column that matters.
pub const ENGINE: &str = "kernel spinning / taken";
/// The table of hand-overs.
pub const HAND_OVERS: &str = "a connection taken and given back: us";

/// Its row.
pub const ONE: &str = "one connection";
/// Rows of the other: the agent's answer to each request, and the time until a byte comes that the peer sent meanwhile.
pub const TAKE: &str = "take";
/// See above.
pub const GIVE: &str = "give back";
/// See above.
pub const NEXT: &str = "the peer's next byte, from the give-back on";

/// Hand-overs in a turn.
const TIMES: usize = 300;

/// Nanoseconds of the clock that engines have.
fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: written by the kernel.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// A connection and a queue.
pub struct Line {
    /// The kernel's socket.
    pub stream: TcpStream,
    tuple: Tuple,
    device: Xdp,
    /// Its agent's.
    pub hands: Connection,
    buffer: Vec<u8>,
}

impl Line {
    /// Connects.
    ///
    /// # Errors
    /// A sentence.
    pub fn new(host: &Host, server: SocketAddr) -> Result<Line, String> {
        let wrong = |error: std::io::Error| error.to_string();
        let mut device =
            Xdp::attach(&host.interface, Kind::Own, false, Sizes::default()).map_err(|errno| format!("{errno:?}"))?;
        device.post_all();
        let hands = device.agent().hands().map_err(|errno| format!("{errno:?}"))?;
        let stream = TcpStream::connect(server).map_err(wrong)?;
        stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true)).map_err(wrong)?;
        let tuple = Tuple { ours: stream.local_addr().map_err(wrong)?, theirs: server };
        Ok(Line { stream, tuple, device, hands, buffer: vec![0; LONGEST_FRAME] })
    }

    /// Eight bytes there and back by the kernel, or only back.
    fn by_kernel(&mut self, sends: bool) -> Result<(), String> {
        if sends {
            self.stream.write_all(&[1; 8]).map_err(|error| error.to_string())?;
        }
        let mut bytes = [0; 8];
        let mut read = 0;
        while read < 8 {
            match self.stream.read(&mut bytes[read..]) {
                Ok(0) => return Err("the peer has ended".to_string()),
                Ok(count) => read += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    /// Takes it, as soon as everything is acknowledged.
    pub fn take(&self) -> Result<Taken, String> {
        loop {
            let escrow = Escrow::create(1 << 16, 1 << 18).map_err(|errno| format!("{errno:?}"))?;
            let taken = Taken::take(&self.hands, self.stream.as_raw_fd(), self.tuple, escrow, now());
            match taken.map_err(|errno| format!("the agent: {errno:?}"))? {
                Ok(taken) => return Ok(taken),
                Err(shunt_xdp::protocol::Decline::Unacknowledged) => {}
                Err(decline) => return Err(format!("not taken: {}", decline.word())),
            }
        }
    }

    /// Eight bytes there and back at user level. `answer`: the peer's part, where nobody else does it.
    pub fn by_engine(&mut self, taken: &mut Taken, answer: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
        let wrong = |ended| format!("the connection left: {ended:?}");
        taken.write(&[1; 8], now()).map_err(wrong)?;
        let mut frames = self.device.frames().ok_or("no queue")?;
        taken.turn(&mut frames, now()).map_err(wrong)?;
        answer()?;
        let mut read = 0;
        while read < 8 {
            if let Some(frame) = frames.next(&mut self.buffer) {
                let time = now();
                if let Some(envelope) = Envelope::parse(frame).filter(|envelope| envelope.tuple == self.tuple) {
                    taken.frame(&envelope, frame, time).map_err(wrong)?;
                    read += taken.read(&mut [0; 8], time).map_err(wrong)?;
                }
            } else {
                // What is due: an acknowledgement, a repetition.
                taken.turn(&mut frames, now()).map_err(wrong)?;
            }
        }
        Ok(())
    }

    /// Hands on what lies in the queue still.
    pub fn pass(&mut self) {
        while let Some(length) = self.device.frames().and_then(|mut frames| Some(frames.next(&mut self.buffer)?.len())) {
            let _ = self.hands.pass(&self.buffer[..length]);
        }
    }
}

/// A server of one connection that sends back what it reads, and never sleeps.
fn serve(listener: &TcpListener, core: usize, over: &AtomicBool) {
    pin(core);
    let Ok((mut stream, _)) = listener.accept() else { return };
    let _ = stream.set_nodelay(true).and_then(|()| stream.set_nonblocking(true));
    let mut bytes = [0; 4096];
    while !over.load(Relaxed) {
        match stream.read(&mut bytes) {
            Ok(count) if count > 0 => drop(stream.write_all(&bytes[..count])),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            _ => return,
        }
    }
}

/// All of it.
///
/// # Errors
/// A sentence.
pub fn hand_overs(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let _agent = Agent::start(&hosts[0], plan.shunt, &["--lend", "0", "--take"])?;
    let listener = hosts[1].enter(|| TcpListener::bind((hosts[1].addresses[0], 0))).map_err(|error| error.to_string())?;
    let server = listener.local_addr().map_err(|error| error.to_string())?;
    let over = AtomicBool::new(false);
    let measured = std::thread::scope(|scope| {
        scope.spawn(|| serve(&listener, plan.cores().1, &over));
        let measured = hosts[0].enter(|| {
            pin(plan.cores().0);
            measure(&mut Line::new(&hosts[0], server)?, plan)
        });
        over.store(true, Relaxed);
        measured
    });
    let (round_trips, hand_overs) = measured?;
    record.add(round_trips);
    record.add(hand_overs);
    Ok(())
}

fn measure(line: &mut Line, plan: &Plan<'_>) -> Result<(Sheet, Sheet), String> {
    let (mut kernel, mut engine, mut ratios) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..plan.repeats {
        kernel.push(time_round_trips(plan.time, || line.by_kernel(true))?);
        let mut taken = line.take()?;
        engine.push(time_round_trips(plan.time, || line.by_engine(&mut taken, || Ok(())))?);
        taken.give(&line.hands).map_err(|errno| format!("{errno:?}"))?;
        line.pass();
        ratios.push(kernel[kernel.len() - 1] / engine[engine.len() - 1]);
    }
    let mut round_trips = Sheet::new(ROUND_TRIPS, &["kernel", "taken", ENGINE], &[1, 1, 2]);
    round_trips.put(ONE, &[1e6 * median(kernel), 1e6 * median(engine), median(ratios)]);
    let (mut takes, mut gives, mut heard) = (Vec::new(), Vec::new(), Vec::new());
    let us = |since: Instant| since.elapsed().as_secs_f64() * 1e6;
    for _ in 0..TIMES * plan.repeats {
        line.by_kernel(true)?;
        let mut taken = loop {
            // Only what is taken counts, not what waits for an acknowledgement.
            let began = Instant::now();
            let escrow = Escrow::create(1 << 16, 1 << 18).map_err(|errno| format!("{errno:?}"))?;
            let answer = Taken::take(&line.hands, line.stream.as_raw_fd(), line.tuple, escrow, now());
            if let Ok(taken) = answer.map_err(|errno| format!("the agent: {errno:?}"))? {
                takes.push(us(began));
                break taken;
            }
        };
        line.by_engine(&mut taken, || Ok(()))?;
        // Its answer is under way while the connection goes back.
        taken.write(&[1; 8], now()).map_err(|ended| format!("{ended:?}"))?;
        let mut frames = line.device.frames().ok_or("no queue")?;
        taken.turn(&mut frames, now()).map_err(|ended| format!("{ended:?}"))?;
        let began = Instant::now();
        taken.give(&line.hands).map_err(|errno| format!("{errno:?}"))?;
        gives.push(us(began));
        line.pass();
        line.by_kernel(false)?;
        heard.push(us(began));
    }
    let mut hand_overs = Sheet::new(HAND_OVERS, &["p50", "p99"], &[0]);
    for (name, mut figures) in [(TAKE, takes), (GIVE, gives), (NEXT, heard)] {
        figures.sort_by(f64::total_cmp);
        hand_overs.put(name, &[figures[figures.len() / 2], figures[figures.len() * 99 / 100]]);
    }
    Ok((round_trips, hand_overs))
}
