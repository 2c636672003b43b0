//! An AF_XDP socket on one queue of one interface, and the memory that is registered with it.
//!
//! Set-up needs CAP_NET_RAW (and memory to pin: RLIMIT_MEMLOCK, or CAP_IPC_LOCK), so the agent does it. What it made is
//! a descriptor; a process that is given it, and the memory's file, maps the same rings and the same memory ([`Socket::adopt`])
//! and needs no privilege to move frames.

use shunt_sys::{calls, libc, Errno};

use crate::notes::Notes;
use crate::ring::{self, Consumer, Descriptor, Kind, Producer};

/// Bytes that the kernel leaves free in front of each frame that arrives (XDP_PACKET_HEADROOM).
pub const KERNEL_HEADROOM: u32 = 256;

/// Bytes in front of a frame to be sent in which the kernel is told what to do with it, where it takes such
/// (Documentation/networking/xsk-tx-metadata.rst): a line of cache.
const LEAD: u32 = 64;

/// `struct xsk_tx_metadata`: the kernel, or the interface, is to make a checksum of what lies behind `from`, and to put it `at` bytes
/// behind that.
#[repr(C)]
struct Metadata {
    flags: u64,
    from: u16,
    at: u16,
    reserved: u32,
    launch: u64,
}

/// Bytes of a line of cache.
const LINE: usize = 64;

/// How many of everything.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of a chunk: 2048 or 4096.
    pub chunk: u32,
    /// Slots of the receive ring, and half of those of the fill ring: a power of two.
    pub receive: u32,
    /// Slots of the transmit ring and of the completion ring: a power of two.
    pub transmit: u32,
}

impl Shape {
    /// Chunks for frames of `frame` bytes (header of Ethernet included), rings of `depth` (a power of two) each way.
    ///
    /// Errors: EMSGSIZE if no chunk of a page can hold such a frame.
    pub fn for_frames(frame: u32, depth: u32) -> Result<Shape, Errno> {
        let chunk = match frame + KERNEL_HEADROOM {
            0..=2048 => 2048,
            2049..=4096 => 4096,
            _ => return Err(Errno(libc::EMSGSIZE)),
        };
        Ok(Shape { chunk, receive: depth, transmit: depth })
    }

    /// The same with chunks of a page: where packets come that fill several, there are half as many to be taken from the fill ring,
    /// announced and given back, and of the frames in them fewer lie in two.
    #[must_use]
    pub fn for_runs(self) -> Shape {
        Shape { chunk: 4096, ..self }
    }

    /// Slots of the fill ring. Half of them hold chunks at most, so that what is given back is not written beside what the kernel
    /// takes next.
    pub fn fill(&self) -> u32 {
        2 * self.receive
    }

    /// Whether the numbers can be believed: another process named them.
    pub fn is_sound(&self) -> bool {
        let ring = |length: u32| length.is_power_of_two() && length <= 1 << 16;
        matches!(self.chunk, 2048 | 4096) && ring(self.receive) && ring(self.transmit)
    }
}

/// What copies a frame between the interface and the segment.
#[repr(u32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The interface reads and writes the segment itself.
    ZeroCopy = 0,
    /// The kernel copies.
    Copy = 1,
}

impl Mode {
    /// The word of reports.
    pub const fn word(self) -> &'static str {
        match self {
            Mode::ZeroCopy => "zero-copy",
            Mode::Copy => "copy",
        }
    }
}

/// Which step of the set-up the kernel refused, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The step, as words that complete "cannot ...".
    pub step: &'static str,
    /// The kernel's answer.
    pub errno: Errno,
}

trait Step<T> {
    fn step(self, step: &'static str) -> Result<T, Refused>;
}

impl<T> Step<T> for Result<T, Errno> {
    fn step(self, step: &'static str) -> Result<T, Refused> {
        self.map_err(|errno| Refused { step, errno })
    }
}

/// The memory that is registered with a socket, as this process has it mapped. A private handle: its maker sees to it that the
/// memory stays.
#[derive(Clone, Copy)]
pub struct Umem {
    base: *mut u8,
    size: usize,
}

// SAFETY: plain memory that several processes share anyway; nothing in it is a reference.
unsafe impl Send for Umem {}

impl Umem {
    /// The `size` bytes at `base`.
    ///
    /// # Safety
    /// They are mapped, readable and writable, from a file that cannot shrink, as long as any copy of the handle is used;
    /// `base` is the start of a page.
    pub const unsafe fn new(base: *mut u8, size: usize) -> Umem {
        Umem { base, size }
    }

