//! One endpoint, or one that asks: everything that goes away with its connection.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::time::Instant;

use crate::aside::Aside;
use crate::capture::Noted;
use crate::connections::Hands;
use shunt_endpoint::shared::{Memory, SendDescriptor};
use shunt_endpoint::{Area, Arrival, ArrivalParts, Drop as Reason, Gather, Segment, INLINE, SCATTER};
use shunt_sys::{calls, Errno};
use shunt_wire::endpoint::{Kind as FrameKind, HEADER};
use shunt_xdp::multiplexed::BOUNCED;
use shunt_xdp::own::{LARGEST, NEXT_HOP};
use shunt_xdp::protocol::Kind;
use shunt_xdp::route::{Mac, Route};
use shunt_xdp::socket::{Mode, Socket};
use shunt_xdp::state::{mac_to_word, UNREACHABLE};

/// The process at the other end of a connection (SO_PEERCRED, unix(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Who {
    /// The process that connected.
    pub pid: i32,
    /// Its user.
    pub user: u32,
}

/// A connection.
pub(crate) struct Client {
    /// The connection itself.
    pub connection: OwnedFd,
    /// The process that made it.
    pub who: Who,
    /// What was made for it.
    pub endpoint: Option<Attached>,
    /// Its thread for connections that are taken from the kernel.
    pub hands: Option<Hands>,
}

/// An endpoint, as the agent has it.
pub struct Attached {
    /// Own or multiplexed.
    pub kind: Kind,
    /// The queue on which frames for its tags are expected.
    pub queue: u32,
    /// What copies the frames of that queue's socket.
    pub mode: Mode,
    /// Its memory, which its owner may write at any time.
    pub memory: Memory,
    /// The socket of a queue of its own.
    pub socket: Option<Socket>,
    /// Wakes the owner.
    pub bell: OwnedFd,
    /// Wakes the agent.
    pub doorbell: Option<OwnedFd>,
    /// Where it is.
    pub address: SocketAddr,
    /// Bytes of the largest frame that its buffers were made for.
    pub frame: u32,
    /// Its tags, and which channel each is for.
    pub tags: HashMap<u64, Option<u32>>,
    /// Its channels, by index. The registry in the memory may say anything; this is what counts.
    pub channels: HashMap<usize, Channel>,
    /// How often the interface got another Ethernet address, which the next hops' words tell the owner.
    pub turn: u8,
    /// Messages that wait for their neighbours.
    pub aside: Aside,
    /// Bytes that are accounted to the user.
    pub bytes: u64,
    /// The owner sleeps on something that has arrived since the last ring.
    pub due: bool,
    /// Messages that the agent moved: sent, delivered.
    pub moved: [u64; 2],
    /// Its owner notes the frames of its queue for a capture.
    pub noted: Option<Noted>,
}

/// A channel.
pub struct Channel {
    /// Its number, with the generation.
    pub number: u32,
    /// The peer.
    pub peer: SocketAddr,
    /// The interface of a link-local peer.
    pub scope: u32,
    /// The peer's tag.
    pub send: u64,
    /// Ours.
    pub receive: u64,
    /// The kernel's route.
    pub route: Route,
    /// Bytes of the largest datagram on the way.
    pub largest: u32,
    /// The next hop.
    pub next_hop: NextHop,
}

/// What is known of a neighbour.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NextHop {
    /// Asked for since then.
    Unknown(Instant),
    /// It has this address.
    Known(Mac),
    /// It does not answer.
    Silent,
}

/// What is to be done with a message.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Fate {
    /// Send it there.
    Goes(Mac),
    /// Leave it for now, and nothing behind it.
    Waits,
    /// Count it as lost.
    Lost,
}

impl NextHop {
    /// What becomes of a message.
    pub fn fate(self) -> Fate {
        match self {
            NextHop::Known(mac) => Fate::Goes(mac),
            NextHop::Unknown(_) => Fate::Waits,
            NextHop::Silent => Fate::Lost,
        }
    }

    /// The word of reports.
    pub fn word(self) -> &'static str {
        match self {
            NextHop::Unknown(_) => "resolving",
            NextHop::Known(_) => "ready",
            NextHop::Silent => "unreachable",
        }
    }
}

impl Attached {
    /// Notes what is known of a channel's next hop, and tells an owner that writes its frames itself.
    pub fn set_next_hop(&mut self, index: usize, next_hop: NextHop) {
        let Some(channel) = self.channels.get_mut(&index) else { return };
        channel.next_hop = next_hop;
        if self.kind == Kind::Own {
            if let Some(entry) = self.memory.registry().get(shunt_endpoint::Channel(channel.number)) {
                entry.device[LARGEST].store(channel.largest.into(), Relaxed);
                let word = match next_hop {
                    NextHop::Unknown(_) => 0,
                    NextHop::Known(mac) => mac_to_word(mac, self.turn),
                    NextHop::Silent => UNREACHABLE,
                };
                // Pairs with the owner's fence: a thread that sees the word sees the interface's address.
                entry.device[NEXT_HOP].store(word, Release);
            }
        }
    }

    /// The interface has another Ethernet address, from which an owner that writes its frames itself sends from now on.
    pub fn set_mac(&mut self, mac: Mac) {
        if self.kind == Kind::Own {
            shunt_xdp::state::State::of(&self.memory).set_mac(mac);
            self.turn = self.turn.wrapping_add(1);
            let ways: Vec<(usize, NextHop)> = self.channels.iter().map(|(index, channel)| (*index, channel.next_hop)).collect();
            ways.into_iter().for_each(|(index, next_hop)| self.set_next_hop(index, next_hop));
        }
    }

