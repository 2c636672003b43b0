//! Connections, put together from what both ends have noted, as segments.
use std::collections::HashMap;
use std::io;

use shunt_segment::address::Address;
use shunt_segment::channel::word::POSITION;

use super::taps::{Note, Opened, What, Which};
use crate::filter::{End, Row};
use crate::inspect::connection::ip_text;

/// Bytes of a segment at most: what an IP packet has room for, rounded down.
const SEGMENT: usize = 32 << 10;

/// Where segments go.
pub trait Sink {
    /// One, seen at `ticks`. Of `length` bytes these were kept. `comment` is for people.
    ///
    /// # Errors
    /// If it cannot be written.
    fn segment(&mut self, ticks: u64, segment: &Segment<'_>, comment: Option<&str>) -> io::Result<()>;

    /// All so far is where a reader finds it.
    ///
    /// # Errors
    /// As for a segment.
    fn flush(&mut self) -> io::Result<()>;
}

/// A segment of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Its sender and its receiver.
    pub ends: [&'a Address; 2],
    pub sequence: u32,
    pub acknowledged: Option<u32>,
    pub syn: bool,
    pub fin: bool,
    pub bytes: &'a [u8],
    /// Its length on the wire, as it were.
    pub length: usize,
}

/// What is known of a connection before it moves a byte.
#[derive(Clone)]
pub struct Known {
    pub which: Which,
    pub ends: [Address; 2],
    addresses: [String; 2],
    /// The processes, as far as they are captured.
    processes: [Option<(u32, String)>; 2],
    pids: [Vec<u32>; 2],
}

impl Known {
    /// Of this connection.
    pub fn new(which: Which, ends: [Address; 2], processes: [Option<(u32, String)>; 2]) -> Known {
        let addresses = [ip_text(&ends[0]), ip_text(&ends[1])];
        let pids = processes.each_ref().map(|process| process.iter().map(|(pid, _)| *pid).collect());
        Known { which, ends, addresses, processes, pids }
    }

    /// As a filter sees it.
    pub fn row(&self) -> Row<'_> {
        let end = |side: usize| End {
            address: &self.addresses[side],
            port: self.ends[side].port,
            program: self.processes[side].as_ref().map_or("", |(_, program)| program),
            pid: self.pids[side].first().copied(),
            pids: &self.pids[side],
        };
        Row { state: "established", carrier: "shared-memory", reason: "accelerated", ends: [end(0), end(1)] }
    }

    fn comment(&self) -> String {
        let [client, server] = self.processes.each_ref().map(|process| match process {
            Some((pid, program)) => format!("{program}/{pid}"),
            None => "?".to_owned(),
        });
        format!("{client} to {server} through shared memory; the hand-shake is made up")
    }
}

struct Flow {
    known: Known,
    shown: bool,
    begun: bool,
    /// By which processes call it.
    numbers: Vec<(u64, u32)>,
    /// Of each side: the position of its first byte in the file, and of the one that is next.
    first: [Option<u64>; 2],
    next: [u64; 2],
    ended: [bool; 2],
}

impl Flow {
    /// The number of the byte that a side sends next.
    fn sequence(&self, side: usize) -> u32 {
        let ended = u32::from(self.ended[side]);
        self.first[side].map_or(1, |first| 1 + (self.next[side].wrapping_sub(first) & POSITION) as u32) + ended
    }
}

/// All connections.
pub struct Flows<S> {
    sink: S,
    known: HashMap<Which, Known>,
    flows: HashMap<Which, Flow>,
    /// Numbers that processes gave: the process, its number of the connection; and its side.
    numbers: HashMap<(u64, u32), (Which, usize)>,
    pub connections: usize,
    pub segments: u64,
    pub bytes: u64,
    /// Bytes that processes which have ended did not find room for.
    pub lost_before: u64,
    /// Segments without bytes that each process may still make before the next flush: a note of forty bytes can stand for megabytes.
    bare: HashMap<u64, usize>,
    /// Numbers that each process has given.
    given: HashMap<u64, usize>,
}

/// Segments without bytes of one process, in the time of one reading: more than it can send by memory.
const BARE: usize = 8192;
/// Connections of one process that are followed at a time.
const GIVEN: usize = 1 << 16;
/// Connections that are known and have not told of themselves.
const KNOWN: usize = 1 << 17;
/// Bytes that a note can stand for: those of all rings of a side.
const STANDS_FOR: usize = 16 << 20;

