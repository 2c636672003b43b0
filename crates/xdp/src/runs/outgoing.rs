//! Runs that are sent: collected in the endpoint's memory, and given to a UDP socket of the agent's (udp(7), UDP_SEGMENT).
//!
//! AF_XDP takes frames one by one. So the first ones between two flushes take its ring, as a message does that is alone, and
//! those which follow are collected as long as they are for the same channel and no longer than the first. A frame as long as
//! any may be is one of many: it begins a run at once. What is collected leaves in runs of the same length, so that no few frames
//! are left over, of which each costs as much as ten in a run.

use core::ops::Range;
use core::sync::atomic::{AtomicU32, Ordering::Relaxed};

use shunt_endpoint::shared::Memory;
use shunt_endpoint::{Address, Channel, Counters, Gather, SendError};
use shunt_sys::{calls, libc, Errno};
use shunt_wire::endpoint::HEADER;

use crate::address::{decode, encode};
use crate::own::Own;
use crate::packet::{Prepared, LONGEST};
use crate::socket::{Shape, KERNEL_HEADROOM};
use crate::state::{State, STATE};

/// Bytes of the endpoint's memory in which runs are collected.
pub const ROOM: u32 = 1 << 17;
/// Bytes of a run at most: an IP packet's, less headers.
const MOST: u32 = 65_535 - LONGEST as u32;
/// Frames of a run at most (UDP_MAX_SEGMENTS of older kernels).
const FRAMES: u32 = 64;
/// So many runs are collected before they are sent.
const RUNS: u32 = 2;
/// So many frames go by the ring before a run begins.
const ALONE: u32 = 2;
/// Fewer frames than that are put on the ring after all: the run's call takes as long as they do.
const FEW: usize = 4;

/// What is collected: one run, or some.
#[repr(C)]
pub struct Collected {
    /// Bytes of it; 0: there is none.
    bytes: AtomicU32,
    /// Bytes of the first frame. All others have as many, but for the last.
    each: AtomicU32,
    /// Their channel.
    channel: AtomicU32,
}

impl Collected {
    /// Whether there is none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.bytes.load(Relaxed) == 0
    }

    pub(crate) fn clear(&self) {
        self.bytes.store(0, Relaxed);
    }
}

/// How long a run may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    bytes: u32,
    frames: u32,
}

impl Limits {
    /// For an endpoint with such rings. A run is received as a whole or not at all, so it is to fit a quarter of the chunks that a peer
    /// as deep as this one posts; and it may have to leave by the transmit ring after all.
    pub(crate) fn of(rings: &Shape) -> Limits {
        let chunk = rings.chunk.saturating_sub(KERNEL_HEADROOM);
        Limits { bytes: (rings.receive / 4).saturating_mul(chunk).min(MOST), frames: rings.transmit.min(FRAMES) }
    }

    /// Frames of `each` bytes in one run.
    fn frames(self, each: u32) -> u32 {
        (self.bytes / each.max(1)).min(self.frames).max(1)
    }
}

/// The socket by which runs leave, from the endpoint's address. It receives nothing.
pub struct Cutter {
    fd: i32,
}

impl Cutter {
    /// The socket behind `fd`, if it is one: taken from there then.
    pub(crate) fn adopt(fd: &mut i32) -> Option<Cutter> {
        let is_one = calls::getsockopt_int(*fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_DGRAM);
        is_one.then(|| Cutter { fd: core::mem::replace(fd, -1) })
    }

    pub(crate) fn fd(&self) -> i32 {
        self.fd
    }

    pub(crate) fn renumber(&mut self, from: i32, to: i32) {
        if self.fd == from {
            self.fd = to;
        }
    }

