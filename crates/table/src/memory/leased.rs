//! Memory of a call that a handler may leave by a jump, and would never give back.
//!
//! Each piece is noted in the thread's block with the call to which it belongs, an address in the call's frame. A call that
//! begins has no memory yet, so what the list holds for its own frame or for frames below is left over, and is given back;
//! what lies above belongs to a call that the handler it runs in has interrupted.

use shunt_sys::section::Section;
use shunt_sys::{calls, libc, mapping, syscall, thread, Result};

/// What stands before the memory.
#[repr(C, align(64))]
struct Lease {
    next: *mut Lease,
    /// Bytes of the mapping.
    size: usize,
    /// An address in the frame of the call, by which it is known.
    frame: usize,
}

/// A call begins, in whose frame `frame` lies.
#[inline]
pub fn begin(frame: usize) {
    // SAFETY: the calling thread's own block.
    if unsafe { (*thread::block()).leases } != 0 {
        give_back_abandoned(frame);
    }
}

/// `size` bytes of zeros for the call that began with `frame`.
///
/// Errors: ENOMEM.
pub fn reserve(size: usize, frame: usize) -> Result<*mut u8> {
    let size = size + core::mem::size_of::<Lease>();
    let _section = Section::begin();
    // SAFETY: the calling thread's own block.
    unsafe {
        let block = thread::block();
        let lease = mapping::reserve(size)?.cast::<Lease>();
        lease.write(Lease { next: (*block).leases as *mut Lease, size, frame });
        (*block).leases = lease as usize;
        Ok(lease.add(1).cast())
    }
}

/// Gives memory back.
///
/// # Safety
/// It is [`reserve`]'s, and unused from now on.
pub unsafe fn release(memory: *mut u8) {
    let _section = Section::begin();
    // SAFETY: promised by the caller; as above.
    unsafe {
        let lease = memory.cast::<Lease>().sub(1);
        let mut link = &raw mut (*thread::block()).leases;
        while *link != 0 && *link != lease as usize {
            link = (&raw mut (*(*link as *mut Lease)).next).cast();
        }
        if *link != 0 {
            *link = (*lease).next as usize;
        }
        let _ = calls::munmap(lease.cast(), (*lease).size);
    }
}

/// Calls of `frame` and below are gone, unless this is a handler on a stack of its own: then where they lie tells nothing.
#[cold]
#[inline(never)]
fn give_back_abandoned(frame: usize) {
    let _section = Section::begin();
    // SAFETY: a structure of our own; leases of this thread.
    unsafe {
        let mut stack: libc::stack_t = core::mem::zeroed();
        if syscall!(libc::SYS_sigaltstack, 0, &raw mut stack) != 0 || stack.ss_flags & libc::SS_ONSTACK != 0 {
            return;
        }
        let mut link = &raw mut (*thread::block()).leases;
        while *link != 0 {
            let lease = *link as *mut Lease;
            if (*lease).frame <= frame {
                *link = (*lease).next as usize;
                let _ = calls::munmap(lease.cast(), (*lease).size);
            } else {
                link = (&raw mut (*lease).next).cast();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_was_left_is_given_back_and_an_interrupted_call_keeps_its_own() {
        // SAFETY: this thread's block.
        let listed = || unsafe { (*shunt_sys::thread::block()).leases };
        std::thread::spawn(move || {
            super::begin(2000);
            let kept = super::reserve(100, 2000).unwrap();
            // A handler's call, below; it is left by a jump, and so is the next one at its place.
            for _ in 0..2 {
                super::begin(1000);
                super::reserve(10_000, 1000).unwrap();
                super::reserve(10_000, 1000).unwrap();
            }
            super::begin(1500);
            let only = listed();
            // SAFETY: reserved above; of several pieces any may go first.
            unsafe {
                let (first, second) = (super::reserve(100, 1500).unwrap(), super::reserve(100, 1500).unwrap());
                super::release(first);
                super::release(second);
                assert_eq!(listed(), only);
                kept.write(1);
                super::release(kept);
            }
            assert_eq!(listed(), 0);
        })
        .join()
        .unwrap();
    }
}
