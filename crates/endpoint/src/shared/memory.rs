//! The memory of one endpoint: made sealed, attached with checks.

use super::queue::Queue;
use super::registry::{ChannelEntry, Registry};
use super::{is_safe_to_map, CacheLine, SendDescriptor, SEALS};
use crate::area::{Area, Segment};
use crate::counters::Counters;
use crate::direct::{ExportEntry, EXPORTS};
use crate::error::AttachError;
use crate::message::Arrival;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use shunt_sys::{calls, libc, mapping, Errno};

/// First word: "shuntend".
const MAGIC: u64 = u64::from_le_bytes(*b"shuntend");
/// Version of everything in this memory.
const VERSION: u32 = 1;
const PAGE: usize = 4096;

/// How large an endpoint is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Channels in the registry; a power of two, at most 65,536.
    pub channels: u32,
    /// Entries of the send queue; a power of two.
    pub send: u32,
    /// Entries of the receive queue; a power of two.
    pub receive: u32,
    /// Entries of the free queue; a power of two.
    pub free: u32,
    /// Bytes of the communication segment; a multiple of 4,096.
    pub segment: u32,
    /// Bytes that the device keeps for itself; a multiple of 4,096.
    pub device: u32,
}

impl Shape {
    /// 64 channels, queues of 256, a segment of 1 MiB.
    pub const SMALL: Shape = Shape { channels: 64, send: 256, receive: 256, free: 256, segment: 1 << 20, device: 0 };

    const fn is_valid(&self) -> bool {
        const fn queue(capacity: u32) -> bool {
            capacity.is_power_of_two() && capacity <= 1 << 16
        }
        const fn bytes(size: u32) -> bool {
            (size as usize).is_multiple_of(PAGE) && size <= 1 << 30
        }
        queue(self.channels)
            && queue(self.send)
            && queue(self.receive)
            && queue(self.free)
            && bytes(self.segment)
            && bytes(self.device)
    }
}

/// Where everything lies, counted from the start of the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Layout {
    shape: Shape,
    index: usize,
    send: usize,
    receive: usize,
    free: usize,
    device: usize,
    segment: usize,
    size: usize,
}

const fn aligned(offset: usize, to: usize) -> usize {
    offset.div_ceil(to) * to
}

impl Layout {
    /// Bytes of the whole memory.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The layout of a shape; `None` if a number is not what [`Shape`] says.
    pub const fn new(shape: Shape) -> Option<Layout> {
        if !shape.is_valid() {
            return None;
        }
        let index = PAGE + shape.channels as usize * core::mem::size_of::<ChannelEntry>();
        let send = aligned(index + Registry::index_size(shape.channels), 128);
        let receive = aligned(send + Queue::<SendDescriptor>::size(shape.send), 128);
        let free = aligned(receive + Queue::<Arrival>::size(shape.receive), 128);
        let device = aligned(free + Queue::<Area>::size(shape.free), PAGE);
        let segment = device + shape.device as usize;
        Some(Layout { shape, index, send, receive, free, device, segment, size: segment + shape.segment as usize })
    }
}

/// The first page.
#[repr(C, align(4096))]
pub struct Header {
    magic: AtomicU64,
    version: AtomicU32,
    device: AtomicU32,
    shape: [AtomicU32; 6],
    /// What the device keeps of how it was made.
    pub device_words: [AtomicU64; 4],
    /// The thread that drives the endpoint, for `shunt_ring::lock`; its owners agree to take it.
    pub lock: CacheLine<AtomicU32>,
    /// 1 while the owner sleeps on the descriptor.
    pub armed: CacheLine<AtomicU32>,
    /// What happened so far.
    pub counters: CacheLine<Counters>,
    /// Memory that peers may update.
    pub exports: CacheLine<[ExportEntry; EXPORTS]>,
}

const _: () = assert!(core::mem::size_of::<Header>() == PAGE);

/// The memory of an endpoint, mapped in this process: the private handle. Dropping it unmaps and closes.
pub struct Memory {
    base: *mut u8,
    fd: i32,
    layout: Layout,
    /// Bytes of address space behind the segment, for what a device maps there.
    extra: usize,
}