impl<S: Sink> Flows<S> {
    /// None so far.
    pub fn new(sink: S) -> Flows<S> {
        Flows {
            sink,
            known: HashMap::new(),
            flows: HashMap::new(),
            numbers: HashMap::new(),
            connections: 0,
            segments: 0,
            bytes: 0,
            lost_before: 0,
            bare: HashMap::new(),
            given: HashMap::new(),
        }
    }

    /// A connection that there is.
    pub fn known(&mut self, known: &Known) {
        if self.known.len() >= KNOWN {
            self.known.clear();
        }
        self.known.insert(known.which, known.clone());
    }

    /// All so far is where a reader finds it.
    pub fn flush(&mut self) -> io::Result<()> {
        self.bare.clear();
        self.sink.flush()
    }

    /// A process has noted something.
    pub fn note(&mut self, tap: u64, process: (u32, &str), note: &Note, wanted: impl Fn(&Known) -> bool) -> io::Result<()> {
        match &note.what {
            What::Opened(opened) => {
                self.opened(tap, process, note.connection, opened, wanted);
                Ok(())
            }
            What::Sent { position, stands_for, bytes } => self.moved(tap, note, false, *position, *stands_for, bytes),
            What::Received { position, stands_for, bytes } => self.moved(tap, note, true, *position, *stands_for, bytes),
            What::Ended { position } => self.ended(tap, note, *position),
        }
    }

    fn opened(&mut self, tap: u64, process: (u32, &str), number: u32, opened: &Opened, wanted: impl Fn(&Known) -> bool) {
        let given = self.given.entry(tap).or_default();
        if *given >= GIVEN {
            return;
        }
        let is_new = self.numbers.insert((tap, number), (opened.which, opened.side)).is_none();
        *given += usize::from(is_new);
        let flow = self.flows.entry(opened.which).or_insert_with(|| {
            let known = self.known.remove(&opened.which).unwrap_or_else(|| Known::new(opened.which, opened.ends, [None, None]));
            Flow { known, shown: false, begun: false, numbers: Vec::new(), first: [None; 2], next: [0; 2], ended: [false; 2] }
        });
        if is_new {
            flow.numbers.push((tap, number));
        }
        let mut processes = flow.known.processes.clone();
        processes[opened.side] = Some((process.0, process.1.to_owned()));
        flow.known = Known::new(opened.which, flow.known.ends, processes);
        flow.shown |= wanted(&flow.known);
    }

    fn moved(&mut self, tap: u64, note: &Note, received: bool, position: u64, stands_for: u64, bytes: &[u8]) -> io::Result<()> {
        let Some((which, own)) = self.numbers.get(&(tap, note.connection)).copied() else { return Ok(()) };
        let side = own ^ usize::from(received);
        let Some(flow) = self.flows.get_mut(&which).filter(|flow| flow.shown && !flow.ended[side]) else { return Ok(()) };
        let (mut position, mut bytes, mut left) = (position & POSITION, bytes, (stands_for as usize).max(bytes.len()));
        if left > STANDS_FOR {
            return Ok(());
        }
        match flow.first[side] {
            None => (flow.first[side], flow.next[side]) = (Some(position), position),
            Some(_) => {
                // What both ends have told of counts once.
                let behind = flow.next[side].wrapping_sub(position) & POSITION;
                if behind < 1 << 47 {
                    let told = behind as usize;
                    if told >= left {
                        return Ok(());
                    }
                    (position, left) = (flow.next[side], left - told);
                    bytes = bytes.get(told..).unwrap_or_default();
                }
            }
        }
        flow.next[side] = position;
        if !flow.begun {
            flow.begun = true;
            self.connections += 1;
            let ends = [&flow.known.ends[0], &flow.known.ends[1]];
            let bare = Segment { ends, sequence: 0, acknowledged: None, syn: true, fin: false, bytes: &[], length: 0 };
            let back = [ends[1], ends[0]];
            self.sink.segment(note.ticks, &bare, Some(&flow.known.comment()))?;
            self.sink.segment(note.ticks, &Segment { ends: back, acknowledged: Some(1), ..bare }, None)?;
            self.sink.segment(note.ticks, &Segment { sequence: 1, acknowledged: Some(1), syn: false, ..bare }, None)?;
            self.segments += 3;
        }
        while left > 0 {
            let length = left.min(SEGMENT);
            if bytes.is_empty() {
                let bare = self.bare.entry(tap).or_insert(BARE);
                if *bare == 0 {
                    // A gap, as where notes are missing.
                    flow.next[side] = flow.next[side].wrapping_add(left as u64) & POSITION;
                    break;
                }
                *bare -= 1;
            }
            let (part, rest) = bytes.split_at(length.min(bytes.len()));
            let segment = Segment {
                ends: [&flow.known.ends[side], &flow.known.ends[1 - side]],
                sequence: flow.sequence(side),
                acknowledged: Some(flow.sequence(1 - side)),
                syn: false,
                fin: false,
                bytes: part,
                length,
            };
            self.sink.segment(note.ticks, &segment, None)?;
            self.segments += 1;
            self.bytes += part.len() as u64;
            flow.next[side] = flow.next[side].wrapping_add(length as u64) & POSITION;
            (bytes, left) = (rest, left - length);
        }
        Ok(())
    }

