//! One channel: a page that two processes share for one connection.
//!
//! Each end of the connection is a [`Side`] (0: the client, 1: the server). A side's words are written by that side
//! only, except [`Wait::armed`], which the peer clears when it rings. Words that both ends touch in one round trip
//! are kept on one cache line ([`Post`]): announcing a message, carrying it when it is small, and acknowledging the
//! peer's last one is a single line transfer.

use crate::settings::Settings;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Bits of [`Post::word`].
pub mod word {
    /// Stream positions are counted in bytes modulo 2^48.
    pub const POSITION: u64 = (1 << 48) - 1;
    /// Shift of the count of bytes before the position that stand in [`super::Post::inline`].
    pub const INLINE_SHIFT: u32 = 48;
    /// Shift of the ring class that holds the newest bytes.
    pub const CLASS_SHIFT: u32 = 54;
    /// Shift of the number (modulo 8) of the last change of class.
    pub const SWITCH_SHIFT: u32 = 57;
    /// No more bytes will follow: shutdown(SHUT_WR), or closed.
    pub const FIN: u64 = 1 << 60;
    /// The side has been closed by its last owner.
    pub const CLOSED: u64 = 1 << 61;
    /// The side was closed in a way that TCP answers with RST.
    pub const RST: u64 = 1 << 62;
    /// With RST: the end (FIN) had been announced before.
    pub const LATE: u64 = 1 << 63;
    /// In [`super::Transmit::switch`] only: the peer has received everything up to the border.
    pub const SETTLED: u64 = 1 << 63;
}

/// Bytes that fit beside the word that announces them.
#[cfg(not(loom))]
pub const INLINE: usize = 48;
/// Bytes that fit beside the word that announces them: few in a model.
#[cfg(loom)]
pub const INLINE: usize = 8;

/// The line that a side writes when it sends.
#[repr(C, align(64))]
pub struct Post {
    /// Position behind the newest byte sent, and flags ([`word`]).
    pub word: AtomicU64,
    /// [`Receive::position`] when this side last sent.
    pub ack: AtomicU64,
    /// The newest bytes, when they are few and the ring was empty before them.
    pub inline: [AtomicU64; INLINE / 8],
}

/// What a doorbell is: a byte with which no text begins. Any other byte on a companion was put there past the library.
pub const BELL: u8 = 0xbe;

/// A side's sending state; the peer reads the counts of bells, rarely.
#[repr(C, align(64))]
pub struct Transmit {
    /// Thread that is sending, 0: none.
    pub lock: AtomicU32,
    /// Doorbells rung so far, those included that are about to be written on the companion: no more lie there, or were taken.
    pub rung: AtomicU32,
    /// The last of [`Side::borders`].
    pub switch: AtomicU64,
    /// The newest known [`Receive::position`] of the peer: a lower bound.
    pub acked: AtomicU64,
    /// Sends of small messages into an empty large ring, counted to shrink it. Top bit: `word` is valid.
    pub small: AtomicU32,
    /// Largest class this side may use.
    pub class_limit: AtomicU32,
    /// Sends that found no space, modulo 2^32: an edge for those who wait for it.
    pub blocked: AtomicU32,
    /// SO_SNDBUF as the program set it (and the kernel doubled it); 0: never set, so that the ring alone is the limit.
    pub send_buffer: AtomicU32,
    /// Copy of [`Post::word`], to be read without disturbing that line.
    pub word: AtomicU64,
    /// Doorbells written on the companion so far, urgent ones left out: no fewer lie there, or were taken.
    pub written: AtomicU32,
    /// Why this side reset the connection, where TCP would not have: a code of [`crate::reason::Reason`].
    pub broken: AtomicU32,
}

/// A side's receiving state; the peer reads `position` when it is out of space.
#[repr(C, align(64))]
pub struct Receive {
    /// Position of the next byte to receive, counted in 64 bits without wrap: so an old acknowledgement never looks new.
    pub position: AtomicU64,
    /// Thread that is receiving, 0: none.
    pub lock: AtomicU32,
    /// Doorbells taken off the companion so far.
    pub taken: AtomicU32,
    /// Class in which `position` lies (low 3 bits), and how many bytes are known to wait there.
    pub class: AtomicU32,
    /// Newest change of class (modulo 8) whose border `position` is known to have passed.
    pub switch: AtomicU32,
    /// State of the socket that all its owners on this side share ([`state`]).
    pub state: AtomicU32,
}

