//! Measures what the primitive operations cost here.

use crate::costs::{Costs, Line, NEAR};
use crate::fault;
use crate::port::Port;
use shunt_region::word::Use;
use shunt_region::{Access, Audience, Limit, Pages, Pool, Shape};
use shunt_sys::calls;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Rounds over all sizes. A quarter of them has to go undisturbed for the times to be those of a machine that has nothing else to do.
const TIMES: usize = 12;

/// One operation, at the sizes that it was measured at.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The paper's name.
    pub name: &'static str,
    /// Bytes and nanoseconds.
    pub points: Vec<(f64, f64)>,
    /// The line through them.
    pub line: Line,
}

/// Rounds that are enough where there is no time for all of them.
const FEWEST: usize = 3;
/// For what costs are measured when a program needs them, at most: where other threads have the processors each turn between two costs a slice of theirs.
const MOST: Duration = Duration::from_millis(50);

/// The lower quartile: what disturbs makes longer, and never shorter.
fn undisturbed(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 4]
}

/// Measures everything, on a pool of these pages: in so many rounds, or as many as `most` has time for.
///
/// # Errors
/// No pool can be had.
pub fn table(pages: Pages, rounds: usize, most: Duration) -> Result<Vec<Measured>, Limit> {
    let unit = 64 << 10;
    // A line needs three sizes at least: of huge pages there is none below 2 MiB.
    let (largest, audience) = if pages == Pages::Small { (4 << 20, Audience::Anyone) } else { (8 << 20, Audience::Trusted) };
    let pool = Pool::create(Shape { unit, units: 4 * largest / unit }, pages, audience)?;
    pool.populate();
    let unit = pool.shape().unit;
    let sizes: Vec<usize> = (0..).map(|power| unit << power).take_while(|size| *size <= largest).collect();
    let names = [
        "Copyin, copyout",
        "Read only",
        "Reinstate",
        "Invalidate",
        "Reinstate hidden",
        "Wire",
        "Unwire",
        "Reference, unreference",
        "Write fault",
    ];
    let faults = fault::ensure().is_ok();
    let mut private = vec![1u8; largest];
    let mut times = vec![vec![Vec::new(); names.len()]; sizes.len()];
    // Interleaved: an operation in a loop of its own costs half of what it does among others, and what disturbs disturbs all sizes.
    let started = Instant::now();
    for round in 0..rounds {
        if round >= FEWEST && started.elapsed() > most {
            break;
        }
        for (size, times) in sizes.iter().zip(&mut times) {
            let size = *size;
            let mut region = pool.allocate(size)?;
            let at = region.located();
            region.bytes_mut()[..size].copy_from_slice(&private[..size]);
            let mut timed = |number: usize, operation: &mut dyn FnMut()| {
                let begun = Instant::now();
                operation();
                times[number].push(begun.elapsed().as_nanos() as f64);
            };
            timed(7, &mut || {
                let _ = pool.reference(&at, Use::Output);
            });
            timed(1, &mut || {
                let _ = pool.arm(&at);
            });
            let _ = pool.unreference(&at, Use::Output);
            timed(0, &mut || private[..size].copy_from_slice(&region.bytes()[..size]));
            timed(2, &mut || pool.disarm(&at));
            timed(3, &mut || {
                let _ = pool.access(&at, Access::None);
            });
            timed(4, &mut || {
                let _ = pool.access(&at, Access::Write);
            });
            timed(5, &mut || {
                let _ = calls::mlock(region.pointer(), size);
            });
            timed(6, &mut || {
                let _ = calls::munlock(region.pointer(), size);
            });
            if faults && pool.reference(&at, Use::Output).is_ok() {
                let _ = pool.arm(&at);
                let _ = pool.unreference(&at, Use::Output);
                timed(8, &mut || region.bytes_mut()[0] = 2);
            }
        }
    }
    let mut all: Vec<Measured> =
        names.into_iter().map(|name| Measured { name, points: Vec::new(), line: Line::default() }).collect();
    for (size, times) in sizes.iter().zip(times) {
        for (measured, times) in all.iter_mut().zip(times).filter(|(_, times)| !times.is_empty()) {
            measured.points.push((*size as f64, undisturbed(times)));
        }
    }
    for measured in &mut all {
        measured.line = Line::fit(&measured.points);
    }
    Ok(all)
}

/// The costs of this machine, measured when they are first asked for, and then this process's.
pub fn once() -> &'static Costs {
    static COSTS: OnceLock<Costs> = OnceLock::new();
    COSTS.get_or_init(costs)
}

