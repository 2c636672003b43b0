//! The paper's techniques, each with it and without it: the same message both ways in turns, so a ratio is of what one turn took.

use std::fmt::{self, Write as _};
use std::hint::black_box;
use std::io;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use shunt_buffers::policy::Policy;
use shunt_buffers::region::word::Use;
use shunt_buffers::region::{Access, Audience, Limit, Pages, Pool, Shape};
use shunt_buffers::{calibrate, Semantics};

use super::carrier::Carrier;
use super::memory::{Variant, PAGE};
use super::model::Way;
use super::primitives::beside;
use super::rig::{Case, Measure, Rig};
use super::{median, LONG, WARM};

/// One technique, over a carrier.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ablation {
    pub technique: String,
    /// What is done in its place.
    pub without: String,
    /// What the paper says of it, and where.
    pub published: String,
    /// Bytes; nanoseconds with it and without it; the median of the turns' ratios, without over with.
    pub points: Vec<(usize, f64, f64, f64)>,
}

/// One technique as a single process has it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Alone {
    pub technique: String,
    pub without: String,
    pub published: String,
    /// Threads of the process that run; nanoseconds with it and without it; the median of the turns' ratios.
    pub points: Vec<(usize, f64, f64, f64)>,
}

/// What there is to be left out, in both directions: with it, without it, and at which lengths.
type Row = (&'static str, &'static str, &'static str, Case, Case, &'static [usize]);

const LENGTHS: &[usize] = &[4 << 10, 16 << 10, LONG, 256 << 10];
const SHORT: &[usize] = &[64, 280, 1 << 10, 4 << 10, 16 << 10, LONG];
const FROM_SHORT: &[usize] = &[1 << 10, 2 << 10, 4 << 10, 16 << 10, LONG, 256 << 10];

fn rows() -> Vec<Row> {
    let early = |semantics| Way::Early.case(semantics, 0);
    let varied = |semantics, variant| Case { variant, ..early(semantics) };
    let sent = |sender| Case { sender, ..early(Semantics::EMULATED_SHARE) };
    let (copy, move_, share) = (Semantics::EMULATED_COPY, Semantics::EMULATED_MOVE, Semantics::EMULATED_SHARE);
    let copied_out = |case: Case| Case { swaps: false, ..case };
    vec![
        (
            "TCOW, and the threshold of output",
            "copying at the sender",
            "5.1, 6: both halves together save 37 % at 60 KB; copied below 1,666 B",
            sent(copy),
            sent(Semantics::COPY),
            FROM_SHORT,
        ),
        (
            "page referencing, and its threshold",
            "copying at the sender",
            "3.1, 6: emulated share is copied below 280 B",
            sent(share),
            sent(Semantics::COPY),
            SHORT,
        ),
        (
            "input-disabled pageout (application-allocated)",
            "wiring at both ends (mlock)",
            "3.2, 7: 3,823 against 3,977 us at 60 KB, 35 us of the first page",
            early(share),
            early(Semantics::SHARE),
            LENGTHS,
        ),
        (
            "input-disabled pageout (system-allocated)",
            "wiring at both ends (mlock)",
            "3.2, 7: 3,842 against 3,949 us at 60 KB",
            early(Semantics::EMULATED_WEAK_MOVE),
            early(Semantics::WEAK_MOVE),
            LENGTHS,
        ),
        (
            "region hiding",
            "unmapping and mapping",
            "4, 7: 3,892 against 4,048 us at 60 KB, where move removes the region",
            early(move_),
            varied(move_, Variant::Unmapped),
            LENGTHS,
        ),
        (
            "region caching, hidden",
            "another region of the pool",
            "2.2, 4: named; 24 us to create a region (table 6)",
            early(move_),
            varied(move_, Variant::Uncached),
            LENGTHS,
        ),
        (
            "region caching, weak",
            "a region of new pages",
            "2.2: named; 24 us to create a region (table 6)",
            early(Semantics::EMULATED_WEAK_MOVE),
            varied(Semantics::EMULATED_WEAK_MOVE, Variant::Fresh),
            LENGTHS,
        ),
        (
            "page swapping on input",
            "copyout",
            "5.2: emulated copy's input; 15 us + 0.0016 us a byte against 0.022 a byte",
            early(copy),
            copied_out(early(copy)),
            LENGTHS,
        ),
        (
            "input alignment, pages swapped",
            "a buffer that is not aligned, copied out",
            "5.2, 7: 3,997 against 5,405 us at 60 KB",
            Way::Aligned.case(copy, 0),
            Way::Unaligned.case(copy, 0),
            LENGTHS,
        ),
        (
            "input alignment, copied out (as the library does)",
            "a buffer that is not aligned",
            "5.2: no gain without swapping",
            copied_out(Way::Aligned.case(copy, 0)),
            copied_out(Way::Unaligned.case(copy, 0)),
            LENGTHS,
        ),
        (
            "reverse copyout",
            "a last page of 3/4 is copied out",
            "5.2: at most half a page is copied",
            early(copy),
            varied(copy, Variant::Unreversed),
            &[3072, 4 * PAGE + 3072],
        ),
        (
            "its threshold",
            "a last page of 1/4 is swapped",
            "5.2, 7: 2,178 B, only moderately sensitive",
            early(copy),
            varied(copy, Variant::Reversed),
            &[1024, 4 * PAGE + 1024],
        ),
        (
            "the threshold of input",
            "pages are swapped although they hold little",
            "6: shorter data is copied",
            Case { receiver: Semantics::COPY, ..early(copy) },
            early(copy),
            FROM_SHORT,
        ),
    ]
}

