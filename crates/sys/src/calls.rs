//! Typed system calls, one line each. Names and meanings are those of section 2 of the manual.

use crate::{check, filter, syscall, Errno, Result};
use core::ffi::c_void;
use libc::{c_int, epoll_event, iovec, msghdr, pollfd, sigset_t, sockaddr, socklen_t, timespec};

/// Size of the kernel's signal set in bytes.
pub const KERNEL_SIGSET: usize = 8;

#[inline(always)]
fn descriptor(value: isize) -> Result<c_int> {
    check(value).map(|v| v as c_int)
}

#[inline(always)]
fn unit(value: isize) -> Result<()> {
    check(value).map(|_| ())
}

macro_rules! calls {
    ($($(#[$doc:meta])* $name:ident ( $($arg:ident : $ty:ty),* ) -> $ret:ty = $conv:path, $number:ident;)*) => {
        $(
            $(#[$doc])*
            #[inline]
            pub fn $name($($arg: $ty),*) -> $ret {
                // SAFETY: the pointers are the caller's to vouch for by type (references) or are checked by the
                // kernel, which answers EFAULT; no Rust memory is handed out.
                $conv(unsafe { syscall!(libc::$number $(, $arg)*) })
            }
        )*
    };
}

fn value(v: isize) -> u32 {
    v as u32
}
fn raw(v: isize) -> isize {
    v
}

calls! {
    /// socket(2)
    socket(domain: c_int, kind: c_int, protocol: c_int) -> Result<c_int> = descriptor, SYS_socket;
    /// bind(2)
    bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> Result<()> = unit, SYS_bind;
    /// listen(2)
    listen(fd: c_int, backlog: c_int) -> Result<()> = unit, SYS_listen;
    /// connect(2)
    connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> Result<()> = unit, SYS_connect;
    /// getsockname(2)
    getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> Result<()> = unit, SYS_getsockname;
    /// getpeername(2)
    getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> Result<()> = unit, SYS_getpeername;
    /// getsockopt(2)
    getsockopt(fd: c_int, level: c_int, name: c_int, data: *mut c_void, length: *mut socklen_t) -> Result<()> = unit, SYS_getsockopt;
    /// setsockopt(2)
    setsockopt(fd: c_int, level: c_int, name: c_int, data: *const c_void, length: socklen_t) -> Result<()> = unit, SYS_setsockopt;
    /// sendto(2)
    sendto(fd: c_int, data: *const c_void, length: usize, flags: c_int, address: *const sockaddr, address_length: socklen_t) -> Result<usize> = check, SYS_sendto;
    /// recvfrom(2)
    recvfrom(fd: c_int, data: *mut c_void, length: usize, flags: c_int, address: *mut sockaddr, address_length: *mut socklen_t) -> Result<usize> = check, SYS_recvfrom;
    /// sendmsg(2)
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> Result<usize> = check, SYS_sendmsg;
    /// recvmsg(2)
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> Result<usize> = check, SYS_recvmsg;
    /// sendmmsg(2)
    sendmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: u32, flags: c_int) -> Result<usize> = check, SYS_sendmmsg;
    /// recvmmsg(2)
    recvmmsg(fd: c_int, messages: *mut libc::mmsghdr, count: u32, flags: c_int, timeout: *mut timespec) -> Result<usize> = check, SYS_recvmmsg;
    /// shutdown(2)
    shutdown(fd: c_int, how: c_int) -> Result<()> = unit, SYS_shutdown;
    /// read(2)
    read(fd: c_int, data: *mut c_void, length: usize) -> Result<usize> = check, SYS_read;
    /// pread64(2)
    pread(fd: c_int, data: *mut c_void, length: usize, offset: i64) -> Result<usize> = check, SYS_pread64;
    /// pwrite64(2)
    pwrite(fd: c_int, data: *const c_void, length: usize, offset: i64) -> Result<usize> = check, SYS_pwrite64;
    /// write(2)
    write(fd: c_int, data: *const c_void, length: usize) -> Result<usize> = check, SYS_write;
    /// readv(2)
    readv(fd: c_int, vector: *const iovec, count: c_int) -> Result<usize> = check, SYS_readv;
    /// close(2)
    close(fd: c_int) -> Result<()> = unit, SYS_close;
    /// close_range(2)
    close_range(first: u32, last: u32, flags: u32) -> Result<()> = unit, SYS_close_range;
    /// fcntl(2)
    fcntl(fd: c_int, command: c_int, argument: usize) -> Result<c_int> = descriptor, SYS_fcntl;
    /// epoll_create1(2)
    epoll_create1(flags: c_int) -> Result<c_int> = descriptor, SYS_epoll_create1;
    /// epoll_ctl(2)
    epoll_ctl(epfd: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> Result<()> = unit, SYS_epoll_ctl;
    /// epoll_pwait(2)
    epoll_pwait(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t, size: usize) -> Result<usize> = check, SYS_epoll_pwait;
    /// fstat(2)
    fstat(fd: c_int, status: *mut libc::stat) -> Result<()> = unit, SYS_fstat;
    /// fstatfs(2)
    fstatfs(fd: c_int, status: *mut libc::statfs) -> Result<()> = unit, SYS_fstatfs;
    /// ftruncate(2)
    ftruncate(fd: c_int, length: i64) -> Result<()> = unit, SYS_ftruncate;
    /// fallocate(2)
    fallocate(fd: c_int, mode: c_int, offset: i64, length: i64) -> Result<()> = unit, SYS_fallocate;
    /// munmap(2)
    munmap(address: *mut u8, length: usize) -> Result<()> = unit, SYS_munmap;
    /// mprotect(2)
    mprotect(address: *mut u8, length: usize, protection: c_int) -> Result<()> = unit, SYS_mprotect;
    /// mlock(2)
    mlock(address: *const u8, length: usize) -> Result<()> = unit, SYS_mlock;
    /// munlock(2)
    munlock(address: *mut u8, length: usize) -> Result<()> = unit, SYS_munlock;
    /// madvise(2)
    madvise(address: *mut u8, length: usize, advice: c_int) -> Result<()> = unit, SYS_madvise;
    /// membarrier(2)
    membarrier(command: c_int, flags: u32, processor: c_int) -> Result<usize> = check, SYS_membarrier;
    /// gettid(2)
    gettid() -> u32 = value, SYS_gettid;
    /// getpid(2)
    getpid() -> u32 = value, SYS_getpid;
    /// getuid(2)
    getuid() -> u32 = value, SYS_getuid;
    /// getresuid(2)
    getresuid(real: *mut u32, effective: *mut u32, saved: *mut u32) -> Result<()> = unit, SYS_getresuid;
    /// geteuid(2)
    geteuid() -> u32 = value, SYS_geteuid;
    /// getegid(2)
    getegid() -> u32 = value, SYS_getegid;
    /// kill(2)
    kill(pid: c_int, signal: c_int) -> Result<()> = unit, SYS_kill;
    /// timerfd_create(2)
    timerfd_create(clock: c_int, flags: c_int) -> Result<c_int> = descriptor, SYS_timerfd_create;
    /// timerfd_settime(2)
    timerfd_settime(fd: c_int, flags: c_int, new: *const libc::itimerspec, old: *mut libc::itimerspec) -> Result<()> = unit, SYS_timerfd_settime;
    /// pidfd_open(2): readable once the process has ended
    pidfd_open(pid: c_int, flags: u32) -> Result<c_int> = descriptor, SYS_pidfd_open;
    /// pidfd_getfd(2)
    pidfd_getfd(process: c_int, number: c_int, flags: u32) -> Result<c_int> = descriptor, SYS_pidfd_getfd;
    /// tgkill(2)
    tgkill(group: c_int, thread: c_int, signal: c_int) -> Result<()> = unit, SYS_tgkill;
    /// tkill(2): signal 0 asks whether a thread exists
    tkill(thread: c_int, signal: c_int) -> Result<()> = unit, SYS_tkill;
    /// process_vm_readv(2)
    process_vm_readv(pid: c_int, here: *const libc::iovec, here_count: usize, there: *const libc::iovec, there_count: usize, flags: usize) -> Result<usize> = check, SYS_process_vm_readv;
    /// process_vm_writev(2)
    process_vm_writev(pid: c_int, here: *const libc::iovec, here_count: usize, there: *const libc::iovec, there_count: usize, flags: usize) -> Result<usize> = check, SYS_process_vm_writev;
    /// fsopen(2)
    fsopen(name: *const u8, flags: u32) -> Result<c_int> = descriptor, SYS_fsopen;
    /// fsconfig(2)
    fsconfig(fd: c_int, command: u32, key: *const u8, value: *const u8, number: c_int) -> Result<()> = unit, SYS_fsconfig;
    /// fsmount(2)
    fsmount(fd: c_int, flags: u32, attributes: u32) -> Result<c_int> = descriptor, SYS_fsmount;
    /// socketpair(2)
    socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut c_int) -> Result<()> = unit, SYS_socketpair;
    /// pipe2(2)
    pipe2(ends: *mut c_int, flags: c_int) -> Result<()> = unit, SYS_pipe2;
    /// eventfd2(2)
    eventfd(initial: u32, flags: c_int) -> Result<c_int> = descriptor, SYS_eventfd2;
    /// getrandom(2)
    getrandom(data: *mut c_void, length: usize, flags: u32) -> Result<usize> = check, SYS_getrandom;
    /// prlimit64(2)
    prlimit(pid: c_int, resource: u32, new: *const libc::rlimit64, old: *mut libc::rlimit64) -> Result<()> = unit, SYS_prlimit64;
    /// clock_gettime(2)
    clock_gettime(clock: c_int, time: *mut timespec) -> isize = raw, SYS_clock_gettime;
    /// nanosleep(2)
    nanosleep(time: *const timespec, left: *mut timespec) -> Result<()> = unit, SYS_nanosleep;
    /// futex(2)
    futex(word: *const u32, operation: c_int, value: u32, timeout: *const timespec) -> Result<usize> = check, SYS_futex;
    /// openat(2)
    openat(directory: c_int, path: *const u8, flags: c_int, mode: u32) -> Result<c_int> = descriptor, SYS_openat;
    /// fchmodat(2)
    fchmodat(directory: c_int, path: *const u8, mode: u32) -> Result<()> = unit, SYS_fchmodat;
    /// fchmodat2(2), since Linux 6.6: fchmodat(2) with flags
    fchmodat2(directory: c_int, path: *const u8, mode: u32, flags: c_int) -> Result<()> = unit, SYS_fchmodat2;
    /// renameat2(2)
    renameat2(from: c_int, old: *const u8, to: c_int, new: *const u8, flags: u32) -> Result<()> = unit, SYS_renameat2;
    /// unlinkat(2)
    unlinkat(directory: c_int, path: *const u8, flags: c_int) -> Result<()> = unit, SYS_unlinkat;
    /// getdents64(2)
    getdents64(directory: c_int, entries: *mut u8, size: usize) -> Result<usize> = check, SYS_getdents64;
    /// newfstatat(2)
    fstatat(directory: c_int, path: *const u8, status: *mut libc::stat, flags: c_int) -> Result<()> = unit, SYS_newfstatat;
    /// sendfile(2)
    sendfile(out: c_int, from: c_int, offset: *mut i64, count: usize) -> Result<usize> = check, SYS_sendfile;
    /// ioctl(2)
    ioctl(fd: c_int, request: u64, argument: usize) -> Result<c_int> = descriptor, SYS_ioctl;
    /// rt_sigprocmask(2)
    sigprocmask(how: c_int, set: *const u64, old: *mut u64, size: usize) -> Result<()> = unit, SYS_rt_sigprocmask;
}

/// mmap(2)
///
/// # Safety
/// With MAP_FIXED the replaced range must be the caller's to replace.
pub unsafe fn mmap(address: *mut u8, length: usize, protection: c_int, flags: c_int, fd: c_int, offset: i64) -> Result<*mut u8> {
    // SAFETY: passed on to the caller.
    check(unsafe { syscall!(libc::SYS_mmap, address, length, protection, flags, fd, offset) }).map(|v| v as *mut u8)
}

// Calls of which an older one does most: filters refuse what is newer than they are, or what their program does not make.

/// accept4(2); where that is refused accept(2), after which another thread's exec may find the descriptor inherited.
pub fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> Result<c_int> {
    let older = || {
        // SAFETY: as for the calls above.
        let accepted = descriptor(unsafe { syscall!(libc::SYS_accept, fd, address, length) })?;
        if flags & libc::SOCK_CLOEXEC != 0 {
            let _ = fcntl(accepted, libc::F_SETFD, libc::FD_CLOEXEC as usize);
        }
        if flags & libc::SOCK_NONBLOCK != 0 {
            let _ = fcntl(accepted, libc::F_SETFL, (libc::O_RDWR | libc::O_NONBLOCK) as usize);
        }
        Ok(accepted)
    };
    if filter::avoids(filter::ACCEPT4) {
        return older();
    }
    // SAFETY: as for the calls above.
    match descriptor(unsafe { syscall!(libc::SYS_accept4, fd, address, length, flags) }) {
        Err(error) if error.is_refusal() => older(),
        accepted => accepted,
    }
}

/// dup3(2); where that is refused dup2(2), with the same consequence.
pub fn dup3(from: c_int, to: c_int, flags: c_int) -> Result<c_int> {
    // SAFETY: as for the calls above.
    match descriptor(unsafe { syscall!(libc::SYS_dup3, from, to, flags) }) {
        Err(error) if error.is_refusal() => {
            // SAFETY: as for the calls above.
            let to = descriptor(unsafe { syscall!(libc::SYS_dup2, from, to) })?;
            if flags & libc::O_CLOEXEC != 0 {
                let _ = fcntl(to, libc::F_SETFD, libc::FD_CLOEXEC as usize);
            }
            Ok(to)
        }
        duplicate => duplicate,
    }
}

/// send(2) of a byte that wakes a sleeper, without waiting. Where the kernel has no memory for it, it may have some in a moment.
#[inline]
pub fn send_byte(fd: c_int, byte: u8, flags: c_int) -> Result<usize> {
    let flags = flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    match sendto(fd, (&raw const byte).cast(), 1, flags, core::ptr::null(), 0) {
        Err(Errno(libc::ENOBUFS | libc::ENOMEM)) => send_byte_again(fd, byte, flags),
        sent => sent,
    }
}

#[cold]
fn send_byte_again(fd: c_int, byte: u8, flags: c_int) -> Result<usize> {
    const TRIES: u32 = 1000;
    let mut sent = Err(Errno(libc::ENOBUFS));
    for _ in 0..TRIES {
        sched_yield();
        sent = sendto(fd, (&raw const byte).cast(), 1, flags, core::ptr::null(), 0);
        if !matches!(sent, Err(Errno(libc::ENOBUFS | libc::ENOMEM))) {
            break;
        }
    }
    sent
}

/// sched_yield(2). Where a filter refuses it, nothing: callers look again in any case.
#[inline]
pub fn sched_yield() {
    if !filter::avoids(filter::SCHED_YIELD) {
        // SAFETY: no arguments.
        unsafe { syscall!(libc::SYS_sched_yield) };
    }
}

/// ppoll(2)
pub fn ppoll(set: *mut pollfd, count: usize, timeout: *mut timespec, mask: *const sigset_t, size: usize) -> Result<usize> {
    // SAFETY: as for the calls above.
    let older = || check(unsafe { syscall!(libc::SYS_poll, set, count, milliseconds(timeout)) });
    if mask.is_null() && filter::avoids(filter::PPOLL) {
        return older();
    }
    // SAFETY: as for the calls above.
    match check(unsafe { syscall!(libc::SYS_ppoll, set, count, timeout, mask, size) }) {
        Err(error) if mask.is_null() && error.is_refusal() => older(),
        result => result,
    }
}

/// A time of ours, or none, as poll(2) takes it: not less than it.
pub(crate) fn milliseconds(timeout: *const timespec) -> usize {
    // SAFETY: it is the caller's, or null.
    let Some(time) = (unsafe { timeout.as_ref() }) else { return usize::MAX };
    time.tv_sec.saturating_mul(1000).saturating_add((time.tv_nsec + 999_999) / 1_000_000).min(c_int::MAX as i64) as usize
}

/// epoll_pwait2(2)
pub fn epoll_pwait2(
    epfd: c_int,
    events: *mut epoll_event,
    count: c_int,
    timeout: *const timespec,
    mask: *const sigset_t,
    size: usize,
) -> Result<usize> {
    let older = || {
        let (number, time) = older_epoll(timeout, mask);
        // SAFETY: as for the calls above.
        check(unsafe { syscall!(number, epfd, events, count, time, mask, size) })
    };
    if filter::avoids(filter::EPOLL_PWAIT2) {
        return older();
    }
    // SAFETY: as for the calls above.
    match check(unsafe { syscall!(libc::SYS_epoll_pwait2, epfd, events, count, timeout, mask, size) }) {
        Err(error) if error.is_refusal() => older(),
        result => result,
    }
}

/// The call that serves for epoll_pwait2, and its timeout.
#[cold]
pub(crate) fn older_epoll(timeout: *const timespec, mask: *const sigset_t) -> (i64, usize) {
    let number = if mask.is_null() && !filter::avoids(filter::EPOLL_WAIT) { libc::SYS_epoll_wait } else { libc::SYS_epoll_pwait };
    (number, milliseconds(timeout))
}

/// memfd_create(2); `name` ends with a NUL.
pub fn memfd_create(name: &[u8], flags: u32) -> Result<c_int> {
    debug_assert_eq!(name.last(), Some(&0));
    // SAFETY: the name is NUL-terminated and outlives the call.
    descriptor(unsafe { syscall!(libc::SYS_memfd_create, name.as_ptr(), flags) })
}

/// Reads an integer socket option.
pub fn getsockopt_int(fd: c_int, level: c_int, name: c_int) -> Result<c_int> {
    let mut data: c_int = 0;
    let mut length = 4 as socklen_t;
    getsockopt(fd, level, name, (&mut data as *mut c_int).cast(), &mut length)?;
    Ok(data)
}

/// Sets an integer socket option.
pub fn setsockopt_int(fd: c_int, level: c_int, name: c_int, data: c_int) -> Result<()> {
    setsockopt(fd, level, name, (&data as *const c_int).cast(), 4)
}

/// Adds `fd` to the epoll: events of it are told under `data`.
pub fn epoll_add(epoll: c_int, fd: c_int, events: u32, data: u64) -> Result<()> {
    epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut epoll_event { events, u64: data })
}

/// Polls one descriptor; `timeout_ns` negative: for ever. Gives the returned events, 0 on timeout.
pub fn poll_one(fd: c_int, events: i16, timeout_ns: i64) -> Result<i16> {
    let mut set = pollfd { fd, events, revents: 0 };
    let mut time = timespec { tv_sec: timeout_ns / 1_000_000_000, tv_nsec: timeout_ns % 1_000_000_000 };
    let time = if timeout_ns < 0 { core::ptr::null_mut() } else { &mut time };
    ppoll(&mut set, 1, time, core::ptr::null(), KERNEL_SIGSET)?;
    Ok(set.revents)
}

/// Bytes that wait to be read (FIONREAD); what a socket's other end has not read (TIOCOUTQ, for AF_UNIX in bytes of memory).
pub fn bytes_waiting(fd: c_int) -> Result<u32> {
    asked(fd, libc::FIONREAD)
}

/// See [`bytes_waiting`].
pub fn bytes_unread(fd: c_int) -> Result<u32> {
    asked(fd, libc::TIOCOUTQ)
}

/// What fstat(2) says of a descriptor.
pub fn status_of(fd: c_int) -> Result<libc::stat> {
    // SAFETY: plain integers.
    let mut status: libc::stat = unsafe { core::mem::zeroed() };
    fstat(fd, &mut status).map(|()| status)
}

/// What ioctl(2) answers in an int, at least 0.
pub fn asked(fd: c_int, request: u64) -> Result<u32> {
    let mut answer: c_int = 0;
    ioctl(fd, request, &raw mut answer as usize).map(|_| answer.max(0) as u32)
}

/// ftruncate(2) for memory of a file of its own, where RLIMIT_FSIZE may be less: by the call alone SIGXFSZ would end the process.
///
/// # Errors
/// EFBIG: the limit; or the call's.
pub fn give_size(fd: i32, size: usize) -> Result<()> {
    if soft_limit(libc::RLIMIT_FSIZE) < size as u64 {
        return Err(Errno(libc::EFBIG));
    }
    ftruncate(fd, size as i64)
}

/// The soft limit of `resource` (RLIMIT_*), or `u64::MAX`.
pub fn soft_limit(resource: u32) -> u64 {
    let mut limit = libc::rlimit64 { rlim_cur: u64::MAX, rlim_max: u64::MAX };
    match prlimit(0, resource, core::ptr::null(), &mut limit) {
        Ok(()) => limit.rlim_cur,
        Err(Errno(_)) => u64::MAX,
    }
}
