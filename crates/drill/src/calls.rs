//! The program's calls, under their own names: each gives the connection back, is the kernel's, and may have the connection taken again.
//!
//! Calls on other descriptors go straight to the kernel, those of this library's own threads among them. `errno` is the kernel's call's.

use std::os::raw::{c_int, c_uint, c_ulong, c_void};

use libc::{iovec, msghdr, off_t, pollfd, size_t, sockaddr, socklen_t, ssize_t};

use crate::drill::{is_stream, lock, mark};

/// Flags of a send or receive that do not change what it does to a connection that is ready.
const PLAIN: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;

/// A call of the kernel's on one descriptor.
fn around<T>(fd: c_int, call: impl FnOnce() -> T) -> T {
    if !is_stream(fd) {
        return call();
    }
    if let Some(mut drill) = lock() {
        drill.begin(fd);
    }
    let result = call();
    keeping_errno(|| {
        if let Some(mut drill) = lock() {
            drill.end(fd);
        }
    });
    result
}

/// A call that concerns all descriptors.
fn around_all<T>(call: impl FnOnce() -> T) -> T {
    let all: Vec<i32> = lock().map_or_else(Vec::new, |mut drill| {
        let all: Vec<i32> = drill.lines.iter().map(|line| line.fd).collect();
        all.iter().for_each(|fd| drill.begin(*fd));
        all
    });
    let result = call();
    keeping_errno(|| {
        if let Some(mut drill) = lock().filter(|_| !all.is_empty()) {
            all.iter().for_each(|fd| drill.end(*fd));
        }
    });
    result
}

fn keeping_errno(work: impl FnOnce()) {
    // SAFETY: the thread's own.
    let errno = unsafe { *libc::__errno_location() };
    work();
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// The bytes of a send.
///
/// # Safety
/// As writev(2) asks of its caller.
unsafe fn pieces<'a>(parts: *const iovec, count: usize) -> Vec<&'a [u8]> {
    // SAFETY: the caller's promise.
    let parts = unsafe { std::slice::from_raw_parts(parts, count) };
    let whole = parts.iter().filter(|part| part.iov_len > 0);
    // SAFETY: the caller's promise.
    whole.map(|part| unsafe { std::slice::from_raw_parts(part.iov_base.cast(), part.iov_len) }).collect()
}

fn send_here(fd: c_int, flags: c_int, pieces: impl FnOnce() -> Vec<&'static [u8]>) -> Option<ssize_t> {
    if !is_stream(fd) || flags & !PLAIN != 0 {
        return None;
    }
    Some(lock()?.write(fd, &pieces())? as ssize_t)
}

fn receive_here(fd: c_int, flags: c_int, base: *mut c_void, length: size_t) -> Option<ssize_t> {
    if !is_stream(fd) || flags & !PLAIN != 0 || base.is_null() || length == 0 {
        return None;
    }
    // SAFETY: read(2)'s buffer, of that length. Nobody else has it while the call lasts.
    let bytes = unsafe { std::slice::from_raw_parts_mut(base.cast(), length) };
    Some(lock()?.read(fd, bytes)? as ssize_t)
}

/// Calls that are the kernel's alone, with the descriptor first.
macro_rules! kernels {
    ($($name:ident($($argument:ident: $kind:ty),*) -> $result:ty = $number:ident;)*) => {$(
        /// As in its manual.
        ///
        /// # Safety
        /// As for the C library's.
        #[no_mangle]
        pub unsafe extern "C" fn $name(fd: c_int, $($argument: $kind),*) -> $result {
            // SAFETY: the caller's arguments, as they are.
            around(fd, || unsafe { libc::syscall(libc::$number, fd, $($argument),*) as $result })
        }
    )*};
}

kernels! {
    connect(address: *const sockaddr, length: socklen_t) -> c_int = SYS_connect;
    shutdown(how: c_int) -> c_int = SYS_shutdown;
    getsockopt(level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int = SYS_getsockopt;
    setsockopt(level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int = SYS_setsockopt;
    ioctl(request: c_ulong, argument: c_ulong) -> c_int = SYS_ioctl;
    fcntl(command: c_int, argument: c_ulong) -> c_int = SYS_fcntl;
    fcntl64(command: c_int, argument: c_ulong) -> c_int = SYS_fcntl;
    readv(parts: *const iovec, count: c_int) -> ssize_t = SYS_readv;
    recvmsg(message: *mut msghdr, flags: c_int) -> ssize_t = SYS_recvmsg;
}

/// As in socket(2).
#[no_mangle]
pub extern "C" fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
    // SAFETY: numbers.
    let fd = unsafe { libc::syscall(libc::SYS_socket, domain, kind, protocol) } as c_int;
    if fd >= 0 && kind & 0xf == libc::SOCK_STREAM && [libc::AF_INET, libc::AF_INET6].contains(&domain) {
        keeping_errno(|| mark(fd, true));
    }
    fd
}

/// As in accept(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments, as they are.
    let accepted = unsafe { libc::syscall(libc::SYS_accept4, fd, address, length, flags) } as c_int;
    if accepted >= 0 && is_stream(fd) {
        mark(accepted, true);
        if let Some(mut drill) = lock() {
            drill.end(accepted);
        }
    }
    accepted
}

/// As in accept(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int {
    // SAFETY: the caller's arguments, as they are.
    unsafe { accept4(fd, address, length, 0) }
}