/// What two ends of a port find out together.
struct Together {
    /// The size from which on one copy by two is faster than two copies through the ring.
    waiting_from: usize,
    rewriting: Line,
    sending: Line,
}

/// Copying, one copy by two and TCOW are tried between two threads, as what a copy costs in one processor's caches says little of lines that go to
/// another's. `None`: that cannot be tried.
fn together() -> Option<Together> {
    const SIZES: [usize; 7] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10];
    const COPIED: usize = 0;
    const PULLED: usize = 1;
    const TCOW: usize = 2;
    let (mut here, mut there) = Port::pair().ok()?;
    // A port that has costs asks for none.
    here.set_costs(Costs::USUAL);
    let pool = Pool::create(Shape { unit: 64 << 10, units: 32 }, Pages::Small, Audience::Anyone).ok()?;
    pool.populate();
    here.offer(&pool).ok()?;
    let receiver = std::thread::Builder::new().spawn(move || {
        let mut own = vec![0; 256 << 10];
        while there.receive(&mut own).is_ok_and(|length| length > 0) && there.send(b"k", false).is_ok() {}
    });
    let receiver = receiver.ok()?;
    let mut region = pool.allocate(256 << 10).ok()?;
    // By way: until all is there, of the call, and of writing the buffer again.
    let mut times = SIZES.map(|_| [(); 3].map(|()| [(); 3].map(|()| Vec::new())));
    let started = Instant::now();
    for round in 0..TIMES {
        if started.elapsed() > MOST {
            break;
        }
        for (size, times) in SIZES.into_iter().zip(&mut times) {
            for (way, times) in times.iter_mut().enumerate() {
                region.bytes_mut()[..size].fill(round as u8);
                let policy = here.policy();
                policy.waiting_from = if way == PULLED { 1 } else { usize::MAX };
                policy.tcow_from = if way == TCOW { 1 } else { usize::MAX };
                let begun = Instant::now();
                here.send(&region.bytes()[..size], way == TCOW).ok()?;
                let called = begun.elapsed();
                here.receive(&mut [0]).ok()?;
                let received = begun.elapsed();
                here.progress().ok()?;
                let again = Instant::now();
                region.bytes_mut()[..size].fill(round as u8);
                let took = [received, called, again.elapsed()].map(|time| time.as_nanos() as f64);
                times.iter_mut().zip(took).for_each(|(times, time)| times.push(time));
            }
        }
    }
    let enough = times.iter().all(|ways| ways[TCOW][0].len() >= FEWEST);
    let found = times.map(|ways| ways.map(|times| times.map(|times| if times.is_empty() { 0.0 } else { undisturbed(times) })));
    let longest = found.iter().rev().take_while(|ways| ways[PULLED][0] < ways[COPIED][0]).count();
    let from = SIZES[SIZES.len() - longest..].first().copied().unwrap_or(usize::MAX);
    let line = |cost: &dyn Fn(&[[f64; 3]; 3]) -> f64| {
        let points: Vec<(f64, f64)> = SIZES.iter().zip(&found).map(|(size, ways)| (*size as f64, cost(ways))).collect();
        Line::fit(&points)
    };
    let _ = here.send(&[], false);
    let _ = receiver.join();
    enough.then(|| Together {
        waiting_from: from,
        rewriting: line(&|ways| ways[TCOW][2] - ways[COPIED][2]),
        sending: line(&|ways| ways[COPIED][1]),
    })
}

/// The costs of this machine, as far as they can be measured; else usual ones.
pub fn costs() -> Costs {
    let mut costs = Costs::USUAL;
    let Ok(table) = table(Pages::Small, TIMES, MOST) else { return costs };
    let near: Vec<(f64, f64)> = table[0].points.iter().copied().filter(|point| point.0 <= NEAR as f64).collect();
    let far: Vec<(f64, f64)> = table[0].points.iter().copied().filter(|point| point.0 >= NEAR as f64).collect();
    if near.len() > 1 {
        costs.copy = Line::fit(&near);
    }
    costs.far_copy = Line::fit(&far);
    costs.reference = table[7].line;
    costs.read_only = table[1].line;
    costs.invalidate = table[3].line;
    costs.reinstate = table[4].line;
    (costs.wire, costs.unwire) = (table[5].line, table[6].line);
    if !table[8].points.is_empty() {
        costs.fault = table[8].line;
    }
    // Else single operations' costs decide, and then what messages take.
    if let Some(Together { waiting_from, rewriting, sending }) = together() {
        (costs.waiting_from, costs.rewriting, costs.sending) = (Some(waiting_from), rewriting, sending);
    }
    costs
}
