//! FILEs that this library knows: those that it opened, those of popen(3), and those that stand for stdin, stdout and stderr.

use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicPtr, Ordering};
use shunt_conventions::files::{List, Slot};
use shunt_table::table;
use shunt_table::table::Kind;

extern "C" {
    fn __fpending(stream: *mut c_void) -> usize;
    fn fflush_unlocked(stream: *mut c_void) -> c_int;
}

/// See the head of this file.
pub struct Files {
    /// FILEs of ours.
    pub opened: List,
    /// FILEs of popen, and their shells.
    pub piped: List,
    /// stdin, stdout and stderr as the C library made them, while ours stand in their places.
    pub original: [AtomicPtr<c_void>; 3],
    /// FILEs of ours to stand there. They are made at the start, because dup2 must not allocate: a handler may call it, and so may
    /// the child of a process whose other threads held the allocator's locks at the fork. Null: the program has closed it.
    pub standing: [AtomicPtr<c_void>; 3],
    /// Where the C library's variables are, looked up at the start: dlsym takes the loader's lock.
    pub variables: [AtomicPtr<*mut c_void>; 3],
}

/// All of them.
pub static FILES: Files = Files {
    opened: List::new(),
    piped: List::new(),
    original: [const { AtomicPtr::new(core::ptr::null_mut()) }; 3],
    standing: [const { AtomicPtr::new(core::ptr::null_mut()) }; 3],
    variables: [const { AtomicPtr::new(core::ptr::null_mut()) }; 3],
};

fn variable(fd: c_int) -> *mut *mut c_void {
    FILES.variables[fd.clamp(0, 2) as usize].load(Ordering::Acquire)
}

/// The number of a FILE of ours.
pub fn number(stream: *mut c_void) -> Option<c_int> {
    if stream.is_null() {
        return None;
    }
    if let Some(fd) = FILES.standing.iter().position(|ours| ours.load(Ordering::Acquire) == stream) {
        return Some(fd as c_int);
    }
    FILES.opened.find(stream).map(Slot::fd)
}

/// Whether the C library's own read and write would pass by what shared memory holds.
pub fn ours(fd: c_int) -> bool {
    table::get(fd).kind() == Kind::Stream || shunt_inbox::datagram::is(fd)
}

/// At the end of the process: sends what waits in FILEs on sockets, and before it what waits in standard output, which
/// others may expect when they see a connection end. Without the FILEs' locks, as the C library does at the end.
pub fn flush() {
    // SAFETY: FILEs that have not been closed; the variable is the C library's.
    unsafe {
        let standard = variable(1);
        let standard = if standard.is_null() { core::ptr::null_mut() } else { *standard };
        let opened = FILES.opened.entered().map(Slot::stream);
        let ours = FILES.standing.iter().map(|stream| stream.load(Ordering::Acquire)).chain(opened);
        for stream in core::iter::once(standard).chain(ours) {
            if !stream.is_null() && __fpending(stream) > 0 {
                fflush_unlocked(stream);
            }
        }
    }
}

/// Descriptor `fd` (0 to 2) is another file now: its FILE follows if a stream is concerned.
pub fn follow(fd: c_int) {
    // SAFETY: the C library's variables, which programs may assign as well.
    unsafe {
        let place = variable(fd);
        if place.is_null() {
            return;
        }
        let original = &FILES.original[fd as usize];
        let standing = FILES.standing[fd as usize].load(Ordering::Acquire);
        if ours(fd) {
            if number(*place) != Some(fd) && !standing.is_null() {
                let _ = original.compare_exchange(core::ptr::null_mut(), *place, Ordering::AcqRel, Ordering::Relaxed);
                *place = standing;
            }
        } else if !original.load(Ordering::Acquire).is_null() && !standing.is_null() && *place == standing {
            *place = original.load(Ordering::Acquire);
        }
    }
}
