//! The program that sorts frames by tag, on each frame that an interface receives.
//!
//! ```text
//! a segment of TCP of a connection that was taken                       ──► its queue's AF_XDP socket
//! else not a whole UDP datagram to our port, or no header of ours       ──► the kernel
//! tag unknown                                                           ──► the kernel (an endpoint of the `udp` device?)
//! more in the datagram than its header says, and a socket that takes no  ──► the kernel, which cuts it, and so the agent's UDP socket
//! frames in pieces: a run that nobody has cut
//! tag known, and the frame is on the tag's queue                        ──► that queue's AF_XDP socket
//! tag known, frame on another queue, and that queue is the agent's      ──► the agent's socket, which passes it on
//! tag known, frame on a queue that another user has                     ──► the kernel, and so the agent's UDP socket
//! ```
//!
//! It never drops and never changes a frame. A frame that is for an endpoint and malformed behind its tag is dropped, and
//! counted, by the endpoint.

use std::io;

use super::assembler::{Assembler, Label, Register, Size, Test};
use super::kernel::{Attachment, Link, Map, MapKind, Program};
use shunt_wire::endpoint::{HEADER, MAGIC, VERSION};
use shunt_xdp::tcp::{Tuple, KEY};

/// The name by which `bpftool prog` shows the program, and by which we know it.
pub const NAME: &str = "shunt_sort";

/// What the program counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Counter {
    /// Frames that went to the tag's own queue.
    Sorted,
    /// Frames that came on another queue and went to the agent.
    Astray,
    /// Frames with our header and a tag that no endpoint here has.
    UnknownTag,
    /// Datagrams to our port without a header of ours.
    Foreign,
    /// Frames for a tag here that came on another user's queue.
    WrongQueue,
    /// Runs of datagrams that the sender's kernel did not cut, for sockets that do not take them: left to the stack.
    Uncut,
    /// Segments of connections that were taken.
    Segment,
    /// Segments of such that came on another queue: left to the stack, which does not take them either.
    SegmentAstray,
}

impl Counter {
    /// All of them, with the word of reports.
    pub const ALL: [(Counter, &'static str); 8] = [
        (Counter::Sorted, "sorted"),
        (Counter::Astray, "astray"),
        (Counter::UnknownTag, "unknown-tag"),
        (Counter::Foreign, "foreign"),
        (Counter::WrongQueue, "wrong-queue"),
        (Counter::Uncut, "uncut"),
        (Counter::Segment, "segments"),
        (Counter::SegmentAstray, "segments-astray"),
    ];
}

/// What the program is to know of a queue's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Role {
    /// It is the agent's own.
    pub shared: bool,
    /// It takes frames that are longer than a chunk.
    pub pieces: bool,
}

/// The bits of a role.
const SHARED: i32 = 1;
const PIECES: i32 = 2;

const PASS: i32 = 2;
const LOOKUP: i32 = 1;
const REDIRECT: i32 = 51;

const ETHERNET: i32 = 14;
const IPV4: i32 = 20;
const IPV6: i32 = 40;
const UDP: i32 = 8;
const TCP: i32 = 20;

/// Most connections that can be taken by all.
const TUPLES: u32 = 1 << 16;
/// Where on the stack the key of a connection is made.
const TUPLE: i16 = -56;

/// `value` as a load on this machine sees two bytes in network order.
fn network(value: u16) -> i32 {
    i32::from(u16::from_ne_bytes(value.to_be_bytes()))
}

/// The maps of one interface's program.
pub struct Maps {
    tags: Map,
    tuples: Map,
    queues: Map,
    sockets: Map,
    counters: Map,
}

impl Maps {
    /// Empty maps for so many tags and queues.
    ///
    /// # Errors
    /// As for [`Map::new`].
    pub fn new(tags: u32, queues: u32) -> io::Result<Maps> {
        Ok(Maps {
            tags: Map::new(MapKind::Hash, "shunt_tags", 8, 4, tags)?,
            tuples: Map::sparse("shunt_tuples", KEY, 4, TUPLES)?,
            queues: Map::new(MapKind::Array, "shunt_queues", 4, 4, queues)?,
            sockets: Map::new(MapKind::Sockets, "shunt_sockets", 4, 4, queues)?,
            counters: Map::new(MapKind::PerProcessorArray, "shunt_counters", 4, 8, Counter::ALL.len() as u32)?,
        })
    }

