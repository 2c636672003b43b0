//! Ports with a pool, and tests that need a process to themselves.
#![allow(dead_code)]

use shunt_buffers::costs::Costs;
use shunt_buffers::port::Port;
use shunt_region::{Audience, Pages, Pool, Shape};

pub const UNIT: usize = 64 << 10;

/// Of a pool that is soon full.
pub const SHAPE: Shape = Shape { unit: UNIT, units: 32 };

pub fn pool() -> Pool {
    Pool::create(Shape { unit: UNIT, units: 64 }, Pages::Small, Audience::Anyone).unwrap()
}

/// A sender with a pool, whose choice is TCOW, and a receiver.
pub fn joined() -> (Port, Port, Pool) {
    let (mut here, there) = Port::pair().unwrap();
    let pool = pool();
    // What is chosen does not depend on the machine.
    here.set_costs(Costs::USUAL);
    here.offer(&pool).unwrap();
    here.policy().tcow_from = UNIT;
    (here, there, pool)
}

/// Runs `body` in a process of its own: this test's binary again, with this test alone. Signals' actions are a process's.
pub fn alone(name: &str, body: impl FnOnce()) {
    const CASE: &str = "SHUNT_BUFFERS_CASE";
    if std::env::var(CASE).is_ok_and(|case| case == name) {
        return body();
    }
    let program = std::env::current_exe().unwrap();
    let output = std::process::Command::new(program)
        .args([name, "--exact", "--nocapture", "--test-threads", "1"])
        .env(CASE, name)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
}

/// Runs `child` with one end of a socket pair, and `parent` with the other and the child's number. The child ends by a kill.
pub fn with_child(child: impl FnOnce(i32), parent: impl FnOnce(i32, &(dyn Fn() + Sync))) {
    // One at a time: another test's child would keep this one's socket open.
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(|error| error.into_inner());
    let mut fds = [0; 2];
    // SAFETY: plain calls; the child uses what fork leaves whole, in a program whose other threads hold no locks that it needs.
    unsafe {
        assert_eq!(libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()), 0);
        let pid = libc::fork();
        if pid == 0 {
            libc::close(fds[0]);
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| child(fds[1])));
            if done.is_err() {
                libc::_exit(1);
            }
            loop {
                libc::pause();
            }
        }
        libc::close(fds[1]);
        let kill = || {
            libc::kill(pid, libc::SIGKILL);
            let mut status = 0;
            libc::waitpid(pid, &mut status, 0);
            assert!(libc::WIFSIGNALED(status), "the child had failed: {status:x}");
        };
        parent(fds[0], &kill);
    }
}

/// A word that children share.
pub fn shared_word() -> *mut u32 {
    let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
    // SAFETY: fresh memory; a page that stays.
    let page = unsafe { libc::mmap(core::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
    assert_ne!(page, libc::MAP_FAILED);
    page.cast()
}
