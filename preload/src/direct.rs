//! syscall(2) by number: programs that go past the C library's wrappers, yet through this function.

use crate::{copies, exec, hooks, real};
use core::ffi::c_long;
use shunt_calls::libc;
use shunt_pipes::kept_pipes;
use shunt_sockets::process;
use shunt_sockets::process::user_change::Call;
use shunt_sys::user;
use shunt_table::global;

macro_rules! route {
    ($number:expr, $a:expr, $b:expr, $c:expr, $d:expr, $e:expr, $f:expr; $($name:ident => $hook:ident ( $($arg:ident),* );)*) => {
        match $number {
            $(libc::$name => Some(hooks::$hook($($arg as _),*) as isize),)*
            _ => None,
        }
    };
}

/// Whether a system call copies the process as fork does, past the C library: containers and vsftpd do this. With a stack of its
/// own the child would not return from here.
unsafe fn is_copy(number: c_long, first: usize, second: usize) -> bool {
    let shared = (libc::CLONE_VM | libc::CLONE_THREAD) as u64;
    if number == libc::SYS_clone3 {
        // struct clone_args: flags at 0, stack at 40 (clone(2)).
        // SAFETY: the program's structure, which may fault: that is the kernel's to say.
        let word = |at: usize| unsafe { user::read((first + at) as *const u64) };
        return second >= 64 && word(0).is_ok_and(|flags| flags & shared == 0) && word(40) == Ok(0);
    }
    number == libc::SYS_fork || (number == libc::SYS_clone && second == 0 && first as u64 & shared == 0)
}

/// Such a call, with what copies of ours may share ([`copies::unshared`]).
unsafe fn copy(number: c_long, first: usize, [b, c, d, e, f]: [usize; 5]) -> isize {
    /// struct clone_args as far as it is known.
    const WORDS: usize = 11;
    // SAFETY: passed on.
    let kernel = |first| unsafe { shunt_sys::raw::call6(number, first, b, c, d, e, f) };
    if number == libc::SYS_clone {
        return kernel(copies::unshared(first as u64) as usize);
    }
    let mut words = [0u64; WORDS];
    // SAFETY: the program's structure, which may fault; room for as many words.
    let read = number == libc::SYS_clone3
        && b <= core::mem::size_of_val(&words)
        && unsafe { user::copy(first as *const u8, words.as_mut_ptr().cast(), b) };
    if !read {
        return kernel(first);
    }
    words[0] = copies::unshared(words[0]);
    kernel(words.as_ptr() as usize)
}

