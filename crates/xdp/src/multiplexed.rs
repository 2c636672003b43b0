//! The emulated endpoint: queues in shared memory, of which the agent is the other end.

use core::sync::atomic::{fence, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};

use shunt_endpoint::shared::{Memory, SendDescriptor};
use shunt_endpoint::{Area, Channel, Gather, SendError, INLINE};
use shunt_sys::{calls, libc, Errno};
use shunt_wire::endpoint::Kind;

use crate::state::STATE;

/// In [`SendDescriptor::kind`], besides the frame's: the one area lies in the device part of the memory, not in the segment.
pub const BOUNCED: u32 = 1 << 8;

const PAGE: usize = 4096;

/// What the agent tells all its endpoints: a page that they cannot write.
#[repr(C)]
pub struct AgentPage {
    /// 1 while the agent sleeps: a thread that has something to send rings.
    pub asleep: AtomicU32,
}

/// The private half.
pub struct Multiplexed {
    doorbell: i32,
    page_fd: i32,
    page: *const AgentPage,
    chunk: u32,
}

// SAFETY: the page is mapped as long as this value lives, and atomic.
unsafe impl Send for Multiplexed {}

impl Multiplexed {
    /// With the agent's doorbell (owned from now on) and its page (a copy of that descriptor is kept).
    pub fn new(doorbell: i32, page: i32, chunk: u32) -> Result<Multiplexed, Errno> {
        let made = (|| {
            let page_fd = calls::fcntl(page, libc::F_DUPFD_CLOEXEC, 0)?;
            // SAFETY: a fresh mapping disturbs nothing.
            let mapped = unsafe { calls::mmap(core::ptr::null_mut(), PAGE, libc::PROT_READ, libc::MAP_SHARED, page_fd, 0) };
            match mapped {
                Ok(address) => Ok((page_fd, address)),
                Err(errno) => {
                    let _ = calls::close(page_fd);
                    Err(errno)
                }
            }
        })();
        match made {
            Ok((page_fd, address)) => Ok(Multiplexed { doorbell, page_fd, page: address.cast(), chunk }),
            Err(errno) => {
                let _ = calls::close(doorbell);
                Err(errno)
            }
        }
    }

    /// The descriptor of the doorbell.
    pub fn doorbell(&self) -> i32 {
        self.doorbell
    }

    /// The descriptor of the agent's page.
    pub fn page(&self) -> i32 {
        self.page_fd
    }

    /// A descriptor got another number.
    pub(crate) fn renumber(&mut self, from: i32, to: i32) {
        for fd in [&mut self.doorbell, &mut self.page_fd] {
            if *fd == from {
                *fd = to;
            }
        }
    }

    /// Puts a message on the send queue; bytes of the program are copied into the chunk that belongs to the queue's entry.
    #[inline]
    pub fn send(&mut self, memory: &Memory, channel: Channel, gather: &Gather<'_>, kind: Kind) -> Result<(), SendError> {
        let queue = memory.send_queue();
        let mut descriptor = match gather.descriptor(channel.0, 0) {
            Some(descriptor) => descriptor,
            None => {
                if queue.len() == queue.capacity() {
                    return self.refuse(memory);
                }
                self.bounced(memory, channel, gather, queue.tail() & (queue.capacity() - 1))?
            }
        };
        descriptor.kind |= kind as u32;
        match queue.put(&descriptor) {
            Ok(()) => Ok(()),
            Err(_) => self.refuse(memory),
        }
    }

    fn refuse(&mut self, memory: &Memory) -> Result<(), SendError> {
        self.flush(memory);
        Err(SendError::NoResource)
    }

    fn bounced(&self, memory: &Memory, channel: Channel, gather: &Gather<'_>, entry: u32) -> Result<SendDescriptor, SendError> {
        let mut descriptor = SendDescriptor::empty();
        descriptor.channel = channel.0;
        let head = gather.len().min(INLINE);
        // SAFETY: at most INLINE bytes.
        let mut copied = unsafe { gather.copy_to(0, descriptor.head.as_mut_ptr(), head) };
        descriptor.head_length = head as u32;
        let rest = gather.len() - head;
        if rest > 0 {
            let area = Area::new(STATE as u32 + entry * self.chunk, rest as u32);
            if area.end() > memory.shape().device.into() || rest > self.chunk as usize {
                return Err(SendError::TooLarge);
            }
            // SAFETY: inside the device part.
            copied &= unsafe { gather.copy_to(head, memory.device_part().add(area.offset as usize), rest) };
            (descriptor.areas[0], descriptor.count, descriptor.kind) = (area, 1, BOUNCED);
        }
        copied.then_some(descriptor).ok_or(SendError::Fault)
    }

    /// Wakes the agent if it sleeps and something waits; true: nothing does.
    #[inline]
    pub fn flush(&mut self, memory: &Memory) -> bool {
        if memory.send_queue().is_empty() {
            return true;
        }
        // Either the agent, which says that it sleeps and then looks once more, sees what was put, or we see that it sleeps.
        fence(SeqCst);
        // SAFETY: mapped as long as this value lives.
        if unsafe { (*self.page).asleep.load(Relaxed) } != 0 {
            let one = 1u64;
            let _ = calls::write(self.doorbell, (&raw const one).cast(), 8);
        }
        false
    }
}

impl Drop for Multiplexed {
    fn drop(&mut self) {
        let _ = calls::munmap(self.page.cast_mut().cast(), PAGE);
        let _ = calls::close(self.page_fd);
        let _ = calls::close(self.doorbell);
    }
}
