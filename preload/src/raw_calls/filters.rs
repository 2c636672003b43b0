//! prctl(2) and seccomp(2): a filter that the program installs may forbid what telling of calls takes.

use super::code;
use shunt_calls::libc;
use shunt_config::Raw;
use shunt_sockets::process::confinement;
use shunt_sys::dispatch;
use shunt_sys::filter::Filter;
use shunt_table::global;

/// prctl(2): a program that has a range of its own told is no longer told of by ours.
///
/// # Safety
/// As the call itself.
pub unsafe fn control(option: i32, [mode, filter]: [usize; 2], kernel: impl FnOnce() -> i32) -> i32 {
    if option == libc::PR_SET_SECCOMP {
        // SAFETY: passed on.
        filtered(unsafe { asked(mode == libc::SECCOMP_MODE_STRICT as usize, filter) });
    }
    let result = kernel();
    if option == dispatch::SET_SYSCALL_USER_DISPATCH && result == 0 {
        dispatch::replaced();
    }
    result
}

/// seccomp(2), with these arguments. Libraries ask for strict mode with flags, to see that the kernel refuses it so.
///
/// # Safety
/// As the call itself.
pub unsafe fn filtering(operation: u32, flags: usize, filter: usize) {
    if operation == libc::SECCOMP_SET_MODE_STRICT && (flags as u32 != 0 || filter != 0) {
        return;
    }
    if operation <= libc::SECCOMP_SET_MODE_FILTER {
        // SAFETY: passed on.
        filtered(unsafe { asked(operation == libc::SECCOMP_SET_MODE_STRICT, filter) });
    }
}

/// The filter that is to be installed, if there is one at that address.
unsafe fn asked(strict: bool, filter: usize) -> Option<Filter> {
    match strict {
        true => Some(Filter::Strict),
        // SAFETY: the program's, which may fault.
        false => unsafe { Filter::at(filter as *const libc::sock_fprog) },
    }
}

/// A filter is about to be installed, which may end a process for the call by which threads and children ask to be told of. A
/// program that did not ask for the trap does not take that risk.
fn filtered(filter: Option<Filter>) {
    if !global::ready() {
        return;
    }
    if global::options().raw == Raw::Auto {
        code::freeze();
    }
    if let Some(filter) = filter {
        crate::errno::keeping_errno(|| confinement::before_filter(&filter));
    }
}
