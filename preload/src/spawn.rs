//! posix_spawn of a program that cannot take the library, or with file actions that would close what ours needs.
//!
//! The C library's child shares the parent's memory and table until its exec, past our hooks. A program without shunt must
//! be given other descriptors than the parent has, so its child is a copy made here, which does what the attributes and
//! file actions ask (posix_spawn(3), in the C library's order) and then goes through our own exec.

use crate::exec::Strings;
use crate::{copies, exec, hooks, real};
use core::ffi::{c_char, c_int, c_void};
use core::sync::atomic::Ordering;
use shunt_calls::libc::{self, SIG_SETMASK};
use shunt_conventions::actions::{self, Action, Attributes, FileActions};
use shunt_conventions::actions::{CHDIR, CLOSE, CLOSEFROM, DUP2, FCHDIR, OPEN, TERMINAL};
use shunt_handover::inherit::{kept_over_exec, Text};
use shunt_sockets::process;
use shunt_sys as sys;
use shunt_sys::action::{bit, current, exchange, Action as Disposition};
use shunt_sys::{calls, syscall};
use shunt_table::table::Kind;
use shunt_table::{private, table};

/// What the caller asked for, but for the environment.
pub struct Request {
    /// Where the child's number goes; may be null.
    pub pid: *mut c_int,
    /// The program.
    pub file: *const c_char,
    /// Whether PATH is searched for it.
    pub searched: bool,
    /// posix_spawn_file_actions_t, or null.
    pub actions: *const c_void,
    /// posix_spawnattr_t, or null.
    pub attributes: *const c_void,
    /// The arguments.
    pub arguments: Strings,
}

const ALL_SIGNALS: u64 = u64::MAX;

impl Request {
    /// # Safety
    /// The caller's file actions, as in posix_spawn(3).
    unsafe fn actions(&self) -> &[Action] {
        // SAFETY: promised by the caller.
        unsafe { actions::list(self.actions) }
    }

    /// Whether the child has what this process has at `fd`.
    ///
    /// # Safety
    /// As posix_spawn(3).
    pub unsafe fn keeps(&self, fd: c_int) -> bool {
        // SAFETY: the caller's actions.
        unsafe { actions::keeps(self.actions(), fd, kept_over_exec) }
    }

    /// Whether file actions take away numbers that are ours, which the program needs for the descriptors that it inherits.
    ///
    /// # Safety
    /// As posix_spawn(3).
    pub unsafe fn disturbs(&self) -> bool {
        // SAFETY: the caller's actions.
        actions::disturb(unsafe { self.actions() }, |fd| table::get(fd).kind() == Kind::Private)
    }

    /// The file actions, and behind them what makes the child keep the descriptors that `text` names. In this process they
    /// stay closed on exec, so no other child gets them. `None`: no memory.
    ///
    /// # Safety
    /// As posix_spawn(3).
    pub unsafe fn letting_through(&self, text: &Text) -> Option<FileActions> {
        // SAFETY: the caller's actions.
        FileActions::letting_through(unsafe { self.actions() }, text.descriptors())
    }
}

/// posix_spawn(3) by a copy of this process.
///
/// # Safety
/// As the function itself.
pub unsafe fn plain(request: &Request, environment: Strings) -> c_int {
    let mut mask = 0u64;
    let _ = calls::sigprocmask(SIG_SETMASK, &ALL_SIGNALS, &mut mask, 8);
    // SAFETY: the child only prepares an exec.
    let error = match unsafe { copies::bare_fork() } {
        Ok((0, _)) => {
            // SAFETY: the caller's request; this is the child's own copy.
            let error = unsafe { become_program(request, environment, mask) };
            // A file action may have wanted the pipe's number.
            let _ = calls::write(process::awaited().load(Ordering::Relaxed), (&raw const error).cast(), 4);
            crate::end::now(127)
        }
        // SAFETY: the caller's place for the number.
        Ok((child, reader)) => unsafe { await_program(child, reader, request.pid) },
        Err(error) => error.0,
    };
    let _ = calls::sigprocmask(SIG_SETMASK, &mask, core::ptr::null_mut(), 8);
    error
}

/// In the parent: the errno of what failed, or 0 when the child has become the program.
unsafe fn await_program(child: c_int, reader: c_int, pid: *mut c_int) -> c_int {
    let mut error = 0i32;
    if child < 0 {
        error = -child;
    } else {
        while calls::read(reader, (&raw mut error).cast(), 4) == Err(shunt_sys::Errno(libc::EINTR)) {}
        if error != 0 {
            sys::process::reap(child);
        } else if !pid.is_null() {
            // SAFETY: the caller's place for the number.
            unsafe { *pid = child };
        }
    }
    private::close(reader);
    error
}

