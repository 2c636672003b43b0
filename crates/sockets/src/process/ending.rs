//! The process ends by itself (exit, _exit, quick_exit, abort): its sockets end as the kernel would close them.
//!
//! The kernel closes descriptors before another process can see that this one has ended, so on Linux the peer's very next write
//! knows. Ours would know from the companion's hang-up alone, for which it does not ask before each write. So the end is
//! said in memory, just before the system call. Of a process that is killed the hang-up tells.
//!
//! Other threads still run. On Linux they would be gone before anything is closed; here they must not see their sockets
//! ended under their feet, so the locks of each stream among threads are taken and kept: a thread that wants one waits for the
//! end of the process. No thread is waited for here beyond [`PATIENCE`]; a stream that cannot be locked is left to the
//! kernel.

use super::PROCESS;
use core::sync::atomic::Ordering;
use shunt_inbox::datagram::Datagram;
use shunt_rendezvous::accept;
use shunt_rendezvous::close::say_end;
use shunt_stream::flush_relays;
use shunt_stream::socket::{flag, Socket};
use shunt_stream::waiting::wake;
use shunt_sys::{calls, clock, libc};
use shunt_table::process::kernel_only;
use shunt_table::table;
use shunt_table::table::Kind;

/// How long the locks of all streams together are waited for, in ns: holders copy at most a chunk.
const PATIENCE: u64 = 50_000_000;

/// This process begins: at start-up, and in the child after fork.
pub fn begin() {
    PROCESS.own.store(calls::getpid(), Ordering::Relaxed);
    PROCESS.ending.store(false, Ordering::Relaxed);
}

/// Ends everything that no other process owns. The caller ends the process next.
pub fn end() {
    // What a filter has left this process is the kernel's, or ends with the companion.
    if !shunt_table::global::ready() || kernel_only::confined() {
        return;
    }
    if PROCESS.own.load(Ordering::Relaxed) != calls::getpid() || PROCESS.ending.swap(true, Ordering::AcqRel) {
        return;
    }
    // No handler of the program runs any more: it would wait for locks that its own thread keeps.
    let _ = calls::sigprocmask(libc::SIG_SETMASK, &u64::MAX, core::ptr::null_mut(), calls::KERNEL_SIGSET);
    shunt_link::ending();
    shunt_rendezvous::carriers::all().for_each(|carrier| (carrier.ending)());
    let all = || table::programs().map(|fd| (fd, table::get(fd)));
    for (_, word) in all() {
        match (word.kind(), word.object::<Socket>()) {
            (Kind::Listener, Some(socket)) => accept::refuse_waiting(socket),
            (Kind::Datagram, _) => {
                if let Some(socket) = word.object::<Datagram>() {
                    shunt_inbox::datagram::process_ends(socket);
                }
            }
            _ => {}
        }
    }
    let deadline = clock::monotonic_ns() + PATIENCE;
    for (fd, word) in all() {
        let (Kind::Stream, Some(socket)) = (word.kind(), word.object::<Socket>()) else { continue };
        // Descriptors that share a socket end once.
        if socket.has(flag::ENDED) {
            continue;
        }
        socket.set(flag::ENDED);
        let ended = shunt_stream::waiting::readiness::closed(socket);
        let Some((receiving, sending)) = socket.lock_both_until(deadline) else { continue };
        // A bell that is counted late would be counted for the channel's next connection.
        if !socket.hold.shut_until(deadline) {
            continue;
        }
        let last = say_end(socket, ended);
        sending.keep_from_threads();
        receiving.keep_from_threads();
        if !last {
            wake::ring_for_others(socket, fd);
            flush_relays::tell(socket);
        }
    }
}