    /// From now on frames with `tag` are for queue `queue`.
    ///
    /// # Errors
    /// E2BIG: no room for more tags.
    pub fn set_tag(&self, tag: u64, queue: u32) -> io::Result<()> {
        self.tags.set(&tag.to_le_bytes(), &queue.to_ne_bytes())
    }

    /// From now on no endpoint has `tag`.
    ///
    /// # Errors
    /// ENOENT.
    pub fn remove_tag(&self, tag: u64) -> io::Result<()> {
        self.tags.remove(&tag.to_le_bytes())
    }

    /// From now on frames of this connection are for queue `queue`.
    ///
    /// # Errors
    /// E2BIG: no room for more.
    pub fn set_tuple(&self, tuple: &Tuple, queue: u32) -> io::Result<()> {
        self.tuples.set(&tuple.key(), &queue.to_ne_bytes())
    }

    /// From now on they are the kernel's.
    pub fn remove_tuple(&self, tuple: &Tuple) {
        // It may not be there.
        let _ = self.tuples.remove(&tuple.key());
    }

    /// From now on the AF_XDP socket `fd` gets the frames of `queue`. The kernel forgets it when the socket's last descriptor is
    /// closed.
    ///
    /// # Errors
    /// EBADF, EOPNOTSUPP: not such a socket. E2BIG: no such queue.
    pub fn set_socket(&self, queue: u32, fd: i32, role: Role) -> io::Result<()> {
        self.sockets.set(&queue.to_ne_bytes(), &fd.to_ne_bytes())?;
        let bits = if role.shared { SHARED } else { 0 } | if role.pieces { PIECES } else { 0 };
        self.queues.set(&queue.to_ne_bytes(), &bits.to_ne_bytes())
    }

    /// From now on no socket gets the frames of `queue`.
    pub fn remove_socket(&self, queue: u32) {
        // The kernel may have removed it already, with the socket.
        let _ = self.sockets.remove(&queue.to_ne_bytes());
    }

    /// How often something happened.
    ///
    /// # Errors
    /// What bpf(2) answers.
    pub fn count(&self, counter: Counter) -> io::Result<u64> {
        self.counters.sum(counter as u32)
    }

    /// Loads the program for datagrams to `port`; `parts` as for [`Program::load`].
    ///
    /// # Errors
    /// As for [`Program::load`].
    pub fn load(&self, port: u16, parts: bool) -> io::Result<Program> {
        Program::load(NAME, &self.code(port), parts)
    }

