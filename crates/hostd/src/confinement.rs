//! What the process can do once it has begun: read the numbers of sockets that it is given, and make pairs of sockets in a network that has nothing in it.

use std::io;

/// A user that nobody is, and that owns no file: what looks at the pairs of this process sees neither root nor a user of programs. Where a user namespace has no
/// such number, the kernel's nobody.
const USERS: [u32; 2] = [u32::MAX - 1, 65_534];
/// CAP_NET_ADMIN, and _LINUX_CAPABILITY_VERSION_3 (capabilities(7)).
const NET_ADMIN: u32 = 12;
const VERSION: u32 = 0x2008_0522;

/// What is called from then on. Pages for small blocks (brk) and what the runtime says before it ends (write) are rare.
const ALLOWED: [i64; 16] = [
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_ctl,
    libc::SYS_accept4,
    libc::SYS_recvmsg,
    libc::SYS_sendmsg,
    libc::SYS_getsockopt,
    libc::SYS_close,
    libc::SYS_fstat,
    libc::SYS_io_uring_enter,
    libc::SYS_clock_gettime,
    libc::SYS_setitimer,
    libc::SYS_rt_sigreturn,
    libc::SYS_restart_syscall,
    libc::SYS_brk,
    libc::SYS_write,
    libc::SYS_exit_group,
];

/// What is called with these arguments alone: a call, and the number of an argument with its value.
type Call = (i64, &'static [(u32, u32)]);
const ONLY: [Call; 8] = [
    (libc::SYS_setsockopt, &[(1, libc::SOL_SOCKET as u32), (2, libc::SO_LINGER as u32)]),
    (libc::SYS_setsockopt, &[(1, libc::SOL_SOCKET as u32), (2, libc::SO_REUSEADDR as u32)]),
    (libc::SYS_setsockopt, &[(1, libc::IPPROTO_TCP as u32), (2, libc::TCP_REPAIR as u32)]),
    (libc::SYS_setsockopt, &[(1, libc::IPPROTO_TCP as u32), (2, libc::TCP_REPAIR_QUEUE as u32)]),
    (libc::SYS_socketpair, &[(0, libc::AF_UNIX as u32)]),
    (libc::SYS_shutdown, &[(1, libc::SHUT_RD as u32)]),
    (libc::SYS_ioctl, &[(1, NETWORK_OF)]),
    (libc::SYS_ioctl, &[(1, OWNER_OF)]),
];

/// SIOCGSKNS: the network namespace of a socket; NS_GET_USERNS: the user namespace that owns it (ioctl_ns(2)).
pub const NETWORK_OF: u32 = 0x894c;
pub const OWNER_OF: u32 = 0xb701;

fn done(result: libc::c_long) -> io::Result<()> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Another network namespace, with nothing in it.
///
/// Errors: EPERM: it takes CAP_SYS_ADMIN.
pub fn leave_network() -> io::Result<()> {
    // SAFETY: concerns this process's namespaces.
    done(unsafe { libc::unshare(libc::CLONE_NEWNET) }.into())
}

/// CAP_NET_ADMIN alone, and no user's files. Of one thread.
///
/// Errors: EPERM: the process is not root.
pub fn become_nobody() -> io::Result<()> {
    #[repr(C)]
    struct Header {
        version: u32,
        process: i32,
    }
    let sets = [[1u32 << NET_ADMIN, 1 << NET_ADMIN, 0], [0; 3]]; // effective, permitted, inheritable; capabilities from 32 on
    let header = Header { version: VERSION, process: 0 };
    // SAFETY: plain calls, and structures as the kernel has them, which it reads.
    unsafe {
        done(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0).into())?;
        done(libc::setgroups(0, std::ptr::null()).into())?;
        let becomes = |user: &u32| libc::setresgid(*user, *user, *user) == 0 && libc::setresuid(*user, *user, *user) == 0;
        if !USERS.iter().any(becomes) {
            return Err(io::Error::last_os_error());
        }
        done(libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()))?;
        done(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0).into())
    }
}

