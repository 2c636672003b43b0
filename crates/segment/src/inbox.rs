//! The inbox of a datagram socket: a ring of whole datagrams that many senders write and the socket's owners read.
//!
//! ```text
//! 0        what it is: written once, before anybody else sees it
//! 128      gate: receivers write it, senders read it with each datagram
//! 256      senders: their lock, the tail, what they charged
//! 384      head: receivers move it; a sender moves it to take its own datagram back
//! 4 KiB    the ring: records aligned to 64 bytes
//! ```

use crate::sync::{AtomicU32, AtomicU64};

/// Name of the memfd.
pub const NAME: &[u8] = b"shunt-inbox\0";

/// First word of an inbox.
pub const MAGIC: u64 = u64::from_le_bytes(*b"shuntinb");

/// Offset of the ring.
pub const RING: usize = 4096;

/// Smallest and largest ring in bytes. A record is smaller than what the kernel charges for it, so a ring as large as
/// SO_RCVBUF never fills before the charge does.
pub const RING_LEAST: usize = 256 << 10;
/// See [`RING_LEAST`].
pub const RING_MOST: usize = 4 << 20;

/// Records begin at multiples of this.
pub const ALIGN: usize = 64;

/// Longest datagram: the length field of UDP over IPv6 without jumbograms.
pub const LONGEST: usize = 65535;

/// The part of the head that is a position. Above it: bytes of the oldest record that were taken already (AF_UNIX streams).
pub const POSITION: u64 = (1 << TAKEN_SHIFT) - 1;
/// See [`POSITION`].
pub const TAKEN_SHIFT: u32 = 48;

/// Bits of the gate, and two counts below them.
pub mod gate {
    /// Senders may write.
    pub const OPEN: u32 = 1 << 31;
    /// Never again: senders look for the socket anew.
    pub const RETIRED: u32 = 1 << 30;
    /// One of those for whom the kernel must see each datagram, whatever else waits here.
    pub const PIN: u32 = 1 << 16;
    /// Their count.
    pub const PINS: u32 = RETIRED - PIN;
    /// The count of those who look once more and sleep.
    pub const SLEEPERS: u32 = PIN - 1;
}

/// What receivers ask senders for, beside bytes and addresses. Bits of [`InboxHeader::asks`].
pub mod ask {
    /// The time of sending: SO_TIMESTAMP, SO_TIMESTAMPNS and their newer numbers.
    pub const TIME: u32 = 1 << 0;
    /// In nanoseconds.
    pub const TIME_NS: u32 = 1 << 1;
    /// The newer numbers.
    pub const TIME_NEW: u32 = 1 << 2;
    /// Datagrams that were sent as one (UDP_SEGMENT) come as one: UDP_GRO.
    pub const JOINED: u32 = 1 << 3;
    /// IP_PKTINFO.
    pub const INFO: u32 = 1 << 4;
    /// IPV6_RECVPKTINFO.
    pub const INFO6: u32 = 1 << 5;
    /// IP_RECVTTL.
    pub const TTL: u32 = 1 << 6;
    /// IP_RECVTOS.
    pub const TOS: u32 = 1 << 7;
    /// IP_RECVORIGDSTADDR.
    pub const DESTINATION: u32 = 1 << 8;
    /// IPV6_RECVHOPLIMIT.
    pub const HOPS6: u32 = 1 << 9;
    /// IPV6_RECVTCLASS.
    pub const CLASS6: u32 = 1 << 10;
    /// IPV6_RECVORIGDSTADDR.
    pub const DESTINATION6: u32 = 1 << 11;
}

/// Bits of a record's first word, below its position.
pub mod mark {
    /// The record is complete.
    pub const PRESENT: u64 = 1;
    /// The interface that it came by, for which the receiver asked, and the size of segments follow.
    pub const FURTHER: u64 = 2;
    /// The source is an IPv6 address.
    pub const V6: u64 = 4;
    /// The IPv6 address that it was sent to follows; otherwise it is the source's own.
    pub const TO: u64 = 8;
    /// The time of sending follows.
    pub const STAMPED: u64 = 16;
    /// All bits that are no position.
    pub const ALL: u64 = super::ALIGN as u64 - 1;
}