    fn ended(&mut self, tap: u64, note: &Note, position: u64) -> io::Result<()> {
        let Some((which, side)) = self.numbers.get(&(tap, note.connection)).copied() else { return Ok(()) };
        let Some(flow) = self.flows.get_mut(&which).filter(|flow| flow.begun && !flow.ended[side]) else { return Ok(()) };
        if flow.first[side].is_some() {
            flow.next[side] = position & POSITION;
        }
        let segment = Segment {
            ends: [&flow.known.ends[side], &flow.known.ends[1 - side]],
            sequence: flow.sequence(side),
            acknowledged: Some(flow.sequence(1 - side)),
            syn: false,
            fin: true,
            bytes: &[],
            length: 0,
        };
        self.sink.segment(note.ticks, &segment, None)?;
        self.segments += 1;
        flow.ended[side] = true;
        if flow.ended == [true; 2] {
            self.forget(which);
        }
        Ok(())
    }

    fn forget(&mut self, which: Which) {
        for number in self.flows.remove(&which).into_iter().flat_map(|flow| flow.numbers) {
            if self.numbers.remove(&number).is_some() {
                self.given.entry(number.0).and_modify(|given| *given = given.saturating_sub(1));
            }
        }
    }

    /// A process has ended, and all that it noted was told: nothing comes by its numbers.
    pub fn process_ended(&mut self, tap: u64) {
        let (numbers, flows) = (&mut self.numbers, &mut self.flows);
        self.given.remove(&tap);
        let mut touched = Vec::new();
        numbers.retain(|(of, _), (which, _)| {
            if *of == tap {
                touched.push(*which);
            }
            *of != tap
        });
        for which in touched {
            if let Some(flow) = flows.get_mut(&which) {
                flow.numbers.retain(|(of, _)| *of != tap);
                if flow.numbers.is_empty() {
                    flows.remove(&which);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sender, the number, the bytes; and flags.
    #[derive(Default)]
    struct Written(Vec<(u16, u32, Vec<u8>, usize, bool, bool)>);

    impl Sink for Written {
        fn segment(&mut self, _: u64, segment: &Segment<'_>, _: Option<&str>) -> io::Result<()> {
            let Segment { ends, sequence, bytes, length, syn, fin, .. } = *segment;
            self.0.push((ends[0].port, sequence, bytes.to_vec(), length, syn, fin));
            Ok(())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const WHICH: Which = Which { nonce: 1, sequence: 2, channel: 3, uses: 4 };

    fn note(what: What) -> Note {
        Note { tap: 0, connection: 9, ticks: 0, what }
    }

    /// Both ends of a connection; the client's process is 1, the server's 2.
    fn flows() -> Flows<Written> {
        let mut flows = Flows::new(Written::default());
        for (tap, side) in [(1, 0), (2, 1)] {
            let ends = [Address::v4([127, 0, 0, 1], 10), Address::v4([127, 0, 0, 1], 20)];
            let opened = note(What::Opened(Opened { which: WHICH, side, ends }));
            flows.note(tap, (tap as u32, "x"), &opened, |known| known.ends[1].port == 20).unwrap();
        }
        flows
    }

    fn sent(position: u64, bytes: &[u8]) -> Note {
        note(What::Sent { position, stands_for: bytes.len() as u64, bytes: bytes.to_vec() })
    }

    #[test]
    fn both_ends_make_one_conversation() {
        let mut flows = flows();
        let yes = |_: &Known| true;
        flows.note(1, (1, "x"), &sent(100, b"abc"), yes).unwrap();
        flows.note(2, (2, "x"), &note(What::Received { position: 100, stands_for: 3, bytes: b"abc".to_vec() }), yes).unwrap();
        flows.note(2, (2, "x"), &sent(0, b"xy"), yes).unwrap();
        flows.note(1, (1, "x"), &sent(102, b"cde"), yes).unwrap();
        flows.note(1, (1, "x"), &note(What::Ended { position: 105 }), yes).unwrap();
        flows.note(1, (1, "x"), &sent(105, b"late"), yes).unwrap();
        let said: Vec<_> = flows.sink.0.iter().skip(3).map(|(from, at, bytes, ..)| (*from, *at, bytes.as_slice())).collect();
        assert_eq!(said, [(10, 1, &b"abc"[..]), (20, 1, b"xy"), (10, 4, b"de"), (10, 6, b"")]);
        assert!(flows.sink.0[0].4 && flows.sink.0[6].5);
        assert_eq!((flows.connections, flows.segments, flows.bytes), (1, 7, 7));
    }

    #[test]
    fn gaps_and_cut_sends_keep_their_numbers() {
        let mut flows = flows();
        let yes = |_: &Known| true;
        flows.note(1, (1, "x"), &sent(0, b"ab"), yes).unwrap();
        flows.note(1, (1, "x"), &sent(10, b"c"), yes).unwrap();
        let cut = note(What::Sent { position: 11, stands_for: 40_000, bytes: b"d".to_vec() });
        flows.note(1, (1, "x"), &cut, yes).unwrap();
        flows.note(1, (1, "x"), &sent(40_011, b"e"), yes).unwrap();
        let said: Vec<_> = flows.sink.0.iter().skip(3).map(|(_, at, bytes, length, ..)| (*at, bytes.len(), *length)).collect();
        assert_eq!(said, [(1, 2, 2), (11, 1, 1), (12, 1, SEGMENT), (12 + SEGMENT as u32, 0, 40_000 - SEGMENT), (40_012, 1, 1)]);
    }

    #[test]
    fn nonsense_of_a_process_is_bounded() {
        let mut flows = flows();
        let huge = note(What::Sent { position: u64::MAX, stands_for: u64::MAX, bytes: b"x".to_vec() });
        flows.note(1, (1, "x"), &huge, |_| true).unwrap();
        flows.note(7, (1, "x"), &sent(0, b"of no connection"), |_| true).unwrap();
        assert!(flows.sink.0.is_empty());
    }

    #[test]
    fn few_notes_make_few_segments() {
        let mut flows = flows();
        for at in 0..10_000u64 {
            let position = at * STANDS_FOR as u64;
            let large = note(What::Sent { position, stands_for: STANDS_FOR as u64, bytes: vec![] });
            flows.note(1, (1, "x"), &large, |_| true).unwrap();
        }
        assert_eq!(flows.sink.0.len(), 3 + BARE);
        flows.flush().unwrap();
        flows.note(1, (1, "x"), &sent(10_000 * STANDS_FOR as u64, b"x"), |_| true).unwrap();
        assert_eq!(flows.sink.0.len(), 3 + BARE + 1);
    }

    #[test]
    fn connections_that_are_over_are_forgotten() {
        let mut flows = flows();
        let ends = [Address::v4([127, 0, 0, 1], 10), Address::v4([127, 0, 0, 1], 20)];
        for number in 0..2 * GIVEN as u32 {
            let opened = Opened { which: Which { channel: number, ..WHICH }, side: 0, ends };
            let opened = Note { tap: 0, connection: number + 100, ticks: 0, what: What::Opened(opened) };
            flows.note(1, (1, "x"), &opened, |_| true).unwrap();
        }
        assert!(flows.numbers.len() <= GIVEN + 1 && flows.flows.len() <= GIVEN + 1);
        flows.process_ended(1);
        assert_eq!((flows.numbers.len(), flows.flows.len()), (1, 1));
        flows.process_ended(2);
        assert_eq!((flows.numbers.len(), flows.flows.len()), (0, 0));
        let mut flows = self::flows();
        for (tap, position) in [(1, 3), (2, 0)] {
            flows.note(tap, (1, "x"), &sent(0, b"abc"), |_| true).unwrap();
            flows.note(tap, (1, "x"), &note(What::Ended { position }), |_| true).unwrap();
        }
        assert_eq!((flows.numbers.len(), flows.flows.len()), (0, 0));
    }
}
