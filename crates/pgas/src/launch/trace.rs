//! A traced job's rings as a file in Chrome's trace event format (JSON object form), which Perfetto and chrome://tracing open.
//!
//! Ranks wrote the rings, and may have been killed meanwhile: each record is checked, and those that cannot be true are counted and left out.

use crate::group::parts;
use crate::layout::Layout;
use crate::trace::{clock, what, Kind, Ring, What, Words};
use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};

/// Numbers of places from here on are of static data.
const STATIC: u64 = 1 << 62;

/// A record that may be true.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Event {
    what: What,
    thread: u16,
    begun: u64,
    ended: u64,
}

/// What can be told of one rank.
#[derive(Default, Debug)]
struct Track {
    events: Vec<Event>,
    lost: u64,
    refused: u64,
}

/// When the job ran, and of how many ranks: what records are checked with.
#[derive(Clone, Copy, Debug)]
struct Limits {
    ranks: usize,
    begun: u64,
    ended: u64,
}

impl Limits {
    fn event(self, [begun, ended, word, place]: Words) -> Option<Event> {
        let (what, thread) = what(word, place)?;
        let times = self.begun <= begun && begun <= ended && ended <= self.ended;
        let right = match what.kind {
            Kind::Put | Kind::Get => what.amount < self.ranks as u64,
            Kind::Wait | Kind::Lock => true,
            _ => self.is_group(place),
        };
        (times && right).then_some(Event { what, thread, begun, ended })
    }

    fn is_group(self, key: u64) -> bool {
        let (start, stride, size) = parts(key);
        let exists = |rank| (0..self.ranks as i64).contains(&rank);
        size > 0 && exists(start) && exists(start + (size - 1) * stride)
    }
}

/// Events of one thread are written when they end, and lie beside or within each other.
fn track(records: &[Words], lost: u64, limits: Limits) -> Track {
    let mut track = Track { lost, ..Track::default() };
    // By thread: those that no later one encloses so far, one after the other.
    let mut open: BTreeMap<u16, Vec<Event>> = BTreeMap::new();
    for record in records {
        let placed = limits.event(*record).filter(|event| {
            let before = open.entry(event.thread).or_default();
            let last = before.last().map_or(0, |last| last.ended);
            let enclosed = before.iter().rev().take_while(|other| other.begun >= event.begun).count();
            let kept = before.len() - enclosed;
            let fits = event.ended >= last && before[..kept].last().is_none_or(|other| other.ended <= event.begun);
            if fits {
                before.truncate(kept);
                before.push(*event);
            }
            fits
        });
        match placed {
            Some(event) => track.events.push(event),
            None => track.refused += 1,
        }
    }
    track
}

fn name(kind: Kind) -> (&'static str, &'static str) {
    match kind {
        Kind::Barrier => ("barrier", "wait"),
        Kind::Sync => ("sync", "wait"),
        Kind::Wait => ("wait_until", "wait"),
        Kind::Lock => ("set_lock", "wait"),
        Kind::Broadcast => ("broadcast", "collective"),
        Kind::Collect => ("collect", "collective"),
        Kind::Fcollect => ("fcollect", "collective"),
        Kind::Alltoall => ("alltoall", "collective"),
        Kind::Reduce => ("reduce", "collective"),
        Kind::Put => ("put", "transfer"),
        Kind::Get => ("get", "transfer"),
        Kind::Scan => ("scan", "collective"),
    }
}

fn arguments(what: What) -> String {
    match (what.kind, what.place) {
        (Kind::Put | Kind::Get, bytes) => format!("\"bytes\":{bytes},\"rank\":{}", what.amount),
        (Kind::Wait | Kind::Lock, 0) => String::new(),
        (Kind::Wait | Kind::Lock, place) if place > STATIC => format!("\"static_offset\":{}", place - 1 - STATIC),
        (Kind::Wait | Kind::Lock, place) => format!("\"offset\":{}", place - 1),
        (kind, key) => {
            let (start, stride, size) = parts(key);
            let group = format!("\"start\":{start},\"stride\":{stride},\"size\":{size}");
            match kind {
                Kind::Barrier | Kind::Sync => group,
                _ => format!("{group},\"bytes\":{}", what.amount),
            }
        }
    }
}

/// A job's trace, to be written once it is over.
#[derive(Debug)]
pub(crate) struct Recording {
    begun: u64,
}

impl Recording {
    /// From now on.
    pub(crate) fn begin() -> Recording {
        Recording { begun: clock() }
    }

    /// Writes the events of all ranks.
    ///
    /// # Errors
    /// If the file cannot be written.
    ///
    /// # Safety
    /// The memory of a job of this layout must be mapped at `base`.
    pub(crate) unsafe fn write(&self, out: impl Write, base: usize, layout: &Layout) -> io::Result<()> {
        // SAFETY: the caller's promise.
        self.write_records(out, layout.ranks, 0, |rank| unsafe { records(base, layout, rank) })
    }