// SAFETY: the handle is used by one thread at a time; what it points to is shared by design.
unsafe impl Send for Memory {}

impl Memory {
    /// Makes the memory of an endpoint of device number `device`: a sealed memfd, so it cannot shrink under a process that maps
    /// it.
    ///
    /// # Errors
    /// EINVAL for a shape that is none; what the system answers.
    pub fn create(device: u32, shape: Shape) -> Result<Memory, Errno> {
        Memory::create_with(device, shape, 0)
    }

    /// As [`Memory::create`], with `extra` bytes of address space right behind the segment, where a device may map more.
    ///
    /// # Errors
    /// As for [`Memory::create`].
    pub fn create_with(device: u32, shape: Shape, extra: usize) -> Result<Memory, Errno> {
        let layout = Layout::new(shape).ok_or(Errno(libc::EINVAL))?;
        let fd = calls::memfd_create(b"shunt-endpoint\0", libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)?;
        let sized = calls::ftruncate(fd, layout.size as i64)
            .and_then(|()| calls::fcntl(fd, libc::F_ADD_SEALS, SEALS as usize))
            .and_then(|_| map(fd, layout.size, extra));
        let base = match sized {
            Ok(base) => base,
            Err(error) => {
                let _ = calls::close(fd);
                return Err(error);
            }
        };
        let memory = Memory { base, fd, layout, extra };
        let header = memory.header();
        let Shape { channels, send, receive, free, segment, device: kept } = shape;
        for (word, value) in header.shape.iter().zip([channels, send, receive, free, segment, kept]) {
            word.store(value, Relaxed);
        }
        header.device.store(device, Relaxed);
        header.version.store(VERSION, Relaxed);
        header.magic.store(MAGIC, Relaxed);
        Ok(memory)
    }

    /// Maps the memory behind `fd`, which was inherited or handed over and belongs to the handle from now on (also on
    /// failure).
    ///
    /// # Errors
    /// [`AttachError`]: what is wrong with it.
    pub fn attach(fd: i32, device: u32) -> Result<Memory, AttachError> {
        Memory::attach_with(fd, device, |_| 0)
    }

    /// As [`Memory::attach`], with so many bytes of address space behind the segment as `extra` says of the shape.
    ///
    /// # Errors
    /// As for [`Memory::attach`].
    pub fn attach_with(fd: i32, device: u32, extra: impl Fn(&Shape) -> usize) -> Result<Memory, AttachError> {
        let attached = Memory::checked(fd, device, extra);
        if attached.is_err() {
            let _ = calls::close(fd);
        }
        attached
    }

    fn checked(fd: i32, device: u32, extra: impl Fn(&Shape) -> usize) -> Result<Memory, AttachError> {
        // SAFETY: plain integers.
        let mut status: libc::stat = unsafe { core::mem::zeroed() };
        calls::fstat(fd, &mut status).map_err(AttachError::System)?;
        let size = status.st_size as usize;
        if !is_safe_to_map(fd, size) {
            return Err(AttachError::Unsealed);
        }
        if size < PAGE {
            return Err(AttachError::Layout);
        }
        let layout = Memory::judge(fd, device, size)?;
        let extra = extra(&layout.shape);
        let base = map(fd, size, extra).map_err(AttachError::System)?;
        Ok(Memory { base, fd, layout, extra })
    }

    /// Reads the first page, once.
    fn judge(fd: i32, device: u32, size: usize) -> Result<Layout, AttachError> {
        let page = mapping::shared(fd, PAGE).map_err(AttachError::System)?;
        // SAFETY: a page is mapped there, and cannot be cut off; atomics accept any bytes.
        let header: &Header = unsafe { &*page.cast() };
        let word = |index: usize| header.shape[index].load(Relaxed);
        let (channels, send, receive, free, segment) = (word(0), word(1), word(2), word(3), word(4));
        let layout = Layout::new(Shape { channels, send, receive, free, segment, device: word(5) });
        let verdict = if header.magic.load(Relaxed) != MAGIC {
            Err(AttachError::Magic)
        } else if header.version.load(Relaxed) != VERSION {
            Err(AttachError::Version)
        } else if header.device.load(Relaxed) != device {
            Err(AttachError::Device)
        } else {
            layout.filter(|layout| layout.size == size).ok_or(AttachError::Layout)
        };
        let _ = calls::munmap(page, PAGE);
        verdict
    }

