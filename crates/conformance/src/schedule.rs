//! Many parts at once.
//!
//! Most of a suite's time is sleep, so several runs share the processors, each in namespaces of its own. What differs
//! between the sides runs again later, alone: a test that missed a deadline among the others does not miss it then.

use crate::suite::{Part, Suite};
use crate::trial::{self, Run, Side};
use std::collections::VecDeque;
use std::sync::{mpsc, Mutex};
use std::time::{Duration, Instant};

/// Runs at once for each processor.
const RUNS_PER_PROCESSOR: usize = 2;

/// The first runs of a part.
#[derive(Debug)]
pub struct Pair {
    /// On the kernel, or why it could not be run.
    pub kernel: Result<Run, String>,
    /// Under shunt.
    pub shunt: Result<Run, String>,
    /// How long the two took together.
    pub time: Duration,
}

type Told = (usize, Side, Result<Run, String>, Duration);

/// Runs each part once on both sides, those that take longest first, and hands each pair on as soon as it is complete.
pub fn both_sides(parts: &[(&Suite, &Part)], mut done: impl FnMut(usize, Pair)) {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|index| std::cmp::Reverse(parts[*index].1.seconds));
    let waiting: VecDeque<(usize, Side)> =
        order.into_iter().flat_map(|index| [(index, Side::Kernel), (index, Side::Shunt)]).collect();
    let waiting = Mutex::new(waiting);
    let (tell, told) = mpsc::channel::<Told>();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..processors * RUNS_PER_PROCESSOR {
            let (tell, waiting) = (tell.clone(), &waiting);
            scope.spawn(move || {
                while let Some((index, side)) = next(waiting) {
                    let (suite, part) = parts[index];
                    let began = Instant::now();
                    let run = trial::run(suite, part, side, None);
                    if tell.send((index, side, run, began.elapsed())).is_err() {
                        return;
                    }
                }
            });
        }
        drop(tell);
        let mut halves: Vec<Option<Told>> = parts.iter().map(|_| None).collect();
        for half in told {
            let index = half.0;
            match halves[index].take() {
                None => halves[index] = Some(half),
                Some(other) => done(index, pair(half, other)),
            }
        }
    });
}

fn next(waiting: &Mutex<VecDeque<(usize, Side)>>) -> Option<(usize, Side)> {
    waiting.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front()
}

fn pair(one: Told, other: Told) -> Pair {
    let time = one.3 + other.3;
    let (kernel, shunt) = if one.1 == Side::Kernel { (one.2, other.2) } else { (other.2, one.2) };
    Pair { kernel, shunt, time }
}
