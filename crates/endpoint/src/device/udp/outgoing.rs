//! From the send queue to the kernel, in batches.

use super::Udp;
use crate::shared::{Queue, SendDescriptor};
use crate::{Address, Area, Channel, Counters, SendError, ADDRESS, SCATTER};
use core::mem::{offset_of, zeroed};
use shunt_sys::{calls, libc, Errno};
use shunt_wire::endpoint::{AGENT_PORT, HEADER};

/// In [`SendDescriptor::kind`]: the one area lies in the device's part of the memory.
pub(super) const STAGED: u32 = 1 << 31;

/// Messages that one call hands over at most. Two parts each, and a few in reserve for scattered ones: what fits a small stack.
const BATCH: usize = 32;
const PARTS: usize = BATCH * 2 + SCATTER;
/// Parts of one message alone.
const ALONE: usize = 1 + SCATTER;
/// Messages that one run may have: what kernels before Linux 6.9 cut (UDP_MAX_SEGMENTS), and receivers have room for.
pub(super) const RUN_MESSAGES: u32 = 64;
/// Bytes that one run of messages may have: an IPv6 datagram's, less some headers.
const RUN: usize = 65_000;
const CONTROL: usize = 24;
/// Messages after which it is tried again whether the kernel cuts runs: a call in vain among so many.
const AGAIN: u32 = 4096;

/// The arguments of one sendmmsg of up to `N` entries with `P` parts.
struct Batch<const N: usize, const P: usize> {
    entries: [libc::mmsghdr; N],
    parts: [libc::iovec; P],
    names: [[u8; ADDRESS]; N],
    control: [[u64; CONTROL / 8]; N],
    /// Messages in each entry.
    messages: [u32; N],
    count: usize,
}

impl Udp {
    /// Hands the send queue to the kernel. False: it is backed up.
    pub(super) fn hand_over(&mut self) -> Result<bool, SendError> {
        loop {
            // The arguments of a call for one message are a tenth of those for many, and are cleared each time.
            let all = match self.memory.send_queue().len() {
                0 => return Ok(true),
                1 => self.hand_over_some::<1, ALONE>()?,
                _ => self.hand_over_some::<BATCH, PARTS>()?,
            };
            if !all {
                return Ok(false);
            }
        }
    }

    /// One call's worth. False: the kernel takes no more.
    fn hand_over_some<const N: usize, const P: usize>(&mut self) -> Result<bool, SendError> {
        let memory = &self.memory;
        let queue = memory.send_queue();
        // SAFETY: integers and pointers, for which zero is valid.
        let mut batch: Batch<N, P> = unsafe { zeroed() };
        let unusable = self.fill(&queue, &mut batch);
        if batch.count == 0 {
            // The front entry leads nowhere: its channel was closed, or another owner wrote nonsense.
            queue.advance(unusable);
            Counters::add(&memory.counters().unsent, unusable as u64);
            return Ok(true);
        }
        match calls::sendmmsg(self.socket, batch.entries.as_mut_ptr(), batch.count as u32, libc::MSG_NOSIGNAL) {
            Ok(sent) => {
                let messages = batch.messages[..sent.min(batch.count)].iter().sum();
                queue.advance(messages);
                self.single = self.single.saturating_sub(messages);
            }
            Err(Errno(libc::EAGAIN)) | Err(Errno(libc::ENOBUFS)) => return Ok(false),
            Err(Errno(libc::EINTR)) => {}
            // Longer than the route takes: EMSGSIZE since Linux 6.14. One by one, the kernel makes fragments of them.
            Err(Errno(libc::EIO | libc::EINVAL | libc::EMSGSIZE)) if batch.messages[0] > 1 => self.single = AGAIN,
            Err(Errno(libc::EBADF)) => return Err(SendError::Device(Errno(libc::EBADF))),
            Err(_) => {
                // The first entry cannot be sent: no route, too large for the path, forbidden. The network loses it.
                Counters::add(&memory.counters().unsent, batch.messages[0] as u64);
                queue.advance(batch.messages[0]);
            }
        }
        Ok(true)
    }

