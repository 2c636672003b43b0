//! The floors and shunt's own RPC between two processes, one round: a cache line to and fro, the bare endpoint, and the calls of the papers.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nix::unistd::{fork, ForkResult};
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::{Arrival, Channel, Endpoint, Message};
use shunt_rpc::xdr::Bytes;
use shunt_rpc::{Client, How, Options, Server, ServerOptions};

use super::model::{Question, Series, Value};
use crate::cells::rpc::service::{procedure, Block, Called, LONGEST, NUMBER, PROGRAM};
use crate::cells::rpc::{ends, pull, push, Loose};
use crate::hosts::contender::{first_of_all, pin};
use crate::statistics::median;

/// Round trips of a floor, and calls; those before are not counted: a side that slept wakes meanwhile.
const TRIPS: usize = 1000;
const WARM: usize = 200;
/// Turns of the floors and of null calls in a round.
const TURNS: usize = 9;
/// Seconds of a round at most; it takes one.
const PATIENCE: u32 = 30;
/// SHRIMP's argument and result sizes, and longer ones.
static ECHOES: [usize; 10] = [0, 8, 64, 256, 1440, 3072, 4096, 16 << 10, 64 << 10, LONGEST as usize];
/// SOVIA's arguments.
static TEXTS: [usize; 6] = [0, 64, 256, 1024, 2048, 4096];

/// Two lines of cache, which both processes map.
#[repr(C, align(128))]
struct Lines {
    ping: AtomicU64,
    apart: [u64; 31],
    pong: AtomicU64,
}

impl Lines {
    fn shared() -> io::Result<&'static Lines> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: new memory, all zero, which is a value of the type; it stays until the process ends.
        unsafe {
            let at = libc::mmap(std::ptr::null_mut(), size_of::<Lines>(), protection, flags, -1, 0);
            match at {
                libc::MAP_FAILED => Err(io::Error::last_os_error()),
                at => Ok(&*at.cast()),
            }
        }
    }

    fn answer(&self) {
        let before = self.pong.load(Ordering::Relaxed);
        for number in before + 1..=before + (WARM + TRIPS) as u64 {
            while self.ping.load(Ordering::Acquire) != number {
                std::hint::spin_loop();
            }
            self.pong.store(number, Ordering::Release);
        }
    }

    fn trip(&self) {
        let number = self.ping.load(Ordering::Relaxed) + 1;
        self.ping.store(number, Ordering::Release);
        while self.pong.load(Ordering::Acquire) != number {
            std::hint::spin_loop();
        }
    }
}

/// A bare end that is open.
struct Bare {
    end: Shm,
    channel: Channel,
    arrival: Arrival,
}

impl Bare {
    fn new((mut end, tags, at): Loose) -> io::Result<Self> {
        let channel = end.open(&at, tags).map_err(|error| io::Error::other(format!("an endpoint: {error:?}")))?;
        Ok(Self { end, channel, arrival: Arrival::empty() })
    }

    fn send(&mut self) {
        push(&mut self.end, &Message::small(self.channel, &[7; 32]));
    }

    fn take(&mut self) {
        pull(&mut self.end, &mut self.arrival);
    }
}

/// The other process: ends of floors that answer turns they are told of, and a server, all on one processor.
fn other(core: usize, bare: Loose, lines: &Lines, mut told: UnixStream, address: &str) -> io::Result<()> {
    pin(core);
    end_in_any_case(PATIENCE);
    let address = address.parse().map_err(io::Error::other)?;
    let server = Server::bind(&address, ServerOptions::default())?.spawn(|| {
        first_of_all();
        Called
    })?;
    first_of_all();
    let mut bare = Bare::new(bare)?;
    let mut what = [0];
    while told.read(&mut what)? == 1 {
        match what[0] {
            b'l' => lines.answer(),
            _ => (0..WARM + TRIPS).for_each(|_| {
                bare.take();
                bare.send();
            }),
        }
    }
    drop(server);
    Ok(())
}

/// Ends this process after so many seconds, or does not (0): ends that spin at real-time priority for one that is gone would keep both processors.
fn end_in_any_case(seconds: u32) {
    // SAFETY: passes a number.
    unsafe { libc::alarm(seconds) };
}

/// Nanoseconds of each of so many acts, after some to get warm.
fn timed(count: usize, mut act: impl FnMut()) -> f64 {
    (0..WARM.min(count)).for_each(|_| act());
    let begun = Instant::now();
    (0..count).for_each(|_| act());
    begun.elapsed().as_nanos() as f64 / count as f64
}

/// Long calls are fewer, for each takes longer.
fn count(length: usize) -> usize {
    2 * TRIPS * 8192 / (8192 + length) + 8
}

