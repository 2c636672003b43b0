//! Processes and threads: copies, ends, limits.

use crate::{cancel, raw_calls, real};
use core::ffi::{c_char, c_int, c_uint, c_void};
use shunt_calls::libc::{self, rlimit};
use shunt_sockets::process::user_change::Call;
use shunt_sockets::process::{namespace, user_change};
use shunt_sys::{calls, user as memory};
use shunt_table::limits;
use shunt_table::process::split_fd_tables;
use shunt_table::table::Kind;
use shunt_table::upcalls::operations;
use shunt_table::{global, table};

#[no_mangle]
unsafe extern "C" fn pthread_cancel(thread: usize) -> c_int {
    // SAFETY: as the function itself.
    unsafe { cancel::pthread_cancel(thread) }
}

#[no_mangle]
unsafe extern "C" fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int {
    // SAFETY: as the function itself.
    unsafe { cancel::pthread_setcanceltype(kind, old) }
}

/// The C library has put a terminal, or /dev/null, on the standard descriptors by calls of its own.
unsafe fn standard_are_others() {
    for fd in 0..3 {
        if !matches!(table::get(fd).kind(), Kind::Foreign | Kind::Private) {
            operations::closing(fd);
            crate::standard::follow(fd);
        }
    }
}

/// A call that changes the user.
fn change_user(call: Call, made: impl FnOnce() -> c_int) -> c_int {
    if !global::ready() {
        return made();
    }
    crate::errno::keeping_errno(|| user_change::changing(&call));
    let result = made();
    if result == 0 {
        crate::errno::keeping_errno(user_change::changed);
    }
    result
}

/// How many threads the process has: each has a directory (proc(5)).
fn threads() -> Option<u64> {
    let directory = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC;
    let fd = calls::openat(libc::AT_FDCWD, c"/proc/self/task".as_ptr().cast(), directory, 0).ok()?;
    let known = calls::status_of(fd);
    let _ = calls::close(fd);
    known.ok().map(|status| status.st_nlink.saturating_sub(2))
}

/// Does `part`, by which this thread gets descriptors of its own while others go on with theirs; ENOMEM: they cannot be told apart.
pub fn with_own_descriptors(part: impl FnOnce() -> c_int) -> c_int {
    shunt_pipes::kept_pipes::settle_all();
    if !global::ready() || global::single_threaded() || threads() == Some(1) {
        return part();
    }
    let Some(parting) = split_fd_tables::begin() else {
        crate::errno::set_errno(libc::ENOMEM);
        return -1;
    };
    let result = part();
    if result == 0 {
        parting.done();
    }
    result
}

/// Address space of the descriptor table and other constant parts of this library.
const OWN_SPACE: u64 = 32 << 20;

unsafe fn widened(resource: c_int, limit: *const rlimit) -> Option<rlimit> {
    if resource != libc::RLIMIT_AS as c_int || !global::ready() {
        return None;
    }
    // SAFETY: the caller's limits, which may fault: that is the kernel's to say.
    let mut wider = unsafe { memory::read(limit) }.ok()?;
    let _setup = global::SETUP.lock()?;
    let ours = shunt_link::address_space() + OWN_SPACE;
    wider.rlim_cur = wider.rlim_cur.saturating_add(ours);
    wider.rlim_max = wider.rlim_max.saturating_add(ours);
    // Only root may go beyond the hard limit that there is.
    let mut now = libc::rlimit64 { rlim_cur: 0, rlim_max: u64::MAX };
    let _ = calls::prlimit(0, resource as u32, core::ptr::null(), &mut now);
    wider.rlim_max = wider.rlim_max.min(now.rlim_max);
    wider.rlim_cur = wider.rlim_cur.min(wider.rlim_max);
    Some(wider)
}