/// As in close(2).
#[no_mangle]
pub extern "C" fn close(fd: c_int) -> c_int {
    if is_stream(fd) {
        mark(fd, false);
        if let Some(mut drill) = lock() {
            drill.forget(fd);
        }
    }
    // SAFETY: a number.
    unsafe { libc::syscall(libc::SYS_close, fd) as c_int }
}

/// As in write(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn write(fd: c_int, base: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's arguments, as they are.
    unsafe { sendto(fd, base, length, 0, std::ptr::null(), 0) }
}

/// As in send(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn send(fd: c_int, base: *const c_void, length: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's arguments, as they are.
    unsafe { sendto(fd, base, length, flags, std::ptr::null(), 0) }
}

/// As in send(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn sendto(
    fd: c_int,
    base: *const c_void,
    length: size_t,
    flags: c_int,
    address: *const sockaddr,
    size: socklen_t,
) -> ssize_t {
    if !is_stream(fd) && flags == 0 && address.is_null() {
        // Of any kind of file: this is write(2), too.
        // SAFETY: the caller's arguments, as they are.
        return unsafe { libc::syscall(libc::SYS_write, fd, base, length) as ssize_t };
    }
    if address.is_null() && !base.is_null() {
        let part = iovec { iov_base: base.cast_mut(), iov_len: length };
        // SAFETY: the caller's promise.
        if let Some(sent) = send_here(fd, flags, || unsafe { pieces(&part, 1) }) {
            return sent;
        }
    }
    // SAFETY: the caller's arguments, as they are.
    around(fd, || unsafe { libc::syscall(libc::SYS_sendto, fd, base, length, flags, address, size) as ssize_t })
}

/// As in writev(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's promise, where the count is one.
    if let Some(sent) = (count > 0).then(|| send_here(fd, 0, || unsafe { pieces(parts, count as usize) })).flatten() {
        return sent;
    }
    // SAFETY: the caller's arguments, as they are.
    around(fd, || unsafe { libc::syscall(libc::SYS_writev, fd, parts, count) as ssize_t })
}

/// As in send(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    if is_stream(fd) && !message.is_null() {
        // SAFETY: not null, and the caller's promise.
        let told = unsafe { &*message };
        if told.msg_name.is_null() && told.msg_controllen == 0 && told.msg_iovlen > 0 {
            // SAFETY: the caller's promise.
            if let Some(sent) = send_here(fd, flags, || unsafe { pieces(told.msg_iov, told.msg_iovlen) }) {
                return sent;
            }
        }
    }
    // SAFETY: the caller's arguments, as they are.
    around(fd, || unsafe { libc::syscall(libc::SYS_sendmsg, fd, message, flags) as ssize_t })
}

/// As in read(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn read(fd: c_int, base: *mut c_void, length: size_t) -> ssize_t {
    if let Some(received) = receive_here(fd, 0, base, length) {
        return received;
    }
    // SAFETY: the caller's arguments, as they are.
    around(fd, || unsafe { libc::syscall(libc::SYS_read, fd, base, length) as ssize_t })
}

/// As in recv(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn recv(fd: c_int, base: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the caller's arguments, as they are.
    unsafe { recvfrom(fd, base, length, flags, std::ptr::null_mut(), std::ptr::null_mut()) }
}

/// As in recv(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn recvfrom(
    fd: c_int,
    base: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    size: *mut socklen_t,
) -> ssize_t {
    if address.is_null() {
        if let Some(received) = receive_here(fd, flags, base, length) {
            return received;
        }
    }
    // SAFETY: the caller's arguments, as they are.
    around(fd, || unsafe { libc::syscall(libc::SYS_recvfrom, fd, base, length, flags, address, size) as ssize_t })
}

/// As in poll(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn poll(set: *mut pollfd, count: libc::nfds_t, time: c_int) -> c_int {
    // SAFETY: the caller's arguments, as they are.
    around_all(|| unsafe { libc::syscall(libc::SYS_poll, set, count, time) as c_int })
}

/// As in epoll_wait(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn epoll_wait(set: c_int, events: *mut libc::epoll_event, count: c_int, time: c_int) -> c_int {
    // SAFETY: the caller's arguments, as they are.
    around_all(|| unsafe { libc::syscall(libc::SYS_epoll_wait, set, events, count, time) as c_int })
}

/// As in epoll_ctl(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn epoll_ctl(set: c_int, what: c_int, fd: c_int, event: *mut libc::epoll_event) -> c_int {
    // SAFETY: the caller's arguments, as they are.
    around(fd, || unsafe { libc::syscall(libc::SYS_epoll_ctl, set, what, fd, event) as c_int })
}

/// As in sendfile(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
    // SAFETY: the caller's arguments, as they are.
    around(to, || unsafe { libc::syscall(libc::SYS_sendfile, to, from, offset, count) as ssize_t })
}

/// As in splice(2).
///
/// # Safety
/// As for the C library's.
#[no_mangle]
pub unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut i64,
    to: c_int,
    to_at: *mut i64,
    length: size_t,
    flags: c_uint,
) -> ssize_t {
    // SAFETY: the caller's arguments, as they are.
    let call = || unsafe { libc::syscall(libc::SYS_splice, from, from_at, to, to_at, length, flags) as ssize_t };
    around(from, || around(to, call))
}