/// One round; `cores` are of the caller and of the server. Must be called while the process has one thread.
///
/// # Errors
/// An end or a binding cannot be made.
pub fn round(cores: (usize, usize), number: usize) -> io::Result<Vec<Value>> {
    let [bare, their_bare] = ends()?;
    let lines = Lines::shared()?;
    let (tell, told) = UnixStream::pair()?;
    let address = format!("papers-{}-{number}", std::process::id());
    // SAFETY: the child uses what is made for it, and ends.
    let child = match unsafe { fork()? } {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            drop((bare, tell));
            let result = other(cores.1, their_bare, lines, told, &address);
            std::process::exit(i32::from(result.is_err()));
        }
    };
    drop((their_bare, told));
    end_in_any_case(PATIENCE);
    let thread = std::thread::spawn(move || {
        pin(cores.0);
        let address = address.parse().map_err(io::Error::other)?;
        // Without a deadline: calls with one go another way.
        let client = Client::connect(&address, PROGRAM, 1..=1, Options::default()).map_err(io::Error::other)?;
        first_of_all();
        measure(&client, Bare::new(bare)?, lines, tell)
    });
    let result = thread.join().map_err(|_| io::Error::other("the calling thread panicked"))?;
    end_in_any_case(0);
    let _ = nix::sys::wait::waitpid(child, None);
    result
}

fn measure(client: &Client, mut bare: Bare, lines: &Lines, mut tell: UnixStream) -> io::Result<Vec<Value>> {
    // Null calls stand closest to their floors: they take turns, for the distance of two processors is another one from moment to moment.
    let null: [(Series, Question, usize); 5] = [
        (Series::Line, Question::Trip, 0),
        (Series::Endpoint, Question::Trip, 0),
        (Series::Own, Question::Echo, 0),
        (Series::Own, Question::Text, 0),
        (Series::Own, Question::Word, 8),
    ];
    let mut times: [Vec<f64>; 5] = Default::default();
    for _ in 0..TURNS {
        tell.write_all(b"l")?;
        times[0].push(timed(TRIPS, || lines.trip()));
        tell.write_all(b"b")?;
        times[1].push(timed(TRIPS, || {
            bare.send();
            bare.take();
        }));
        times[2].push(timed(TRIPS, || client.call::<(), ()>(procedure::NULL, &()).expect("a call")));
        times[3].push(timed(TRIPS, || assert_eq!(client.call::<(), i32>(procedure::NUMBER, &()).expect("a call"), NUMBER)));
        times[4].push(timed(TRIPS, || assert_eq!(client.call::<u64, u64>(procedure::WORD, &7).expect("a call"), 7)));
    }
    let middle = |times: &Vec<f64>| median(times).unwrap_or(f64::NAN);
    let mut values: Vec<Value> =
        null.iter().zip(&times).map(|((series, question, length), times)| (*series, *question, *length, middle(times))).collect();
    let mut own = |question, length, time| values.push((Series::Own, question, length, time));
    let of_some = |lengths: &'static [usize]| lengths.iter().copied().filter(|length| *length > 0);
    for length in of_some(&ECHOES) {
        let block: Block = Bytes(vec![7; length]);
        let echo = || {
            let answer: Block = client.call(procedure::ECHO, &block).expect("a call");
            assert_eq!(answer.0.len(), length);
        };
        own(Question::Echo, length, timed(count(length), echo));
    }
    for length in of_some(&TEXTS) {
        let text: Block = Bytes(vec![b'a'; length]);
        own(
            Question::Text,
            length,
            timed(count(length), || assert_eq!(client.call::<_, i32>(procedure::TAKE, &text).expect("a call"), NUMBER)),
        );
    }
    for length in of_some(&ECHOES) {
        let mut buffer = client.buffer::<u64>(length / 8).map_err(io::Error::other)?;
        let words = vec![7u64; length / 8];
        for (question, procedure) in [(Question::Reference, procedure::LOOK), (Question::Changed, procedure::UPDATE)] {
            let time = timed(count(length), || {
                buffer.view().copy_from(&words);
                let lent = [buffer.lend(true, true).expect("a free buffer")];
                let how = How { lent: &lent, ..How::default() };
                client.call_with::<_, ()>(procedure, &buffer.reference(), &how).expect("a call");
            });
            own(question, length, time);
        }
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_goes_and_comes_turn_after_turn() {
        let lines = Lines::shared().unwrap();
        let answers = std::thread::spawn(move || (0..3).for_each(|_| lines.answer()));
        for _ in 0..3 * (WARM + TRIPS) {
            lines.trip();
        }
        answers.join().unwrap();
        assert_eq!(lines.pong.load(Ordering::Relaxed), 3 * (WARM + TRIPS) as u64);
    }
}
