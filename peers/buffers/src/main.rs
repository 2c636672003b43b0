//! The same large message by shunt-buffers, iceoryx2, UCX and the kernel's sockets, in turns of one run: `make bench-buffer-peers`.
//!
//! Each contender is a process that receives, on one processor; this process sends from the other. A message is written by its sender, and each
//! of its words is read, and compared, by its receiver. *One way* is the time from the call of send until the receiver has read all, which
//! it says by a word in memory that is the same for all contenders; writing is not in it. *Stream* is bytes a second, writing and reading
//! included. Receivers that are not in a turn sleep.

mod control;
mod peers;
mod place;
mod turn;

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use control::Control;
use peers::{Peer, Send, ALL, FIRST_OF_OTHERS, OURS};
use place::Place;
use turn::{Kind, Order};

type Failure = Box<dyn std::error::Error>;

const RECEIVER_CORE: usize = 0;
const SENDER_CORE: usize = 1;
const ROUNDS: usize = 9;
const SIZES: [usize; 2] = [64 << 10, 1 << 20];
/// Memory that a contender goes through with its messages, where the program chooses: a few of the largest.
const AROUND: usize = 4 << 20;
/// Between turns: time enough for the receiver of the last turn to fall asleep.
const PAUSE: Duration = Duration::from_millis(5);
/// Seconds until a process that hangs is ended.
const LIMIT: u32 = 90;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    place::end_after(LIMIT);
    let result = match words[..] {
        [] => measure(),
        ["receive", name, directory] => receive(name, directory),
        _ => Err("it takes no arguments".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("buffer-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A receiver's process: it has turns as it is told, and ends when its standard input does.
fn receive(name: &str, directory: &str) -> Result<(), Failure> {
    let peer = ALL.iter().find(|peer| peer.name == name).ok_or("no peer of this name")?;
    place::settle(RECEIVER_CORE);
    let place = Place::at(directory);
    let control = Control::of(&place, name)?;
    let mut told = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    let served = (peer.receiver)(&place, &mut told).and_then(|mut receiver| {
        while let Some(order) = Order::hear(&mut told)? {
            turn::receive(receiver.as_mut(), &control, order)?;
        }
        Ok(())
    });
    if served.is_err() {
        control.fail();
    }
    served
}

/// A receiver's process and the sender that is joined to it.
struct Pair {
    peer: &'static Peer,
    sender: Option<Box<dyn Send>>,
    told: Option<UnixStream>,
    control: Control,
    receiver: Child,
    /// For each size: nanoseconds one way, and bytes a second.
    turns: Vec<(Vec<f64>, Vec<f64>)>,
}

impl Pair {
    fn new(peer: &'static Peer, place: &Place) -> Result<Self, Failure> {
        let (mut ours, theirs) = UnixStream::pair()?;
        let control = Control::of(place, peer.name)?;
        let receiver = Command::new(std::env::current_exe()?)
            .args(["receive", peer.name])
            .arg(place.directory())
            .envs(peer.environment.iter().copied())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        for (name, value) in peer.environment {
            std::env::set_var(name, value);
        }
        let sender = (peer.sender)(place, &mut ours);
        for (name, _) in peer.environment {
            std::env::remove_var(name);
        }
        let mut pair =
            Self { peer, sender: None, told: Some(ours), control, receiver, turns: vec![Default::default(); SIZES.len()] };
        pair.sender = Some(sender?);
        Ok(pair)
    }

    fn turn(&mut self, kind: Kind, size: usize) -> Result<f64, Failure> {
        let order = Order { kind, size, count: kind.count(size) };
        order.tell(self.told.as_mut().expect("open while there are turns"))?;
        turn::send(self.sender.as_mut().expect("made by new").as_mut(), &self.control, order)
            .map_err(|error| format!("{}: {error}", self.peer.name).into())
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        // The receiver's standard input ends, and it with it.
        self.told = None;
        if self.sender.take().is_none() {
            let _ = self.receiver.kill();
        }
        let _ = self.receiver.wait();
    }
}

fn measure() -> Result<(), Failure> {
    let reno = place::own_network();
    let place = Place::new()?;
    place::settle(SENDER_CORE);
    let mut pairs = ALL.iter().map(|peer| Pair::new(peer, &place)).collect::<Result<Vec<_>, _>>()?;
    let mut line = Vec::new();
    for round in 0..=ROUNDS {
        line.push(turn::line(RECEIVER_CORE));
        for (number, size) in SIZES.into_iter().enumerate() {
            for pair in &mut pairs {
                std::thread::sleep(PAUSE);
                let found = (pair.turn(Kind::OneWay, size)?, pair.turn(Kind::Stream, size)?);
                // In the first round pages are touched for the first time.
                if round > 0 {
                    pair.turns[number].0.push(found.0);
                    pair.turns[number].1.push(found.1);
                }
            }
        }
    }
    print(&pairs, &line, reno)?;
    Ok(())
}

fn print(pairs: &[Pair], line: &[f64], reno: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let (middle, low, high) = turn::spread(line);
    writeln!(
        out,
        "messages written by one process and read by another; median (range) of {ROUNDS} turns in turn; load {}; a cache line to and fro \
         {middle:.0} ns ({low:.0} to {high:.0}){}",
        load.split(' ').next().unwrap_or_default(),
        if reno { "" } else { "; the kernel's TCP as it is set here, which may pace" }
    )?;
    for (number, size) in SIZES.into_iter().enumerate() {
        writeln!(
            out,
            "\n{:<46}{:>12}{:>20}{:>10}{:>12}{:>10}",
            format!("{} KiB", size >> 10),
            "one way",
            "range",
            "/ ours",
            "stream",
            "ours /"
        )?;
        for pair in pairs {
            let (way, stream) = &pair.turns[number];
            let (ours_way, ours_stream) = &pairs[OURS].turns[number];
            let ratios =
                |these: &[f64], those: &[f64]| turn::spread(&these.iter().zip(those).map(|(a, b)| a / b).collect::<Vec<_>>()).0;
            let (middle, low, high) = turn::spread(way);
            writeln!(
                out,
                "{:<46}{:>9.1} us{:>20}{:>8.2} x{:>7.1} GB/s{:>8.2} x",
                pair.peer.about,
                middle / 1e3,
                format!("{:.1} to {:.1} us", low / 1e3, high / 1e3),
                ratios(way, ours_way),
                turn::spread(stream).0 / 1e9,
                ratios(ours_stream, stream)
            )?;
        }
    }
    let slower: Vec<&str> = pairs[FIRST_OF_OTHERS..]
        .iter()
        .filter(|pair| {
            pair.turns.iter().zip(&pairs[OURS].turns).any(|(theirs, ours)| {
                turn::spread(&theirs.0).0 < turn::spread(&ours.0).0 || turn::spread(&theirs.1).0 > turn::spread(&ours.1).0
            })
        })
        .map(|pair| pair.peer.name)
        .collect();
    let slower = if slower.is_empty() { "none".to_owned() } else { slower.join(", ") };
    writeln!(out, "\nfaster than ours in one of the four figures: {slower}")
}

/// A byte there: what a contender's two ends say to each other before the first turn.
fn say(told: &mut UnixStream, bytes: &[u8]) -> Result<(), Failure> {
    told.write_all(&u32::try_from(bytes.len())?.to_le_bytes())?;
    Ok(told.write_all(bytes)?)
}

/// What the other end said by [`say`].
fn hear(told: &mut UnixStream) -> Result<Vec<u8>, Failure> {
    let mut length = [0; 4];
    told.read_exact(&mut length)?;
    let mut bytes = vec![0; u32::from_le_bytes(length) as usize];
    told.read_exact(&mut bytes)?;
    Ok(bytes)
}