hook! {
    fn pthread_create(thread: *mut usize, attributes: *const c_void, function: *mut c_void, argument: *mut c_void) -> c_int {
        raw_calls::threads::with(function, argument, |function, argument| real::pthread_create(thread, attributes, function, argument))
    }
    fn thrd_create(thread: *mut usize, function: *mut c_void, argument: *mut c_void) -> c_int {
        raw_calls::threads::with(function, argument, |function, argument| real::thrd_create(thread, function, argument))
    }
    fn fork() -> c_int {
        crate::copies::fork()
    }
    fn _Fork() -> c_int {
        crate::copies::fork_without_handlers()
    }
    fn vfork() -> c_int {
        crate::copies::vfork()
    }
    fn __vfork() -> c_int {
        crate::copies::vfork()
    }
    fn clone(function: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent_tid: usize, tls: usize, child_tid: usize) -> c_int {
        crate::copies::clone(function, stack, flags, argument, parent_tid, tls, child_tid)
    }
    fn unshare(flags: c_int) -> c_int {
        let concerns = flags & libc::CLONE_NEWNET != 0;
        if concerns {
            namespace::changing();
        }
        let part = || real::unshare(flags);
        let result = if flags & libc::CLONE_FILES != 0 { with_own_descriptors(part) } else { part() };
        if result == 0 && concerns {
            crate::errno::keeping_errno(namespace::changed);
        }
        result
    }
    fn setns(fd: c_int, kind: c_int) -> c_int {
        // 0: whatever the descriptor is.
        let concerns = kind == 0 || kind & libc::CLONE_NEWNET != 0;
        if concerns {
            namespace::changing();
        }
        let result = real::setns(fd, kind);
        if result == 0 && concerns {
            crate::errno::keeping_errno(namespace::changed);
        }
        result
    }
    fn setuid(user: c_uint) -> c_int {
        change_user(Call::Set(user), || real::setuid(user))
    }
    fn seteuid(user: c_uint) -> c_int {
        change_user(Call::All(u32::MAX, user, u32::MAX), || real::seteuid(user))
    }
    fn setreuid(real: c_uint, effective: c_uint) -> c_int {
        change_user(Call::RealEffective(real, effective), || real::setreuid(real, effective))
    }
    fn setresuid(real: c_uint, effective: c_uint, saved: c_uint) -> c_int {
        change_user(Call::All(real, effective, saved), || real::setresuid(real, effective, saved))
    }
    fn prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int {
        raw_calls::filters::control(option, [a, b], || real::prctl(option, a, b, c, d))
    }
    fn login_tty(fd: c_int) -> c_int {
        let result = real::login_tty(fd);
        if result == 0 {
            standard_are_others();
            if fd > 2 {
                table::take(fd);
            }
        }
        result
    }
    fn forkpty(master: *mut c_int, name: *mut c_char, settings: *const c_void, size: *const c_void) -> c_int {
        let result = real::forkpty(master, name, settings, size);
        if result == 0 {
            standard_are_others();
        }
        result
    }
    fn daemon(nochdir: c_int, noclose: c_int) -> c_int {
        let result = real::daemon(nochdir, noclose);
        if result == 0 && noclose == 0 {
            standard_are_others();
        }
        result
    }
    /// The program's limit on its address space does not mean ours: what links take is added, and hidden again.
    fn setrlimit(resource: c_int, limit: *const rlimit) -> c_int {
        if global::ready() {
            shunt_sockets::process::confinement::before_limit(resource, limit);
        }
        let result = match widened(resource, limit) {
            Some(limit) => real::setrlimit(resource, &limit),
            None => real::setrlimit(resource, limit),
        };
        limits::limit_changed(resource);
        result
    }
    fn setrlimit64(resource: c_int, limit: *const rlimit) -> c_int {
        setrlimit(resource, limit)
    }
    fn prlimit(process: c_int, resource: c_int, limit: *const rlimit, old: *mut rlimit) -> c_int {
        let result = real::prlimit(process, resource, limit, old);
        if !limit.is_null() {
            limits::limit_changed(resource);
        }
        result
    }
    fn prlimit64(process: c_int, resource: c_int, limit: *const rlimit, old: *mut rlimit) -> c_int {
        prlimit(process, resource, limit, old)
    }
}
