//! Changes of user, held against what the kernel makes of the calls.

use super::*;
use crate::process::user_change::Call;

/// The users of a child of ours after `call` from these; `None`: it was refused.
fn in_a_child(from: [u32; 3], call: &Call) -> Option<[u32; 3]> {
    let mut line = [0; 2];
    // SAFETY: room for two.
    assert_eq!(unsafe { shunt_sys::syscall!(libc::SYS_pipe2, line.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
    // SAFETY: the child makes system calls and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: plain integers.
        let done = unsafe {
            shunt_sys::syscall!(libc::SYS_setresuid, from[0], from[1], from[2]) == 0
                && match *call {
                    Call::Set(user) => shunt_sys::syscall!(libc::SYS_setuid, user) == 0,
                    Call::RealEffective(real, effective) => shunt_sys::syscall!(libc::SYS_setreuid, real, effective) == 0,
                    Call::All(real, effective, saved) => shunt_sys::syscall!(libc::SYS_setresuid, real, effective, saved) == 0,
                }
        };
        let [mut real, mut effective, mut saved] = [0; 3];
        if done && calls::getresuid(&mut real, &mut effective, &mut saved).is_ok() {
            let _ = calls::write(line[1], [real, effective, saved].as_ptr().cast(), 12);
        }
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    }
    calls::close(line[1]).unwrap();
    let mut users = [0u32; 3];
    let got = calls::read(line[0], users.as_mut_ptr().cast(), 12);
    calls::close(line[0]).unwrap();
    // SAFETY: the child of this test.
    unsafe { libc::waitpid(child, core::ptr::null_mut(), 0) };
    (got == Ok(12)).then_some(users)
}

#[test]
fn calls_come_to_what_the_kernel_makes_of_them() {
    if calls::geteuid() != 0 {
        return; // no other user may become one
    }
    let _alone = alone();
    const SAME: u32 = u32::MAX;
    let some = [SAME, 0, 1_001, 1_002];
    let mut granted = 0;
    for from in [[0; 3], [1_001, 0, 0], [1_001, 1_001, 0], [1_001, 1_002, 1_002], [1_001, 1_002, 1_001]] {
        let mut held = |call: Call| {
            if let Some(users) = in_a_child(from, &call) {
                granted += 1;
                assert_eq!(call.outcome(from), users, "from {from:?}");
            }
        };
        some[1..].iter().for_each(|user| held(Call::Set(*user)));
        for real in some {
            some.iter().for_each(|effective| held(Call::RealEffective(real, *effective)));
            held(Call::All(real, some[1], SAME));
            held(Call::All(SAME, real, some[2]));
        }
    }
    assert!(granted > 60, "{granted}");
}
