//! The four rings that an AF_XDP socket shares with the kernel (Documentation/networking/af_xdp.rst).
//!
//! A ring has one producer and one consumer, each with a free-running 32-bit position in shared memory. Only those two
//! words are the truth: [`Producer`] and [`Consumer`] keep a copy of the *other* side's word, which may be as old as it
//! likes, because a stale copy is only ever cautious, and one that became absurd is loaded again. So any number of
//! processes can map one ring and take turns with it, under a lock of theirs, and none hands state on.

use core::sync::atomic::{AtomicU32, Ordering};

use shunt_sys::{calls, libc, Errno, Result};

/// The flag of a ring by which the kernel asks to be called (XDP_RING_NEED_WAKEUP).
const NEED_WAKEUP: u32 = 1;

/// Which of the rings of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Frames that arrived: the kernel produces.
    Receive,
    /// Frames to be sent: we produce.
    Transmit,
    /// Free chunks for frames to come: we produce.
    Fill,
    /// Chunks whose frame was sent: the kernel produces.
    Completion,
}

impl Kind {
    /// The option of SOL_XDP that makes the ring.
    pub const fn option(self) -> i32 {
        match self {
            Kind::Receive => libc::XDP_RX_RING,
            Kind::Transmit => libc::XDP_TX_RING,
            Kind::Fill => libc::XDP_UMEM_FILL_RING,
            Kind::Completion => libc::XDP_UMEM_COMPLETION_RING,
        }
    }

    fn page_offset(self) -> usize {
        (match self {
            Kind::Receive => libc::XDP_PGOFF_RX_RING as u64,
            Kind::Transmit => libc::XDP_PGOFF_TX_RING as u64,
            Kind::Fill => libc::XDP_UMEM_PGOFF_FILL_RING,
            Kind::Completion => libc::XDP_UMEM_PGOFF_COMPLETION_RING,
        }) as usize
    }
}

/// What the receive and transmit rings hold (`struct xdp_desc`).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Where the frame begins in the registered memory, in bytes.
    pub offset: u64,
    /// Bytes of the frame.
    pub length: u32,
    /// XDP_PKT_CONTD and friends; 0 for a whole frame.
    pub options: u32,
}

impl Descriptor {
    /// Whether the frame goes on in the next one's chunk.
    #[inline(always)]
    pub fn goes_on(&self) -> bool {
        self.options & libc::XDP_PKT_CONTD != 0
    }
}

/// A mapped ring, and the address of its parts.
struct Mapped<T> {
    address: *mut u8,
    size: usize,
    producer: *const AtomicU32,
    consumer: *const AtomicU32,
    flags: *const AtomicU32,
    slots: *mut T,
    mask: u32,
}

// SAFETY: the pointers lead into a mapping that this value owns; the words are atomics, and slots are reached through
// `&mut` of the one producer or consumer.
unsafe impl<T: Send> Send for Mapped<T> {}

/// Where the parts of a ring lie in its mapping, and where that begins in its file.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    pub begin: usize,
    pub producer: usize,
    pub consumer: usize,
    pub flags: usize,
    pub slots: usize,
}

impl Places {
    /// As the kernel names them for the socket `fd`.
    fn of(fd: i32, kind: Kind) -> Result<Places> {
        // SAFETY: four structures of integers; the kernel fills them.
        let mut all: libc::xdp_mmap_offsets = unsafe { core::mem::zeroed() };
        let mut size = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
        calls::getsockopt(fd, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, (&raw mut all).cast(), &mut size)?;
        if size as usize != size_of::<libc::xdp_mmap_offsets>() {
            // A kernel before 5.4: no flags, and no way to be told of a wake-up.
            return Err(Errno(libc::EOPNOTSUPP));
        }
        let part = match kind {
            Kind::Receive => all.rx,
            Kind::Transmit => all.tx,
            Kind::Fill => all.fr,
            Kind::Completion => all.cr,
        };
        let [producer, consumer, flags, slots] = [part.producer, part.consumer, part.flags, part.desc].map(|at| at as usize);
        Ok(Places { begin: kind.page_offset(), producer, consumer, flags, slots })
    }
}

