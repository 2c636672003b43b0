//! Measures what the primitive operations cost here.

use crate::costs::{Costs, Line, NEAR};
use crate::port::Port;
use shunt_region::word::Use;
use shunt_region::{Access, Audience, Limit, Pages, Pool, Shape};
use shunt_sys::calls;
use std::sync::OnceLock;
use std::time::Instant;

/// Times that each operation is done at each size; the median counts.
const TIMES: usize = 9;

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

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Measures everything, on a pool of these pages. Some tens of milliseconds.
///
/// # Errors
/// No pool can be had.
pub fn table(pages: Pages) -> Result<Vec<Measured>, Limit> {
    let unit = 64 << 10;
    let largest = 4 << 20;
    let audience = if pages == Pages::Small { Audience::Anyone } else { Audience::Trusted };
    let pool = Pool::create(Shape { unit, units: 256 }, pages, audience)?;
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
    ];
    let mut all: Vec<Measured> =
        names.into_iter().map(|name| Measured { name, points: Vec::new(), line: Line::default() }).collect();
    let mut private = vec![1u8; largest];
    for size in sizes {
        let mut times = vec![Vec::new(); names.len()];
        for _ in 0..TIMES {
            let mut region = pool.allocate(size)?;
            let at = region.located();
            region.bytes_mut()[..size].copy_from_slice(&private[..size]);
            // Interleaved: an operation in a loop of its own costs half of what it does among others.
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
        }
        for (measured, times) in all.iter_mut().zip(times) {
            measured.points.push((size as f64, median(times)));
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

/// The size from which on one copy by two is faster than two copies through the ring: both are tried between two threads, as what a copy
/// costs in one processor's caches says little of lines that go to another's. `None`: that cannot be tried.
fn waiting() -> Option<usize> {
    const SIZES: [usize; 7] = [4 << 10, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 128 << 10, 256 << 10];
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
    let mut from = usize::MAX;
    for size in SIZES.into_iter().rev() {
        let mut times = [Vec::new(), Vec::new()];
        for round in 0..TIMES {
            for (pulled, times) in times.iter_mut().enumerate() {
                region.bytes_mut()[..size].fill(round as u8);
                (here.policy().waiting_from, here.policy().tcow_from) = (if pulled == 1 { 1 } else { usize::MAX }, usize::MAX);
                let begun = Instant::now();
                here.send(&region.bytes()[..size], false).ok()?;
                here.receive(&mut [0]).ok()?;
                times.push(begun.elapsed().as_nanos() as f64);
            }
        }
        let [copied, pulled] = times.map(median);
        if pulled >= copied {
            break;
        }
        from = size;
    }
    let _ = here.send(&[], false);
    let _ = receiver.join();
    Some(from)
}

/// The costs of this machine, as far as they can be measured; else usual ones.
pub fn costs() -> Costs {
    let mut costs = Costs::USUAL;
    let Ok(table) = table(Pages::Small) else { return costs };
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
    costs.waiting_from = waiting();
    costs
}
