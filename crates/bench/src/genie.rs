//! "Effects of Buffering Semantics on I/O Performance" (OSDI '96), reproduced: tables 6, 7 and 8 and figures 3 to 7 with this
//! machine's figures beside the published ones.
//!
//! Two processes walk the paper's tables for all eight semantics and every way of input, over a carrier; each operation is timed where it
//! happens, and the breakdown model made from those times is held against what was measured.

mod ablations;
mod carrier;
mod memory;
mod model;
mod pictures;
mod primitives;
mod processor;
mod published;
mod report;
mod rig;
mod shaped;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sched::{sched_setaffinity, CpuSet};
use nix::unistd::Pid;
use shunt_buffers::Semantics;

use crate::machine::Machine;
use crate::output::say;
pub use carrier::Carrier;
use model::{Measured, Way};
use report::{Document, Findings, Parts};
use rig::{Case, Measure, Rig, Stage};

const PAGE: usize = memory::PAGE;
/// The paper's longest: fifteen pages.
pub(crate) const LONG: usize = 60 << 10;
/// Figure 5.
const SHORT: [usize; 9] = [64, 512, 1024, 1536, 2048, 2176, 2560, 3072, 3584];
/// Longer than ATM let them be.
const BEYOND: [usize; 2] = [128 << 10, 256 << 10];
const ROUNDS: usize = 21;
const WARM: usize = 2;

fn pin(core: usize) {
    let mut set = CpuSet::new();
    let _ = set.set(core);
    let _ = sched_setaffinity(Pid::from_raw(0), &set);
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn lengths(carrier: Carrier, way: Way) -> Vec<usize> {
    let pages = (1..=LONG / PAGE).map(|pages| pages * PAGE);
    // An outboard buffer is the sender's region: it needs memory that both see.
    if way == Way::Outboard && carrier != Carrier::Shm {
        return Vec::new();
    }
    let short = SHORT.into_iter().filter(|_| way == Way::Early);
    short.chain(pages).chain(BEYOND).filter(|length| *length <= carrier.longest()).collect()
}

/// All semantics in all ways: each length in turn, so that what disturbs the machine disturbs all alike.
fn measure(rig: &mut Rig, carrier: Carrier, rounds: usize) -> io::Result<Vec<Measured>> {
    let kinds: Vec<(Semantics, Way)> =
        Way::ALL.into_iter().flat_map(|way| Semantics::ALL.map(|semantics| (semantics, way))).collect();
    let mut plain: BTreeMap<(usize, usize), Vec<f64>> = BTreeMap::new();
    type Times = BTreeMap<(usize, u8, u8, usize), Vec<f64>>;
    let mut timed: Times = BTreeMap::new();
    let mut all: Vec<Measured> = kinds
        .iter()
        .map(|(semantics, way)| Measured {
            semantics: *semantics,
            way: *way,
            latencies: Vec::new(),
            operations: BTreeMap::new(),
            times: BTreeMap::new(),
        })
        .collect();
    let longest = lengths(carrier, Way::Early);
    for round in 0..WARM + rounds * 3 / 2 {
        // In turns with those that are not slowed by clocks: what disturbs the machine disturbs both.
        let with_clock = round >= WARM && (round - WARM) % 3 == 2;
        for length in &longest {
            for (number, (semantics, way)) in kinds.iter().enumerate() {
                if !lengths(carrier, *way).contains(length) {
                    continue;
                }
                let sample =
                    rig.pass(&way.case(*semantics, *length), if with_clock { Measure::Operations } else { Measure::Latency })?;
                if round < WARM {
                    continue;
                }
                if !with_clock {
                    plain.entry((number, *length)).or_default().push(sample.latency);
                    continue;
                }
                let mut once: BTreeMap<(u8, u8), (f64, usize)> = BTreeMap::new();
                for (stage, booked) in &sample.booked {
                    let entry = once.entry((*stage as u8, booked.code)).or_default();
                    *entry = (entry.0 + booked.nanoseconds as f64, entry.1 + 1);
                }
                for ((stage, code), (time, count)) in once {
                    timed.entry((number, stage, code, *length)).or_default().push(time);
                    all[number].times.insert((stage, code), count);
                }
            }
        }
    }
    for ((number, length), mut times) in plain {
        all[number].latencies.push((length as f64, median(&mut times)));
    }
    for ((number, stage, code, length), mut times) in timed {
        let points = all[number].operations.entry((stage, code)).or_default();
        points.push((length as f64, median(&mut times)));
    }
    // What a stage does depends on the length where a page is filled in part: the counts are those of whole pages.
    for one in &mut all {
        let seen = |key: &(u8, u8)| one.operations[key].iter().any(|point| point.0 == LONG as f64);
        let kept: BTreeMap<(u8, u8), usize> =
            one.times.iter().filter(|(key, _)| seen(key)).map(|(key, count)| (*key, *count)).collect();
        one.times = kept;
    }
    all.retain(|one| !one.latencies.is_empty());
    Ok(all)
}

/// 60 KB, with each sender's half and each receiver's: nanoseconds.
fn halves(rig: &mut Rig, rounds: usize) -> io::Result<[[f64; 8]; 8]> {
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); 64];
    for _ in 0..WARM + rounds {
        for (place, times) in times.iter_mut().enumerate() {
            let case = Way::Early.case(Semantics::ALL[place % 8], LONG);
            times.push(rig.pass(&Case { sender: Semantics::ALL[place / 8], ..case }, Measure::Latency)?.latency);
        }
    }
    let mut found = [[0.0; 8]; 8];
    for (place, times) in times.iter_mut().enumerate() {
        found[place / 8][place % 8] = median(&mut times[WARM..]);
    }
    Ok(found)
}