    /// The same of records from wherever, whose times may be wrong by `slack` nanoseconds.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub(crate) fn write_records(
        &self,
        out: impl Write,
        ranks: usize,
        slack: u64,
        records: impl Fn(usize) -> (Vec<Words>, u64),
    ) -> io::Result<()> {
        let limits = Limits { ranks, begun: self.begun.saturating_sub(slack), ended: clock() + slack };
        let tracks = (0..ranks).map(|rank| {
            let (records, lost) = records(rank);
            track(&records, lost, limits)
        });
        write(out, tracks, limits)
    }
}

/// What a rank has recorded, and how many records were overwritten.
///
/// # Safety
/// The memory of a job of this layout must be mapped at `base`.
pub(crate) unsafe fn records(base: usize, layout: &Layout, rank: usize) -> (Vec<Words>, u64) {
    // SAFETY: the caller's promise.
    unsafe { Ring::of(base, layout, rank) }.map_or((Vec::new(), 0), |ring| ring.read())
}

/// Records as bytes of a frame, their times later by `shift`, which may be negative.
pub(crate) fn to_bytes(records: &[Words], shift: i64) -> Vec<u8> {
    let shifted = records.iter().flat_map(|&[begun, ended, word, place]| {
        [begun.wrapping_add_signed(shift), ended.wrapping_add_signed(shift), word, place]
    });
    shifted.flat_map(u64::to_le_bytes).collect()
}

/// The records that these bytes are; what is left over at the end is none.
pub(crate) fn from_bytes(bytes: &[u8]) -> Vec<Words> {
    let words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word)).collect::<Vec<_>>();
    words.as_chunks::<4>().0.to_vec()
}

