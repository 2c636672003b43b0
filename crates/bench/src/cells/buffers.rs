//! Large messages between two processes by what becomes of their buffers: copied through rings, pulled while the sender waits,
//! by reference under TCOW, and by reference alone. Time from the call until the receiver has finished, and the sender's own.

mod streams;

use std::fmt::Write as _;
use std::io;
use std::time::Instant;

use nix::sched::{sched_setaffinity, CpuSet};
use nix::unistd::{fork, ForkResult, Pid};
use shunt_buffers::learned::Against;
use shunt_buffers::policy::Policy;
use shunt_buffers::port::{Error, Port};
use shunt_buffers::region::{Audience, Pages, Pool, Region, Shape};
use shunt_buffers::{calibrate, Semantics};

use super::bytes;
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Turn};
use crate::measurement::{Collector, Figure, Unit};
use crate::output::say;

const SIZES: [usize; 5] = [4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];
const ROUNDS: usize = 41;
/// Bytes that the sender goes through between two messages of a cold cell: more than its caches hold.
const CACHES: usize = 32 << 20;

/// How a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Ring,
    Waiting,
    Tcow(Pages),
    Reference(Pages),
    Move,
    /// Through shunt's rings, out of a region.
    Copied(Pages),
    /// By a policy of its own, which goes on learning from message to message.
    Chosen(Against),
}

/// What a policy chooses between, for which calls: out of the same regions.
const CHOICES: [(&str, Against, Way, Way); 3] = [
    ("may wait", Against::Waiting, Way::Copied(Pages::Small), Way::Waiting),
    ("returns at once", Against::Tcow, Way::Copied(Pages::Small), Way::Tcow(Pages::Small)),
    ("returns at once, huge pages", Against::HugeTcow, Way::Copied(Pages::Huge), Way::Tcow(Pages::Huge)),
];
/// Messages that a policy learns from before its choices count.
const SETTLED: usize = 24;

const WAYS: [(Way, &str); 7] = [
    (Way::Ring, "copy: through shunt's rings"),
    (Way::Waiting, "emulated copy: pulled while the call lasts"),
    (Way::Tcow(Pages::Small), "emulated copy: TCOW"),
    (Way::Tcow(Pages::Huge), "emulated copy: TCOW, huge pages"),
    (Way::Reference(Pages::Small), "emulated weak move: by reference"),
    (Way::Reference(Pages::Huge), "emulated weak move: by reference, huge pages"),
    (Way::Move, "emulated move: hidden"),
];

/// The cell.
#[derive(Debug)]
pub struct Buffers;