/// Bits of [`Receive::state`].
pub mod state {
    /// shutdown(SHUT_RD) was called.
    pub const SHUT_RD: u32 = 1 << 1;
    /// The connection was reset; the next call gets ECONNRESET.
    pub const RESET_DUE: u32 = 1 << 2;
    /// A write after the peer's close; the error EPIPE waits in SO_ERROR.
    pub const PIPE_DUE: u32 = 1 << 3;
    /// Nothing will be sent or received any more.
    pub const DONE: u32 = 1 << 4;
    /// The peer's end was noticed and turned into the bits above.
    pub const END_NOTED: u32 = 1 << 5;
    /// The peer vanished without closing (killed, or the last of several owners left).
    pub const PEER_GONE: u32 = 1 << 6;
    /// SO_LINGER with a time of zero: whichever of the side's owners closes last, resets.
    pub const LINGER_RESET: u32 = 1 << 7;
    /// The descriptor has an owner (F_SETOWN): urgent data is announced by an urgent byte on the companion, for SIGURG.
    pub const OWNED: u32 = 1 << 8;
    /// A non-blocking connect was answered with EINPROGRESS; the next connect gives 0, whoever calls it.
    pub const CONNECTING: u32 = 1 << 9;
    /// All who own this side know that it has, or had, several owners.
    pub const SHARED: u32 = 1 << 10;
    /// The reset was this side's own, after TCP_USER_TIMEOUT: its error is ETIMEDOUT.
    pub const TIMED_OUT: u32 = 1 << 11;
    /// The side was closed behind its own end: the hang-up is nothing that a peer is signalled for.
    pub const CLOSED_LATE: u32 = 1 << 12;
}

/// What a side waits for; the peer looks at it after each send and receive, so it changes rarely.
#[repr(C, align(128))]
pub struct Wait {
    /// Conditions that sleepers wait for ([`arm`]); the peer swaps it to 0 and rings the doorbell.
    pub armed: AtomicU32,
    /// Sleepers of this side, all threads and processes.
    pub sleepers: AtomicU32,
    /// Processor on which this side last began to wait, plus one; 0: unknown.
    pub processor: AtomicU32,
    /// How this side last waited: 0 not yet, 1 spinning, 2 sleeping, 3 in a poll or epoll set.
    pub style: AtomicU32,
    /// The word that would announce the bytes which this side holds back (TCP_CORK, MSG_MORE), once nothing newer was announced;
    /// 0: none were. The peer announces them when their time has come, by the sender's own word.
    pub held: AtomicU64,
    /// When that is, in CLOCK_MONOTONIC ns; 0: this side never held any back, nor in earlier connections of the channel.
    pub held_until: AtomicU64,
}

/// Bits of [`Wait::armed`].
pub mod arm {
    /// Wake when bytes or an end arrive.
    pub const IN: u32 = 1;
    /// Wake when space comes free.
    pub const OUT: u32 = 2;
    /// This side sleeps often: its peer is to execute a fence before it looks at the conditions.
    pub const FENCE: u32 = 4;
    /// As FENCE, but this side does not rely on it yet: no barrier has told the peer.
    pub const FENCE_ASKED: u32 = 8;
    /// This side waits in a set with others: its peer is to say when bytes arrived, so that the order can be told.
    pub const STAMP: u32 = 1 << 8;
    /// Each message is to ring, whether anybody sleeps or not: the kernel makes a signal of the bell (O_ASYNC).
    pub const ALWAYS: u32 = 1 << 9;
    /// This side looks for itself, however it sleeps, before its peer's bytes have been held back for as long as they may be: the
    /// first of them need no bell.
    pub const LOOKS: u32 = 1 << 10;
    /// The word's upper half counts armings: one that looks the same is not the same.
    pub const ONE_ARMING: u32 = 1 << 16;
    /// Shift of IN and OUT as armed by a sleeper in a set, who may take them back without harm to those in blocking calls.
    pub const SET_SHIFT: u32 = 4;
}

/// Values of [`Wait::style`].
pub mod style {
    /// Did not wait yet.
    pub const NONE: u32 = 0;
    /// Last waited by spinning.
    pub const SPIN: u32 = 1;
    /// Last waited asleep in a blocking call.
    pub const SLEEP: u32 = 2;
    /// Last waited asleep in poll, select or epoll.
    pub const POLL: u32 = 3;
}

