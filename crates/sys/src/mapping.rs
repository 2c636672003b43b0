//! Memory straight from the kernel: for tables, slabs and segments.

use crate::{calls, Result};

/// Reserves `size` bytes of zeroed private memory; pages cost nothing until touched.
///
/// Errors: ENOMEM when the address space is limited (RLIMIT_AS).
pub fn reserve(size: usize) -> Result<*mut u8> {
    // SAFETY: a fresh anonymous mapping disturbs nothing.
    unsafe {
        calls::mmap(
            core::ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    }
}

/// Zeroed memory for the length of a call that needs much of it: a program's thread may have a stack of 16 KiB (PTHREAD_STACK_MIN), of which
/// the kernel's call would take nothing.
pub struct Room {
    base: *mut u8,
    size: usize,
}

impl Room {
    /// Of `size` bytes.
    ///
    /// Errors: as for [`reserve`].
    pub fn new(size: usize) -> Result<Room> {
        reserve(size).map(|base| Room { base, size })
    }

    /// Its bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the mapping, which is this value's.
        unsafe { core::slice::from_raw_parts_mut(self.base, self.size) }
    }

    /// Where it begins: at a page.
    pub fn start(&mut self) -> *mut u8 {
        self.base
    }

    /// The same, to be read.
    pub fn first(&self) -> *const u8 {
        self.base
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = calls::munmap(self.base, self.size);
    }
}

/// Reserves `size` bytes of zeroed memory that children of fork share.
///
/// Errors: as for [`reserve`].
pub fn reserve_for_children(size: usize) -> Result<*mut u8> {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping disturbs nothing.
    unsafe { calls::mmap(core::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) }
}

/// Keeps `size` bytes of address space free for a mapping that is to come.
///
/// Errors: as for [`reserve`].
pub fn range(size: usize) -> Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh anonymous mapping disturbs nothing.
    unsafe { calls::mmap(core::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0) }
}

/// Maps `size` bytes of the file `fd` shared, anywhere.
pub fn shared(fd: i32, size: usize) -> Result<*mut u8> {
    // SAFETY: a fresh mapping disturbs nothing.
    unsafe { calls::mmap(core::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, 0) }
}

/// Maps `size` bytes of the file `fd` shared, to be read only, anywhere.
pub fn shared_to_read(fd: i32, size: usize) -> Result<*mut u8> {
    // SAFETY: a fresh mapping disturbs nothing.
    unsafe { calls::mmap(core::ptr::null_mut(), size, libc::PROT_READ, libc::MAP_SHARED, fd, 0) }
}

/// Maps the first `size` bytes of the file `fd`, to be read only, anywhere. Nobody is kept from sealing it against writing.
pub fn private_to_read(fd: i32, size: usize) -> Result<*mut u8> {
    // SAFETY: a fresh mapping disturbs nothing.
    unsafe { calls::mmap(core::ptr::null_mut(), size, libc::PROT_READ, libc::MAP_PRIVATE, fd, 0) }
}

/// Maps `size` bytes of the file `fd` from `offset` on shared, anywhere.
pub fn shared_part(fd: i32, offset: usize, size: usize) -> Result<*mut u8> {
    // SAFETY: a fresh mapping disturbs nothing.
    unsafe { calls::mmap(core::ptr::null_mut(), size, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED, fd, offset as i64) }
}

/// Maps `size` bytes of the file `fd` shared over an existing mapping at `address`.
///
/// # Safety
/// `address` is the start of a mapping of at least `size` bytes that nothing refers to any more, or whose
/// readers accept any bytes.
pub unsafe fn shared_over(address: *mut u8, fd: i32, size: usize) -> Result<*mut u8> {
    // SAFETY: passed on to the caller.
    unsafe { calls::mmap(address, size, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED, fd, 0) }
}

/// As [`shared_over`], from `offset` of the file on.
///
/// # Safety
/// As for [`shared_over`].
pub unsafe fn shared_part_over(address: *mut u8, fd: i32, offset: usize, size: usize) -> Result<*mut u8> {
    let flags = libc::MAP_SHARED | libc::MAP_FIXED;
    // SAFETY: passed on to the caller.
    unsafe { calls::mmap(address, size, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset as i64) }
}

/// Maps a private copy of the first `size` bytes of the file `fd` over an existing mapping at `address`.
///
/// # Safety
/// As for [`shared_over`].
pub unsafe fn private_over(address: *mut u8, fd: i32, size: usize) -> Result<*mut u8> {
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
    // SAFETY: passed on to the caller.
    unsafe { calls::mmap(address, size, libc::PROT_READ | libc::PROT_WRITE, flags, fd, 0) }
}

/// Moves private memory from `from` over an existing mapping at `to`; zeros take its place. Needs Linux 5.7.
///
/// # Safety
/// As for [`shared_over`], for both.
pub unsafe fn move_over(from: *mut u8, to: *mut u8, size: usize) -> Result<()> {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    // SAFETY: passed on to the caller.
    crate::check(unsafe { crate::syscall!(libc::SYS_mremap, from, size, size, flags, to) }).map(|_| ())
}

/// As [`blank`], for memory of others that must not stay in sight: where nothing can be mapped, not because locked memory would
/// grow either, it is unmapped. True: it is blank.
///
/// # Safety
/// As for [`shared_over`].
pub unsafe fn blank_at_any_price(address: *mut u8, size: usize) -> bool {
    // SAFETY: passed on to the caller.
    unsafe {
        if blank(address, size).is_ok() {
            return true;
        }
        let _ = calls::munlock(address, size);
        if blank(address, size).is_ok() {
            return true;
        }
    }
    let _ = calls::munmap(address, size);
    false
}

/// Replaces a mapping by zeroed private memory that costs nothing: late readers see zeros, never a fault.
///
/// # Safety
/// As for [`shared_over`].
pub unsafe fn blank(address: *mut u8, size: usize) -> Result<*mut u8> {
    // SAFETY: passed on to the caller.
    unsafe {
        calls::mmap(
            address,
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED,
            -1,
            0,
        )
    }
}