impl<T: Copy> Mapped<T> {
    /// Maps the ring of `length` slots (a power of two) that `fd` has there.
    fn new(fd: i32, places: &Places, length: u32) -> Result<Mapped<T>> {
        if !length.is_power_of_two() {
            return Err(Errno(libc::EINVAL));
        }
        let size = places.slots + length as usize * size_of::<T>();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
        // SAFETY: a fresh mapping disturbs nothing.
        let address = unsafe { calls::mmap(core::ptr::null_mut(), size, protection, flags, fd, places.begin as i64)? };
        // SAFETY: the maker of the ring names places inside it.
        unsafe {
            Ok(Mapped {
                address,
                size,
                producer: address.add(places.producer).cast(),
                consumer: address.add(places.consumer).cast(),
                flags: address.add(places.flags).cast(),
                slots: address.add(places.slots).cast(),
                mask: length - 1,
            })
        }
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: aligned by the kernel, inside the mapping, which lives as long as `self`.
        unsafe { &*self.producer }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as above.
        unsafe { &*self.consumer }
    }

    fn need_wakeup(&self) -> bool {
        // SAFETY: as above.
        unsafe { (*self.flags).load(Ordering::Relaxed) & NEED_WAKEUP != 0 }
    }
}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        let _ = calls::munmap(self.address, self.size);
    }
}

/// Our end of a ring that the kernel consumes.
pub struct Producer<T> {
    ring: Mapped<T>,
    /// The kernel's position when we last looked.
    seen: u32,
}

impl<T: Copy> Producer<T> {
    /// Maps the ring; see [`Kind`] for the two that we produce.
    ///
    /// Errors: EINVAL for a length that is no power of two, what mmap(2) answers.
    pub fn map(fd: i32, kind: Kind, length: u32) -> Result<Producer<T>> {
        Producer::map_at(fd, &Places::of(fd, kind)?, length)
    }

    /// The same of a ring that lies elsewhere.
    pub(crate) fn map_at(fd: i32, places: &Places, length: u32) -> Result<Producer<T>> {
        let ring = Mapped::new(fd, places, length)?;
        let seen = ring.consumer().load(Ordering::Relaxed);
        Ok(Producer { ring, seen })
    }

    /// Slots that can be filled now; at least `wanted` if there are so many.
    #[inline]
    pub fn room(&mut self, wanted: u32) -> u32 {
        let produced = self.ring.producer().load(Ordering::Relaxed);
        let mut used = produced.wrapping_sub(self.seen);
        // More used than there are slots: others moved both words on since we looked.
        if used > self.ring.mask + 1 || self.ring.mask + 1 - used < wanted {
            // Acquire pairs with the kernel's release of slots that it has read.
            self.seen = self.ring.consumer().load(Ordering::Acquire);
            used = produced.wrapping_sub(self.seen);
        }
        (self.ring.mask + 1).saturating_sub(used)
    }

    /// Puts `value` in the next slot and publishes it; false: the ring is full.
    #[inline]
    pub fn push(&mut self, value: T) -> bool {
        if self.room(1) == 0 {
            return false;
        }
        let produced = self.ring.producer().load(Ordering::Relaxed);
        // SAFETY: masked, so inside; the slot is free, so the kernel does not read it.
        unsafe { self.ring.slots.add((produced & self.ring.mask) as usize).write_volatile(value) };
        // Release publishes the slot to the kernel's acquire.
        self.ring.producer().store(produced.wrapping_add(1), Ordering::Release);
        true
    }

    /// Slots that the kernel has not consumed yet.
    #[inline]
    pub fn waiting(&self) -> u32 {
        let consumed = self.ring.consumer().load(Ordering::Acquire);
        self.ring.producer().load(Ordering::Relaxed).wrapping_sub(consumed)
    }

    /// Whether the kernel asks for a call before it goes on.
    #[inline]
    pub fn need_wakeup(&self) -> bool {
        self.ring.need_wakeup()
    }