impl Cell for Buffers {
    fn name(&self) -> &'static str {
        "buffers"
    }

    fn about(&self) -> &'static str {
        "messages of 4 KiB to 4 MiB by semantics of buffers, hot and cold, read and unread, between two pinned processes"
    }

    fn carriers(&self) -> &'static [Carrier] {
        &[]
    }

    fn floors(&mut self, instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
        let cores = (instrument.machine.client_core, instrument.machine.server_core);
        // No library carries these for a program yet, so there is no contender; the report's table has rows for contenders alone.
        let mut text = format!("us until received, and of the sender's call:\n{:<26}", "");
        for way in ["ring", "waiting", "tcow", "tcow-huge", "weak", "weak-huge", "move"] {
            let _ = write!(text, "{way:>16}");
        }
        let mut regrets: Vec<Regret> = Vec::new();
        for size in SIZES {
            for (cold, read) in [(false, true), (false, false), (true, true), (true, false)] {
                let place = (if cold { "cold" } else { "hot" }, if read { "read" } else { "unread" });
                let taken = measure(cores, size, cold, read)?;
                let _ = write!(text, "\n{:<26}", words_of(size, place));
                for (way, title) in WAYS {
                    let Some(one) = taken.iter().find(|one| one.way == way) else {
                        let _ = write!(text, "{:>16}", "-");
                        continue;
                    };
                    let (whole, own) = (median(one.whole.clone()), median(one.own.clone()));
                    let _ = write!(text, "{:>16}", format!("{:.1} ({:.1})", whole / 1e3, own / 1e3));
                    for (part, words, time) in [("", "", whole), ("/sender", ": sender", own)] {
                        let name = format!("buffers/{size}B/{}/{}{part}", place.0, place.1);
                        let words = words_of(size, place) + words;
                        collector.add_floor(title, vec![Figure::new(name, words, Unit::Nanoseconds, time)]);
                    }
                }
                regrets.extend(regret(&taken, &words_of(size, place)));
            }
        }
        let _ = writeln!(
            text,
            "\n\nthe policy's choices over the best realisation of the same integrity, over copying, and its alternative over copying; medians of the turns' \
             ratios, after {SETTLED} messages:"
        );
        for Regret { words, best, copied, other } in &regrets {
            let _ = writeln!(text, "{words:<60}{best:>8.2}{copied:>8.2}{other:>8.2}");
            for (what, ratio) in [("regret", best), ("over-copying", copied)] {
                let figure = Figure::new(format!("buffers/{what}/{words}"), words.clone(), Unit::Nanoseconds, ratio * 1e3);
                collector.add_floor(&format!("{what} x 1000"), vec![figure]);
            }
        }
        passed(&mut text, cores, collector)?;
        let _ = writeln!(text, "\nprimitive operations, by least squares:");
        for measured in calibrate::table(Pages::Small).map_err(io::Error::other)? {
            let line = measured.line;
            let _ = writeln!(
                text,
                "{:<26}{:>8.2} us + {:.4} us a page, r2 {:.3}",
                measured.name,
                line.fixed / 1e3,
                line.each * 4.096,
                line.r2
            );
            for (part, words, value) in [
                ("fixed", "fixed, ns", measured.line.fixed),
                ("page", "a page, ns", measured.line.each * 4096.0),
                ("r2", "r2 x 1000", measured.line.r2 * 1000.0),
            ] {
                let name = format!("buffers/primitive/{}/{part}", measured.name);
                let figure = Figure::new(name, format!("{}: {words}", measured.name), Unit::Nanoseconds, value);
                collector.add_floor("least squares", vec![figure]);
            }
        }
        say(&text);
        Ok(())
    }

    fn turn(&mut self, _: &mut Instrument, _: &Contender, _: usize) -> io::Result<Turn> {
        Ok(Turn::default())
    }
}

fn words_of(size: usize, place: (&str, &str)) -> String {
    format!("{}, {}, {}", bytes(size), place.0, place.1)
}

/// A policy's choices.
struct Regret {
    words: String,
    /// Over the best way.
    best: f64,
    /// Over copying.
    copied: f64,
    /// What is not copying, over copying.
    other: f64,
}

/// What a policy chose, over the best that could have been, and over copying: for calls that may wait by the time until all is received, for
/// calls that return at once by the sender's own, with what writing the message costs where an earlier one left the buffer protected.
fn regret(taken: &[Taken], words: &str) -> Vec<Regret> {
    let of = |wanted: Way| taken.iter().find(|one| one.way == wanted);
    let mut found = Vec::new();
    for (what, against, copied, other) in CHOICES {
        let (Some(copied), Some(other), Some(chosen)) = (of(copied), of(other), of(Way::Chosen(against))) else { continue };
        let times = |one: &Taken| if against == Against::Waiting { one.whole.clone() } else { one.written.clone() };
        let over = |one: &Taken| median(times(one).iter().zip(times(copied)).map(|(one, copied)| one / copied).collect());
        let (chosen, other) = (over(chosen), over(other));
        found.push(Regret { words: format!("{words}, {what}"), best: chosen / other.min(1.0), copied: chosen, other });
    }
    found
}