/// Carriers that one side can have at the same time.
pub const CARRIERS: usize = 4;

/// Processes that carry this side's bytes to programs without shunt, and what they owe the side's other owners. Only
/// sides that several processes own have any; only these look here.
#[repr(C, align(64))]
pub struct Carriage {
    /// Names of the carriers at work ([`crate::name::carrier`]); 0: an empty place.
    pub carriers: [AtomicU64; CARRIERS],
    /// The carrier whose program has bytes that still stand in the ring as well; 0: none.
    pub lender: AtomicU64,
    /// How often another owner asked the carriers to settle: to hand on what their programs wrote, and to take back what
    /// these have not read.
    pub asked: AtomicU32,
    /// The low half of the lender's name, when another carrier asks it to take back.
    pub recalled: AtomicU32,
    /// The last of these requests that each carrier has met.
    pub settled: [AtomicU32; CARRIERS],
}

impl Carriage {
    /// Whether the side has any carrier.
    #[inline(always)]
    pub fn any(&self) -> bool {
        self.carriers.iter().fold(0, |all, place| all | place.load(Ordering::Relaxed)) != 0
    }

    /// Makes it as fresh memory is.
    pub fn clear(&self) {
        for word in self.carriers.iter().chain([&self.lender]) {
            word.store(0, Ordering::Relaxed);
        }
        for word in self.settled.iter().chain([&self.asked, &self.recalled]) {
            word.store(0, Ordering::Relaxed);
        }
    }
}

/// Places for owners of one side; more of them are only counted.
pub const FAMILY: usize = 16;

/// Bits of [`Side::stamp`] that hold a position: more than any ring holds.
pub const STAMP_POSITION: u32 = 24;

/// Coding of [`Side::urgent`], a position and these bits; 0: none was sent.
pub mod urgent {
    /// Set in every valid word.
    pub const VALID: u64 = 1 << 63;
    /// In [`super::Side::urgent_taken`]: the reader has gone past the byte of this word.
    pub const PASSED: u64 = 1 << 62;
    /// In [`super::Side::urgent_taken`]: the byte of this word was received with MSG_OOB.
    pub const READ: u64 = 1 << 61;
}

/// One end of a connection.
#[repr(C)]
pub struct Side {
    /// Announces, carries and acknowledges.
    pub post: Post,
    /// Where changes of class happened, by their number modulo 8: position, the class before it and the number, with the
    /// shifts of [`word`].
    pub borders: [AtomicU64; 8],
    /// Sending state.
    pub transmit: Transmit,
    /// Receiving state.
    pub receive: Receive,
    /// Waiting state.
    pub wait: Wait,
    /// Processes that own this side's descriptors, as far as counted.
    pub owners: AtomicU32,
    /// The process that opened this side (as the kernel tells its peer).
    pub pid: AtomicU32,
    /// Set once this side's last owner closed it, to give the channel back ([`release`]).
    pub released: AtomicU32,
    /// AF_INET or AF_INET6.
    pub address_family: AtomicU32,
    /// The newest urgent byte that this side sent: [`urgent::VALID`] and its position in the stream.
    pub urgent: AtomicU64,
    /// What this side did with the peer's urgent byte: a copy of the peer's word, and [`urgent`] bits.
    pub urgent_taken: AtomicU64,
    /// Processes that own this side besides the first, or with it after a fork; 0: an empty place. A count alone would
    /// never come down when one of them is killed.
    pub family: [AtomicU32; FAMILY],
    /// An urgent byte that a newer one overtook while the reader stood before it: [`urgent::VALID`] and its position.
    pub urgent_lost: AtomicU64,
    /// When this side last rang the peer's bell: CLOCK_REALTIME in ns; kept only for a peer that asks ([`Side::asks_time`]).
    pub rung_at: AtomicU64,
    /// 1: this side reports when bytes arrived (SO_TIMESTAMP), so the peer is to note when it rings.
    pub asks_time: AtomicU32,
    /// SO_RCVBUF as the program set it (and the kernel doubled it); 0: never set.
    pub receive_buffer: AtomicU32,
    /// When bytes, or the end, last arrived that nothing unread stood before, if the peer asks for it ([`arm::STAMP`]): the
    /// sender's ticks, and in the low [`STAMP_POSITION`] bits the position behind them, where an end counts as a byte.
    pub stamp: AtomicU64,
    _reserved: [u64; 8 - FAMILY / 2],
}

