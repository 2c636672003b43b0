//! Calls that a kill does not part: setsockopt(2), several at once, as an io_uring's commands (io_uring(7), Linux 6.7). The kernel does them one behind the
//! other within one io_uring_enter(2), and a signal, SIGKILL as well, is looked at when that returns.
//!
//! The ring takes commands to sockets alone, whatever else the process is made to ask of it.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use shunt_sys::{calls, syscall, Errno};

/// Calls in one.
const MOST: u32 = 8;
/// IORING_SETUP_R_DISABLED, IORING_FEAT_SINGLE_MMAP, IORING_ENTER_GETEVENTS.
const DISABLED: u32 = 1 << 6;
const SINGLE_MAPPING: u32 = 1;
const GET_EVENTS: usize = 1;
/// IORING_OFF_SQ_RING, IORING_OFF_SQES.
const RINGS_AT: i64 = 0;
const ENTRIES_AT: i64 = 0x1000_0000;
/// IORING_REGISTER_RESTRICTIONS, IORING_REGISTER_ENABLE_RINGS.
const RESTRICTIONS: usize = 11;
const ENABLE: usize = 12;
/// IORING_RESTRICTION_SQE_OP, IORING_RESTRICTION_SQE_FLAGS_ALLOWED.
const OPERATION: u16 = 1;
const FLAGS: u16 = 2;
/// IORING_OP_URING_CMD, SOCKET_URING_OP_SETSOCKOPT.
const COMMAND: u8 = 46;
const SET_OPTION: u32 = 3;

/// struct io_uring_params.
#[repr(C)]
#[derive(Default)]
struct Parameters {
    entries: [u32; 2],
    flags: u32,
    thread: [u32; 2],
    features: u32,
    attached: [u32; 4],
    submission: Offsets,
    completion: Offsets,
}

/// struct io_sqring_offsets, struct io_cqring_offsets: head, tail, mask, entries; then what differs.
#[repr(C)]
#[derive(Default)]
struct Offsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    /// Of submissions the third is the array of indices; of completions the second is the array of them.
    other: [u32; 6],
}

/// struct io_uring_sqe of a command that sets an option of a socket.
#[repr(C)]
struct Entry {
    operation: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    command: u64,
    level: u32,
    name: u32,
    length: u32,
    command_flags: u32,
    user: u64,
    buffer: u32,
    value_length: u32,
    value: u64,
    none: u64,
}
const _: () = assert!(size_of::<Entry>() == 64 && size_of::<Parameters>() == 120);

/// One option to set.
#[derive(Clone, Copy)]
pub struct Setting {
    /// Level and name.
    pub option: (i32, i32),
    /// Value.
    pub value: i32,
}

/// Where such calls are made.
pub struct Batch {
    ring: OwnedFd,
    rings: *mut u8,
    entries: *mut Entry,
    parameters: Parameters,
}

impl Batch {
    /// Makes one. Errors: ENOSYS, EPERM: the kernel has none, or lets nobody have one; EINVAL: it is older than Linux 6.7, or says so.
    pub fn new() -> Result<Batch, Errno> {
        let mut parameters = Parameters { flags: DISABLED, ..Parameters::default() };
        // SAFETY: the kernel reads and writes the structure, which has the size that it knows.
        let fd = shunt_sys::check(unsafe { syscall!(libc::SYS_io_uring_setup, MOST as usize, &raw mut parameters) })?;
        // SAFETY: the descriptor is new.
        let ring = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        if parameters.features & SINGLE_MAPPING == 0 {
            return Err(Errno(libc::EINVAL));
        }
        let restrictions: [[u16; 8]; 2] = [restriction(OPERATION, COMMAND), restriction(FLAGS, 0)];
        register(&ring, RESTRICTIONS, restrictions.as_ptr() as usize, restrictions.len())?;
        register(&ring, ENABLE, 0, 0)?;
        // Both rings are in one mapping. They stay for the life of the process.
        let [submissions, completions] = parameters.entries;
        let length = (parameters.submission.other[2] + 4 * submissions).max(parameters.completion.other[1] + 16 * completions);
        let rings = map(&ring, (length as usize).next_multiple_of(4096), RINGS_AT)?;
        let entries = map(&ring, (MOST as usize * size_of::<Entry>()).next_multiple_of(4096), ENTRIES_AT)?.cast();
        Ok(Batch { ring, rings, entries, parameters })
    }