/// Whatever is not allowed ends the process from here on (seccomp(2)).
pub fn filter() -> io::Result<()> {
    const ARCHITECTURE: u32 = 0xc000_003e; // AUDIT_ARCH_X86_64
    const KILL: u32 = 0x8000_0000; // SECCOMP_RET_KILL_PROCESS
    const ALLOW: u32 = 0x7fff_0000;
    const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
    const EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
    const RETURN: u16 = 0x06;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // struct seccomp_data: the call's number, the architecture, an address, and the arguments, whose lower halves come first.
    let (number, architecture) = (step(LOAD, 0, 0, 0), step(LOAD, 0, 0, 4));
    let argument = |which: u32| step(LOAD, 0, 0, 16 + 8 * which);
    let mut steps = vec![architecture, step(EQUAL, 1, 0, ARCHITECTURE), step(RETURN, 0, 0, KILL), number];
    for call in ALLOWED {
        steps.extend([step(EQUAL, 0, 1, call as u32), step(RETURN, 0, 0, ALLOW)]);
    }
    for (call, arguments) in ONLY {
        // What differs goes on behind these steps.
        let left = |done: usize| 2 * (arguments.len() - done) as u8 + 1;
        steps.push(step(EQUAL, 0, left(0), call as u32));
        for (done, (which, value)) in arguments.iter().enumerate() {
            steps.extend([argument(*which), step(EQUAL, 0, left(done + 1), *value)]);
        }
        steps.extend([step(RETURN, 0, 0, ALLOW), number]);
    }
    steps.push(step(RETURN, 0, 0, KILL));
    let program = libc::sock_fprog { len: steps.len() as u16, filter: steps.as_mut_ptr() };
    // SAFETY: the kernel reads the program, which outlives the call.
    done(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program) }.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How a child of this process ends that is filtered and does `work`.
    fn ends(work: impl FnOnce()) -> i32 {
        // SAFETY: the child makes system calls, and ends.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: no pointer.
            unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
            if filter().is_ok() {
                work();
            }
            // SAFETY: ends the child.
            unsafe { libc::_exit(7) };
        }
        let mut status = 0;
        // SAFETY: a child of this process.
        unsafe { libc::waitpid(child, &mut status, 0) };
        if libc::WIFSIGNALED(status) {
            -libc::WTERMSIG(status)
        } else {
            libc::WEXITSTATUS(status)
        }
    }

    #[test]
    fn what_is_not_allowed_ends_the_process() {
        assert_eq!(ends(|| ()), 7);
        let pair = || {
            let mut pair = [-1; 2];
            assert!(shunt_sys::calls::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()).is_ok());
            assert!(shunt_sys::calls::status_of(pair[0]).is_ok() && shunt_sys::calls::close(pair[0]).is_ok());
        };
        assert_eq!(ends(pair), 7);
        assert_eq!(ends(|| _ = shunt_sys::calls::socket(libc::AF_INET, libc::SOCK_STREAM, 0)), -libc::SIGSYS);
        assert_eq!(ends(|| _ = std::fs::File::open("/dev/null")), -libc::SIGSYS);
        let sets = |level, name| ends(move || _ = shunt_sys::calls::setsockopt_int(0, level, name, 1));
        for (level, name) in [(libc::SOL_SOCKET, libc::SO_REUSEADDR), (libc::IPPROTO_TCP, libc::TCP_REPAIR_QUEUE)] {
            assert_eq!(sets(level, name), 7);
        }
        for (level, name) in
            [(libc::SOL_SOCKET, libc::SO_MARK), (libc::IPPROTO_TCP, libc::TCP_CONGESTION), (libc::SOL_SOCKET, 20)]
        {
            assert_eq!(sets(level, name), -libc::SIGSYS);
        }
        assert_eq!(ends(|| _ = shunt_sys::calls::ioctl(0, u64::from(NETWORK_OF), 0)), 7);
        assert_eq!(ends(|| _ = shunt_sys::calls::ioctl(0, libc::TIOCSTI, 0)), -libc::SIGSYS);
        assert_eq!(ends(|| _ = shunt_sys::calls::shutdown(0, libc::SHUT_WR)), -libc::SIGSYS);
        let others = || _ = shunt_sys::calls::socketpair(libc::AF_TIPC, libc::SOCK_STREAM, 0, [-1; 2].as_mut_ptr());
        assert_eq!(ends(others), -libc::SIGSYS);
        assert_eq!(ends(|| _ = shunt_sys::calls::getpid()), -libc::SIGSYS);
        // SAFETY: a plain call, which does not come back.
        assert_eq!(ends(|| _ = unsafe { libc::unshare(libc::CLONE_NEWNS) }), -libc::SIGSYS);
    }
}