    fn code(&self, port: u16) -> Vec<u64> {
        use Register::*;
        let mut program = Assembler::default();
        let p = &mut program;
        let (pass, version_6, datagram) = (p.label(), p.label(), p.label());
        let (unknown, foreign, wrong_queue, uncut, home, redirect) =
            (p.label(), p.label(), p.label(), p.label(), p.label(), p.label());
        let (longer, astray, taken) = (p.label(), p.label(), p.label());
        let (segment_4, segment_6, segment, segment_home) = (p.label(), p.label(), p.label(), p.label());

        // R6 the context (struct xdp_md), R7 the frame's first byte, R8 the byte behind it.
        p.copy(R6, R1);
        p.load(Size::Word, R7, R6, 0);
        p.load(Size::Word, R8, R6, 4);
        need(p, R7, ETHERNET, pass);
        p.load(Size::Half, R3, R7, 12);
        p.jump_if_value(R3, Test::Equal, network(0x86dd), version_6);
        p.jump_if_value(R3, Test::Differs, network(0x0800), pass);

        // IPv4 without options, not a fragment: others take the kernel's way, which knows how to treat them.
        need(p, R7, ETHERNET + IPV4 + UDP, pass);
        p.load(Size::Byte, R3, R7, 14);
        p.jump_if_value(R3, Test::Differs, 0x45, pass);
        p.load(Size::Byte, R3, R7, 23);
        p.jump_if_value(R3, Test::Equal, libc::IPPROTO_TCP, segment_4);
        p.jump_if_value(R3, Test::Differs, libc::IPPROTO_UDP, pass);
        p.load(Size::Half, R3, R7, 20);
        p.jump_if_value(R3, Test::AnyBit, network(0x3fff), pass);
        p.copy(R9, R7);
        p.add(R9, ETHERNET + IPV4);
        p.jump(datagram);

        p.place(version_6);
        need(p, R7, ETHERNET + IPV6 + UDP, pass);
        p.load(Size::Byte, R3, R7, 20);
        p.jump_if_value(R3, Test::Equal, libc::IPPROTO_TCP, segment_6);
        p.jump_if_value(R3, Test::Differs, libc::IPPROTO_UDP, pass);
        p.copy(R9, R7);
        p.add(R9, ETHERNET + IPV6);

        // R9 the header of UDP.
        p.place(datagram);
        p.load(Size::Half, R3, R9, 2);
        p.jump_if_value(R3, Test::Differs, network(port), pass);
        need(p, R9, UDP + HEADER as i32, foreign);
        p.load(Size::Half, R3, R9, 8);
        p.jump_if_value(R3, Test::Differs, i32::from(u16::from_ne_bytes(MAGIC.to_le_bytes())), foreign);
        p.load(Size::Byte, R3, R9, 10);
        p.jump_if_value(R3, Test::Differs, i32::from(VERSION), foreign);
        // The tag, in halves: the frame promises no alignment.
        p.load(Size::Word, R3, R9, 16);
        p.store(Size::Word, Frame, -8, R3);
        p.load(Size::Word, R3, R9, 20);
        p.store(Size::Word, Frame, -4, R3);

        // R9 from now on: 1 for a run.
        p.load(Size::Half, R3, R9, 4);
        p.half_from_network(R3);
        p.load(Size::Word, R4, R9, 12);
        p.add(R4, UDP + HEADER as i32);
        p.set(R9, 1);
        p.jump_if(R3, Test::More, R4, longer);
        p.set(R9, 0);
        p.place(longer);

        // R7 the tag's queue and R8 the frame's.
        look_up(p, self.tags.fd(), -8);
        p.jump_if_value(R0, Test::Equal, 0, unknown);
        p.load(Size::Word, R7, R0, 0);
        p.load(Size::Word, R8, R6, 16);
        p.store(Size::Word, Frame, -12, R8);
        p.jump_if_value(R9, Test::Equal, 0, taken);
        look_up(p, self.queues.fd(), -12);
        p.jump_if_value(R0, Test::Equal, 0, uncut);
        p.load(Size::Word, R3, R0, 0);
        p.jump_if_value(R3, Test::AnyBit, PIECES, taken);
        p.jump(uncut);

        p.place(taken);
        p.jump_if(R7, Test::Equal, R8, home);
        look_up(p, self.queues.fd(), -12);
        p.jump_if_value(R0, Test::Equal, 0, wrong_queue);
        p.load(Size::Word, R3, R0, 0);
        p.jump_if_value(R3, Test::AnyBit, SHARED, astray);
        p.jump(wrong_queue);
        p.place(astray);
        self.count_one(p, Counter::Astray);
        p.jump(redirect);

        p.place(home);
        self.count_one(p, Counter::Sorted);
        p.place(redirect);
        p.map(R1, self.sockets.fd());
        p.copy(R2, R8);
        // Where no socket is bound to the queue, the frame goes the way of all others.
        p.set(R3, PASS);
        p.call(REDIRECT);
        p.exit();

        // The key of a connection: addresses, ports, and the frame's type, as they stand there ([`Tuple::key`]).
        p.place(segment_4);
        need(p, R7, ETHERNET + IPV4 + TCP, pass);
        p.load(Size::Half, R3, R7, 20);
        p.jump_if_value(R3, Test::AnyBit, network(0x3fff), pass);
        (0..4).for_each(|at| p.store_value(Size::Double, Frame, TUPLE + 8 * at, 0));
        for (from, to) in [(26, 0), (30, 16)] {
            p.load(Size::Word, R3, R7, from);
            p.store(Size::Word, Frame, TUPLE + to, R3);
        }
        p.load(Size::Word, R3, R7, (ETHERNET + IPV4) as i16);
        p.jump(segment);

        p.place(segment_6);
        need(p, R7, ETHERNET + IPV6 + TCP, pass);
        for at in (0..32).step_by(4) {
            p.load(Size::Word, R3, R7, 22 + at);
            p.store(Size::Word, Frame, TUPLE + at, R3);
        }
        p.load(Size::Word, R3, R7, (ETHERNET + IPV6) as i16);

        p.place(segment);
        p.store(Size::Word, Frame, TUPLE + 32, R3);
        p.load(Size::Half, R3, R7, 12);
        p.store(Size::Word, Frame, TUPLE + 36, R3);
        look_up(p, self.tuples.fd(), TUPLE.into());
        p.jump_if_value(R0, Test::Equal, 0, pass);
        p.load(Size::Word, R7, R0, 0);
        p.load(Size::Word, R8, R6, 16);
        p.jump_if(R7, Test::Equal, R8, segment_home);
        self.count_one(p, Counter::SegmentAstray);
        p.jump(pass);
        p.place(segment_home);
        self.count_one(p, Counter::Segment);
        p.jump(redirect);

        for (label, counter) in [
            (unknown, Counter::UnknownTag),
            (foreign, Counter::Foreign),
            (wrong_queue, Counter::WrongQueue),
            (uncut, Counter::Uncut),
        ] {
            p.place(label);
            self.count_one(p, counter);
            p.jump(pass);
        }
        p.place(pass);
        p.set(R0, PASS);
        p.exit();
        program.finish()
    }