/// What stands before a ring.
#[repr(C)]
pub struct InboxHeader {
    /// [`MAGIC`], written last.
    pub magic: AtomicU64,
    /// [`crate::VERSION`].
    pub version: AtomicU32,
    /// Bytes of the ring, a power of two.
    pub size: AtomicU32,
    /// Inode of the socket.
    pub inode: AtomicU64,
    /// The process that made it, as it calls itself.
    pub pid: AtomicU32,
    /// Another socket may get the port's datagrams as well: 1.
    pub shareable: AtomicU32,
    _constant: [u64; 12],
    /// See [`gate`].
    pub gate: AtomicU32,
    /// Most bytes that may wait, in the kernel's count: SO_RCVBUF.
    pub limit: AtomicU32,
    /// Processes that own the socket.
    pub owners: AtomicU32,
    /// Changes whenever the kernel may give the socket's datagrams to another one: senders ask it again.
    pub epoch: AtomicU32,
    /// A sender used the kernel: look number this, or a later one, must find the kernel's queue empty before a sender writes here
    /// again. 0: none did. Senders write it, which is rare.
    pub behind: AtomicU64,
    /// See [`ask`].
    pub asks: AtomicU32,
    /// AF_UNIX: 1 while every sender says so.
    pub attached: AtomicU32,
    /// AF_UNIX: how often senders said that they use the kernel, before and behind each such call. They write it.
    pub news: AtomicU64,
    _gate: [u32; 22],
    /// The senders' lock: a thread id.
    pub lock: AtomicU32,
    _pad: u32,
    /// Position behind the newest record.
    pub tail: AtomicU64,
    /// Charges of all records so far.
    pub charged: AtomicU64,
    /// Charges of the records that were known to be taken.
    pub released: AtomicU64,
    /// Position behind the newest record when a sender last used the kernel although records waited.
    pub barrier: AtomicU64,
    _senders: [u64; 11],
    /// Position of the oldest record.
    pub head: AtomicU64,
    /// How often receivers looked at the kernel's queue.
    pub looks: AtomicU64,
    _head: [u64; 14],
}

// loom's atomics have another size.
#[cfg(not(loom))]
const _: () = {
    assert!(core::mem::offset_of!(InboxHeader, gate) == 128);
    assert!(core::mem::offset_of!(InboxHeader, lock) == 256);
    assert!(core::mem::offset_of!(InboxHeader, head) == 384);
    assert!(core::mem::size_of::<InboxHeader>() <= RING);
};

/// What the kernel charges a receiver for a datagram of `length` bytes: the sk_buff's true size.
///
/// Read off SO_MEMINFO on Linux 6.18: sizes of its slabs, then pages.
pub const fn charge(length: usize, v6: bool) -> u64 {
    let length = if v6 { length + 20 } else { length };
    (match length {
        0..=197 => 832,
        198..=645 => 1280,
        646..=1669 => 2304,
        1670..=3717 => 4352,
        3718..=7813 => 8448,
        7814..=16004 => 16640,
        _ => length + 832,
    }) as u64
}

/// What the kernel charges the sender of an AF_UNIX socket for `length` bytes in one sk_buff: `packet` says whether it is a
/// whole packet of SOCK_SEQPACKET, else a piece of a stream. Read off SIOCOUTQ on Linux 6.18: a linear part of a slab's
/// size, then pages (`unix_stream_sendmsg`, `unix_dgram_sendmsg`).
pub const fn local_charge(length: usize, packet: bool) -> u64 {
    const fn linear(length: usize) -> u64 {
        match length {
            0..=192 => 768,
            193..=704 => 1280,
            705..=1728 => 2304,
            1729..=3776 => 4352,
            3777..=7872 => 8448,
            _ => 16640,
        }
    }
    let most = if packet { 16064 } else { 3776 };
    if length <= most {
        return linear(length);
    }
    let pages = (length - most).next_multiple_of(4096);
    if pages >= length {
        linear(0) + pages as u64
    } else {
        linear(length - pages) + pages as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_sockets_are_charged_as_the_kernel_does() {
        let seen = [(1, 768), (193, 1280), (705, 2304), (1729, 4352), (3777, 4864), (4289, 5376), (5825, 8448), (7873, 8960)];
        for (length, charged) in seen {
            assert_eq!(local_charge(length, false), charged, "{length}");
        }
        for (length, charged) in [(3777, 8448), (7873, 16640), (16065, 20736)] {
            assert_eq!(local_charge(length, true), charged, "{length}");
        }
        for length in 0..=LONGEST {
            let record = (32 + length).next_multiple_of(ALIGN) as u64;
            assert!(record <= local_charge(length, false) && record <= local_charge(length, true), "{length}");
        }
    }

    #[test]
    fn a_record_is_smaller_than_its_charge() {
        for length in 0..=LONGEST {
            for v6 in [false, true] {
                let record = (80 + length).next_multiple_of(ALIGN);
                assert!(record as u64 <= charge(length, v6), "{length}");
            }
        }
    }
}
