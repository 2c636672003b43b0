//! What the launcher and its agents tell each other, over the standard input and output of the command that reaches a host.
//!
//! A frame is the length of what follows (4 bytes, little-endian), a kind (1 byte), and the kind's fields: numbers of 4 or 8 bytes,
//! little-endian, and strings of bytes after their length. The reader refuses what is not exactly that.

use std::io::{self, Read, Write};

/// Bytes of a frame at most, its length excepted.
pub const LARGEST: usize = 1 << 24;
/// Bytes of output in one frame at most.
pub const OUTPUT: usize = 1 << 16;
/// Changes with the frames; the first field of [`Frame::Start`].
pub const VERSION: u32 = 3;

/// What an agent needs to start its ranks.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Start {
    /// [`VERSION`] of the launcher.
    pub version: u32,
    /// The first rank of this host.
    pub first: u32,
    /// How many ranks live here.
    pub ranks: u32,
    /// How many there are on all hosts.
    pub total: u32,
    /// Bytes of each heap.
    pub heap: u64,
    /// Each line of output begins with its rank.
    pub label: bool,
    /// Each rank has a processor of its own.
    pub bind: bool,
    /// The ranks are traced.
    pub trace: bool,
    /// The directory that the ranks start in.
    pub directory: Vec<u8>,
    /// Variables that the launcher had, as `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// The program and its arguments.
    pub program: Vec<Vec<u8>>,
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// To an agent, first: what to start.
    Start(Start),
    /// From an agent of a job of several hosts, first: where its keeper can be reached.
    Here {
        /// A port of TCP.
        port: u32,
        /// Addresses of the host, as `10.0.0.1/24`.
        addresses: Vec<Vec<u8>>,
    },
    /// To such an agent, once all have said that: the table of hosts, as words.
    Hosts(Vec<u8>),
    /// To an agent: a signal that the launcher got.
    Signal(i32),
    /// From an agent whose ranks are traced, first: it asks for the launcher's clock, which is the answer.
    Clock(u64),
    /// From such an agent, before its last frame: what a rank did, by the launcher's clock.
    Trace {
        /// Which rank.
        rank: u32,
        /// How many records were overwritten.
        lost: u64,
        /// The records, as words.
        records: Vec<u8>,
    },
    /// From an agent: bytes that a rank wrote, to standard error or to standard output.
    Output {
        /// To standard error.
        error: bool,
        /// At most [`OUTPUT`] of them.
        bytes: Vec<u8>,
    },
    /// From an agent, last: its ranks could not be started.
    Failed {
        /// The kernel's number for it, or 0.
        code: i32,
        /// A sentence.
        why: Vec<u8>,
    },
    /// From an agent, last: its ranks have ended.
    Done {
        /// The status that a launcher of these ranks alone would have.
        status: i32,
        /// Kind, rank of the job, code and process of the cause, if not all was well.
        cause: Option<[u32; 4]>,
    },
}

impl Frame {
    /// The frame's bytes, its length before them.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; 4];
        let number = |out: &mut Vec<u8>, value: u32| out.extend_from_slice(&value.to_le_bytes());
        let string = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            out.extend_from_slice(bytes);
        };
        match self {
            Frame::Start(start) => {
                out.push(1);
                [start.version, start.first, start.ranks, start.total].into_iter().for_each(|value| number(&mut out, value));
                out.extend_from_slice(&start.heap.to_le_bytes());
                number(&mut out, u32::from(start.label) | u32::from(start.bind) << 1 | u32::from(start.trace) << 2);
                string(&mut out, &start.directory);
                for list in [&start.environment, &start.program] {
                    number(&mut out, list.len() as u32);
                    list.iter().for_each(|word| string(&mut out, word));
                }
            }
            Frame::Signal(signal) => {
                out.push(2);
                number(&mut out, *signal as u32);
            }
            Frame::Output { error, bytes } => {
                out.push(3);
                number(&mut out, u32::from(*error));
                string(&mut out, bytes);
            }
            Frame::Here { port, addresses } => {
                out.push(6);
                number(&mut out, *port);
                number(&mut out, addresses.len() as u32);
                addresses.iter().for_each(|word| string(&mut out, word));
            }
            Frame::Hosts(table) => {
                out.push(7);
                string(&mut out, table);
            }
            Frame::Clock(time) => {
                out.push(8);
                out.extend_from_slice(&time.to_le_bytes());
            }
            Frame::Trace { rank, lost, records } => {
                out.push(9);
                number(&mut out, *rank);
                out.extend_from_slice(&lost.to_le_bytes());
                string(&mut out, records);
            }
            Frame::Failed { code, why } => {
                out.push(4);
                number(&mut out, *code as u32);
                string(&mut out, why);
            }
            Frame::Done { status, cause } => {
                out.push(5);
                number(&mut out, *status as u32);
                cause.iter().flatten().for_each(|value| number(&mut out, *value));
            }
        }
        let length = (out.len() - 4) as u32;
        out[..4].copy_from_slice(&length.to_le_bytes());
        out
    }

    /// The frame that these bytes are, which follow its length; none if they are no frame.
    pub fn decode(bytes: &[u8]) -> Option<Frame> {
        let (kind, rest) = bytes.split_first()?;
        let mut fields = Fields(rest);
        let frame = match kind {
            1 => {
                let [version, first, ranks, total] = [fields.number()?, fields.number()?, fields.number()?, fields.number()?];
                let heap = fields.long()?;
                let flags = fields.number().filter(|flags| *flags < 8)?;
                let directory = fields.string()?;
                let (environment, program) = (fields.list()?, fields.list()?);
                let [label, bind, trace] = [1, 2, 4].map(|flag| flags & flag != 0);
                Frame::Start(Start { version, first, ranks, total, heap, label, bind, trace, directory, environment, program })
            }
            2 => Frame::Signal(fields.number()? as i32),
            3 => {
                let error = fields.number().filter(|stream| *stream < 2)? == 1;
                Frame::Output { error, bytes: fields.string().filter(|bytes| bytes.len() <= OUTPUT)? }
            }
            4 => Frame::Failed { code: fields.number()? as i32, why: fields.string()? },
            5 => {
                let status = fields.number()? as i32;
                let cause = if fields.0.is_empty() {
                    None
                } else {
                    Some([fields.number()?, fields.number()?, fields.number()?, fields.number()?])
                };
                Frame::Done { status, cause }
            }
            6 => Frame::Here { port: fields.number()?, addresses: fields.list()? },
            7 => Frame::Hosts(fields.string()?),
            8 => Frame::Clock(fields.long()?),
            9 => Frame::Trace { rank: fields.number()?, lost: fields.long()?, records: fields.string()? },
            _ => return None,
        };
        fields.0.is_empty().then_some(frame)
    }

    /// Writes the frame.
    ///
    /// # Errors
    /// As the writer; `InvalidInput` if it is larger than [`LARGEST`].
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        let bytes = self.encode();
        if bytes.len() - 4 > LARGEST {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the program's arguments and variables are too long"));
        }
        to.write_all(&bytes)?;
        to.flush()
    }

    /// The next frame; none at the end.
    ///
    /// # Errors
    /// As the reader; `InvalidData` if what comes is no frame.
    pub fn read(from: &mut impl Read) -> io::Result<Option<Frame>> {
        let mut length = [0; 4];
        match from.read_exact(&mut length) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        }
        let length = u32::from_le_bytes(length) as usize;
        let mut bytes = Vec::new();
        // Grows with what arrives, so a length alone takes no memory.
        if length <= LARGEST {
            from.take(length as u64).read_to_end(&mut bytes)?;
        }
        let frame = if bytes.len() == length { Frame::decode(&bytes) } else { None };
        frame.map(Some).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no frame of an agent or launcher"))
    }
}