/// In the child: returns only with the errno of what failed.
unsafe fn become_program(request: &Request, environment: Strings, mut mask: u64) -> c_int {
    // SAFETY: the caller's attributes and actions.
    unsafe {
        if let Some(attributes) = request.attributes.cast::<Attributes>().as_ref() {
            if let Err(error) = apply(attributes) {
                return error;
            }
            if attributes.flags as c_int & libc::POSIX_SPAWN_SETSIGMASK as c_int != 0 {
                mask = attributes.mask[0];
            }
        }
        for action in request.actions() {
            if !act(action) {
                return crate::errno::errno();
            }
        }
        // Handlers are the parent's code; exec resets them in the end, and no signal comes before.
        for signal in 1..=64 {
            reset_handler(signal);
        }
        let _ = calls::sigprocmask(SIG_SETMASK, &mask, core::ptr::null_mut(), 8);
        if request.searched {
            exec::execvpe(request.file, request.arguments, environment);
        } else {
            exec::execve(request.file, request.arguments, environment);
        }
        crate::errno::errno()
    }
}

fn reset_handler(signal: c_int) {
    if current(signal).is_some_and(|now| now.handler != libc::SIG_IGN && now.handler != libc::SIG_DFL) {
        exchange(signal, &Disposition::of(libc::SIG_DFL));
    }
}

unsafe fn apply(attributes: &Attributes) -> Result<(), c_int> {
    const SETSID: c_int = 0x80;
    let has = |flag: c_int| attributes.flags as c_int & flag != 0;
    let done = |result: isize| if result < 0 { Err(-result as c_int) } else { Ok(()) };
    // SAFETY: plain system calls on our own structures.
    unsafe {
        if has(libc::POSIX_SPAWN_SETSIGDEF as c_int) {
            for signal in (1..=64).filter(|signal| attributes.defaults[0] & bit(*signal) != 0) {
                exchange(signal, &Disposition::of(libc::SIG_DFL));
            }
        }
        if has(libc::POSIX_SPAWN_SETSCHEDULER as c_int) {
            done(syscall!(libc::SYS_sched_setscheduler, 0, attributes.policy, &raw const attributes.parameters))?;
        } else if has(libc::POSIX_SPAWN_SETSCHEDPARAM as c_int) {
            done(syscall!(libc::SYS_sched_setparam, 0, &raw const attributes.parameters))?;
        }
        if has(SETSID) {
            done(syscall!(libc::SYS_setsid))?;
        }
        if has(libc::POSIX_SPAWN_SETPGROUP as c_int) {
            done(syscall!(libc::SYS_setpgid, 0, attributes.group))?;
        }
        if has(libc::POSIX_SPAWN_RESETIDS as c_int) {
            done(syscall!(libc::SYS_setresuid, usize::MAX, syscall!(libc::SYS_getuid), usize::MAX))?;
            done(syscall!(libc::SYS_setresgid, usize::MAX, syscall!(libc::SYS_getgid), usize::MAX))?;
        }
    }
    Ok(())
}

/// One file action; false: errno tells.
unsafe fn act(action: &Action) -> bool {
    let [first, second] = action.numbers();
    // SAFETY: the tag tells which words count.
    unsafe {
        match action.tag {
            CLOSE => {
                // glibc: closing what is not open is no error, if the number could be one.
                hooks::close(first);
                true
            }
            DUP2 if first == second => {
                let flags = real::fcntl(first, libc::F_GETFD, 0);
                flags >= 0 && real::fcntl(first, libc::F_SETFD, (flags & !libc::FD_CLOEXEC) as usize) >= 0
            }
            DUP2 => hooks::dup2(first, second) >= 0,
            OPEN => {
                let open = action.open();
                hooks::close(open.fd);
                match calls::openat(libc::AT_FDCWD, open.path.cast(), open.flags, open.mode) {
                    Ok(fd) if fd == open.fd => true,
                    Ok(fd) => {
                        let moved = hooks::dup2(fd, open.fd);
                        let _ = calls::close(fd);
                        moved >= 0
                    }
                    Err(error) => {
                        crate::errno::set_errno(error.0);
                        false
                    }
                }
            }
            CHDIR => kernel(syscall!(libc::SYS_chdir, action.text())),
            FCHDIR => kernel(syscall!(libc::SYS_fchdir, first)),
            CLOSEFROM => {
                hooks::closefrom(first);
                true
            }
            TERMINAL => {
                let group = syscall!(libc::SYS_getpgid, 0) as c_int;
                kernel(syscall!(libc::SYS_ioctl, first, libc::TIOCSPGRP, &raw const group))
            }
            _ => {
                crate::errno::set_errno(libc::EINVAL);
                false
            }
        }
    }
}

fn kernel(result: isize) -> bool {
    if result < 0 {
        crate::errno::set_errno(-result as c_int);
    }
    result >= 0
}
