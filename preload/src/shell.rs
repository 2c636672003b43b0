//! system(3) and popen(3): their shells have every descriptor that is not closed on exec, as any other program.
//!
//! The C library starts both past our hooks. `system` is done here, in the C library's order, with our own posix_spawn, so
//! that nothing of this process changes while a shell runs. `popen` stays the C library's, for its kind of `FILE`: what the
//! shell needs is let through, and told by the environment, for the moment in which it is started.

use crate::exec::{self, Strings};
use crate::real;
use crate::spawn::{Attributes, Request};
use core::ffi::{c_char, c_int, c_void, CStr};
use shunt_calls::libc::{self, SIG_BLOCK, SIG_SETMASK};
use shunt_sockets::global::{self, Shared, SETUP};
use shunt_sockets::image;
use shunt_sockets::inherit::{self, Way, VARIABLE};
use shunt_sockets::sys::action::{bit, exchange, Action};
use shunt_sockets::sys::cancel::guarded;
use shunt_sockets::sys::{calls, process};

extern "C" {
    fn putenv(text: *mut c_char) -> c_int;
    fn unsetenv(name: *const c_char) -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn gnu_get_libc_version() -> *const c_char;
}

const SHELL: &CStr = c"/bin/sh";

/// Calls of system that are under way, and what SIGINT and SIGQUIT did before the first of them.
struct Running {
    count: u32,
    before: [Action; 2],
}

static RUNNING: Shared<Running> = Shared::new(Running { count: 0, before: [Action::of(libc::SIG_DFL); 2] });

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
                *before = exchange(signal, &Action::of(libc::SIG_IGN));
            }
            if before.handler != libc::SIG_IGN {
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
                exchange(signal, before);
            }
        }
    }
    let _ = calls::sigprocmask(SIG_SETMASK, &mask, core::ptr::null_mut(), 8);
}

/// Since 2.38 the C library's shells take a command that begins with a minus sign for a command.
fn marks_end_of_options() -> bool {
    // SAFETY: a C string that lives as long as the process.
    let version = unsafe { CStr::from_ptr(gnu_get_libc_version()) }.to_bytes();
    let minor = version.strip_prefix(b"2.").unwrap_or(b"99");
    minor.iter().take_while(|byte| byte.is_ascii_digit()).fold(0, |sum, byte| sum * 10 + u32::from(byte - b'0')) >= 38
}

/// Starts `sh -c command`; the errno of what failed.
unsafe fn start(command: *const c_char, mask: u64, defaults: u64) -> Result<c_int, c_int> {
    let attributes = Attributes::of_signals(defaults, mask);
    let marked = [c"sh".as_ptr(), c"-c".as_ptr(), c"--".as_ptr(), command, core::ptr::null()];
    let plain = [c"sh".as_ptr(), c"-c".as_ptr(), command, core::ptr::null()];
    let arguments: Strings = if marks_end_of_options() { marked.as_ptr() } else { plain.as_ptr() };
    let mut pid = -1;
    // SAFETY: arguments and attributes live until the shell has begun; the environment is the process's.
    let error = unsafe {
        let attributes: *const c_void = (&raw const attributes).cast();
        let request =
            Request { pid: &mut pid, file: SHELL.as_ptr(), searched: false, actions: core::ptr::null(), attributes, arguments };
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

/// The C library's own waitpid, a cancellation point.
unsafe fn wait(pid: c_int, status: &mut c_int) -> c_int {
    loop {
        // SAFETY: passed on.
        let result = unsafe { waitpid(pid, status, 0) };
        // SAFETY: the C library's errno of this thread.
        if result != -1 || unsafe { *crate::__errno_location() } != libc::EINTR {
            return result;
        }
    }
}

/// As the C library's system (sysdeps/posix/system.c).
unsafe fn run(command: *const c_char) -> c_int {
    /// W_EXITCODE(127, 0): as if the shell could not execute the command.
    const NO_SHELL: c_int = 127 << 8;
    let (mask, defaults) = signals_begin();
    let mut status = -1;
    // SAFETY: the caller's command.
    let started = unsafe { start(command, mask, defaults) };
    match started {
        Ok(pid) => {
            // SAFETY: the status is ours.
            let waited = guarded(|| unsafe { wait(pid, &mut status) });
            match waited {
                Ok(waited) if waited == pid => {}
                Ok(_) => status = -1,
                Err(_cancelled) => {
                    let _ = calls::kill(pid, libc::SIGKILL);
                    process::reap(pid);
                }
            }
        }
        Err(_) => status = NO_SHELL,
    }
    crate::keeping_errno(|| signals_end(mask));
    if let Err(error) = started {
        crate::set_errno(error);
    }
    status
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

#[no_mangle]
unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    // SAFETY: as popen(3).
    let start = || unsafe { real::popen(command, mode) };
    if !global::ready() {
        return start();
    }
    let way = Way::Spawn(&inherit::kept_over_exec);
    inherit::prepare(&way);
    let mut handed = inherit::hand(&way, false);
    if handed.text.is_empty() {
        return start();
    }
    // SAFETY: the text lies in static memory.
    inherit::shell_begins(&handed.text, |text| unsafe {
        putenv(text.with_nul().as_ptr().cast_mut().cast());
    });
    let result = start();
    crate::keeping_errno(|| {
        let mut name = [0u8; 32];
        name[..VARIABLE.len()].copy_from_slice(VARIABLE.as_bytes());
        // SAFETY: a C string.
        inherit::shell_ends(|| unsafe {
            unsetenv(name.as_ptr().cast());
        });
        if result.is_null() {
            handed.take_back();
        }
    });
    result
}