impl Side {
    /// Enters process `pid` among the owners, once.
    pub fn join(&self, pid: u32) {
        if self.has(pid) {
            return;
        }
        for place in &self.family {
            if place.compare_exchange(0, pid, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// Whether process `pid` is entered among the owners.
    pub fn has(&self, pid: u32) -> bool {
        self.family.iter().any(|place| place.load(Ordering::Relaxed) == pid)
    }

    /// Takes process `pid` out.
    pub fn part(&self, pid: u32) {
        // As a rule nobody was entered: sixteen looks cost less than one locked instruction.
        if self.family.iter().fold(0, |all, place| all | place.load(Ordering::Relaxed)) == 0 {
            return;
        }
        for place in &self.family {
            let _ = place.compare_exchange(pid, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Whether all of `count` remaining owners are entered here, and `alive` says of none that it lives.
    pub fn orphaned(&self, count: u32, alive: impl Fn(u32) -> bool) -> bool {
        let mut entered = 0;
        for place in &self.family {
            let pid = place.load(Ordering::Acquire);
            if pid != 0 {
                entered += 1;
                if alive(pid) {
                    return false;
                }
            }
        }
        entered >= count
    }

    /// A side for a model: its atomics are not plain memory.
    #[cfg(loom)]
    #[allow(clippy::new_without_default)]
    pub fn new() -> Side {
        let (narrow, wide) = (|| AtomicU32::new(0), || AtomicU64::new(0));
        Side {
            post: Post { word: wide(), ack: wide(), inline: core::array::from_fn(|_| wide()) },
            borders: core::array::from_fn(|_| wide()),
            transmit: Transmit {
                lock: narrow(),
                rung: narrow(),
                switch: wide(),
                acked: wide(),
                small: narrow(),
                class_limit: narrow(),
                blocked: narrow(),
                send_buffer: narrow(),
                word: wide(),
                written: narrow(),
                broken: narrow(),
            },
            receive: Receive {
                position: wide(),
                lock: narrow(),
                taken: narrow(),
                class: narrow(),
                switch: narrow(),
                state: narrow(),
            },
            wait: Wait {
                armed: narrow(),
                sleepers: narrow(),
                processor: narrow(),
                style: narrow(),
                held: wide(),
                held_until: wide(),
            },
            owners: narrow(),
            pid: narrow(),
            released: narrow(),
            address_family: narrow(),
            urgent: wide(),
            urgent_taken: wide(),
            family: core::array::from_fn(|_| narrow()),
            urgent_lost: wide(),
            rung_at: wide(),
            asks_time: narrow(),
            receive_buffer: narrow(),
            stamp: wide(),
            _reserved: [0; 8 - FAMILY / 2],
        }
    }

    /// Makes the side as fresh memory is, for a connection with a companion of its own. For whoever gives out a channel
    /// that nobody uses.
    pub fn clear(&self) {
        self.clear_for_next();
        for word in [&self.transmit.rung, &self.transmit.written, &self.receive.taken] {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Makes the side as fresh memory is, but for the count of bells, as the companion goes on, for when it held bytes back, and for
    /// where its process last ran: who waits before the connection is accepted looks there. If the side slept in the channel's last
    /// connection its peer fences from the first message of the next one on, so that a connection of a few messages has no barrier.
    pub fn clear_for_next(&self) {
        let (transmit, receive, wait) = (&self.transmit, &self.receive, &self.wait);
        let slept = wait.armed.load(Ordering::Relaxed) >= arm::ONE_ARMING;
        wide([&self.post.word, &self.post.ack, &transmit.switch, &transmit.acked, &transmit.word, &receive.position]);
        wide(self.borders.each_ref());
        narrow([&transmit.lock, &transmit.small, &transmit.class_limit, &transmit.blocked]);
        narrow([&transmit.send_buffer, &transmit.broken]);
        narrow([&receive.lock, &receive.class, &receive.switch, &receive.state]);
        narrow([&wait.armed, &wait.sleepers, &wait.style]);
        narrow(self.family.each_ref());
        wide([&wait.held]);
        wide([&self.urgent, &self.urgent_taken, &self.urgent_lost, &self.rung_at, &self.stamp]);
        narrow([&self.asks_time, &self.receive_buffer, &self.owners, &self.pid, &self.released, &self.address_family]);
        if slept {
            wait.armed.store(arm::FENCE, Ordering::Relaxed);
        }
    }
}

/// Clears words whose number is known when the code is compiled: a store for each, and no loop. Each connection that is made in
/// memory does this to both of its sides.
#[inline(always)]
fn wide<const COUNT: usize>(words: [&AtomicU64; COUNT]) {
    words.into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
}

/// As [`wide`].
#[inline(always)]
fn narrow<const COUNT: usize>(words: [&AtomicU32; COUNT]) {
    words.into_iter().for_each(|word| word.store(0, Ordering::Relaxed));
}

/// Values of [`Side::released`].
pub mod release {
    /// The side is in use.
    pub const NOT: u32 = 0;
    /// The side was closed.
    pub const CLOSED: u32 = 1;
    /// The side was closed, and its companion kept for another connection.
    pub const KEPT: u32 = 2;
}

/// States of a channel ([`Head::state`]).
pub mod life {
    /// Unused.
    pub const FREE: u32 = 0;
    /// Given to a connection that nobody accepted yet.
    pub const OFFERED: u32 = 1;
    /// Accepted.
    pub const ACCEPTED: u32 = 2;
}

/// What the connection is; written when it is set up.
#[repr(C)]
pub struct Head {
    /// [`life`] of the channel.
    pub state: AtomicU32,
    /// Counts the connections that used this channel.
    pub generation: AtomicU32,
    /// Client's address: two words ([`crate::address::Address::words`]).
    pub client: [AtomicU64; 2],
    /// Server's address.
    pub server: [AtomicU64; 2],
    /// Client port in the low half, server port in the high half.
    pub ports: AtomicU32,
    /// Scope id, if the address is link-local.
    pub scope: AtomicU32,
    /// CLOCK_MONOTONIC seconds when the client connected.
    pub since: AtomicU32,
    /// The generation that the companion's name tells: later connections on the same companion count on from it.
    pub pair: AtomicU32,
    /// The same moment by the time stamp counter, which is one for all processes of a host: which of a listener's options were
    /// meant.
    pub began: AtomicU64,
    /// Of each side's carriers, how many hold bytes that their programs wrote and that found no room: what other owners send
    /// comes behind them. Written by the carriers.
    pub owes: [AtomicU32; 2],
    _reserved: [u32; 110],
}

#[cfg(loom)]
impl Head {
    /// A head for a model: its atomics are not plain memory.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Head {
        let (narrow, wide) = (|| AtomicU32::new(0), || AtomicU64::new(0));
        Head {
            state: narrow(),
            generation: narrow(),
            client: core::array::from_fn(|_| wide()),
            server: core::array::from_fn(|_| wide()),
            ports: narrow(),
            scope: narrow(),
            since: narrow(),
            pair: narrow(),
            began: wide(),
            owes: core::array::from_fn(|_| narrow()),
            _reserved: [0; 110],
        }
    }
}

/// The page of one channel.
#[repr(C, align(4096))]
pub struct ChannelPage {
    /// What the connection is.
    pub head: Head,
    /// The two ends: client, server.
    pub sides: [Side; 2],
    /// The carriers of each end.
    pub carriages: [Carriage; 2],
    /// What the program set on each end.
    pub settings: [Settings; 2],
    /// Class 0 rings follow here at [`crate::area::SMALL_RINGS`].
    _rings: [u64; 256],
}

#[cfg(not(loom))]
mod layout {
    use super::*;
    use core::mem::{offset_of, size_of};
    const _: () = assert!(size_of::<Head>() == 512);
    const _: () = assert!(size_of::<Side>() == 512);
    const _: () = assert!(offset_of!(ChannelPage, sides) == 512);
    const _: () = assert!(offset_of!(Side, transmit) == 128 && offset_of!(Side, wait) == 256);
    const _: () = assert!(offset_of!(ChannelPage, _rings) == crate::area::SMALL_RINGS);
    const _: () = assert!(size_of::<ChannelPage>() == crate::area::PAGE);
}