/// Streams, and what is passed on.
fn passed(text: &mut String, cores: (usize, usize), collector: &mut Collector) -> io::Result<()> {
    let median_of = |measure: &dyn Fn() -> io::Result<f64>| -> io::Result<f64> {
        Ok(median((0..5).map(|_| measure()).collect::<io::Result<Vec<f64>>>()?))
    };
    let _ = writeln!(text, "\nstreams, each message written before and read after, GB/s:");
    for size in [16 << 10, 64 << 10, 256 << 10, 1 << 20] {
        let _ = write!(text, "{:<12}", bytes(size));
        for (by, title) in streams::STREAMS {
            let rate = median_of(&|| streams::stream(cores, by, size))?;
            let _ = write!(text, "{:>22} {:.2}", title.split(':').next().unwrap_or(title), rate / 1e9);
            let figure =
                Figure::new(format!("buffers/stream/{size}B"), format!("stream of {}", bytes(size)), Unit::BytesPerSecond, rate);
            collector.add_floor(title, vec![figure]);
        }
        let _ = writeln!(text);
    }
    let _ = writeln!(text, "\nthree processes, the middle one passes on what it does not read, us a message:");
    for size in [16 << 10, 64 << 10, 256 << 10, 1 << 20] {
        let _ = write!(text, "{:<12}", bytes(size));
        let mut times = Vec::new();
        for (by, title) in [streams::STREAMS[1], streams::STREAMS[2]] {
            let time = median_of(&|| streams::stages(cores, by, size))?;
            times.push(time);
            let _ = write!(text, "{:>22} {:.2}", title.split(':').next().unwrap_or(title), time / 1e3);
            let words = format!("three processes, {}", bytes(size));
            collector.add_floor(title, vec![Figure::new(format!("buffers/stages/{size}B"), words, Unit::Nanoseconds, time)]);
        }
        let _ = writeln!(text, "   {:.1} x", times[0] / times[1]);
    }
    Ok(())
}

fn pin(core: usize) {
    let mut set = CpuSet::new();
    let _ = set.set(core);
    let _ = sched_setaffinity(Pid::from_raw(0), &set);
}

