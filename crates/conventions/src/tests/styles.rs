//! Flags of handlers, beside those that the C library installs and the kernel tells.

use super::*;
use shunt_calls::libc;
use shunt_sys::action::{bit, current, exchange, Action};
use std::sync::Mutex;

/// Tests that change this process's actions take turns.
static TURNS: Mutex<()> = Mutex::new(());

extern "C" fn handler(_: c_int) {}

/// What the kernel has for a signal after `install`, whose action is then put back.
fn installed(signal: c_int, install: impl FnOnce()) -> Action {
    let _turn = TURNS.lock().unwrap();
    let before = exchange(signal, &Action::of(libc::SIG_DFL));
    install();
    exchange(signal, &before)
}

/// The flags and the mask, without what the C library adds for itself.
fn of(action: Action) -> (c_int, u64) {
    ((action.flags & !SA_RESTORER) as c_int, action.mask)
}

extern "C" {
    fn __sysv_signal(number: c_int, handler: usize) -> usize;
    fn sigset(number: c_int, handler: usize) -> usize;
    fn siginterrupt(number: c_int, interrupts: c_int) -> c_int;
}

#[test]
fn signal_installs_as_the_c_librarys_does() {
    let signal = libc::SIGWINCH;
    // SAFETY: a handler that does nothing.
    let action = installed(signal, || unsafe { assert_ne!(libc::signal(signal, handler as *const () as usize), libc::SIG_ERR) });
    assert_eq!(Style::Bsd.action(bit(signal), 0), of(action));
}

#[test]
fn signal_after_siginterrupt_installs_as_the_c_librarys_does() {
    let signal = libc::SIGURG;
    // SAFETY: as above.
    let action = installed(signal, || unsafe {
        siginterrupt(signal, 1);
        libc::signal(signal, handler as *const () as usize);
        siginterrupt(signal, 1);
    });
    assert_eq!(Style::Bsd.action(bit(signal), bit(signal)), of(action));
}

#[test]
fn siginterrupt_of_another_signal_changes_nothing() {
    assert_eq!(Style::Bsd.action(bit(libc::SIGURG), bit(libc::SIGWINCH)), Style::Bsd.action(bit(libc::SIGURG), 0));
}

#[test]
fn sysv_signal_installs_as_the_c_librarys_does() {
    let signal = libc::SIGWINCH;
    // SAFETY: as above.
    let action = installed(signal, || unsafe { assert_ne!(__sysv_signal(signal, handler as *const () as usize), libc::SIG_ERR) });
    let (flags, mask) = Style::SystemV.action(bit(signal), 0);
    // The kernel forgets a flag that says what is so without it.
    assert_eq!((flags & !SA_INTERRUPT, mask), of(action));
}

#[test]
fn sigset_installs_as_the_c_librarys_does() {
    let signal = libc::SIGWINCH;
    // SAFETY: as above.
    let action = installed(signal, || unsafe { assert_ne!(sigset(signal, handler as *const () as usize), libc::SIG_ERR) });
    assert_eq!(Style::Plain.action(bit(signal), 0), of(action));
}

#[test]
fn the_program_is_told_the_flags_that_the_kernel_keeps() {
    let signal = libc::SIGWINCH;
    for flag in 0..32 {
        let wanted = 1u32 << flag;
        // A restorer must be one; the handler is never entered.
        let action = installed(signal, || {
            exchange(signal, &Action { handler: handler as *const () as usize, flags: wanted.into(), restorer: 0, mask: 0 });
        });
        assert_eq!(told(wanted as c_int), action.flags as u32 | SA_RESTORER as u32, "flag {flag}");
    }
    assert_eq!(current(0), None);
}

#[test]
fn our_entry_is_told_all_and_is_not_reset() {
    let wanted = SA_RESETHAND | SA_NODEFER | SA_RESTART;
    assert_eq!(of_entry(wanted, 0x1000, false), SA_SIGINFO | SA_NODEFER | SA_RESTART);
}

#[test]
fn our_entry_without_a_handler_interrupts_nothing() {
    for handler in [libc::SIG_DFL, libc::SIG_IGN] {
        assert_eq!(of_entry(SA_RESETHAND, handler, false), SA_SIGINFO | SA_RESTART | SA_ONSTACK | SA_NODEFER);
    }
}

#[test]
fn the_entry_that_does_calls_keeps_the_programs_stack() {
    for handler in [libc::SIG_DFL, 0x1000] {
        assert_eq!(of_entry(SA_ONSTACK | SA_RESTART, handler, true), SA_SIGINFO | SA_NODEFER);
    }
}