    /// Bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The address of `length` bytes at `offset`, or `None` if they are not all inside.
    #[inline(always)]
    pub fn at(&self, offset: u64, length: usize) -> Option<*mut u8> {
        let end = offset.checked_add(length as u64)?;
        // SAFETY: inside the mapping.
        (end <= self.size as u64).then(|| unsafe { self.base.add(offset as usize) })
    }
}

/// Our ends of the four rings.
pub(crate) struct Rings {
    pub receive: Consumer<Descriptor>,
    pub transmit: Producer<Descriptor>,
    pub fill: Producer<u64>,
    pub completion: Consumer<u64>,
}

/// A bound socket, its rings and its segment, mapped in this process.
pub struct Socket {
    fd: i32,
    shape: Shape,
    /// Bytes of a chunk in front of a frame to be sent: [`LEAD`], or 0 where the kernel makes no checksums.
    lead: u32,
    /// Frames that are longer than a chunk come in pieces.
    pieces: bool,
    umem: Umem,
    receive: Consumer<Descriptor>,
    transmit: Producer<Descriptor>,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    /// How much further the kernel is in the fill ring than we are in the receive ring; where in its chunk the last frame began.
    shift: u32,
    margin: u64,
    /// Where frames are noted, if an agent captures.
    notes: Option<Notes>,
}

impl Socket {
    /// Makes a socket for queue `queue` of the interface with index `interface`, over the memory `umem`, and says
    /// which mode the interface gave: zero-copy is tried first unless `only` names one.
    ///
    /// Errors: the step, with EPERM (privilege), ENOBUFS (RLIMIT_MEMLOCK), EBUSY (the queue has a socket), EINVAL (no such
    /// queue), ENODEV, EOPNOTSUPP (no AF_XDP, or no zero-copy where only that was asked for).
    pub fn make(interface: u32, queue: u32, umem: Umem, shape: Shape, only: Option<Mode>) -> Result<(Socket, Mode), Refused> {
        let modes: &[Mode] = match only {
            None => &[Mode::ZeroCopy, Mode::Copy],
            Some(Mode::Copy) => &[Mode::Copy],
            Some(Mode::ZeroCopy) => &[Mode::ZeroCopy],
        };
        let mut refused = Refused { step: "bind to the queue", errno: Errno(libc::EOPNOTSUPP) };
        // In pieces from Linux 6.6 on; no interface of ours has such frames for zero-copy.
        let ways = modes.iter().flat_map(|mode| [(*mode, true), (*mode, false)]);
        for (mode, pieces) in ways.filter(|way| *way != (Mode::ZeroCopy, true)) {
            // A socket whose bind failed keeps what it was; a new one is simpler than to know what.
            let fd = calls::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0).step("open an AF_XDP socket")?;
            match Socket::set_up(fd, interface, queue, umem, shape, (mode, pieces)) {
                Ok(socket) => return Ok((socket, mode)),
                Err(error) => {
                    let _ = calls::close(fd);
                    refused = error;
                    if !matches!(error.errno.0, libc::EOPNOTSUPP | libc::EINVAL | libc::EPROTONOSUPPORT) {
                        break;
                    }
                }
            }
        }
        Err(refused)
    }

    fn set_up(
        fd: i32,
        interface: u32,
        queue: u32,
        umem: Umem,
        shape: Shape,
        (mode, pieces): (Mode, bool),
    ) -> Result<Socket, Refused> {
        let lead = Socket::register(fd, umem, shape, mode).step("register the memory")?;
        for (kind, length) in [
            (Kind::Fill, shape.fill()),
            (Kind::Completion, shape.transmit),
            (Kind::Receive, shape.receive),
            (Kind::Transmit, shape.transmit),
        ] {
            ring::make(fd, kind, length).step("make the rings")?;
        }
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP
                | if pieces { libc::XDP_USE_SG } else { 0 }
                | match mode {
                    Mode::ZeroCopy => libc::XDP_ZEROCOPY,
                    Mode::Copy => libc::XDP_COPY,
                },
            sxdp_ifindex: interface,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        let size = size_of_val(&address) as u32;
        calls::bind(fd, (&raw const address).cast(), size).step("bind to the queue")?;
        Socket::map(fd, umem, shape, lead, pieces).step("map the rings")
    }