/// Answers a call whose number is one of the intercepted calls; `None`: the kernel's.
///
/// # Safety
/// Arguments as the system call asks.
pub unsafe fn call(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> Option<isize> {
    if !global::ready() {
        return None;
    }
    if number == libc::SYS_io_uring_setup && !global::options().io_uring_allowed {
        // An io_uring would move bytes of accelerated sockets past us; programs fall back to epoll.
        crate::errno::set_errno(libc::ENOSYS);
        return Some(-1);
    }
    if number == libc::SYS_io_uring_enter || number == libc::SYS_io_uring_register {
        // Of a ring that was made by an instruction.
        // SAFETY: passed on.
        return unsafe { crate::uring::by_number(number == libc::SYS_io_uring_register, b as u32) };
    }
    if matches!(number, libc::SYS_open | libc::SYS_openat | libc::SYS_openat2 | libc::SYS_creat) && kept_pipes::are_any() {
        // SAFETY: passed on.
        let opened = shunt_sys::check(unsafe { shunt_sys::raw::call6(number, a, b, c, d, e, f) });
        opened.iter().for_each(|fd| kept_pipes::opened(*fd as i32));
        return Some(crate::errno::answer(opened.map(|fd| fd as isize)));
    }
    if number == libc::SYS_rt_sigaction {
        // SAFETY: passed on.
        return unsafe { crate::signals::install_by_number(a as i32, b, c, d) };
    }
    if number == libc::SYS_io_submit {
        // SAFETY: passed on.
        return unsafe { crate::aio::submitted(b, c) }.err().map(|error| crate::errno::answer(Err(error)));
    }
    if number == libc::SYS_seccomp {
        // SAFETY: passed on.
        unsafe { crate::raw_calls::filters::filtering(a as u32, b, c) };
    }
    if number == libc::SYS_rt_sigprocmask {
        // SAFETY: passed on.
        return unsafe { crate::masks::by_number(a as i32, b, c, d) };
    }
    let leaves = number == libc::SYS_exit_group || (number == libc::SYS_exit && global::single_threaded());
    if leaves {
        crate::end::now(a as _);
    }
    // SAFETY: passed on.
    if unsafe { is_copy(number, a, b) } {
        process::before_fork();
        // SAFETY: without a stack of its own the child goes on from here in a copy of this memory.
        let result = unsafe { copy(number, a, [b, c, d, e, f]) };
        if result == 0 {
            process::after_fork_child();
        } else if result > 0 {
            process::after_fork_parent();
        } else {
            process::fork_failed();
        }
        return Some(match shunt_sys::check(result) {
            Ok(value) => value as isize,
            Err(error) => crate::errno::answer(Err(error)),
        });
    }
    if matches!(number, libc::SYS_setuid | libc::SYS_setreuid | libc::SYS_setresuid) {
        // Of this thread alone, as the kernel has it; the C library changes all.
        process::user_change::changing(&match number {
            libc::SYS_setuid => Call::Set(a as u32),
            libc::SYS_setreuid => Call::RealEffective(a as u32, b as u32),
            _ => Call::All(a as u32, b as u32, c as u32),
        });
        // SAFETY: plain numbers.
        let result = shunt_sys::check(unsafe { shunt_sys::raw::call6(number, a, b, c, d, e, f) });
        if result.is_ok() {
            process::user_change::changed();
        }
        return Some(crate::errno::answer(result.map(|_| 0)));
    }
    if number == libc::SYS_execve {
        // SAFETY: as execve(2).
        return Some(unsafe { exec::execve(a as _, b as _, c as _) } as isize);
    }
    if number == libc::SYS_execveat {
        // SAFETY: as execveat(2).
        return Some(unsafe { exec::execveat(a as _, b as _, c as _, d as _, e as _) } as isize);
    }
    if number == libc::SYS_setrlimit && b == 0 {
        return None; // the C library takes it for a question
    }
    // SAFETY: passed on.
    if let Some(result) = unsafe { crate::timed::call(number, a, b, c, d, e, f) } {
        return Some(result as isize);
    }
    // SAFETY: passed on.
    unsafe {
        route! { number, a, b, c, d, e, f;
            SYS_read => read(a, b, c);
            SYS_write => write(a, b, c);
            SYS_readv => readv(a, b, c);
            SYS_writev => writev(a, b, c);
            SYS_preadv2 => preadv2(a, b, c, d, f);
            SYS_pwritev2 => pwritev2(a, b, c, d, f);
            SYS_close => close(a);
            SYS_socket => socket_by_number(a, b, c);
            SYS_bind => bind(a, b, c);
            SYS_listen => listen(a, b);
            SYS_connect => connect(a, b, c);
            SYS_accept => accept(a, b, c);
            SYS_accept4 => accept4(a, b, c, d);
            SYS_shutdown => shutdown(a, b);
            SYS_getsockname => getsockname(a, b, c);
            SYS_getpeername => getpeername(a, b, c);
            SYS_getsockopt => getsockopt(a, b, c, d, e);
            SYS_setsockopt => setsockopt(a, b, c, d, e);
            SYS_sendto => sendto(a, b, c, d, e, f);
            SYS_recvfrom => recvfrom(a, b, c, d, e, f);
            SYS_sendmsg => sendmsg(a, b, c);
            SYS_recvmsg => recvmsg(a, b, c);
            SYS_sendmmsg => sendmmsg(a, b, c, d);
            SYS_recvmmsg => recvmmsg(a, b, c, d, e);
            SYS_sendfile => sendfile(a, b, c, d);
            SYS_splice => splice(a, b, c, d, e, f);
            SYS_tee => tee(a, b, c, d);
            SYS_vmsplice => vmsplice(a, b, c, d);
            SYS_poll => poll(a, b, c);
            SYS_setrlimit => setrlimit(a, b);
            SYS_prlimit64 => prlimit(a, b, c, d);
            SYS_epoll_create => epoll_create(a);
            SYS_epoll_create1 => epoll_create1(a);
            SYS_epoll_ctl => epoll_ctl(a, b, c, d);
            SYS_epoll_wait => epoll_wait(a, b, c, d);
            SYS_dup => dup(a);
            SYS_dup2 => dup2(a, b);
            SYS_dup3 => dup3(a, b, c);
            SYS_fcntl => fcntl(a, b, c);
            SYS_ioctl => ioctl(a, b, c);
            SYS_close_range => close_range(a, b, c);
            SYS_pidfd_getfd => pidfd_getfd(a, b, c);
            SYS_unshare => unshare(a);
            SYS_setns => setns(a, b);
            SYS_prctl => prctl(a, b, c, d, e);
        }
    }
}

hook! {
    fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        if let Some(result) = call(number, a, b, c, d, e, f) {
            return result as c_long;
        }
        real::syscall(number, a, b, c, d, e, f)
    }
}