    /// Makes entries of what waits, from the front on; gives the number of unusable messages at the front, if it stopped there.
    fn fill<const N: usize, const P: usize>(&self, queue: &Queue<'_, SendDescriptor>, batch: &mut Batch<N, P>) -> u32 {
        let (mut taken, mut parts) = (0u32, 0usize);
        // Of the run in the last entry: its channel, bytes of each message, and of all; `closed` when a shorter one came.
        let (mut channel, mut each, mut bytes, mut closed) = (None, 0, 0, true);
        while let Some(descriptor) = queue.peek(taken) {
            let registry = self.memory.registry();
            let usable = registry.get(Channel(descriptor.channel)).and_then(|entry| Some((entry, self.pieces(&descriptor)?)));
            let Some((entry, pieces)) = usable else { return 1 };
            let needed = 1 + pieces.count;
            if parts + needed > P {
                break;
            }
            let length = HEADER + pieces.length;
            let room = bytes + length <= RUN && batch.count > 0 && batch.messages[batch.count - 1] < RUN_MESSAGES;
            let joins = self.single == 0 && channel == Some(descriptor.channel) && !closed && length <= each && room;
            if !joins {
                if batch.count == N {
                    break;
                }
                let address = entry.address();
                batch.begin(address, parts);
                (channel, each, bytes, closed) = (Some(descriptor.channel), length, 0, has_agent(&address));
            }
            let current = batch.count - 1;
            // SAFETY: the entry of the queue; no other thread takes it before we advance.
            let start = unsafe { queue.place(taken).cast::<u8>().add(offset_of!(SendDescriptor, wire)) };
            batch.parts[parts] = libc::iovec { iov_base: start.cast(), iov_len: HEADER + pieces.head };
            batch.parts[parts + 1..][..pieces.count].copy_from_slice(&pieces.parts[..pieces.count]);
            parts += needed;
            bytes += length;
            closed |= length < each;
            batch.messages[current] += 1;
            let header = &mut batch.entries[current].msg_hdr;
            header.msg_iovlen += needed;
            if batch.messages[current] == 2 {
                batch.cut(current, each as u16);
            }
            taken += 1;
        }
        0
    }

    /// Where the bytes behind the wire header lie; `None` if the descriptor is nonsense.
    fn pieces(&self, descriptor: &SendDescriptor) -> Option<Pieces> {
        let mut pieces =
            Pieces { head: descriptor.head().len(), parts: [EMPTY; SCATTER], count: 0, length: descriptor.head().len() };
        for area in descriptor.areas().iter().filter(|area| area.length > 0) {
            let base = if descriptor.kind & STAGED != 0 { self.staging(*area)? } else { self.memory.segment().pointer(*area)? };
            pieces.parts[pieces.count] = libc::iovec { iov_base: base.cast(), iov_len: area.length as usize };
            pieces.count += 1;
            pieces.length += area.length as usize;
        }
        (pieces.length <= self.capabilities.largest as usize).then_some(pieces)
    }

    fn staging(&self, area: Area) -> Option<*mut u8> {
        let inside = area.end() <= self.memory.shape().device as u64;
        // SAFETY: inside the device's part.
        inside.then(|| unsafe { self.memory.device_part().add(area.offset as usize) })
    }
}

/// Whether frames for this address meet an agent's program. On a veth it sees a run before it is cut, as one frame,
/// which is none of ours.
fn has_agent(address: &Address) -> bool {
    // A `sockaddr_in` or `sockaddr_in6`: the port follows the family.
    address.bytes().get(2..4) == Some(&AGENT_PORT.to_be_bytes()[..])
}

const EMPTY: libc::iovec = libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 };

struct Pieces {
    head: usize,
    parts: [libc::iovec; SCATTER],
    count: usize,
    length: usize,
}

impl<const N: usize, const P: usize> Batch<N, P> {
    /// Begins an entry for `address` whose parts start at `part`.
    fn begin(&mut self, address: Address, part: usize) {
        let at = self.count;
        let name = address.bytes();
        self.names[at][..name.len()].copy_from_slice(name);
        let header = &mut self.entries[at].msg_hdr;
        header.msg_name = self.names[at].as_mut_ptr().cast();
        header.msg_namelen = name.len() as u32;
        header.msg_iov = &mut self.parts[part];
        self.count += 1;
    }

    /// Asks the kernel to cut the entry into datagrams of `size` bytes: udp(7), UDP_SEGMENT.
    fn cut(&mut self, at: usize, size: u16) {
        // The layout of struct cmsghdr: length, level and type, data.
        self.control[at] = [16 + 2, libc::SOL_UDP as u64 | (libc::UDP_SEGMENT as u64) << 32, size as u64];
        let header = &mut self.entries[at].msg_hdr;
        header.msg_control = self.control[at].as_mut_ptr().cast();
        header.msg_controllen = CONTROL as _;
    }
}
