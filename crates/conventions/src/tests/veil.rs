//! The veil over SIGSYS, beside the kernel's own masks.

use super::*;
use shunt_calls::libc::{SIG_BLOCK, SIG_SETMASK, SIG_UNBLOCK};
use shunt_sys::calls;

const OTHER: u64 = action::bit(libc::SIGUSR1);

#[test]
fn the_kernel_never_blocks_the_signal_that_tells_of_calls() {
    assert_eq!(without(BIT | OTHER), OTHER);
    assert_eq!(without(u64::MAX).count_ones(), 63);
}

#[test]
fn a_program_hears_of_what_it_has_blocked() {
    assert_eq!(told(OTHER, 1), OTHER | BIT);
    assert_eq!(told(OTHER, 0), OTHER);
}

#[test]
fn a_change_of_another_signal_leaves_the_veil() {
    for veiled in [0, 1] {
        assert_eq!(changed(veiled, SIG_BLOCK, OTHER), veiled);
        assert_eq!(changed(veiled, SIG_UNBLOCK, OTHER), veiled);
    }
    assert_eq!(changed(1, SIG_SETMASK, OTHER), 0);
}

/// Every sequence of three changes tells the same with the veil as the kernel tells without it.
#[test]
fn the_program_hears_what_the_kernel_would_have_told() {
    let mut before = 0;
    calls::sigprocmask(SIG_BLOCK, &0, &mut before, calls::KERNEL_SIGSET).unwrap();
    let steps: Vec<_> = [SIG_BLOCK, SIG_UNBLOCK, SIG_SETMASK]
        .into_iter()
        .flat_map(|how| [0, BIT, OTHER, BIT | OTHER].map(|set| (how, set)))
        .collect();
    let empty = 0;
    for first in &steps {
        for second in &steps {
            for third in &steps {
                calls::sigprocmask(SIG_SETMASK, &empty, core::ptr::null_mut(), calls::KERNEL_SIGSET).unwrap();
                let (mut veiled, mut given) = (0, 0u64);
                for (how, wanted) in [first, second, third] {
                    let mut kernels = 0;
                    calls::sigprocmask(*how, wanted, core::ptr::null_mut(), calls::KERNEL_SIGSET).unwrap();
                    calls::sigprocmask(SIG_BLOCK, &empty, &mut kernels, calls::KERNEL_SIGSET).unwrap();
                    veiled = changed(veiled, *how, *wanted);
                    given = match *how {
                        SIG_BLOCK => given | without(*wanted),
                        SIG_UNBLOCK => given & !without(*wanted),
                        _ => without(*wanted),
                    };
                    assert_eq!(told(given, veiled), kernels, "{first:?} {second:?} {third:?}");
                }
            }
        }
    }
    calls::sigprocmask(SIG_SETMASK, &before, core::ptr::null_mut(), calls::KERNEL_SIGSET).unwrap();
}
