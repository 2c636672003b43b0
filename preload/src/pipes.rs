//! popen(3): a pipe, a shell at its other end, and a FILE of the C library's, whose end waits for the shell.
//!
//! As the C library's own (libio/iopopen.c), but that it is told which FILEs those are by a list.

use crate::errno::set_errno;
use crate::standard::FILES;
use crate::{real, shell};
use core::ffi::{c_char, c_int, c_void, CStr};
use shunt_calls::libc::{self, ECHILD, EINVAL, ENOMEM, F_DUPFD_CLOEXEC, F_GETFD, F_SETFD};
use shunt_conventions::actions::FileActions;
use shunt_conventions::modes;
use shunt_handover::inherit::in_turn;
use shunt_sys::{calls, process, Errno};
use shunt_table::global;

extern "C" {
    fn fflush(stream: *mut c_void) -> c_int;
    fn fwide(stream: *mut c_void, mode: c_int) -> c_int;
}

/// Two ends of a pipe, closed on exec: ours, and that of a shell that is to have it at `number`.
fn pipe(reads: bool, number: c_int) -> Result<(c_int, c_int), Errno> {
    let mut ends = [-1; 2];
    calls::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC)?;
    let (ours, mut theirs) = if reads { (ends[0], ends[1]) } else { (ends[1], ends[0]) };
    // In its place already, it would stay closed on exec.
    if theirs == number {
        let moved = calls::fcntl(theirs, F_DUPFD_CLOEXEC, 0);
        let _ = calls::close(theirs);
        theirs = moved.inspect_err(|_| {
            let _ = calls::close(ours);
        })?;
    }
    Ok((ours, theirs))
}

/// The errno of what failed.
unsafe fn open(command: *const c_char, mode: *const c_char) -> Result<*mut c_void, c_int> {
    // SAFETY: a C string.
    let (reads, closed_on_exec) = modes::of_pipe(unsafe { CStr::from_ptr(mode) }.to_bytes()).ok_or(EINVAL)?;
    // Where the shell has its end: standard output or input.
    let number = reads as c_int;
    let (ours, theirs) = pipe(reads, number).map_err(|error| error.0)?;
    // SAFETY: a descriptor of our own.
    let stream = unsafe { real::fdopen(ours, if reads { c"r" } else { c"w" }.as_ptr()) };
    if !stream.is_null() {
        // SAFETY: as before. The C library's own have bytes only.
        unsafe { fwide(stream, -1) };
    }
    let slot = if stream.is_null() { None } else { FILES.piped.reserve(ours) };
    let started = slot.ok_or(ENOMEM).and_then(|slot| {
        in_turn(|| {
            let others = FILES.piped.entered().map(|other| other.fd()).filter(|other| *other >= 0 && *other != number);
            let actions = FileActions::putting(theirs, number, others).ok_or(ENOMEM)?;
            // SAFETY: the caller's command.
            let child = unsafe { shell::start(command, actions.address(), core::ptr::null()) }.map_err(|_| ENOMEM)?;
            if !closed_on_exec {
                let _ = calls::fcntl(ours, F_SETFD, 0);
            }
            FILES.piped.enter(slot, stream, child);
            Ok(())
        })
    });
    let _ = calls::close(theirs);
    if started.is_err() {
        if let Some(slot) = slot {
            FILES.piped.forsake(slot);
        }
        // SAFETY: a FILE of our own, or a descriptor.
        unsafe {
            if stream.is_null() {
                let _ = calls::close(ours);
            } else {
                real::fclose(stream);
            }
        }
    }
    started.map(|()| stream)
}

/// Closes a FILE of popen's; `None`: it is another.
unsafe fn close(stream: *mut c_void) -> Option<c_int> {
    let slot = FILES.piped.find(stream)?;
    let (shell, open) = (slot.child(), calls::fcntl(slot.fd(), F_GETFD, 0).is_ok());
    // What waits is sent first, which may take long: until then a new shell must not have this pipe.
    // SAFETY: the program's FILE.
    let flushed = unsafe { fflush(stream) };
    FILES.piped.leave(slot);
    // SAFETY: as before.
    let closed = flushed | unsafe { real::fclose(stream) };
    if !open {
        return Some(closed);
    }
    Some(match process::reap(shell) {
        Some(0) => closed,
        Some(status) => status,
        None => {
            set_errno(ECHILD);
            -1
        }
    })
}

#[no_mangle]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    // SAFETY: as popen(3).
    unsafe {
        if !global::ready() {
            return real::popen(command, mode);
        }
        let _shield = crate::cancel::shield();
        open(command, mode).unwrap_or_else(|error| {
            set_errno(error);
            core::ptr::null_mut()
        })
    }
}

#[no_mangle]
unsafe extern "C" fn pclose(stream: *mut c_void) -> c_int {
    let _shield = crate::cancel::shield();
    // SAFETY: as pclose(3).
    unsafe { close(stream).unwrap_or_else(|| real::pclose(stream)) }
}

#[no_mangle]
unsafe extern "C" fn fclose(stream: *mut c_void) -> c_int {
    let _shield = crate::cancel::shield();
    // SAFETY: as fclose(3).
    unsafe { close(stream).unwrap_or_else(|| real::fclose(stream)) }
}