    /// The bytes of a message on the send queue, checked: the descriptor may hold anything.
    pub fn gather<'a>(&self, descriptor: &'a SendDescriptor, largest: u32) -> Option<Gather<'a>> {
        let segment = if descriptor.kind & BOUNCED != 0 {
            // SAFETY: the device part is mapped as long as the memory is, which outlives the gather's use.
            unsafe { Segment::new(self.memory.device_part(), self.memory.shape().device) }
        } else {
            self.memory.segment()
        };
        Gather::of_descriptor(descriptor, segment, largest - HEADER as u32).ok()
    }

    /// Puts a message that came by channel `number` into the receive queue, or says why not. An update's frame goes there
    /// too: its owner knows what it exports.
    ///
    /// # Errors
    /// The counter.
    pub fn deliver(&mut self, number: u32, kind: FrameKind, message: &[u8]) -> Result<(), Reason> {
        let memory = &self.memory;
        let (free, queue, segment) = (memory.free_queue(), memory.receive_queue(), memory.segment());
        if queue.len() == queue.capacity() {
            return Err(Reason::QueueFull);
        }
        let (head, mut rest) = message.split_at(message.len().min(INLINE));
        let (mut areas, mut buffers) = ([Area::default(); SCATTER], [Area::default(); SCATTER]);
        let mut count = 0;
        while !rest.is_empty() {
            let buffer = free.peek(count as u32).ok_or(Reason::NoBuffer)?;
            if count == SCATTER {
                return Err(Reason::Oversized);
            }
            let area = buffer.first(rest.len() as u32);
            let (now, later) = rest.split_at(area.length as usize);
            // A buffer of no bytes, or outside: the owner's mistake, and its loss.
            if area.length == 0 || !segment.write(area, now) {
                free.advance(count as u32 + 1);
                return Err(Reason::Violation);
            }
            (areas[count], buffers[count], rest) = (area, buffer, later);
            count += 1;
        }
        free.advance(count as u32);
        let mut arrival = Arrival::empty();
        arrival.fill(&ArrivalParts {
            channel: shunt_endpoint::Channel(number),
            length: message.len() as u32,
            head,
            areas: &areas[..count],
            buffers: &buffers[..count],
        });
        if kind != FrameKind::Message {
            arrival.mark_update(kind == FrameKind::UpdateNotify);
        }
        let _ = queue.put(&arrival);
        self.moved[1] += 1;
        self.due = true;
        Ok(())
    }

    /// Wakes the owner, if it sleeps and something has come.
    pub fn ring(&mut self) {
        // The swap comes after the message; the owner looks for messages after it has set the flag. Where none waits any
        // more, the owner was awake, and must not be woken by what it has already taken.
        if std::mem::take(&mut self.due)
            && !self.memory.receive_queue().is_empty()
            && self.memory.header().armed.0.swap(0, SeqCst) != 0
        {
            let one = 1u64;
            let _ = calls::write(self.bell.as_raw_fd(), (&raw const one).cast(), 8);
        }
    }
}

/// Reads what a client says next, and descriptors that come along, if any are `wanted`; none of them is taken otherwise.
///
/// # Errors
/// What recvmsg(2) says: EAGAIN.
pub fn hear(connection: &OwnedFd, bytes: &mut [u8], wanted: bool) -> Result<(usize, Vec<OwnedFd>), Errno> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 2 + shunt_xdp::protocol::DESCRIPTORS];
    // SAFETY: integers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
    if wanted {
        (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control));
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let count = calls::recvmsg(connection.as_raw_fd(), &mut message, flags)?;
    let rights = libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32;
    let carried =
        if message.msg_controllen >= 16 && control[1] == rights { (control[0] as usize).saturating_sub(16) / 4 } else { 0 };
    let descriptor = |index: usize| {
        let fd = (control[2 + index / 2] >> (32 * (index % 2))) as i32;
        // SAFETY: the kernel has made it for this message.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    Ok((count, (0..carried).map(descriptor).collect()))
}

/// Answers with `bytes` and descriptors.
///
/// # Errors
/// What sendmsg(2) says: EAGAIN from a client that does not read, EPIPE from one that is gone.
pub fn answer(connection: &OwnedFd, bytes: &[u8], descriptors: &[i32]) -> io::Result<()> {
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 2 + shunt_xdp::protocol::DESCRIPTORS];
    // SAFETY: integers and pointers, for which zero is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
    if !descriptors.is_empty() {
        // `struct cmsghdr`: length, level and type; then the descriptors.
        control[0] = 16 + 4 * descriptors.len() as u64;
        control[1] = libc::SOL_SOCKET as u64 | (libc::SCM_RIGHTS as u64) << 32;
        for (index, descriptor) in descriptors.iter().enumerate() {
            control[2 + index / 2] |= u64::from(*descriptor as u32) << (32 * (index % 2));
        }
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = control[0] as usize;
    }
    calls::sendmsg(connection.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
        .map(|_| ())
        .map_err(|errno| io::Error::from_raw_os_error(errno.0))
}

/// A new eventfd.
///
/// # Errors
/// EMFILE, ENFILE.
pub fn event() -> io::Result<OwnedFd> {
    let fd = calls::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK).map_err(|errno| io::Error::from_raw_os_error(errno.0))?;
    // SAFETY: made above.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