/// The sum of a message's words, so that each byte has been loaded.
fn go_through(start: *const u8, length: usize) -> u64 {
    // SAFETY: the message's memory; aligned to pages.
    let words = unsafe { std::slice::from_raw_parts(start.cast::<u64>(), length / 8) };
    words.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Nanoseconds by a way, turn by turn.
struct Taken {
    way: Way,
    /// From the call until the receiver has finished.
    whole: Vec<f64>,
    /// Of the call.
    own: Vec<f64>,
    /// Of the call and the writing of the message in front of it, which pays for what the call before left behind.
    written: Vec<f64>,
    /// The buffer of the last message, if it is still this process's.
    kept: Option<Region>,
    /// What chooses, where that is the way.
    policy: Policy,
}

fn learning() -> Policy {
    let mut policy = Policy::new(calibrate::once());
    policy.learns = true;
    policy
}

/// All ways of which this machine has the pages, in turns between the same two processes: what disturbs one disturbs all.
fn measure(cores: (usize, usize), size: usize, cold: bool, read: bool) -> io::Result<Vec<Taken>> {
    let shape = Shape { unit: 64 << 10, units: (32 << 20 >> 16).max((4 * size) >> 16) };
    let mut pools = Vec::new();
    let (mut here, mut there) = Port::pair().map_err(io::Error::other)?;
    // Both ends are this command's.
    here.trust();
    there.trust();
    for (pages, audience) in [(Pages::Small, Audience::Anyone), (Pages::Huge, Audience::Trusted)] {
        let Ok(pool) = Pool::create(shape, pages, audience) else { continue };
        pool.populate();
        here.offer(&pool).map_err(io::Error::other)?;
        pools.push((pages, pool));
    }
    // SAFETY: the child uses its port, and ends.
    if let ForkResult::Child = unsafe { fork()? } {
        pin(cores.1);
        there.inherit();
        let _ = receive(&mut there, read);
        std::process::exit(0);
    }
    drop(there);
    pin(cores.0);
    let result = send(&mut here, &pools, size, cold);
    // Its end is heard of by the other end of the socket that the child has.
    let _ = here.send(&[], false);
    let _ = nix::sys::wait::wait();
    result.map_err(io::Error::other)
}

/// What the receiver is told in front of each message: it is read out of a buffer of its own, or in place.
const COPIED: u8 = b'c';
const IN_PLACE: u8 = b'p';

fn receive(port: &mut Port, read: bool) -> Result<(), Error> {
    let mut own = vec![0u8; 4 << 20];
    loop {
        let mut how = [0];
        if port.receive(&mut how)? == 0 {
            return Ok(());
        }
        port.send(b"k", false)?;
        if how[0] == COPIED {
            let length = port.receive(&mut own)?;
            if read {
                std::hint::black_box(go_through(own.as_ptr(), length));
            }
        } else {
            let message = port.receive_reference()?;
            if read {
                std::hint::black_box(go_through(message.start(), message.length()));
            }
            port.give_back(message)?;
        }
        port.send(b"k", false)?;
    }
}

fn send(port: &mut Port, pools: &[(Pages, Pool)], size: usize, cold: bool) -> Result<Vec<Taken>, Error> {
    let mut private = vec![1u8; size];
    let mut others = vec![0u8; if cold { CACHES } else { 0 }];
    let pool = |way: Way| {
        let pages = match way {
            Way::Tcow(pages) | Way::Reference(pages) | Way::Copied(pages) => pages,
            Way::Chosen(Against::HugeTcow) => Pages::Huge,
            _ => Pages::Small,
        };
        pools.iter().find(|known| known.0 == pages).map(|known| &known.1)
    };
    let ways = WAYS.into_iter().map(|(way, _)| way).chain([Way::Copied(Pages::Small), Way::Copied(Pages::Huge)]);
    let ways = ways.chain(CHOICES.into_iter().map(|choice| Way::Chosen(choice.1)));
    let ways = ways.filter(|way| pool(*way).is_some());
    let fresh = |way| Taken { way, whole: Vec::new(), own: Vec::new(), written: Vec::new(), kept: None, policy: learning() };
    let mut taken: Vec<Taken> = ways.map(fresh).collect();
    let rounds = SETTLED + if size < 64 << 10 { 3 * ROUNDS } else { ROUNDS };
    for round in 0..rounds {
        for one in &mut taken {
            let Some(pool) = pool(one.way) else { continue };
            let defer = matches!(one.way, Way::Tcow(_) | Way::Chosen(Against::Tcow | Against::HugeTcow));
            let policy = port.policy();
            policy.learns = false;
            (policy.waiting_from, policy.share_from) = (1, 1);
            policy.tcow_from = if defer { 1 } else { usize::MAX };
            if matches!(one.way, Way::Copied(_)) {
                policy.waiting_from = usize::MAX;
            }
            let chosen = matches!(one.way, Way::Chosen(_));
            if chosen {
                std::mem::swap(port.policy(), &mut one.policy);
            }
            let mut region = one.kept.take().map_or_else(|| pool.allocate(size), Ok)?;
            let writing = Instant::now();
            let buffer = if one.way == Way::Ring { &mut private[..] } else { &mut region.bytes_mut()[..size] };
            buffer.fill(round as u8);
            let wrote = writing.elapsed();
            for byte in others.iter_mut().step_by(64) {
                *byte = round as u8;
            }
            let in_place = matches!(one.way, Way::Reference(_) | Way::Move);
            // A thread that has waited so long sleeps, and its waking is not what is measured.
            port.send(&[if in_place { IN_PLACE } else { COPIED }], false)?;
            port.receive(&mut [0])?;
            let begun = Instant::now();
            match one.way {
                Way::Ring => {
                    port.send(&private, false)?;
                }
                Way::Waiting | Way::Tcow(_) | Way::Copied(_) | Way::Chosen(_) => {
                    port.send(&region.bytes()[..size], defer)?;
                    one.kept = Some(region);
                }
                Way::Reference(_) => {
                    port.send_region(region, size, Semantics::EMULATED_WEAK_MOVE)?;
                }
                Way::Move => {
                    port.send_region(region, size, Semantics::EMULATED_MOVE)?;
                }
            }
            let called = begun.elapsed();
            port.receive(&mut [0])?;
            let whole = begun.elapsed();
            port.progress()?;
            if chosen {
                std::mem::swap(port.policy(), &mut one.policy);
            }
            if round >= SETTLED {
                one.whole.push(whole.as_nanos() as f64);
                one.own.push(called.as_nanos() as f64);
                one.written.push((wrote + called).as_nanos() as f64);
            }
        }
    }
    Ok(taken)
}