    /// What was put into the slot of a position last.
    #[inline]
    pub fn at(&self, position: u32) -> T {
        // SAFETY: masked, so inside; any bytes are a T (integers), and only our side writes them.
        unsafe { self.ring.slots.add((position & self.ring.mask) as usize).read_volatile() }
    }
}

/// Our end of a ring that the kernel produces.
pub struct Consumer<T> {
    ring: Mapped<T>,
    /// The kernel's position when we last looked.
    seen: u32,
}

impl<T: Copy> Consumer<T> {
    /// Maps the ring; see [`Kind`] for the two that we consume.
    ///
    /// Errors: as for [`Producer::map`].
    pub fn map(fd: i32, kind: Kind, length: u32) -> Result<Consumer<T>> {
        Consumer::map_at(fd, &Places::of(fd, kind)?, length)
    }

    /// The same of a ring that lies elsewhere.
    pub(crate) fn map_at(fd: i32, places: &Places, length: u32) -> Result<Consumer<T>> {
        let ring = Mapped::new(fd, places, length)?;
        let seen = ring.consumer().load(Ordering::Relaxed);
        Ok(Consumer { ring, seen })
    }

    /// Slots that wait.
    #[inline]
    pub fn waiting(&mut self) -> u32 {
        let consumed = self.ring.consumer().load(Ordering::Relaxed);
        let mut waiting = self.seen.wrapping_sub(consumed);
        if waiting == 0 || waiting > self.ring.mask + 1 {
            // Acquire pairs with the kernel's release of slots that it has written.
            self.seen = self.ring.producer().load(Ordering::Acquire);
            waiting = self.seen.wrapping_sub(consumed);
        }
        waiting.min(self.ring.mask + 1)
    }

    /// All slots that wait at this moment: [`Consumer::waiting`] looks again only when those that it has seen are taken.
    #[inline]
    pub fn waiting_now(&mut self) -> u32 {
        // Acquire, as there.
        self.seen = self.ring.producer().load(Ordering::Acquire);
        self.waiting()
    }

    /// Values taken so far, by every process that has the ring; wraps.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.ring.consumer().load(Ordering::Relaxed)
    }

    /// Asks for the line of the next value before it is there.
    #[inline]
    pub fn prefetch(&self) {
        // SAFETY: a hint about an address inside the mapping.
        unsafe { prefetch(self.ring.slots.add((self.taken() & self.ring.mask) as usize).cast()) };
    }

    /// Takes the oldest value.
    #[inline]
    pub fn pop(&mut self) -> Option<T> {
        if self.waiting() == 0 {
            return None;
        }
        let consumed = self.ring.consumer().load(Ordering::Relaxed);
        // SAFETY: masked, so inside; published, so the kernel does not write it. Any bytes are a T (integers).
        let value = unsafe { self.ring.slots.add((consumed & self.ring.mask) as usize).read_volatile() };
        // Release gives the slot back after it was read.
        self.ring.consumer().store(consumed.wrapping_add(1), Ordering::Release);
        Some(value)
    }

    /// The value that is `ahead` behind the oldest.
    pub fn peek(&mut self, ahead: u32) -> Option<T> {
        let at = self.taken().wrapping_add(ahead);
        // SAFETY: as in `pop`.
        (ahead < self.waiting_now()).then(|| unsafe { self.ring.slots.add((at & self.ring.mask) as usize).read_volatile() })
    }

    /// Whether the kernel asks for a call before it goes on.
    #[inline]
    pub fn need_wakeup(&self) -> bool {
        self.ring.need_wakeup()
    }
}

/// Asks for a line of cache.
///
/// # Safety
/// None of its own: a hint.
#[inline(always)]
pub(crate) unsafe fn prefetch(address: *const u8) {
    // SAFETY: a hint faults nowhere.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(address.cast()) };
}

/// Asks for a ring of `length` slots.
///
/// Errors: what setsockopt(2) answers for SOL_XDP: EINVAL for a length that is no power of two, ENOMEM.
pub fn make(fd: i32, kind: Kind, length: u32) -> Result<()> {
    calls::setsockopt_int(fd, libc::SOL_XDP, kind.option(), length as i32)
}