    /// Gives the memory to the kernel, and says how many bytes of a chunk lie in front of a frame to be sent. Where the kernel copies
    /// frames it also sees to their checksums: by itself if the interface does not. Of other interfaces it is not known whether they
    /// do.
    fn register(fd: i32, umem: Umem, shape: Shape, mode: Mode) -> Result<u32, Errno> {
        // Before Linux 6.11 the kernel did not take the last field, or not the flag; the first version of the structure, 24 bytes with
        // its padding, every kernel takes.
        let register = libc::xdp_umem_reg {
            addr: umem.base as u64,
            len: umem.size as u64,
            chunk_size: shape.chunk,
            headroom: 0,
            flags: libc::XDP_UMEM_TX_METADATA_LEN,
            tx_metadata_len: LEAD,
        };
        let give = |size| calls::setsockopt(fd, libc::SOL_XDP, libc::XDP_UMEM_REG, (&raw const register).cast(), size as u32);
        if mode == Mode::Copy && give(size_of::<libc::xdp_umem_reg>()).is_ok() {
            return Ok(LEAD);
        }
        give(size_of::<libc::xdp_umem_reg_v1>()).map(|()| 0)
    }

    /// Maps a socket that another process made and bound over the same memory. The descriptor is owned from now on, also on
    /// failure. `lead` is what [`Socket::lead`] said there.
    ///
    /// Errors: EINVAL for a shape that cannot be; what mmap(2) answers.
    pub fn adopt(fd: i32, umem: Umem, shape: Shape, lead: u32) -> Result<Socket, Errno> {
        let is_sound = shape.is_sound() && matches!(lead, 0 | LEAD);
        // Whether frames come in pieces is what descriptors say.
        let adopted = if is_sound { Socket::map(fd, umem, shape, lead, true) } else { Err(Errno(libc::EINVAL)) };
        if adopted.is_err() {
            let _ = calls::close(fd);
        }
        adopted
    }

    fn map(fd: i32, umem: Umem, shape: Shape, lead: u32, pieces: bool) -> Result<Socket, Errno> {
        let rings = Rings {
            receive: Consumer::map(fd, Kind::Receive, shape.receive)?,
            transmit: Producer::map(fd, Kind::Transmit, shape.transmit)?,
            fill: Producer::map(fd, Kind::Fill, shape.fill())?,
            completion: Consumer::map(fd, Kind::Completion, shape.transmit)?,
        };
        Ok(Socket::of(fd, umem, shape, (lead, pieces), rings))
    }

    /// Of rings that are mapped; `fd` is owned from now on.
    pub(crate) fn of(fd: i32, umem: Umem, shape: Shape, (lead, pieces): (u32, bool), rings: Rings) -> Socket {
        let Rings { receive, transmit, fill, completion } = rings;
        let margin = KERNEL_HEADROOM.into();
        Socket { fd, shape, lead, pieces, umem, receive, transmit, fill, completion, shift: 0, margin, notes: None }
    }

    /// The descriptor: readable (POLLIN) while frames wait.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// The descriptor got another number.
    pub(crate) fn renumber(&mut self, from: i32, to: i32) {
        if self.fd == from {
            self.fd = to;
        }
    }

    /// How many of everything.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Whether frames that are longer than a chunk arrive, in several.
    pub fn takes_pieces(&self) -> bool {
        self.pieces
    }

    /// The registered memory.
    pub fn umem(&self) -> &Umem {
        &self.umem
    }

    /// Frames are noted there from now on.
    pub fn set_notes(&mut self, notes: Option<Notes>) {
        self.notes = notes;
    }

    /// Where frames are noted, for those that leave by another way.
    #[inline]
    pub fn notes(&self) -> Option<&Notes> {
        self.notes.as_ref()
    }

