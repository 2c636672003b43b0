//! What signals do, by the kernel's own call (rt_sigaction(2)): past the C library, and past what the program is told of its
//! handlers.

use crate::{calls, syscall};
use libc::c_int;

/// The kernel's struct sigaction.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// The handler's address, SIG_DFL or SIG_IGN.
    pub handler: usize,
    /// SA_RESTART and its like.
    pub flags: u64,
    /// What the handler returns to.
    pub restorer: usize,
    /// Signals that are blocked while it runs, see [`bit`].
    pub mask: u64,
}

impl Action {
    /// An action without flags.
    pub const fn of(handler: usize) -> Action {
        Action { handler, flags: 0, restorer: 0, mask: 0 }
    }
}

/// The bit of `signal` in the kernel's set.
pub const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Signals that instructions raise: blocked, they would kill.
pub const BY_INSTRUCTIONS: u64 =
    bit(libc::SIGSEGV) | bit(libc::SIGBUS) | bit(libc::SIGFPE) | bit(libc::SIGILL) | bit(libc::SIGTRAP) | bit(libc::SIGSYS);

/// Runs `work` in a thread that no handler interrupts meanwhile, but those of [`BY_INSTRUCTIONS`]: two system calls.
pub fn undisturbed<T>(work: impl FnOnce() -> T) -> T {
    let (others, mut before) = (!BY_INSTRUCTIONS, 0);
    let blocked = calls::sigprocmask(libc::SIG_BLOCK, &others, &mut before, calls::KERNEL_SIGSET).is_ok();
    let done = work();
    if blocked {
        let _ = calls::sigprocmask(libc::SIG_SETMASK, &before, core::ptr::null_mut(), calls::KERNEL_SIGSET);
    }
    done
}

/// What `signal` does. `None`: there is no such signal.
pub fn current(signal: c_int) -> Option<Action> {
    let mut action = Action::of(libc::SIG_DFL);
    // SAFETY: asks only; the structure is ours.
    let asked = unsafe { syscall!(libc::SYS_rt_sigaction, signal, 0, &raw mut action, calls::KERNEL_SIGSET) };
    (asked == 0).then_some(action)
}

/// Makes `signal` do `new`; gives what it did before, SIG_DFL for a signal that cannot be changed.
pub fn exchange(signal: c_int, new: &Action) -> Action {
    let mut old = Action::of(libc::SIG_DFL);
    // SAFETY: the structures are ours.
    unsafe { syscall!(libc::SYS_rt_sigaction, signal, new as *const Action, &raw mut old, calls::KERNEL_SIGSET) };
    old
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_disturbs_but_what_instructions_raise() {
        let mask = || {
            let mut mask = 0;
            calls::sigprocmask(libc::SIG_BLOCK, core::ptr::null(), &mut mask, calls::KERNEL_SIGSET).unwrap();
            mask
        };
        let before = mask();
        let unblockable = bit(libc::SIGKILL) | bit(libc::SIGSTOP);
        assert_eq!(undisturbed(mask), before | !(BY_INSTRUCTIONS | unblockable));
        assert_eq!(mask(), before);
    }

    #[test]
    fn an_action_is_exchanged_for_another() {
        let ignored = Action::of(libc::SIG_IGN);
        let before = exchange(libc::SIGWINCH, &ignored);
        assert_eq!(current(libc::SIGWINCH), Some(ignored));
        assert_eq!(exchange(libc::SIGWINCH, &before), ignored);
        assert_eq!((current(libc::SIGWINCH), current(0), current(65)), (Some(before), None, None));
        assert_eq!((bit(libc::SIGHUP), bit(64)), (1, 1 << 63));
    }
}
