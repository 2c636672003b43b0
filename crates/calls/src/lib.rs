//! The one list of intercepted calls.
//!
//! From the rows of [`for_each_call!`] follow the exported symbols and their prototypes, the slots that hold the C
//! library's own functions, the check that the preload library calls none of them by accident, and the coverage table
//! in the documentation ([`CALLS`]). A row is: group, symbol, arguments, result, and the name of the handler, which
//! variants of one call share.
//!
//! ```
//! use shunt_calls::CALLS;
//! assert!(CALLS.iter().any(|call| call.symbol == "recvmsg" && call.group == "receive"));
//! // Whatever is to follow from the rows is a macro that takes them.
//! macro_rules! count {
//!     ($($group:literal $symbol:ident ( $($argument:ident : $type:ty),* ) -> $result:ty;)*) => { [$($group),*].len() };
//! }
//! assert_eq!(shunt_calls::for_each_call!(count), CALLS.len());
//! ```
#![no_std]

pub use libc;

/// Calls `$callback!` with all rows.
#[macro_export]
macro_rules! for_each_call {
    ($callback:ident) => {
        $callback! {
            "sockets" socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
            "sockets" socketpair(domain: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int;
            "sockets" bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
            "sockets" listen(fd: c_int, backlog: c_int) -> c_int;
            "sockets" connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
            "sockets" __connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
            "sockets" accept(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
            "sockets" accept4(fd: c_int, address: *mut sockaddr, length: *mut socklen_t, flags: c_int) -> c_int;
            "sockets" shutdown(fd: c_int, how: c_int) -> c_int;
            "sockets" sockatmark(fd: c_int) -> c_int;
            "sockets" getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
            "sockets" getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
            "sockets" getsockopt(fd: c_int, level: c_int, name: c_int, data: *mut c_void, length: *mut socklen_t) -> c_int;
            "sockets" setsockopt(fd: c_int, level: c_int, name: c_int, data: *const c_void, length: socklen_t) -> c_int;
            "receive" read(fd: c_int, data: *mut c_void, length: usize) -> isize;
            "receive" __read(fd: c_int, data: *mut c_void, length: usize) -> isize;
            "receive" __read_chk(fd: c_int, data: *mut c_void, length: usize, room: usize) -> isize;
            "receive" readv(fd: c_int, vector: *const iovec, count: c_int) -> isize;
            "receive" recv(fd: c_int, data: *mut c_void, length: usize, flags: c_int) -> isize;
            "receive" __recv_chk(fd: c_int, data: *mut c_void, length: usize, room: usize, flags: c_int) -> isize;
            "receive" recvfrom(fd: c_int, data: *mut c_void, length: usize, flags: c_int, address: *mut sockaddr, address_length: *mut socklen_t) -> isize;
            "receive" __recvfrom_chk(fd: c_int, data: *mut c_void, length: usize, room: usize, flags: c_int, address: *mut sockaddr, address_length: *mut socklen_t) -> isize;
            "receive" recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize;
            "receive" recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
            "send" write(fd: c_int, data: *const c_void, length: usize) -> isize;
            "send" __write(fd: c_int, data: *const c_void, length: usize) -> isize;
            "send" writev(fd: c_int, vector: *const iovec, count: c_int) -> isize;
            "send" send(fd: c_int, data: *const c_void, length: usize, flags: c_int) -> isize;
            "send" __send(fd: c_int, data: *const c_void, length: usize, flags: c_int) -> isize;
            "send" sendto(fd: c_int, data: *const c_void, length: usize, flags: c_int, address: *const sockaddr, address_length: socklen_t) -> isize;
            "send" sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize;
            "send" sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
            "send" sendfile(out: c_int, from: c_int, offset: *mut i64, count: usize) -> isize;
            "send" sendfile64(out: c_int, from: c_int, offset: *mut i64, count: usize) -> isize;
            "send" splice(from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, length: usize, flags: c_uint) -> isize;
            "send" tee(from: c_int, to: c_int, length: usize, flags: c_uint) -> isize;
            "send" vmsplice(pipe: c_int, vector: *const iovec, count: usize, flags: c_uint) -> isize;
            "receive" preadv2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize;
            "receive" preadv64v2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize;
            "send" pwritev2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize;
            "send" pwritev64v2(fd: c_int, vector: *const iovec, count: c_int, offset: i64, flags: c_int) -> isize;
            "aio" aio_read(request: *mut c_void) -> c_int;
            "aio" aio_read64(request: *mut c_void) -> c_int;
            "aio" aio_write(request: *mut c_void) -> c_int;
            "aio" aio_write64(request: *mut c_void) -> c_int;
            "aio" lio_listio(mode: c_int, list: *const *mut c_void, count: c_int, event: *mut c_void) -> c_int;
            "aio" lio_listio64(mode: c_int, list: *const *mut c_void, count: c_int, event: *mut c_void) -> c_int;
            "io_uring" io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int;
            "io_uring" io_uring_enter(fd: c_uint, submit: c_uint, complete: c_uint, flags: c_uint, mask: *mut c_void) -> c_int;
            "io_uring" io_uring_enter2(fd: c_uint, submit: c_uint, complete: c_uint, flags: c_uint, mask: *mut c_void, size: usize) -> c_int;
            "io_uring" io_uring_register(fd: c_uint, operation: c_uint, argument: *const c_void, count: c_uint) -> c_int;
            "io_uring" io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int;
            "io_uring" io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int;
            "io_uring" io_uring_queue_init_mem(entries: c_uint, ring: *mut c_void, parameters: *mut c_void, memory: *mut c_void, size: usize) -> c_int;
            "io_uring" io_uring_queue_exit(ring: *mut c_void) -> ();
            "io_uring" io_uring_close_ring_fd(ring: *mut c_void) -> c_int;
            "io_uring" io_uring_submit(ring: *mut c_void) -> c_int;
            "io_uring" io_uring_submit_and_get_events(ring: *mut c_void) -> c_int;
            "io_uring" io_uring_submit_and_wait(ring: *mut c_void, count: c_uint) -> c_int;
            "io_uring" io_uring_submit_and_wait_timeout(ring: *mut c_void, entry: *mut *mut c_void, count: c_uint, time: *mut c_void, mask: *mut c_void) -> c_int;
            "io_uring" io_uring_submit_and_wait_min_timeout(ring: *mut c_void, entry: *mut *mut c_void, count: c_uint, time: *mut c_void, least: c_uint, mask: *mut c_void) -> c_int;
            "io_uring" io_uring_submit_and_wait_reg(ring: *mut c_void, entry: *mut *mut c_void, count: c_uint, index: c_int) -> c_int;
            "io_uring" io_uring_wait_cqes(ring: *mut c_void, entry: *mut *mut c_void, count: c_uint, time: *mut c_void, mask: *mut c_void) -> c_int;
            "io_uring" io_uring_wait_cqes_min_timeout(ring: *mut c_void, entry: *mut *mut c_void, count: c_uint, time: *mut c_void, least: c_uint, mask: *mut c_void) -> c_int;
            "io_uring" io_uring_wait_cqe_timeout(ring: *mut c_void, entry: *mut *mut c_void, time: *mut c_void) -> c_int;
            "io_uring" io_uring_register_files(ring: *mut c_void, files: *const c_int, count: c_uint) -> c_int;
            "io_uring" io_uring_register_files_tags(ring: *mut c_void, files: *const c_int, tags: *const u64, count: c_uint) -> c_int;
            "io_uring" io_uring_register_files_update(ring: *mut c_void, offset: c_uint, files: *const c_int, count: c_uint) -> c_int;
            "io_uring" io_uring_register_files_update_tag(ring: *mut c_void, offset: c_uint, files: *const c_int, tags: *const u64, count: c_uint) -> c_int;
            "wait" poll(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
            "wait" __poll(set: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
            "wait" __poll_chk(set: *mut pollfd, count: nfds_t, timeout: c_int, room: usize) -> c_int;
            "wait" ppoll(set: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
            "wait" __ppoll_chk(set: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, room: usize) -> c_int;
            "wait" select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
            "wait" __select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
            "wait" pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
            "wait" epoll_create(size: c_int) -> c_int;
            "wait" epoll_create1(flags: c_int) -> c_int;
            "wait" epoll_ctl(epfd: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
            "wait" epoll_wait(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int) -> c_int;
            "wait" epoll_pwait(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
            "wait" epoll_pwait2(epfd: c_int, events: *mut epoll_event, count: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
            "descriptors" pipe(ends: *mut c_int) -> c_int;
            "descriptors" __pipe(ends: *mut c_int) -> c_int;
            "descriptors" pipe2(ends: *mut c_int, flags: c_int) -> c_int;
            "descriptors" close(fd: c_int) -> c_int;
            "descriptors" __close(fd: c_int) -> c_int;
            "descriptors" close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
            "descriptors" closefrom(first: c_int) -> ();
            "descriptors" dup(fd: c_int) -> c_int;
            "descriptors" dup2(from: c_int, to: c_int) -> c_int;
            "descriptors" __dup2(from: c_int, to: c_int) -> c_int;
            "descriptors" dup3(from: c_int, to: c_int, flags: c_int) -> c_int;
            "descriptors" fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
            "descriptors" fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
            "descriptors" __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
            "descriptors" ioctl(fd: c_int, request: c_ulong, argument: usize) -> c_int;
            "descriptors" fstat(fd: c_int, state: *mut c_void) -> c_int;
            "descriptors" fstat64(fd: c_int, state: *mut c_void) -> c_int;
            "descriptors" __fxstat(version: c_int, fd: c_int, state: *mut c_void) -> c_int;
            "descriptors" __fxstat64(version: c_int, fd: c_int, state: *mut c_void) -> c_int;
            "descriptors" fstatat(fd: c_int, path: *const c_char, state: *mut c_void, flags: c_int) -> c_int;
            "descriptors" fstatat64(fd: c_int, path: *const c_char, state: *mut c_void, flags: c_int) -> c_int;
            "descriptors" statx(fd: c_int, path: *const c_char, flags: c_int, mask: c_uint, state: *mut c_void) -> c_int;
            "files" open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
            "files" open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
            "files" __open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
            "files" __open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
            "files" __open_2(path: *const c_char, flags: c_int) -> c_int;
            "files" __open64_2(path: *const c_char, flags: c_int) -> c_int;
            "files" openat(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
            "files" openat64(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int;
            "files" __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
            "files" __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int;
            "files" creat(path: *const c_char, mode: c_uint) -> c_int;
            "files" creat64(path: *const c_char, mode: c_uint) -> c_int;
            "files" fopen(path: *const c_char, mode: *const c_char) -> *mut c_void;
            "files" fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void;
            "descriptors" pidfd_getfd(process: c_int, number: c_int, flags: c_uint) -> c_int;
            "processes" execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
            "processes" execv(path: *const c_char, arguments: *const *const c_char) -> c_int;
            "processes" execvp(file: *const c_char, arguments: *const *const c_char) -> c_int;
            "processes" execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
            "processes" fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
            "processes" execveat(directory: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int) -> c_int;
            "processes" prctl(option: c_int, a: usize, b: usize, c: usize, d: usize) -> c_int;
            "processes" unshare(flags: c_int) -> c_int;
            "processes" setns(fd: c_int, kind: c_int) -> c_int;
            "processes" setuid(user: c_uint) -> c_int;
            "processes" seteuid(user: c_uint) -> c_int;
            "processes" setreuid(real: c_uint, effective: c_uint) -> c_int;
            "processes" setresuid(real: c_uint, effective: c_uint, saved: c_uint) -> c_int;
            "processes" login_tty(fd: c_int) -> c_int;
            "processes" daemon(nochdir: c_int, noclose: c_int) -> c_int;
            "processes" forkpty(master: *mut c_int, name: *mut c_char, settings: *const c_void, size: *const c_void) -> c_int;
            "processes" posix_spawn(pid: *mut c_int, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
            "processes" posix_spawnp(pid: *mut c_int, file: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
            "processes" setrlimit(resource: c_int, limit: *const rlimit) -> c_int;
            "processes" setrlimit64(resource: c_int, limit: *const rlimit) -> c_int;
            "processes" prlimit(process: c_int, resource: c_int, limit: *const rlimit, old: *mut rlimit) -> c_int;
            "processes" prlimit64(process: c_int, resource: c_int, limit: *const rlimit, old: *mut rlimit) -> c_int;
            "processes" system(command: *const c_char) -> c_int;
            "processes" popen(command: *const c_char, mode: *const c_char) -> *mut c_void;
            "processes" pclose(stream: *mut c_void) -> c_int;
            "stdio" fclose(stream: *mut c_void) -> c_int;
            "stdio" fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
            "stdio" freopen(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void;
            "stdio" freopen64(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void;
            "stdio" fileno(stream: *mut c_void) -> c_int;
            "stdio" fileno_unlocked(stream: *mut c_void) -> c_int;
            "stdio" vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int;
            "stdio" __vdprintf_chk(fd: c_int, level: c_int, format: *const c_char, list: *mut c_void) -> c_int;
            "signals" sigaction(number: c_int, action: *const c_void, old: *mut c_void) -> c_int;
            "signals" __sigaction(number: c_int, action: *const c_void, old: *mut c_void) -> c_int;
            "signals" signal(number: c_int, handler: usize) -> usize;
            "signals" bsd_signal(number: c_int, handler: usize) -> usize;
            "signals" ssignal(number: c_int, handler: usize) -> usize;
            "signals" sysv_signal(number: c_int, handler: usize) -> usize;
            "signals" __sysv_signal(number: c_int, handler: usize) -> usize;
            "signals" sigset(number: c_int, handler: usize) -> usize;
            "signals" sigignore(number: c_int) -> c_int;
            "signals" siginterrupt(number: c_int, interrupts: c_int) -> c_int;
            "signals" sigprocmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
            "signals" pthread_sigmask(how: c_int, set: *const sigset_t, old: *mut sigset_t) -> c_int;
            "signals" sighold(number: c_int) -> c_int;
            "signals" sigblock(mask: c_int) -> c_int;
            "signals" sigsetmask(mask: c_int) -> c_int;
            "signals" setcontext(context: *const c_void) -> c_int;
            "signals" swapcontext(old: *mut c_void, context: *const c_void) -> c_int;
            "libraries" dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
            "libraries" dlmopen(space: c_long, name: *const c_char, flags: c_int) -> *mut c_void;
            "libraries" dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
            "libraries" dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void;
            "threads" pthread_create(thread: *mut usize, attributes: *const c_void, function: *mut c_void, argument: *mut c_void) -> c_int;
            "threads" thrd_create(thread: *mut usize, function: *mut c_void, argument: *mut c_void) -> c_int;
            "threads" pthread_cancel(thread: usize) -> c_int;
            "threads" pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
            "processes" _exit(status: c_int) -> ();
            "processes" _Exit(status: c_int) -> ();
            "processes" abort() -> ();
            "processes" fork() -> c_int;
            "processes" _Fork() -> c_int;
            "processes" vfork() -> c_int;
            "processes" __vfork() -> c_int;
            "processes" clone(function: *mut c_void, stack: *mut c_void, flags: c_int, argument: *mut c_void, parent_tid: usize, tls: usize, child_tid: usize) -> c_int;
            "processes" syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long;
        }
    };
}

/// A row of the list, for documentation.
pub struct Call {
    /// What it belongs to.
    pub group: &'static str,
    /// The symbol.
    pub symbol: &'static str,
}

/// Symbols with variable arguments: entry points in assembly, beside the list because they have no Rust prototype.
pub const VARIADIC: &[Call] = &[
    Call { group: "processes", symbol: "execl" },
    Call { group: "processes", symbol: "execlp" },
    Call { group: "processes", symbol: "execle" },
    Call { group: "stdio", symbol: "dprintf" },
    Call { group: "stdio", symbol: "__dprintf_chk" },
];

macro_rules! rows {
    ($($group:literal $symbol:ident ( $($rest:tt)* ) -> $result:ty;)*) => {
        /// All rows, in the order of the list.
        pub const CALLS: &[Call] = &[$(Call { group: $group, symbol: stringify!($symbol) }),*];
    };
}
for_each_call!(rows);