    /// Adds one, in this processor's copy, so without a lock. Keeps R6 to R9.
    fn count_one(&self, p: &mut Assembler, counter: Counter) {
        use Register::*;
        let gone = p.label();
        p.store_value(Size::Word, Frame, -12, counter as i32);
        look_up(p, self.counters.fd(), -12);
        p.jump_if_value(R0, Test::Equal, 0, gone);
        p.load(Size::Double, R1, R0, 0);
        p.add(R1, 1);
        p.store(Size::Double, R0, 0, R1);
        p.place(gone);
    }
}

/// Goes on at `otherwise` unless `length` bytes from `start` on are inside the frame, which ends at R8.
fn need(p: &mut Assembler, start: Register, length: i32, otherwise: Label) {
    p.copy(Register::R2, start);
    p.add(Register::R2, length);
    p.jump_if(Register::R2, Test::More, Register::R8, otherwise);
}

/// R0 = the address of the value of the key on the stack at `key`, or 0.
fn look_up(p: &mut Assembler, map: i32, key: i32) {
    p.map(Register::R1, map);
    p.copy(Register::R2, Register::Frame);
    p.add(Register::R2, key);
    p.call(LOOKUP);
}

/// Attaches the program in one way, `first` or else the other where `only` names none, for which it is loaded anew; tells which, and
/// what the driver said if it refused.
///
/// # Errors
/// EBUSY if a program is there already; what bpf(2) answered in the last way.
pub fn attach(
    program: &Program,
    load: impl Fn(Attachment) -> io::Result<Program>,
    interface: u32,
    only: Option<Attachment>,
    first: Attachment,
) -> io::Result<(Link, Attachment, Option<io::Error>)> {
    let refused = match program.attach(interface, only.unwrap_or(first)) {
        Ok(link) => return Ok((link, only.unwrap_or(first), None)),
        Err(error) if only.is_some() || error.raw_os_error() == Some(libc::EBUSY) => return Err(error),
        Err(error) => error,
    };
    let (other, native_error) = match first {
        Attachment::Native => (Attachment::Generic, Some(refused)),
        Attachment::Generic => (Attachment::Native, None),
    };
    load(other)?.attach(interface, other).map(|link| (link, other, native_error))
}