/// What the receiver's page swapping is worth: emulated copy with it, and with copyout in its place, at 60 KB.
fn without_swaps(rig: &mut Rig, rounds: usize) -> io::Result<[f64; 2]> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..WARM + rounds {
        for (swaps, times) in [true, false].into_iter().zip(&mut times) {
            let case = Way::Early.case(Semantics::EMULATED_COPY, LONG);
            times.push(rig.pass(&Case { swaps, ..case }, Measure::Latency)?.latency);
        }
    }
    Ok(times.map(|mut times| median(&mut times[WARM..])))
}

/// What to measure.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    pub carriers: &'a [Carrier],
    /// A quarter of the messages.
    pub quick: bool,
    /// `genie.json` of other machines.
    pub against: &'a [PathBuf],
    /// The shunt command, which is the agent of two hosts.
    pub shunt: Option<&'a Path>,
}

/// Measures, prints, and stores `genie.json`, `genie.txt` and a picture for each figure and carrier.
///
/// # Errors
/// A carrier fails, or the directory cannot be written. A carrier that this machine does not have is named in the report.
pub fn reproduce(plan: &Plan<'_>, output: Option<&Path>) -> io::Result<()> {
    let Plan { carriers, quick, against, shunt } = *plan;
    let machine = Machine::here();
    let rounds = if quick { 5 } else { ROUNDS };
    let others: Vec<Document> = against.iter().map(|path| Document::read(path)).collect::<io::Result<_>>()?;
    let mut findings = Vec::new();
    let mut drawn = Vec::new();
    let mut missing = Vec::new();
    let cores = (machine.client_core, machine.server_core);
    let primitives = primitives::measure(cores, Duration::from_millis(if quick { 100 } else { 1_000 }));
    let alone = ablations::alone(cores.1, rounds)?;
    for carrier in carriers {
        let mut rig = match Rig::new(*carrier, cores, shunt) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                missing.push(format!("Not over {}: {error}.", carrier.word()));
                continue;
            }
            made => made?,
        };
        let all = measure(&mut rig, *carrier, rounds)?;
        let halves = halves(&mut rig, rounds)?;
        let swaps = without_swaps(&mut rig, rounds)?;
        let ablations = ablations::measure(&mut rig, *carrier, rounds)?;
        let processor = processor::measure(&mut rig, rounds)?;
        drop(rig);
        drawn.extend(pictures::all(*carrier, &all, &processor, &ablations).map_err(io::Error::other)?);
        let parts = Parts { halves, swaps, ablations, processor };
        let mut found = Findings::of(*carrier, &all, parts).ok_or_else(|| io::Error::other("nothing was measured"))?;
        if *carrier == Carrier::Udp {
            match found.check(cores, rounds) {
                Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                    missing.push(format!("The model is not checked against links of known rates: {error}."));
                }
                done => done?,
            }
        }
        findings.push(found);
    }
    let document = Document {
        machine: machine.describe(),
        command: std::env::args().collect::<Vec<_>>().join(" "),
        primitives,
        alone,
        carriers: findings,
    };
    let text = report::text(&document, &others) + &missing.iter().map(|line| format!("\n{line}\n")).collect::<String>();
    say(&text);
    if let Some(directory) = output {
        std::fs::create_dir_all(directory)?;
        std::fs::write(directory.join("genie.txt"), &text)?;
        std::fs::write(directory.join("genie.json"), serde_json::to_string_pretty(&document)?)?;
        for (stem, svg) in &drawn {
            std::fs::write(directory.join(format!("{stem}.svg")), svg)?;
        }
    }
    Ok(())
}

const _: () = assert!(Stage::SenderPrepare as u8 == 0);