    /// Gives the chunk at `offset` to the kernel for a frame to come; false: the fill ring is full.
    #[inline]
    pub fn give(&mut self, offset: u64) -> bool {
        self.fill.push(offset)
    }

    /// The oldest frame that arrived, wholly inside the segment. The chunk is the caller's until it gives it back.
    ///
    /// A descriptor that leads outside was written by another process that has the ring: it is skipped, and counted by
    /// `bad`. The kernel writes only what was in the fill ring.
    #[inline]
    pub fn take(&mut self, bad: &mut u64) -> Option<Descriptor> {
        while let Some(descriptor) = self.receive.pop() {
            if descriptor.length <= self.shape.chunk && self.umem.at(descriptor.offset, descriptor.length as usize).is_some() {
                self.learn(&descriptor);
                if self.notes.is_some() {
                    self.note_taken(descriptor);
                }
                return Some(descriptor);
            }
            *bad += 1;
        }
        None
    }

    /// Notes the packet that begins with the chunk that was just taken. The kernel announces packets as a whole.
    #[cold]
    fn note_taken(&mut self, first: Descriptor) {
        let Socket { notes: Some(notes), receive, umem, .. } = self else { return };
        let receive = core::cell::RefCell::new(receive);
        let chunk = |descriptor: Descriptor| {
            let length = descriptor.length as usize;
            umem.at(descriptor.offset, length).map(|bytes| (bytes.cast_const(), length, descriptor.goes_on()))
        };
        // SAFETY: inside the memory, as many bytes as said.
        unsafe {
            notes.received(first.goes_on(), |index| match index.checked_sub(1) {
                None => chunk(first),
                Some(ahead) => receive.borrow_mut().peek(ahead).and_then(chunk),
            });
        }
    }

    /// Notes a frame that was put on the transmit ring.
    #[cold]
    fn note_put(&self, chunk: u64, length: u32) {
        let length = length as usize;
        if let (Some(notes), Some(frame)) = (&self.notes, self.room(chunk, length)) {
            // SAFETY: inside the memory, as many bytes as said.
            unsafe { notes.sent(&[(frame, length)]) };
        }
    }

    /// The kernel takes chunks in the order of the fill ring, so that where the next frame will lie can be guessed.
    #[inline]
    fn learn(&mut self, descriptor: &Descriptor) {
        let chunk = descriptor.offset & !u64::from(self.shape.chunk - 1);
        self.margin = descriptor.offset - chunk;
        let position = self.receive.taken().wrapping_sub(1);
        // A frame that the kernel had no room for has used one up, or several.
        let found = (0..4).find(|more| self.fill.at(position.wrapping_add(self.shift).wrapping_add(*more)) == chunk);
        self.shift = self.shift.wrapping_add(found.unwrap_or(0));
    }

    /// Asks for the lines in which the next frame will be announced and begin. They then come together, not one after the other
    /// when the announcement is there: 0.4 of 3.6 us of a round trip.
    #[inline]
    pub fn look_ahead(&mut self) {
        self.receive.prefetch();
        let chunk = self.fill.at(self.receive.taken().wrapping_add(self.shift));
        if let Some(begin) = self.umem.at(chunk.wrapping_add(self.margin), 2 * LINE) {
            // SAFETY: both inside the memory.
            unsafe {
                ring::prefetch(begin);
                ring::prefetch(begin.add(LINE));
            }
        }
    }

    /// Frames that wait.
    #[inline]
    pub fn arrived(&mut self) -> u32 {
        self.receive.waiting()
    }

    /// All frames that wait at this moment, and chunks for more.
    pub fn backlog(&mut self) -> (u32, u32) {
        (self.receive.waiting_now(), self.fill.waiting())
    }

    /// How many descriptors were ever taken from the receive ring, by whomever; it wraps.
    pub fn position(&self) -> u32 {
        self.receive.taken()
    }

    /// Where in its chunk a frame to be sent begins.
    pub fn lead(&self) -> u32 {
        self.lead
    }

    /// Whether the checksum of a frame to be sent is another's to make: the field is to hold the sum of the pseudo-header.
    #[inline]
    pub fn makes_sums(&self) -> bool {
        self.lead != 0
    }