    /// The memfd, to be handed to another process of the same owner. Close-on-exec.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// The memfd got another number.
    pub fn renumber(&mut self, from: i32, to: i32) {
        if self.fd == from {
            self.fd = to;
        }
    }

    /// How large the endpoint is.
    pub fn shape(&self) -> &Shape {
        &self.layout.shape
    }

    #[inline(always)]
    fn at(&self, offset: usize) -> *mut u8 {
        // SAFETY: offsets of the layout lie inside the mapping.
        unsafe { self.base.add(offset) }
    }

    /// The first page.
    #[inline(always)]
    pub fn header(&self) -> &Header {
        // SAFETY: mapped as long as the handle lives, page-aligned; atomics accept any bytes.
        unsafe { &*self.base.cast() }
    }

    /// The lock of those who drive.
    pub fn lock(&self) -> &AtomicU32 {
        &self.header().lock.0
    }

    /// The counters.
    #[inline(always)]
    pub fn counters(&self) -> &Counters {
        &self.header().counters.0
    }

    /// The channels.
    #[inline(always)]
    pub fn registry(&self) -> Registry<'_> {
        // SAFETY: inside the mapping by the layout, aligned, as many as the shape says.
        unsafe { Registry::at(self.at(PAGE).cast(), self.at(self.layout.index).cast(), self.layout.shape.channels) }
    }

    /// The send queue.
    #[inline(always)]
    pub fn send_queue(&self) -> Queue<'_, SendDescriptor> {
        // SAFETY: as for the registry.
        unsafe { Queue::<SendDescriptor>::at(self.at(self.layout.send), self.layout.shape.send) }
    }

    /// The receive queue.
    #[inline(always)]
    pub fn receive_queue(&self) -> Queue<'_, Arrival> {
        // SAFETY: as for the registry.
        unsafe { Queue::<Arrival>::at(self.at(self.layout.receive), self.layout.shape.receive) }
    }

    /// The free queue.
    #[inline(always)]
    pub fn free_queue(&self) -> Queue<'_, Area> {
        // SAFETY: as for the registry.
        unsafe { Queue::<Area>::at(self.at(self.layout.free), self.layout.shape.free) }
    }

    /// What the device keeps: `shape.device` bytes, page-aligned, zero at first.
    #[inline(always)]
    pub fn device_part(&self) -> *mut u8 {
        self.at(self.layout.device)
    }

    /// The communication segment.
    #[inline(always)]
    pub fn segment(&self) -> Segment {
        // SAFETY: inside the mapping; the handle's owner keeps it as long as it uses the segment.
        unsafe { Segment::new(self.at(self.layout.segment), self.layout.shape.segment) }
    }

    /// The segment with the address space behind it.
    #[inline(always)]
    pub fn segment_with_extra(&self) -> Segment {
        // SAFETY: reserved, so readable and writable, even where no device has mapped anything.
        unsafe { Segment::new(self.at(self.layout.segment), self.layout.shape.segment + self.extra as u32) }
    }

    /// All of it, where it is mapped: for devices that make it known to an interface.
    pub fn whole(&self) -> (*mut u8, usize) {
        (self.base, self.layout.size)
    }

    /// Offset of the communication segment in the memfd: for devices that map or register it themselves.
    pub fn segment_offset(&self) -> usize {
        self.layout.segment
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let _ = calls::munmap(self.base, self.layout.size + self.extra);
        let _ = calls::close(self.fd);
    }
}

/// Maps the memfd, with `extra` bytes of blank memory behind it.
fn map(fd: i32, size: usize, extra: usize) -> Result<*mut u8, Errno> {
    if extra == 0 {
        return mapping::shared(fd, size);
    }
    let base = mapping::reserve(size + extra)?;
    // SAFETY: reserved just now, and nothing refers to it.
    match unsafe { mapping::shared_over(base, fd, size) } {
        Ok(base) => Ok(base),
        Err(error) => {
            let _ = calls::munmap(base, size + extra);
            Err(error)
        }
    }
}
