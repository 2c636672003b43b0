//! system(3) and the shells of popen(3): they have every descriptor that is not closed on exec, as any other program.
//!
//! The C library starts both past our hooks. So they are started here, with our own posix_spawn and in the C library's order:
//! nothing of this process changes while a shell is started, and threads may start several.

use crate::exec::{self, Strings};
use crate::spawn::Request;
use crate::{real, signals};
use core::ffi::{c_char, c_int, c_void, CStr};
use shunt_calls::libc::{self, SIG_BLOCK, SIG_SETMASK};
use shunt_conventions::actions::Attributes;
use shunt_conventions::shells;
use shunt_handover::image;
use shunt_sys::action::bit;
use shunt_sys::{calls, process, sleeping, Errno};
use shunt_table::global;
use shunt_table::global::{LockedCell, SETUP};

extern "C" {
    fn gnu_get_libc_version() -> *const c_char;
}

const SHELL: &CStr = c"/bin/sh";

/// Calls of system that are under way, and what SIGINT and SIGQUIT did before the first of them.
struct Running {
    count: u32,
    before: [libc::sigaction; 2],
}

// SAFETY: all-zero is a valid structure: the default action.
static RUNNING: LockedCell<Running> = LockedCell::new(Running { count: 0, before: unsafe { core::mem::zeroed() } });

const IGNORED: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];

fn running() -> &'static mut Running {
    // SAFETY: the set-up lock is held, as all callers do.
    unsafe { &mut *RUNNING.get() }
}

/// Signals are as system(3) wants them while its shell runs; gives the mask that there was, and the signals that a shell has
/// at their default.
fn signals_begin() -> (u64, u64) {
    let mut defaults = 0;
    if let Some(_setup) = SETUP.lock() {
        let running = running();
        for (signal, before) in IGNORED.into_iter().zip(&mut running.before) {
            if running.count == 0 {
                // SAFETY: structures of our own; all-zero but for the handler means no flags and an empty mask.
                unsafe {
                    let mut ignored = core::mem::zeroed::<libc::sigaction>();
                    ignored.sa_sigaction = libc::SIG_IGN;
                    signals::install(signal, (&raw const ignored).cast(), core::ptr::from_mut(before).cast());
                }
            }
            if before.sa_sigaction != libc::SIG_IGN {
                defaults |= bit(signal);
            }
        }
        running.count += 1;
    }
    let mut mask = 0;
    let _ = calls::sigprocmask(SIG_BLOCK, &bit(libc::SIGCHLD), &mut mask, 8);
    (mask, defaults)
}

fn signals_end(mask: u64) {
    if let Some(_setup) = SETUP.lock() {
        let running = running();
        running.count -= 1;
        if running.count == 0 {
            for (signal, before) in IGNORED.into_iter().zip(&running.before) {
                // SAFETY: what the same function gave.
                unsafe { signals::install(signal, core::ptr::from_ref(before).cast(), core::ptr::null_mut()) };
            }
        }
    }
    let _ = calls::sigprocmask(SIG_SETMASK, &mask, core::ptr::null_mut(), 8);
}

/// Whether `--` stands before a command.
fn marks_end_of_options() -> bool {
    // SAFETY: a C string that lives as long as the process.
    shells::marks_end_of_options(unsafe { CStr::from_ptr(gnu_get_libc_version()) }.to_bytes())
}

/// Starts `sh -c command`; the errno of what failed.
///
/// # Safety
/// The command, and actions and attributes as posix_spawn(3) takes them, or null.
pub unsafe fn start(command: *const c_char, actions: *const c_void, attributes: *const c_void) -> Result<c_int, c_int> {
    let marked = [c"sh".as_ptr(), c"-c".as_ptr(), c"--".as_ptr(), command, core::ptr::null()];
    let plain = [c"sh".as_ptr(), c"-c".as_ptr(), command, core::ptr::null()];
    let arguments: Strings = if marks_end_of_options() { marked.as_ptr() } else { plain.as_ptr() };
    let mut pid = -1;
    let request = Request { pid: &mut pid, file: SHELL.as_ptr(), searched: false, actions, attributes, arguments };
    // SAFETY: the request lives until the shell has begun; the environment is the process's.
    let error = unsafe {
        exec::spawn(&request, exec::environ, judge, |environment, actions| {
            real::posix_spawn(request.pid, SHELL.as_ptr(), actions, attributes, arguments, environment)
        })
    };
    if error == 0 {
        Ok(pid)
    } else {
        Err(error)
    }
}

fn judge() -> image::Start {
    // SAFETY: a C string.
    unsafe { image::judge(libc::AT_FDCWD, SHELL.as_ptr()) }
}

/// As the C library's system (sysdeps/posix/system.c).
unsafe fn run(command: *const c_char) -> c_int {
    /// W_EXITCODE(127, 0): as if the shell could not execute the command.
    const NO_SHELL: c_int = 127 << 8;
    let (mask, defaults) = signals_begin();
    let attributes = Attributes::of_signals(defaults, mask);
    // SAFETY: the caller's command.
    let started = unsafe { start(command, core::ptr::null(), (&raw const attributes).cast()) };
    let ended = started.map(|pid| {
        let ended = sleeping::await_child(pid);
        if ended == Err(Errno(libc::ECANCELED)) {
            let _ = calls::kill(pid, libc::SIGKILL);
            process::reap(pid);
        }
        ended
    });
    signals_end(mask);
    match ended {
        Ok(Ok(status)) => status,
        Ok(Err(error)) => {
            crate::errno::set_errno(error.0);
            -1
        }
        Err(error) => {
            crate::errno::set_errno(error);
            NO_SHELL
        }
    }
}

#[no_mangle]
unsafe extern "C" fn system(command: *const c_char) -> c_int {
    // SAFETY: as system(3).
    unsafe {
        if !global::ready() {
            return real::system(command);
        }
        let _shield = crate::cancel::shield();
        if command.is_null() {
            return (run(c"exit 0".as_ptr()) == 0) as c_int;
        }
        run(command)
    }
}