    /// Where `length` bytes of a frame to be sent are to be written in the chunk at `chunk`; `None`: they do not fit.
    #[inline]
    pub fn room(&self, chunk: u64, length: usize) -> Option<*mut u8> {
        let fits = length <= (self.shape.chunk - self.lead) as usize;
        self.umem.at(chunk + u64::from(self.lead), length).filter(|_| fits)
    }

    /// Puts a frame of `length` bytes, which was written into the chunk, in the transmit ring; false: it is full. Its UDP header begins
    /// at `udp`. [`Socket::kick`] makes the kernel look.
    #[inline]
    pub fn put(&mut self, chunk: u64, length: u32, udp: usize) -> bool {
        let mut options = 0;
        if self.lead != 0 {
            let Some(lead) = self.umem.at(chunk, size_of::<Metadata>()) else { return false };
            let metadata =
                Metadata { flags: libc::XDP_TXMD_FLAGS_CHECKSUM.into(), from: udp as u16, at: 6, reserved: 0, launch: 0 };
            // SAFETY: inside the memory, in front of the frame.
            unsafe { lead.cast::<Metadata>().write_unaligned(metadata) };
            options = libc::XDP_TX_METADATA;
        }
        self.push(chunk, length, options)
    }

    /// As [`Socket::put`], of a frame that has its checksum.
    #[inline]
    pub fn put_whole(&mut self, chunk: u64, length: u32) -> bool {
        self.push(chunk, length, 0)
    }

    #[inline]
    fn push(&mut self, chunk: u64, length: u32, options: u32) -> bool {
        let pushed = self.transmit.push(Descriptor { offset: chunk + u64::from(self.lead), length, options });
        if self.notes.is_some() && pushed {
            self.note_put(chunk, length);
        }
        pushed
    }

    /// Frames in the transmit ring that the kernel has not read.
    #[inline]
    pub fn unsent(&self) -> u32 {
        self.transmit.waiting()
    }

    /// Tells the kernel to send what is in the transmit ring: at most 32 frames in copy mode.
    ///
    /// Errors: ENETDOWN (interface is down), ENXIO (the queue is gone), ENOBUFS and EAGAIN (the interface or the socket's
    /// buffer is full: kick again later). Not an error here: EAGAIN because more than 32 wait, see [`Socket::unsent`].
    #[inline]
    pub fn kick(&mut self) -> Result<(), Errno> {
        if !self.transmit.need_wakeup() {
            return Ok(());
        }
        match calls::sendto(self.fd, core::ptr::null(), 0, libc::MSG_DONTWAIT, core::ptr::null(), 0) {
            Ok(_) | Err(Errno(libc::EAGAIN | libc::EBUSY)) => Ok(()),
            Err(errno) => Err(errno),
        }
    }

    /// Wakes the receiving side of an interface that waits for chunks, or that only moves when asked.
    #[inline]
    pub fn prod(&mut self) {
        if self.fill.need_wakeup() {
            let _ = calls::recvfrom(
                self.fd,
                core::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                core::ptr::null_mut(),
                core::ptr::null_mut(),
            );
        }
    }

    /// The offset of a frame that was sent (or thrown away by the interface): its chunk is free again.
    #[inline]
    pub fn sent(&mut self) -> Option<u64> {
        self.completion.pop()
    }

    /// What the kernel counted for this socket.
    ///
    /// Errors: what getsockopt(2) answers.
    pub fn statistics(&self) -> Result<Statistics, Errno> {
        let mut statistics = Statistics::default();
        let mut size = size_of::<Statistics>() as u32;
        calls::getsockopt(self.fd, libc::SOL_XDP, libc::XDP_STATISTICS, (&raw mut statistics).cast(), &mut size)?;
        Ok(statistics)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = calls::close(self.fd);
    }
}

/// `struct xdp_statistics`: frames that the kernel dropped.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Dropped for other reasons.
    pub dropped: u64,
    /// Offsets in the fill ring that are no chunk.
    pub invalid_free: u64,
    /// Descriptors in the transmit ring that are no frame.
    pub invalid_sent: u64,
    /// Dropped because the receive ring was full.
    pub receive_full: u64,
    /// Dropped because the fill ring was empty.
    pub fill_empty: u64,
    /// Looks into an empty transmit ring.
    pub transmit_empty: u64,
}
