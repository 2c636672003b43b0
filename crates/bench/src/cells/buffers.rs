//! Large messages between two processes by what becomes of their buffers: copied through rings, pulled while the sender waits,
//! by reference under TCOW, and by reference alone. Time from the call until the receiver has finished, and the sender's own.

mod streams;
mod windows;

pub use windows::Windows;

use std::fmt::Write as _;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

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
    Waiting(Pages),
    Tcow(Pages),
    Reference(Pages),
    Move,
    /// Through shunt's rings, out of a region.
    Copied(Pages),
    /// By a policy of its own, which goes on learning from message to message.
    Chosen(Against, Pages),
}

/// What a policy chooses between, for which calls: out of the same regions.
const CHOICES: [(&str, Against, Pages, Way); 4] = [
    ("may wait", Against::Waiting, Pages::Small, Way::Waiting(Pages::Small)),
    ("may wait, huge pages", Against::Waiting, Pages::Huge, Way::Waiting(Pages::Huge)),
    ("returns at once", Against::Tcow, Pages::Small, Way::Tcow(Pages::Small)),
    ("returns at once, huge pages", Against::HugeTcow, Pages::Huge, Way::Tcow(Pages::Huge)),
];
/// Messages that a policy learns from before its choices count.
const SETTLED: usize = 24;

const WAYS: [(Way, &str); 7] = [
    (Way::Ring, "copy: through shunt's rings"),
    (Way::Waiting(Pages::Small), "emulated copy: pulled while the call lasts"),
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
                let taken = measure(cores, size, cold, read, false)?;
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
                if read {
                    let beside = measure(cores, size, cold, read, true)?;
                    regrets.extend(regret(&beside, &format!("{}, 2 threads", words_of(size, (place.0, "read")))));
                }
            }
        }
        let _ = writeln!(
            text,
            "\n\nthe policy's choices over the best realisation of the same integrity, over copying, and its alternative over copying; medians of the turns' \
             ratios, after {SETTLED} messages:"
        );
        for Regret { words, best, copied, other } in &regrets {
            let _ = writeln!(text, "{words:<64}{best:>8.2}{copied:>8.2}{other:>8.2}");
            for (what, ratio) in [("regret", best), ("over-copying", copied)] {
                let figure = Figure::new(format!("buffers/{what}/{words}"), words.clone(), Unit::Nanoseconds, ratio * 1e3);
                collector.add_floor(&format!("{what} x 1000"), vec![figure]);
            }
        }
        passed(&mut text, cores, collector)?;
        let _ = writeln!(text, "\nprimitive operations, by least squares:");
        for measured in calibrate::table(Pages::Small, ROUNDS, Duration::from_millis(200)).map_err(io::Error::other)? {
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
    for (what, against, pages, other) in CHOICES {
        let (copied, chosen) = (of(Way::Copied(pages)), of(Way::Chosen(against, pages)));
        let (Some(copied), Some(other), Some(chosen)) = (copied, of(other), chosen) else { continue };
        let times = |one: &Taken| if against == Against::Waiting { one.whole.clone() } else { one.written.clone() };
        let over = |one: &Taken| median(times(one).iter().zip(times(copied)).map(|(one, copied)| one / copied).collect());
        let (chosen, other) = (over(chosen), over(other));
        found.push(Regret { words: format!("{words}, {what}"), best: chosen / other.min(1.0), copied: chosen, other });
    }
    found
}