/// The whole file; `tracks` are those of rank 0 and so on.
fn write(out: impl Write, tracks: impl Iterator<Item = Track>, limits: Limits) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    let job = std::process::id();
    let microseconds = |time: u64| format!("{}.{:03}", time / 1000, time % 1000);
    writeln!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    write!(
        out,
        "{{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":{job},\"args\":{{\"name\":\"shunt spmd, {} ranks\"}}}}",
        limits.ranks
    )?;
    let (mut lost, mut refused) = (Vec::new(), Vec::new());
    for (rank, track) in tracks.enumerate() {
        let mut threads: Vec<u16> = track.events.iter().map(|event| event.thread).chain([0]).collect();
        threads.sort_unstable();
        threads.dedup();
        // The first thread has the number of its rank, others have numbers that no rank has.
        let number = |thread: u16| usize::from(thread) * limits.ranks + rank;
        for &thread in &threads {
            let more = if thread == 0 { String::new() } else { format!(", thread {thread}") };
            let (tid, name) = (number(thread), format!("rank {rank}{more}"));
            write!(
                out,
                ",\n{{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":{job},\"tid\":{tid},\"args\":{{\"name\":\"{name}\"}}}}"
            )?;
            let order = rank * (usize::from(u16::MAX) + 1) + usize::from(thread);
            write!(out, ",\n{{\"ph\":\"M\",\"name\":\"thread_sort_index\",\"pid\":{job},\"tid\":{tid},\"args\":{{\"sort_index\":{order}}}}}")?;
        }
        for event in &track.events {
            let ((name, category), tid) = (name(event.what.kind), number(event.thread));
            let (ts, dur) = (microseconds(event.begun - limits.begun), microseconds(event.ended - event.begun));
            write!(out, ",\n{{\"ph\":\"X\",\"name\":\"{name}\",\"cat\":\"{category}\",\"pid\":{job},\"tid\":{tid},")?;
            write!(out, "\"ts\":{ts},\"dur\":{dur},\"args\":{{{}}}}}", arguments(event.what))?;
        }
        lost.push(track.lost.to_string());
        refused.push(track.refused.to_string());
    }
    let (lost, refused) = (lost.join(","), refused.join(","));
    writeln!(out, "\n],\"otherData\":{{\"ranks\":{},\"lost\":[{lost}],\"refused\":[{refused}]}}}}", limits.ranks)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Group;
    use crate::trace::words;
    use proptest::prelude::*;

    const LIMITS: Limits = Limits { ranks: 3, begun: 1000, ended: 9000 };

    fn barrier(begun: u64, ended: u64, thread: u16) -> Words {
        words(What { kind: Kind::Barrier, place: Group::key(0, 1, 3, 0), amount: 0 }, thread, begun, ended)
    }

    #[test]
    fn records_come_from_other_hosts_by_this_one_s_clock() {
        let sent = [barrier(3000, 4000, 1), barrier(5000, 6000, 0)];
        assert_eq!(from_bytes(&to_bytes(&sent, 0)), sent);
        let bytes = to_bytes(&sent, -2500);
        assert_eq!(from_bytes(&bytes), [barrier(500, 1500, 1), barrier(2500, 3500, 0)]);
        assert_eq!(from_bytes(&bytes[..33]).len(), 1);
    }

    #[test]
    fn what_cannot_be_true_is_left_out() {
        let wrong = [
            [0; 4],
            barrier(3000, 2000, 0),
            barrier(10, 2000, 0),
            barrier(3000, 9001, 0),
            words(What { kind: Kind::Put, place: 4096, amount: 3 }, 0, 3000, 4000),
            words(What { kind: Kind::Sync, place: Group::key(1, 1, 3, 0), amount: 0 }, 0, 3000, 4000),
        ];
        for record in wrong {
            let track = track(&[record], 0, LIMITS);
            assert_eq!((track.events.len(), track.refused), (0, 1), "{record:?}");
        }
    }

    #[test]
    fn events_of_a_thread_lie_beside_or_within_each_other() {
        let records = [
            barrier(2000, 3000, 0),
            barrier(2500, 3500, 0), // Overlaps the first.
            barrier(2500, 3500, 1),
            barrier(3000, 4000, 0),
            barrier(1500, 5000, 0), // Encloses two.
            barrier(4500, 4900, 0), // Would have been written before.
            barrier(4900, 5100, 0), // Overlaps the one that encloses.
        ];
        let track = track(&records, 7, LIMITS);
        let times: Vec<_> = track.events.iter().map(|event| event.begun).collect();
        assert_eq!((times, track.refused, track.lost), (vec![2000, 2500, 3000, 1500], 3, 7));
    }

    #[test]
    fn the_file_says_names_times_and_arguments() {
        let records = [
            barrier(2000, 3001, 0),
            words(What { kind: Kind::Get, place: 65536, amount: 2 }, 1, 2000, 2000),
            words(What { kind: Kind::Lock, place: STATIC + 9, amount: 0 }, 0, 4000, 5000),
        ];
        let mut file = Vec::new();
        write(&mut file, [track(&records, 5, LIMITS)].into_iter(), LIMITS).unwrap();
        let text = String::from_utf8(file).unwrap();
        for part in [
            "\"name\":\"barrier\",\"cat\":\"wait\"",
            "\"tid\":0,\"ts\":1.000,\"dur\":1.001,\"args\":{\"start\":0,\"stride\":1,\"size\":3}",
            "\"tid\":3,\"ts\":1.000,\"dur\":0.000,\"args\":{\"bytes\":65536,\"rank\":2}",
            "\"args\":{\"static_offset\":8}",
            "\"rank 0, thread 1\"",
            "\"lost\":[5],\"refused\":[0]",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }

    prop_compose! {
        /// Records that are nearly right.
        fn record()(noise: [u64; 4], times in (900u64..9100, 900u64..9100), kind in 0u64..14, thread in 0u64..3, keep in 0u8..4) -> Words {
            match keep {
                0 => noise,
                1 => [times.0, times.1, kind | thread << 8, noise[3]],
                2 => [times.0, times.1, kind | thread << 8 | (noise[2] & 3) << 24, Group::key(noise[0] as i64 & 3, 1, 1 + (noise[1] & 3) as usize, 0)],
                _ => [times.0, times.0 + 10, kind | thread << 8, Group::key(0, 1, 1, 0)],
            }
        }
    }

    proptest! {
        /// Whatever is in a ring: each record is told or counted, ranks exist, events of a thread do not cross, and the file can be parsed.
        #[test]
        fn hostile_rings_are_read(ranks in 1usize..5, lost: u64, records in prop::collection::vec(record(), 0..60)) {
            let limits = Limits { ranks, ..LIMITS };
            let track = track(&records, lost, limits);
            prop_assert_eq!(track.events.len() as u64 + track.refused, records.len() as u64);
            for (at, one) in track.events.iter().enumerate() {
                prop_assert!(LIMITS.begun <= one.begun && one.begun <= one.ended && one.ended <= LIMITS.ended);
                if matches!(one.what.kind, Kind::Put | Kind::Get) {
                    prop_assert!(one.what.amount < ranks as u64);
                }
                for other in track.events[at + 1..].iter().filter(|other| other.thread == one.thread) {
                    prop_assert!(one.ended <= other.ended && (one.ended <= other.begun || other.begun <= one.begun));
                }
            }
            let (told, mut file) = (track.events.len(), Vec::new());
            write(&mut file, [track].into_iter(), limits).unwrap();
            let file: serde_json::Value = serde_json::from_slice(&file).unwrap();
            let events = file["traceEvents"].as_array().unwrap();
            prop_assert_eq!(events.iter().filter(|event| event["ph"] == "X").count(), told);
            prop_assert_eq!(&file["otherData"]["lost"][0], lost);
        }
    }
}
