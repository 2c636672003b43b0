//! A queue of one's own without the endpoint: frames as they are.
//!
//! For connections that were taken from the kernel. A process that drives a queue so holds the endpoint's lock and receives no messages by it: these
//! would be taken for frames of no connection.

use core::sync::atomic::Ordering::Relaxed;

use shunt_endpoint::shared::Memory;
use shunt_endpoint::{Area, Endpoint};
use shunt_sys::{libc, Errno};

use crate::device::Xdp;
use crate::own::Own;
use crate::protocol::{Connection, Kind, Sizes};
use crate::state::State;

/// The frames of a queue.
pub struct Frames<'a> {
    own: &'a mut Own,
    memory: &'a Memory,
}

impl Xdp {
    /// The frames of this endpoint's queue; `None`: it has none of its own.
    #[inline]
    pub fn frames(&mut self) -> Option<Frames<'_>> {
        let (own, memory) = self.own_and_memory()?;
        Some(Frames { own, memory })
    }

    /// A queue of the interface with this index, which takes in frames, and the connection to its agent by which TCP connections are handed over.
    ///
    /// # Errors
    /// As for [`Xdp::attach`]; ENODEV: there is no such interface; the agent takes no connections.
    pub fn with_hands(interface: u32, version_6: bool) -> Result<(Xdp, Connection), Errno> {
        let name = crate::route::describe(interface).ok_or(Errno(libc::ENODEV))?.0;
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let name = core::str::from_utf8(&name[..length]).map_err(|_| Errno(libc::ENODEV))?;
        let mut device = Xdp::attach(name, Kind::Own, version_6, Sizes::default())?;
        // EBUSY and its like are of queues.
        let hands = device.agent().hands().map_err(|_| Errno(libc::EOPNOTSUPP))?;
        device.post_all();
        Ok((device, hands))
    }

    /// Gives all of the owner's part of the segment to the kernel, for frames to come.
    pub fn post_all(&mut self) {
        let state = State::of(self.memory());
        let (chunk, owner) = (state.rings().chunk, state.owner.load(Relaxed));
        for at in (0..owner.checked_div(chunk).unwrap_or(0)).map(|index| index * chunk) {
            if self.post(Area::new(at, chunk)).is_err() {
                return;
            }
        }
    }
}

impl Frames<'_> {
    /// Whether one has come. If not the lines of the next one are asked for.
    #[inline]
    pub fn have_come(&mut self) -> bool {
        let have = self.own.socket.arrived() > 0;
        if !have {
            self.own.look_ahead();
        }
        have
    }

    /// The next frame, copied to the start of `buffer`: one that is longer is lost.
    #[inline]
    pub fn next<'b>(&mut self, buffer: &'b mut [u8]) -> Option<&'b mut [u8]> {
        loop {
            let (mut length, mut fits, mut bad) = (0, true, 0);
            let mut piece = self.own.socket.take(&mut bad);
            if piece.is_none() {
                self.own.look_ahead();
                return None;
            }
            self.own.streak = self.own.streak.saturating_add(1);
            while let Some(descriptor) = piece {
                let bytes = descriptor.length as usize;
                let from = self.own.socket.umem().at(descriptor.offset, bytes);
                match (from, buffer.get_mut(length..length + bytes)) {
                    (Some(from), Some(to)) => {
                        // SAFETY: inside the memory, and as many bytes as said.
                        unsafe { core::ptr::copy_nonoverlapping(from, to.as_mut_ptr(), bytes) };
                        length += bytes;
                    }
                    _ => fits = false,
                }
                self.own.give_chunk(descriptor.offset as u32);
                piece = if descriptor.goes_on() { self.own.socket.take(&mut bad) } else { None };
            }
            if fits {
                return Some(&mut buffer[..length]);
            }
        }
    }

    /// Puts a frame on the transmit ring; false: it is full.
    #[inline]
    pub fn send(&mut self, frame: &[u8]) -> bool {
        self.own.put += 1; // before it is there: a thread that is jumped out of leaves no frame that nobody sends
        self.own.put_whole(State::of(self.memory), frame)
    }

    /// Makes the kernel send what is on the transmit ring; false: something waits.
    #[inline]
    pub fn flush(&mut self) -> bool {
        if self.own.put > 0 && self.own.empty_ring(State::of(self.memory)).unwrap_or(false) {
            self.own.put = 0;
        }
        self.own.put == 0
    }
}