    /// Sets the options of the socket `fd`, all of them, in this order. Errors: the first one's of them.
    pub fn set(&mut self, fd: i32, settings: &[Setting]) -> Result<(), Errno> {
        let (submission, completion) = (&self.parameters.submission, &self.parameters.completion);
        let (indices, results) = (submission.other[2], completion.other[1]);
        let mask = self.word(submission.mask).load(Ordering::Relaxed);
        let tail = self.word(submission.tail).load(Ordering::Relaxed);
        let count = settings.len().min(MOST as usize) as u32;
        for (i, setting) in settings.iter().take(MOST as usize).enumerate() {
            let place = tail.wrapping_add(i as u32) & mask;
            let entry = Entry {
                operation: COMMAND,
                flags: 0,
                priority: 0,
                fd,
                command: u64::from(SET_OPTION),
                level: setting.option.0 as u32,
                name: setting.option.1 as u32,
                length: 0,
                command_flags: 0,
                user: i as u64,
                buffer: 0,
                value_length: 4,
                value: (&raw const setting.value) as u64,
                none: 0,
            };
            // SAFETY: the mask keeps the place within the entries that the kernel made, which are mapped; nobody else writes there.
            unsafe { self.entries.add(place as usize).write(entry) };
            self.word(indices + 4 * place).store(place, Ordering::Relaxed);
        }
        self.word(submission.tail).store(tail.wrapping_add(count), Ordering::Release);
        let enter = || {
            let (count, none) = (count as usize, 0usize);
            // SAFETY: the entries point to values that outlive the call, which is done with them when it returns: it waits for all.
            shunt_sys::check(unsafe {
                syscall!(libc::SYS_io_uring_enter, self.ring.as_raw_fd(), count, count, GET_EVENTS, none, none)
            })
        };
        let entered = enter();
        let mut result = if entered == Ok(count as usize) { Ok(()) } else { Err(entered.err().unwrap_or(Errno(libc::EIO))) };
        let mask = self.word(completion.mask).load(Ordering::Relaxed);
        let mut head = self.word(completion.head).load(Ordering::Relaxed);
        while head != self.word(completion.tail).load(Ordering::Acquire) {
            // struct io_uring_cqe: user data, result, flags.
            let told = self.word(results + 16 * (head & mask) + 8).load(Ordering::Relaxed) as i32;
            if told < 0 && result.is_ok() {
                result = Err(Errno(-told));
            }
            head = head.wrapping_add(1);
        }
        self.word(completion.head).store(head, Ordering::Release);
        result
    }

    fn word(&self, at: u32) -> &AtomicU32 {
        // SAFETY: the kernel tells offsets of aligned words within the mapping, which lives as long as this.
        unsafe { &*self.rings.add(at as usize).cast() }
    }
}

/// struct io_uring_restriction: what kind of rule, and the operation or the flags.
fn restriction(kind: u16, allowed: u8) -> [u16; 8] {
    [kind, u16::from(allowed), 0, 0, 0, 0, 0, 0]
}

fn register(ring: &OwnedFd, what: usize, argument: usize, count: usize) -> Result<(), Errno> {
    // SAFETY: the kernel reads so many structures.
    shunt_sys::check(unsafe { syscall!(libc::SYS_io_uring_register, ring.as_raw_fd(), what, argument, count) }).map(|_| ())
}

fn map(ring: &OwnedFd, length: usize, at: i64) -> Result<*mut u8, Errno> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_SHARED | libc::MAP_POPULATE;
    // SAFETY: a new range.
    unsafe { calls::mmap(core::ptr::null_mut(), length, protection, flags, ring.as_raw_fd(), at) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, UdpSocket};

    #[test]
    fn options_are_set_in_order_and_the_first_error_is_told() {
        let Ok(mut batch) = Batch::new() else { return };
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a socket");
        let fd = socket.as_raw_fd();
        let option = (libc::SOL_SOCKET, libc::SO_PRIORITY);
        let get = || calls::getsockopt_int(fd, option.0, option.1);
        for turn in 0..100 {
            let values = [turn % 5, 6, turn % 3];
            assert_eq!(batch.set(fd, &values.map(|value| Setting { option, value })), Ok(()));
            assert_eq!(get(), Ok(turn % 3));
        }
        let wrong = Setting { option: (libc::SOL_SOCKET, 9999), value: 1 };
        assert_eq!(batch.set(fd, &[wrong, Setting { option, value: 5 }]), Err(Errno(libc::ENOPROTOOPT)));
        assert_eq!(get(), Ok(5), "those behind are made");
    }
}
