//! The same call, a word there and back, over shunt-rpc, iceoryx2, tarpc, Cap'n Proto and gRPC, in turns of one run: `make bench-rpc-peers`.
//!
//! Each server is a process of its own on one processor; this process calls from the other. Servers that are not called sleep. Each
//! call is timed by itself, so that each figure includes one reading of the clock, some tens of nanoseconds.

mod peers;
mod place;
mod turn;

/// Made from `echo.capnp`.
mod echo_capnp {
    include!(concat!(env!("OUT_DIR"), "/echo_capnp.rs"));
}

/// Made from `echo.proto`.
mod echo_proto {
    tonic::include_proto!("echo");
}

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

use peers::{Caller, Peer, ALL};
use place::Place;

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
const ROUNDS: usize = 7;
const TURN: Duration = Duration::from_millis(200);
/// Between turns: time enough for the server of the last turn to fall asleep.
const PAUSE: Duration = Duration::from_millis(30);
/// Seconds until a process that hangs is ended.
const LIMIT: u32 = 90;
/// What is promised of each peer: at least so many times as long as ours.
const PROMISE: f64 = 4.0;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    place::end_after(LIMIT);
    let result = match words[..] {
        [] => measure(),
        ["serve", name, directory] => serve(name, directory),
        _ => Err("it takes no arguments".into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rpc-peers: {error}");
            ExitCode::FAILURE
        }
    }
}

/// A server's process: it is ready when it has said a byte, and ends when its standard input does.
fn serve(name: &str, directory: &str) -> Result<(), Failure> {
    let peer = ALL.iter().find(|peer| peer.name == name).ok_or("no peer of this name")?;
    place::settle(SERVER_CORE);
    let told = UnixStream::from(std::io::stdin().as_fd().try_clone_to_owned()?);
    (peer.serve)(&Place::at(directory), told)
}

/// A server's process and the caller that is bound to it. The caller goes first: its end of the stream is what the server waits for.
struct Pair {
    peer: &'static Peer,
    caller: Option<Box<dyn Caller>>,
    server: Child,
    p50s: Vec<f64>,
}

impl Pair {
    fn new(peer: &'static Peer, place: &Place) -> Result<Self, Failure> {
        let (mut ours, theirs) = UnixStream::pair()?;
        let server = Command::new(std::env::current_exe()?)
            .args(["serve", peer.name])
            .arg(place.directory())
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        let mut pair = Self { peer, caller: None, server, p50s: vec![] };
        ours.read_exact(&mut [0]).map_err(|error| format!("the server of {}: {error}", peer.name))?;
        pair.caller = Some((peer.bind)(place, ours)?);
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        if self.caller.take().is_none() {
            let _ = self.server.kill();
        }
        let _ = self.server.wait();
    }
}

fn measure() -> Result<(), Failure> {
    let place = Place::new()?;
    place::settle(CLIENT_CORE);
    let mut pairs = ALL.iter().map(|peer| Pair::new(peer, &place)).collect::<Result<Vec<_>, _>>()?;
    for _ in 0..ROUNDS {
        for pair in &mut pairs {
            std::thread::sleep(PAUSE);
            let caller = pair.caller.as_mut().expect("bound above");
            let p50 = caller.turn(TURN).map_err(|error| format!("{}: {error}", pair.peer.name))?;
            pair.p50s.push(p50);
        }
    }
    print(&pairs)?;
    Ok(())
}

fn print(pairs: &[Pair]) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    let ours = &pairs[0].p50s;
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    writeln!(out, "u64 echo between two processes; p50 of a turn of {TURN:?}, median (range) of {ROUNDS} turns; load {load}\n")?;
    writeln!(out, "{:<40}{:>10}{:>22}{:>10}", "", "p50", "range", "/ ours")?;
    let mut kept = vec![];
    for pair in pairs {
        let ratios: Vec<f64> = pair.p50s.iter().zip(ours).map(|(peer, ours)| peer / ours).collect();
        let (p50, low, high) = turn::spread(&pair.p50s);
        let (ratio, ..) = turn::spread(&ratios);
        writeln!(out, "{:<40}{p50:>7.0} ns{:>19} ns{ratio:>8.2} x", pair.peer.about, format!("{low:.0} to {high:.0}"))?;
        kept.push((pair.peer.name, ratio >= PROMISE));
    }
    writeln!(out, "{:<40}{:>7.0} ns, and in each of those above", "the clock", turn::clock())?;
    let names = |held: bool| {
        let names: Vec<&str> = kept.iter().skip(1).filter(|(_, is)| *is == held).map(|(name, _)| *name).collect();
        if names.is_empty() {
            "none".to_owned()
        } else {
            names.join(", ")
        }
    };
    writeln!(out, "\npeer / ours >= {PROMISE}: holds for {}; missed for {}", names(true), names(false))
}