    /// Sends `length` bytes at `run` to an address, to be cut into datagrams of `each` bytes.
    fn send(&self, to: &Address, run: *mut u8, length: usize, each: usize) -> Result<(), Errno> {
        let mut part = libc::iovec { iov_base: run.cast(), iov_len: length };
        // `struct cmsghdr`: length, level and type; then the number.
        let mut control = [16 + 2, libc::SOL_UDP as u64 | (libc::UDP_SEGMENT as u64) << 32, each as u64];
        // SAFETY: integers and pointers; null is valid.
        let mut message: libc::msghdr = unsafe { core::mem::zeroed() };
        (message.msg_iov, message.msg_iovlen) = (&mut part, 1);
        (message.msg_name, message.msg_namelen) = (to.bytes().as_ptr().cast_mut().cast(), to.bytes().len() as u32);
        if length > each {
            (message.msg_control, message.msg_controllen) = (control.as_mut_ptr().cast(), size_of_val(&control) as _);
        }
        calls::sendmsg(self.fd, &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL).map(|_| ())
    }
}

impl Drop for Cutter {
    fn drop(&mut self) {
        let _ = calls::close(self.fd);
    }
}

/// Where runs are collected, and how many bytes: agents before gave room for one, and those before them none.
fn place(memory: &Memory) -> Option<(*mut u8, u32)> {
    let rings = State::of(memory).rings();
    let at = STATE as u32 + rings.transmit * rings.chunk;
    let room = memory.shape().device.checked_sub(at).filter(|room| *room >= MOST)?.min(ROOM);
    // SAFETY: inside the device part.
    Some((unsafe { memory.device_part().add(at as usize) }, room))
}

impl Own {
    /// Adds a frame to the run, or begins one with it; false: it goes by the ring, and the run before it has left. `full`: no frame
    /// of the channel can be longer.
    #[inline]
    pub(crate) fn collect(
        &mut self,
        memory: &Memory,
        (channel, full): (Channel, bool),
        head: &[u8; HEADER],
        gather: &Gather<'_>,
    ) -> Result<bool, SendError> {
        let run = &State::of(memory).sending;
        let (bytes, length) = (run.bytes.load(Relaxed), (HEADER + gather.len()) as u32);
        let many = || full || (self.put >= ALONE && self.last == (channel, length));
        if bytes == 0 && !(self.makes_runs && many()) {
            return Ok(false);
        }
        self.collect_one(memory, (channel, full), head, gather)
    }

    fn collect_one(
        &mut self,
        memory: &Memory,
        (channel, full): (Channel, bool),
        head: &[u8; HEADER],
        gather: &Gather<'_>,
    ) -> Result<bool, SendError> {
        let run = &State::of(memory).sending;
        let (mut bytes, each, length) = (run.bytes.load(Relaxed), run.each.load(Relaxed), (HEADER + gather.len()) as u32);
        let Some((place, room)) = place(memory) else { return Ok(false) };
        if bytes != 0 {
            let same = Channel(run.channel.load(Relaxed)) == channel && length <= each && bytes.is_multiple_of(each.max(1));
            let runs = if room == ROOM { RUNS } else { 1 };
            let fits = bytes / each.max(1) < runs * self.limits.frames(each) && bytes.saturating_add(length) <= room;
            if !(same && fits) {
                if !self.send_runs(memory)? {
                    return Err(SendError::NoResource);
                }
                if !(full || same && length == each) {
                    return Ok(false);
                }
                bytes = 0;
            }
        }
        // SAFETY: `bytes + length` is at most `room`: so was seen, and one frame is much shorter.
        unsafe {
            let frame = place.add(bytes as usize);
            core::ptr::copy_nonoverlapping(head.as_ptr(), frame, HEADER);
            if !gather.copy_to(0, frame.add(HEADER), gather.len()) {
                return Err(SendError::Fault);
            }
        }
        if bytes == 0 {
            run.each.store(length, Relaxed);
            run.channel.store(channel.0, Relaxed);
        }
        run.bytes.store(bytes + length, Relaxed);
        self.streak = 0;
        Ok(true)
    }