/// Streams, and what is passed on.
fn passed(text: &mut String, cores: (usize, usize), collector: &mut Collector) -> io::Result<()> {
    const TURNS: usize = 5;
    let _ = writeln!(
        text,
        "\nstreams, each message written before and read after, GB/s, {TURNS} turns; in brackets times the kernel's, and times the rings', medians of the turns':"
    );
    for size in [16 << 10, 64 << 10, 256 << 10, 1 << 20] {
        let _ = write!(text, "{:<12}", bytes(size));
        let mut rates = streams::STREAMS.map(|_| Vec::new());
        for _ in 0..TURNS {
            for ((by, _), rates) in streams::STREAMS.into_iter().zip(&mut rates) {
                rates.push(streams::stream(cores, by, size)?);
            }
        }
        let over = |number: usize, floor: usize| {
            median(rates[number].iter().zip(&rates[floor]).map(|(rate, floor)| rate / floor).collect())
        };
        for (number, (_, title)) in streams::STREAMS.into_iter().enumerate() {
            let rate = median(rates[number].clone());
            let name = title.split(':').next().unwrap_or(title);
            let _ = write!(text, "{name:>22} {:.2} ({:.2}, {:.2})", rate / 1e9, over(number, 0), over(number, 1));
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
            let time = median((0..TURNS).map(|_| streams::stages(cores, by, size)).collect::<io::Result<Vec<f64>>>()?);
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
///
/// `second`: beside a second thread of the sender, which runs on the receiver's processor whenever the receiver sleeps, as it does when a call begins. So
/// what takes rights away has to interrupt that processor, and the sender's own time is what can be told of it: the ways whose calls return at once.
fn measure(cores: (usize, usize), size: usize, cold: bool, read: bool, second: bool) -> io::Result<Vec<Taken>> {
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
    let result = match second {
        false => send(&mut here, &pools, size, cold, None),
        true => beside(cores.1, |second| send(&mut here, &pools, size, cold, Some(second))),
    };
    // Its end is heard of by the other end of the socket that the child has.
    let _ = here.send(&[], false);
    let _ = nix::sys::wait::wait();
    result.map_err(io::Error::other)
}

/// A thread of this process that counts while it runs, which is only when its processor has nothing else to do.
struct Second(AtomicU64);

impl Second {
    /// Waits until it runs, for some milliseconds at most.
    fn runs(&self) {
        let begun = Instant::now();
        let mut ran = 0;
        while ran < 4 && begun.elapsed() < Duration::from_millis(10) {
            let (seen, since) = (self.0.load(Relaxed), Instant::now());
            while since.elapsed() < Duration::from_micros(10) {
                std::hint::spin_loop();
            }
            ran = if self.0.load(Relaxed) != seen { ran + 1 } else { 0 };
        }
    }
}

fn beside<T>(core: usize, work: impl FnOnce(&Second) -> T) -> T {
    let (second, over) = (Second(AtomicU64::new(0)), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(core);
            let nothing = libc::sched_param { sched_priority: 0 };
            // SAFETY: plain call about this thread.
            unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const nothing) };
            while !over.load(Relaxed) {
                second.0.fetch_add(1, Relaxed);
            }
        });
        let done = work(&second);
        over.store(true, Relaxed);
        done
    })
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

fn send(port: &mut Port, pools: &[(Pages, Pool)], size: usize, cold: bool, second: Option<&Second>) -> Result<Vec<Taken>, Error> {
    let mut private = vec![1u8; size];
    let mut others = vec![0u8; if cold { CACHES } else { 0 }];
    let pool = |way: Way| {
        let pages = match way {
            Way::Waiting(pages) | Way::Tcow(pages) | Way::Reference(pages) | Way::Copied(pages) | Way::Chosen(_, pages) => pages,
            Way::Ring | Way::Move => Pages::Small,
        };
        pools.iter().find(|known| known.0 == pages).map(|known| &known.1)
    };
    let ways = WAYS.into_iter().map(|(way, _)| way).chain([Way::Waiting(Pages::Huge)]);
    let ways = ways.chain([Way::Copied(Pages::Small), Way::Copied(Pages::Huge)]);
    let ways = ways.chain(CHOICES.into_iter().map(|choice| Way::Chosen(choice.1, choice.2)));
    let at_once = |way: &Way| matches!(way, Way::Copied(_) | Way::Tcow(_) | Way::Chosen(Against::Tcow | Against::HugeTcow, _));
    let ways = ways.filter(|way| pool(*way).is_some() && (second.is_none() || at_once(way)));
    let fresh = |way| Taken { way, whole: Vec::new(), own: Vec::new(), written: Vec::new(), kept: None, policy: learning() };
    let mut taken: Vec<Taken> = ways.map(fresh).collect();
    let rounds = SETTLED + if size < 64 << 10 { 3 * ROUNDS } else { ROUNDS };
    let mut order: Vec<usize> = (0..taken.len()).collect();
    let mut drawn = 1u32;
    for round in 0..rounds {
        // In another order each round: what one way leaves in the caches is not always the same other way's.
        for place in (1..order.len()).rev() {
            drawn = drawn.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            order.swap(place, (drawn >> 16) as usize % (place + 1));
        }
        for number in &order {
            let one = &mut taken[*number];
            let Some(pool) = pool(one.way) else { continue };
            let defer = matches!(one.way, Way::Tcow(_) | Way::Chosen(Against::Tcow | Against::HugeTcow, _));
            let policy = port.policy();
            policy.learns = false;
            (policy.waiting_from, policy.share_from) = (1, 1);
            policy.tcow_from = if defer { 1 } else { usize::MAX };
            if matches!(one.way, Way::Copied(_)) {
                policy.waiting_from = usize::MAX;
            }
            let chosen = matches!(one.way, Way::Chosen(..));
            if chosen {
                std::mem::swap(port.policy(), &mut one.policy);
            }
            let mut region = one.kept.take().map_or_else(|| pool.allocate(size), Ok)?;
            second.inspect(|second| second.runs());
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
            second.inspect(|second| second.runs());
            let begun = Instant::now();
            match one.way {
                Way::Ring => {
                    port.send(&private, false)?;
                }
                Way::Waiting(_) | Way::Tcow(_) | Way::Copied(_) | Way::Chosen(..) => {
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
