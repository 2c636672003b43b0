//! Calls with data on a socket of which nothing is settled yet: it may become a stream while they are on their way to the kernel.
//!
//! Such a call has looked at the table, which said that the socket is the kernel's, and may be stopped before the kernel sees it. Should a stream be
//! made of the socket meanwhile, the call would take bytes that are not the program's, or write some that nobody reads. So these calls are counted, and
//! the thread that introduces the socket ([`super::introduced`]) goes on only if there is none: either it sees the call, or the call sees that it is there.

use super::{flag, introduced, Socket};
use core::sync::atomic::{fence, AtomicU64, Ordering};
use shunt_sys::{calls, clock};
use shunt_table::table;
use shunt_table::table::Kind;

/// How long an introduction waits for calls to end (ns): one that is awake takes less, and one that sleeps may sleep for ever.
const PATIENCE: u64 = 1_000_000;

/// The socket's generation above, the number of calls below: what ends after its socket has gone counts nothing of the next one.
pub struct Calls(AtomicU64);

const COUNT: u64 = u32::MAX as u64;

impl Calls {
    pub(super) fn reset(&self, generation: u32) {
        self.0.store(u64::from(generation) << 32, Ordering::Relaxed);
    }

    fn are_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) & COUNT != 0
    }
}

/// A call under way, until this is dropped. One that is left by a jump stays: no stream is made of the socket then.
pub struct Call {
    calls: &'static Calls,
    generation: u64,
}

/// The accelerated stream behind `fd`, as [`super::stream`] says; else the call is counted, if anything may become of the descriptor while the kernel has it. The
/// answer is to live as long as the call.
#[inline(always)]
pub fn stream(fd: i32) -> Result<&'static Socket, Option<Call>> {
    match super::stream(fd) {
        Some(socket) => Ok(socket),
        None if is_unsettled(fd) => counted(fd),
        None => Err(None),
    }
}

#[cold]
fn counted(fd: i32) -> Result<&'static Socket, Option<Call>> {
    let call = call(fd);
    // It may have become one before the call was counted.
    super::stream(fd).ok_or(call)
}

/// Whether `fd` is a TCP socket of which a stream may be made, or is being made.
#[inline(always)]
pub fn is_unsettled(fd: i32) -> bool {
    let word = table::get(fd);
    (word.is(Kind::Tcp) || word.is_introduced()) && word.object::<Socket>().is_some_and(|socket| !socket.has(flag::KERNEL))
}

/// The calling thread begins a call with data on `fd`, before it asks for its stream ([`super::stream`]). `None`: nothing will become of the descriptor
/// during the call. What comes of a stream that a thread is making of it is waited for.
pub fn call(fd: i32) -> Option<Call> {
    let mut word = table::get(fd);
    loop {
        // Where nothing has come of one, another may be made.
        if word.is_introduced() {
            introduced::look_again(fd, word);
            let before = core::mem::replace(&mut word, table::get(fd));
            if word == before {
                return None;
            }
        }
        let socket: &'static Socket = Some(word).filter(|word| word.is(Kind::Tcp))?.object()?;
        if socket.has(flag::KERNEL) {
            return None;
        }
        let calls = &socket.connected.calls;
        let before = calls.0.fetch_add(1, Ordering::SeqCst);
        let call = Call { calls, generation: before & !COUNT };
        fence(Ordering::SeqCst);
        let found = table::get(fd);
        if found == word {
            return Some(call);
        }
        drop(call);
        word = found;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let is_of_this = |word: u64| word & !COUNT == self.generation && word & COUNT != 0;
        let less = |word: u64| is_of_this(word).then(|| word - 1);
        let _ = self.calls.0.fetch_update(Ordering::Release, Ordering::Relaxed, less);
    }
}

/// Whether no call on the introduced `socket` is under way any more.
pub(super) fn are_over(socket: &Socket) -> bool {
    fence(Ordering::SeqCst);
    let began = clock::monotonic_ns();
    while socket.connected.calls.are_there() {
        if clock::monotonic_ns() - began > PATIENCE {
            return false;
        }
        calls::sched_yield();
    }
    fence(Ordering::Acquire);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::introduced::Introduction;
    use crate::socket::{allocate, slab};

    /// Far above all descriptors.
    const HIGH: i32 = 720_000;

    #[test]
    fn no_stream_is_made_of_a_socket_while_a_call_is_under_way() {
        let socket = allocate(shunt_sys::libc::AF_INET).expect("a socket");
        assert!(call(HIGH).is_none(), "a foreign number");
        table::enter(HIGH, Kind::Tcp, socket);
        let (first, second) = (call(HIGH).expect("a call"), call(HIGH).expect("another"));
        assert!(Introduction::begin(HIGH, socket).is_none());
        assert!(!table::get(HIGH).is_introduced(), "nothing came of it");
        drop(first);
        assert!(Introduction::begin(HIGH, socket).is_none());
        drop(second);
        let introduction = Introduction::begin(HIGH, socket).expect("no call is left");
        assert!(call(HIGH).is_none(), "the introducer does not wait for itself");
        let other = std::thread::spawn(|| call(HIGH).is_some());
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert!(!other.is_finished(), "calls wait for what comes of it");
        drop(introduction);
        assert!(other.join().expect("no panic"), "and are counted then");
        // What ends late is not one of the next socket's.
        let late = call(HIGH).expect("a call");
        table::take(HIGH);
        slab::free(socket);
        let next = allocate(shunt_sys::libc::AF_INET).expect("a socket");
        assert!(core::ptr::eq(socket, next), "the object is used again");
        table::enter(HIGH, Kind::Tcp, next);
        let under_way = call(HIGH).expect("a call");
        drop(late);
        assert!(Introduction::begin(HIGH, next).is_none());
        drop(under_way);
        assert!(Introduction::begin(HIGH, next).is_some());
        // A socket that is known to be the kernel's.
        next.set(flag::KERNEL);
        assert!(call(HIGH).is_none());
        table::take(HIGH);
    }

    /// Of a call and an introduction that begin at once one sees the other.
    #[test]
    fn neither_misses_the_other() {
        let socket = allocate(shunt_sys::libc::AF_INET).expect("a socket");
        let number = HIGH + 1;
        table::enter(number, Kind::Tcp, socket);
        let in_kernel = AtomicU64::new(0);
        let ended = AtomicU64::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    if let Some(_call) = call(number) {
                        in_kernel.fetch_add(1, Ordering::SeqCst);
                        in_kernel.fetch_sub(1, Ordering::SeqCst);
                    }
                }
                ended.store(1, Ordering::SeqCst);
            });
            let mut introduced = 0;
            while ended.load(Ordering::SeqCst) == 0 || introduced == 0 {
                if let Some(_introduction) = Introduction::begin(number, socket) {
                    introduced += 1;
                    for _ in 0..100 {
                        assert_eq!(in_kernel.load(Ordering::SeqCst), 0);
                    }
                }
            }
        });
        table::take(number);
    }
}