struct Fields<'b>(&'b [u8]);

impl Fields<'_> {
    fn number(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk::<4>()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*number))
    }

    fn long(&mut self) -> Option<u64> {
        Some(u64::from(self.number()?) | u64::from(self.number()?) << 32)
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        let length = self.number()? as usize;
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes.to_vec())
    }

    fn list(&mut self) -> Option<Vec<Vec<u8>>> {
        let count = self.number()?;
        (0..count).map(|_| self.string()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frames() -> impl Strategy<Value = Frame> {
        let words = || prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..5);
        let start =
            (any::<[u32; 4]>(), any::<u64>(), any::<[bool; 3]>(), prop::collection::vec(any::<u8>(), 0..9), words(), words());
        prop_oneof![
            start.prop_map(|([version, first, ranks, total], heap, [label, bind, trace], directory, environment, program)| {
                Frame::Start(Start { version, first, ranks, total, heap, label, bind, trace, directory, environment, program })
            }),
            any::<i32>().prop_map(Frame::Signal),
            (any::<u32>(), words()).prop_map(|(port, addresses)| Frame::Here { port, addresses }),
            prop::collection::vec(any::<u8>(), 0..50).prop_map(Frame::Hosts),
            any::<u64>().prop_map(Frame::Clock),
            (any::<u32>(), any::<u64>(), prop::collection::vec(any::<u8>(), 0..50))
                .prop_map(|(rank, lost, records)| Frame::Trace { rank, lost, records }),
            (any::<bool>(), prop::collection::vec(any::<u8>(), 0..50)).prop_map(|(error, bytes)| Frame::Output { error, bytes }),
            (any::<i32>(), prop::collection::vec(any::<u8>(), 0..50)).prop_map(|(code, why)| Frame::Failed { code, why }),
            (any::<i32>(), any::<Option<[u32; 4]>>()).prop_map(|(status, cause)| Frame::Done { status, cause }),
        ]
    }

    proptest! {
        #[test]
        fn what_was_written_is_read(sent in prop::collection::vec(frames(), 0..5)) {
            let mut bytes = Vec::new();
            sent.iter().for_each(|frame| frame.write(&mut bytes).unwrap());
            let mut from = &bytes[..];
            for frame in &sent {
                let read = Frame::read(&mut from).unwrap();
                prop_assert_eq!(read.as_ref(), Some(frame));
            }
            prop_assert!(Frame::read(&mut from).unwrap().is_none());
        }

        /// Each frame has one spelling: what is accepted is what the writer would have written.
        #[test]
        fn other_bytes_are_refused(frame in frames(), at in any::<prop::sample::Index>(), value: u8, cut in any::<prop::sample::Index>()) {
            let whole = frame.encode();
            let mut bytes = whole[4..].to_vec();
            let place = at.index(bytes.len());
            bytes[place] = value;
            bytes.truncate(cut.index(bytes.len()) + 1);
            if let Some(other) = Frame::decode(&bytes) {
                prop_assert_eq!(&other.encode()[4..], &bytes[..]);
            }
            if cut.index(whole.len() - 4) > 0 {
                prop_assert!(Frame::read(&mut &whole[..whole.len() - 1]).is_err());
            }
        }
    }

    #[test]
    fn a_length_alone_takes_no_memory() {
        let error = Frame::read(&mut &[0xff, 0xff, 0xff, 0xff, 1][..]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
