//! A queue of the interface that the agent keeps, and whose frames it moves for the emulated endpoints.

use std::io;

use shunt_endpoint::Gather;
use shunt_sys::{libc, mapping, Errno};
use shunt_wire::endpoint::{Kind, Repr, HEADER};
use shunt_xdp::packet::{Path, Sum, UDP};
use shunt_xdp::ring::Descriptor;
use shunt_xdp::socket::{Mode, Shape, Socket, Statistics, Umem};

use crate::capture::{Capture, Noted};

/// One of them.
pub struct Trunk {
    socket: Socket,
    /// The queue's number.
    pub queue: u32,
    /// What copies.
    pub mode: Mode,
    /// Offsets of chunks that can be written.
    free: Vec<u64>,
    /// The memory, which no other process has.
    memory: *mut u8,
    size: usize,
    /// A frame that came in several chunks.
    whole: Vec<u8>,
    /// Its frames are captured.
    noted: Option<Noted>,
    /// Frames sent.
    pub sent: u64,
    /// Frames that arrived.
    pub received: u64,
}

/// Why a message was not put on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// The queue is full: later.
    Full,
    /// The message's bytes are not there.
    Fault,
}

impl Trunk {
    /// Takes queue `queue` of an interface for frames of `frame` bytes at most.
    ///
    /// # Errors
    /// What the kernel refused, as a sentence with its error.
    pub fn new(interface: u32, queue: u32, frame: u32, depth: u32, only: Option<Mode>) -> io::Result<Trunk> {
        let of = |errno: Errno| io::Error::from_raw_os_error(errno.0);
        let shape = Shape::for_frames(frame, depth).map_err(of)?;
        let size = 2 * depth as usize * shape.chunk as usize;
        let memory = mapping::reserve(size).map_err(of)?;
        // SAFETY: mapped above, private, and unmapped after the socket is gone.
        let umem = unsafe { Umem::new(memory, size) };
        let made = Socket::make(interface, queue, umem, shape, only);
        let (mut socket, mode) = made.map_err(|refused| {
            let _ = shunt_sys::calls::munmap(memory, size);
            let error = of(refused.errno);
            io::Error::new(error.kind(), format!("cannot {}: {error}", refused.step))
        })?;
        // A large buffer: with the default, 90 frames in flight would fill it.
        let _ = shunt_sys::calls::setsockopt_int(socket.fd(), libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, 16 << 20);
        let chunk = |index: u32| u64::from(index) * u64::from(shape.chunk);
        (0..depth).for_each(|index| {
            socket.give(chunk(index));
        });
        let free = (depth..2 * depth).map(chunk).collect();
        Ok(Trunk { socket, queue, mode, free, memory, size, whole: Vec::new(), noted: None, sent: 0, received: 0 })
    }

    /// Has all its frames captured.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn note(&mut self, capture: &Capture) -> Result<(), Errno> {
        let (notes, noted) = capture.own(self.queue)?;
        self.socket.set_notes(Some(notes));
        self.noted = Some(noted);
        Ok(())
    }

    /// The descriptor: readable while frames wait.
    pub fn fd(&self) -> i32 {
        self.socket.fd()
    }

    /// Whether frames that are longer than a chunk arrive.
    pub fn takes_pieces(&self) -> bool {
        self.socket.takes_pieces()
    }

    /// What the kernel counted.
    pub fn statistics(&self) -> Statistics {
        self.socket.statistics().unwrap_or_default()
    }

    /// Puts a frame on the transmit ring, behind its headers.
    ///
    /// # Errors
    /// [`NotSent`].
    pub fn send(&mut self, path: &Path, tag: u64, kind: Kind, gather: &Gather<'_>) -> Result<(), NotSent> {
        if self.free.is_empty() {
            self.flush();
        }
        let Some(&chunk) = self.free.last() else { return Err(NotSent::Full) };
        let (header, length) = (path.header(), HEADER + gather.len());
        let Some(frame) = self.socket.room(chunk, header + length) else { return Err(NotSent::Fault) };
        let mut head = [0; HEADER];
        Repr { kind, tag, length: gather.len() as u32 }.emit(&mut head);
        // SAFETY: inside the chunk, which is ours.
        unsafe {
            let datagram = frame.add(header);
            std::ptr::copy_nonoverlapping(head.as_ptr(), datagram, HEADER);
            if !gather.copy_to(0, datagram.add(HEADER), gather.len()) {
                return Err(NotSent::Fault);
            }
            let sum = (!self.socket.makes_sums()).then(|| Sum::default().add_raw(datagram, length));
            let headers = path.headers(length, sum);
            std::ptr::copy_nonoverlapping(headers.as_ptr(), frame, header);
        }
        if !self.socket.put(chunk, (header + length) as u32, header - UDP) {
            return Err(NotSent::Full);
        }
        self.free.pop();
        self.sent += 1;
        Ok(())
    }

    /// Makes the kernel send what is on the transmit ring, and takes back what it has sent. False: something waits.
    pub fn flush(&mut self) -> bool {
        let mut left = self.socket.unsent();
        while left > 0 {
            let kicked = self.socket.kick();
            let now = self.socket.unsent();
            if kicked.is_err() || now >= left {
                break;
            }
            left = now;
        }
        let chunk = u64::from(self.socket.shape().chunk);
        while let Some(offset) = self.socket.sent() {
            self.free.push(offset & !(chunk - 1));
        }
        self.socket.unsent() == 0
    }

    /// Shows the next frame to `look`, and gives its chunk back; false: none waits.
    pub fn receive(&mut self, look: impl FnOnce(&[u8])) -> bool {
        let mut bad = 0;
        let Some(descriptor) = self.socket.take(&mut bad) else {
            self.socket.prod();
            return false;
        };
        if descriptor.goes_on() {
            let mut whole = std::mem::take(&mut self.whole);
            whole.clear();
            let mut piece = Some(descriptor);
            while let Some(descriptor) = piece {
                whole.extend_from_slice(self.bytes(&descriptor));
                self.give(&descriptor);
                piece = if descriptor.goes_on() { self.socket.take(&mut bad) } else { None };
            }
            look(&whole);
            self.whole = whole;
        } else {
            look(self.bytes(&descriptor));
            self.give(&descriptor);
        }
        self.received += 1;
        true
    }

    fn bytes(&self, descriptor: &Descriptor) -> &[u8] {
        let length = descriptor.length as usize;
        let bytes = self.socket.umem().at(descriptor.offset, length);
        // SAFETY: inside the memory, which no other process maps; the kernel does not write the chunk before it is given back.
        bytes.map_or(&[], |bytes| unsafe { std::slice::from_raw_parts(bytes, length) })
    }

    fn give(&mut self, descriptor: &Descriptor) {
        let chunk = u64::from(self.socket.shape().chunk);
        self.socket.give(descriptor.offset & !(chunk - 1));
    }
}

impl Drop for Trunk {
    fn drop(&mut self) {
        // Notes are made by the socket alone.
        self.socket.set_notes(None);
        self.noted = None;
        // The kernel holds the pages until the socket, which is dropped next, is gone; it does not need our mapping.
        let _ = shunt_sys::calls::munmap(self.memory, self.size);
    }
}