/// Techniques that there is nothing to compare of.
const NONE: [(&str, &str); 5] = [
    ("I/O-deferred page deallocation (3.1)", "the kernel counts a file's pages for each mapping of it: that cannot be left out"),
    ("input-disabled COW (3.3)", "regions are shared mappings, which fork does not copy on write; a region with an input under way is refused to moves by a comparison in its word"),
    ("busy-marking in place of TCOW (2.3)", "a writer would stall until a receiver that it may itself have to serve has finished; the fault saves what is written instead"),
    ("batched hiding", "not a technique of the paper's; one call for eight regions is measured below, and not built: a region that waits for seven others is not hidden yet"),
    ("UMEM or kernel buffers as overlays", "a frame holds 3,826 B behind its headers: no page of it can be an application's"),
];

/// All of them, in turns.
pub fn measure(rig: &mut Rig, carrier: Carrier, rounds: usize) -> io::Result<Vec<Ablation>> {
    let rows = rows();
    let mut taken: Vec<(usize, usize, [Vec<f64>; 2])> = Vec::new();
    for (number, row) in rows.iter().enumerate() {
        let known = row.5.iter().filter(|length| **length <= carrier.longest());
        taken.extend(known.map(|length| (number, *length, [Vec::new(), Vec::new()])));
    }
    for _ in 0..WARM + rounds {
        for (number, length, times) in &mut taken {
            let (with, without) = (&rows[*number].3, &rows[*number].4);
            for (case, times) in [with, without].into_iter().zip(times) {
                times.push(rig.pass(&Case { length: *length, ..*case }, Measure::Latency)?.latency);
            }
        }
    }
    let points = |wanted: usize| {
        let own = taken.iter().filter(move |one| one.0 == wanted);
        own.map(|(_, length, times)| {
            let (with, without, ratio) = in_turns(times, WARM);
            (*length, with, without, ratio)
        })
    };
    let one = |(number, row): (usize, &Row)| Ablation {
        technique: row.0.into(),
        without: row.1.into(),
        published: row.2.into(),
        points: points(number).collect(),
    };
    Ok(rows.iter().enumerate().map(one).collect())
}

/// Both medians, and that of the ratios.
fn in_turns([with, without]: &[Vec<f64>; 2], warm: usize) -> (f64, f64, f64) {
    let mut ratios: Vec<f64> = with.iter().zip(without).skip(warm).map(|(with, without)| without / with).collect();
    (median(&mut with[warm..].to_vec()), median(&mut without[warm..].to_vec()), median(&mut ratios))
}

