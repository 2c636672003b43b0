//! Which calls have to be trapped, made by whatever instruction.

/// Whether the library does something about a call of this number that keeps bytes whole. All others it would leave to the kernel
/// as they are, or they concern rings of io_uring, which have rules of their own.
pub fn concerns(number: u32) -> bool {
    name(number).is_some()
}

/// What such a call is called. `None`: it does not concern.
pub fn name(number: u32) -> Option<&'static str> {
    CONCERN.iter().find(|(concern, _)| *concern == i64::from(number)).map(|(_, name)| *name)
}

macro_rules! calls {
    ($($number:ident)*) => { [$((libc::$number, stringify!($number).split_at(4).1)),*] };
}

/// What `preload/src/direct.rs` and `preload/src/trap` answer, but for: what makes sockets, which are then the kernel's; limits,
/// prctl(2), and the end of the process, which other processes hear of from the kernel anyway.
const CONCERN: [(i64, &str); 55] = calls! {
    // Bytes.
    SYS_read
    SYS_write
    SYS_readv
    SYS_writev
    SYS_preadv2
    SYS_pwritev2
    SYS_sendto
    SYS_recvfrom
    SYS_sendmsg
    SYS_recvmsg
    SYS_sendmmsg
    SYS_recvmmsg
    SYS_sendfile
    SYS_splice
    SYS_io_submit
    // Descriptors.
    SYS_close
    SYS_close_range
    SYS_dup
    SYS_dup2
    SYS_dup3
    SYS_fcntl
    SYS_ioctl
    SYS_pidfd_getfd
    // Connections.
    SYS_bind
    SYS_listen
    SYS_connect
    SYS_accept
    SYS_accept4
    SYS_shutdown
    SYS_getsockname
    SYS_getpeername
    SYS_getsockopt
    SYS_setsockopt
    // Waiting.
    SYS_poll
    SYS_ppoll
    SYS_select
    SYS_pselect6
    SYS_epoll_create
    SYS_epoll_create1
    SYS_epoll_ctl
    SYS_epoll_wait
    SYS_epoll_pwait
    SYS_epoll_pwait2
    // Processes.
    SYS_fork
    SYS_vfork
    SYS_clone
    SYS_clone3
    SYS_execve
    SYS_execveat
    SYS_unshare
    SYS_setns
    SYS_setuid
    SYS_setreuid
    SYS_setresuid
    SYS_rt_sigaction
};