    /// Sends what is collected, behind what is on the ring. False: not now, or not all.
    pub(crate) fn send_runs(&mut self, memory: &Memory) -> Result<bool, SendError> {
        let state = State::of(memory);
        let run = &state.sending;
        let (bytes, each) = (run.bytes.load(Relaxed) as usize, run.each.load(Relaxed).max(1));
        if bytes == 0 {
            return Ok(true);
        }
        let frames = bytes.div_ceil(each as usize);
        let few = frames < FEW && state.free.load(Relaxed) as usize >= FEW;
        if !few && !self.empty_ring(state)? {
            return Ok(false);
        }
        let channel = Channel(run.channel.load(Relaxed));
        let goes = match memory.registry().get(channel) {
            Some(entry) => match self.headers(memory, (channel, entry)) {
                Err(SendError::NoResource) => return Ok(false),
                // An address of IPv4 in IPv6's form is none to a socket of IPv4.
                headers => headers
                    .unwrap_or_default()
                    .zip(decode(&entry.address()))
                    .map(|(headers, (peer, scope))| (headers, encode(&peer, scope))),
            },
            None => None,
        };
        let (Some((headers, address)), Some((place, room))) = (goes, place(memory)) else {
            // The channel was closed, or its peer does not answer.
            Counters::add(&memory.counters().unsent, frames as u64);
            run.clear();
            return Ok(true);
        };
        let bytes = bytes.min(room as usize);
        let runs = frames.div_ceil(self.limits.frames(each) as usize);
        let step = frames.div_ceil(runs) * each as usize;
        let mut sent = if few { self.unfold(memory, &headers, place, 0..bytes, each) } else { 0 };
        while sent < bytes {
            let length = step.min(bytes - sent);
            let result = match (&self.cutter, self.makes_runs) {
                // SAFETY: inside what is collected.
                (Some(cutter), true) => cutter.send(&address, unsafe { place.add(sent) }, length, each as usize),
                _ => Err(Errno(libc::EBADF)),
            };
            sent += match result {
                Ok(()) => {
                    if let Some(notes) = self.socket.notes() {
                        let all = headers.headers(length, None);
                        // SAFETY: headers of ours, and bytes inside what is collected.
                        unsafe { notes.sent(&[(all.as_ptr(), headers.header()), (place.add(sent), length)]) };
                    }
                    length
                }
                // The interface is down or full for now: what waits, waits.
                Err(Errno(libc::EAGAIN | libc::ENOBUFS | libc::ENOMEM | libc::EINTR | libc::ENETDOWN)) => {
                    // SAFETY: both inside what is collected.
                    unsafe { core::ptr::copy(place.add(sent), place, bytes - sent) };
                    run.bytes.store((bytes - sent) as u32, Relaxed);
                    return Ok(false);
                }
                Err(errno) => {
                    // A kernel that cannot cut, or rules of the administrator's; or a path that comes and goes. The socket stays open:
                    // its number is known to others.
                    if !matches!(errno.0, libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ECONNREFUSED) {
                        self.makes_runs = false;
                    }
                    self.unfold(memory, &headers, place, sent..bytes, each)
                }
            };
        }
        run.clear();
        Ok(true)
    }

    /// Puts the frames in `bytes` of what is collected on the ring, and says how many bytes those are. Frames for which there is no
    /// room are lost, as on a network.
    fn unfold(&mut self, memory: &Memory, headers: &Prepared, place: *mut u8, bytes: Range<usize>, each: u32) -> usize {
        for at in bytes.clone().step_by(each as usize) {
            let length = (each as usize).min(bytes.end - at);
            let put = self.put_frame(State::of(memory), headers, length, |datagram| {
                // SAFETY: inside what is collected, and as many bytes as the frame has room for.
                unsafe { core::ptr::copy_nonoverlapping(place.add(at), datagram, length) };
                true
            });
            if put.is_err() {
                Counters::add(&memory.counters().unsent, 1);
            }
        }
        bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a receiver as deep as the sender could never take is not sent.
    #[test]
    fn runs_are_as_long_as_rings_allow() {
        let of = |receive, transmit| Limits::of(&Shape { chunk: 2048, receive, transmit });
        assert_eq!(of(256, 256), Limits { bytes: MOST, frames: 64 });
        assert_eq!(of(16, 16), Limits { bytes: 4 * 1792, frames: 16 });
        assert_eq!(of(32, 8), Limits { bytes: 8 * 1792, frames: 8 });
        assert_eq!(
            [(256, 1472), (256, 100), (16, 1472), (1, 1472)].map(|(depth, each)| of(depth, depth).frames(each)),
            [44, 64, 4, 1]
        );
    }
}