/// What one process does with a buffer of 16 units, by itself: with one thread, and with a second one that runs.
///
/// # Errors
/// No pool can be had.
pub fn alone(core: usize, rounds: usize) -> io::Result<Vec<Alone>> {
    const UNITS: usize = 16;
    const BATCH: usize = 8;
    /// Until each unit has been saved once: its spare is memory from then on.
    const SETTLED: usize = 40;
    let pool = Pool::create(Shape { unit: 64 << 10, units: 256 }, Pages::Small, Audience::Trusted).map_err(io::Error::other)?;
    pool.populate();
    shunt_buffers::fault::ensure().map_err(io::Error::other)?;
    let mut all: Vec<Alone> = [
        (
            "TCOW: a write behind the output copies nothing",
            "COW: each unit written is copied",
            "5.1: no copy when the output count is zero",
        ),
        ("a fault gives the whole buffer back", "unit by unit", "5.1: page by page"),
        ("eight regions hidden in one call", "in eight calls", "-"),
    ]
    .map(|(technique, without, published)| Alone {
        technique: technique.into(),
        without: without.into(),
        published: published.into(),
        points: Vec::new(),
    })
    .into();
    for threads in [1, 2] {
        let mut times: [[Vec<f64>; 2]; 3] = Default::default();
        beside(threads == 2, core, || -> Result<(), Limit> {
            for _ in 0..SETTLED + rounds {
                // What is written while an output is under way is saved unit by unit: the same as conventional COW would do behind it.
                let rewritten = |pending: bool| -> Result<f64, Limit> {
                    let mut region = pool.allocate(UNITS * pool.shape().unit)?;
                    let (at, unit) = (region.located(), pool.shape().unit);
                    pool.reference(&at, Use::Output)?;
                    pool.arm(&at)?;
                    if !pending {
                        pool.unreference(&at, Use::Output)?;
                    }
                    let begun = Instant::now();
                    (0..UNITS).for_each(|number| region.bytes_mut()[number * unit] = 1);
                    let took = begun.elapsed().as_nanos() as f64;
                    black_box(region.bytes());
                    if pending {
                        pool.unreference(&at, Use::Output)?;
                    }
                    Ok(took)
                };
                times[0][0].push(rewritten(false)?);
                times[0][1].push(rewritten(true)?);
                // The same pages, reinstated in one call or one for each unit.
                for (place, step) in [(0, UNITS), (1, 1)] {
                    let region = pool.allocate(UNITS * pool.shape().unit)?;
                    let at = region.located();
                    pool.access(&at, Access::Read)?;
                    times[1][place].push(protected(&region, UNITS, step, libc::PROT_READ | libc::PROT_WRITE));
                    pool.access(&at, Access::Write)?;
                }
                // Neighbours of one unit each, of which none is another's.
                for (place, step) in [(0, BATCH), (1, 1)] {
                    let region = pool.allocate(BATCH * pool.shape().unit)?;
                    times[2][place].push(protected(&region, BATCH, step, libc::PROT_NONE));
                    protected(&region, BATCH, BATCH, libc::PROT_READ | libc::PROT_WRITE);
                }
            }
            Ok(())
        })
        .map_err(io::Error::other)?;
        for (one, times) in all.iter_mut().zip(&times) {
            let (with, without, ratio) = in_turns(times, SETTLED);
            one.points.push((threads, with, without, ratio));
        }
    }
    Ok(all)
}

/// Changes `count` units of a region, `step` at a time; nanoseconds.
fn protected(region: &shunt_buffers::region::Region, count: usize, step: usize, protection: i32) -> f64 {
    let unit = region.size() / count;
    let begun = Instant::now();
    for first in (0..count).step_by(step) {
        // SAFETY: whole pages of the region, whose bytes nobody looks at meanwhile.
        unsafe { libc::mprotect(region.pointer().add(first * unit).cast(), step * unit, protection) };
    }
    begun.elapsed().as_nanos() as f64
}

fn bytes(length: usize) -> String {
    match length {
        LONG => "60 KB".into(),
        length if length % 1024 == 0 => format!("{} KiB", length >> 10),
        length => format!("{length} B"),
    }
}

/// The table of one carrier.
pub fn write(text: &mut String, all: &[Ablation]) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(text, "\nAblations: latency with a technique and without it, us; how many times as long without it, median of the turns' ratios")?;
    for one in all {
        writeln!(text, "{}; without: {}  [section {}]", one.technique, one.without, one.published)?;
        for (length, with, without, ratio) in &one.points {
            writeln!(text, "    {:>9} {:>9.2} {:>9.2} {ratio:>8.2} x", bytes(*length), with / 1e3, without / 1e3)?;
        }
    }
    Ok(())
}

/// What concerns one process, and what there is no comparison of.
pub fn write_alone(text: &mut String, all: &[Alone]) -> fmt::Result {
    writeln!(text, "\nAblations in one process, us: 16 units of 64 KiB, with it, without it, times as long without it")?;
    for one in all {
        writeln!(text, "{}; without: {}  [section {}]", one.technique, one.without, one.published)?;
        for (threads, with, without, ratio) in &one.points {
            writeln!(
                text,
                "    {threads} thread{} {:>9.2} {:>9.2} {ratio:>8.2} x",
                if *threads == 1 { " " } else { "s" },
                with / 1e3,
                without / 1e3
            )?;
        }
    }
    let policy = Policy::new(calibrate::once());
    let from = |bytes: usize| if bytes == usize::MAX { "never".into() } else { format!("from {bytes} B on") };
    writeln!(
        text,
        "Thresholds that the library takes from costs measured here (1996: TCOW from 1,666 B on, references from 280 B on): TCOW {}, pulled while the call \
         lasts {}, references {}",
        from(policy.tcow_from),
        from(policy.waiting_from),
        from(policy.share_from)
    )?;
    writeln!(text, "Without an ablation:")?;
    for (technique, why) in NONE {
        writeln!(text, "    {technique}: {why}")?;
    }
    Ok(())
}
