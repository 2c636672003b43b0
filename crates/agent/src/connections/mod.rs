//! Connections that are taken from the kernel and given back to it, for programs that drive them by a queue of their own.
//!
//! A program hands its connected socket and an escrow ([`shunt_xdp::escrow`]) to the agent: *possession of the descriptor is the right to its
//! 4-tuple*, so no program can claim another's. Whatever ends what is between, the program's word, its death, the agent's end or death, the
//! connection goes back into the same socket, and Linux goes on.
//!
//! | step | in | out |
//! |---|---|---|
//! | 1 | is it one that can be taken ([`eligible`]), conntrack told ([`tracking`]) | the escrow is closed: what it says counts |
//! | 2 | the guard holds socket and escrow ([`guard`]) | the socket gets its state, filter off, repair off ([`restore`]) |
//! | 3 | frames of the 4-tuple go to the program's queue | frames are the kernel's |
//! | 4 | the socket gets a filter and is read ([`repair`]) | frames that lie in the queue still are handed on ([`live`]) |
//!
//! All that concerns a program's own descriptors is done by a thread of that program's ([`hands`]), since calls on them can wait for as long as their
//! owner likes: no other program, and nothing else of the agent's, waits for them.

mod diagnosis;
mod eligible;
mod environment;
mod guard;
mod hands;
mod kept;
mod live;
mod netlink;
mod repair;
mod restore;
mod rules;
mod standby;
mod tracking;
mod trial;

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use shunt_sys::calls;
use shunt_xdp::protocol::{Decline, Kind, Reply};
use shunt_xdp::route::Mac;
use shunt_xdp::state::{mac_of_word, mac_to_word};
use shunt_xdp::tcp::Tuple;

use crate::agent::Agent;
use crate::client::{event, Attached};
use crate::configuration::Configuration;
use crate::ebpf::program::Maps;
use crate::interface::Interface;
use crate::report;
use crate::requests::Answer;
use crate::sorting::Sorting;

pub(crate) use guard::Guard;
use hands::Work;
pub use trial::try_out;

/// Connections that one user may have taken at a time.
const EACH: usize = 4096;
/// So long the agent waits for a client's thread when the client is gone, and for all of them when it ends itself. A thread that takes
/// longer goes on by itself, or its connections are the guard's.
const ONE_ENDS: Duration = Duration::from_millis(20);
/// See above.
const ALL_END: Duration = Duration::from_secs(1);

/// What the threads of an agent share.
pub(crate) struct Shared {
    /// The interface.
    interface: u32,
    mac: AtomicU64,
    /// Bytes of its largest frame now.
    frame: AtomicU32,
    maps: Arc<Maps>,
    sorting: Arc<Sorting>,
    guard: Guard,
    /// Also where rules of netfilter count or limit.
    despite_rules: bool,
    recovers: bool,
    last: AtomicU32,
    table: Mutex<Table>,
}

/// What is taken, by all.
#[derive(Default)]
struct Table {
    /// The user that each is accounted to.
    tuples: HashMap<Tuple, u32>,
    users: BTreeMap<u32, usize>,
    /// Given back so far, and those that the kernel would not take; why not, the last time.
    given: [u64; 2],
    refused: Option<String>,
}

impl Table {
    /// The tuple is this user's from now on.
    fn claim(&mut self, tuple: &Tuple, user: u32) -> Result<(), Decline> {
        if self.tuples.contains_key(tuple) {
            return Err(Decline::Ended);
        }
        let has = self.users.entry(user).or_default();
        if *has >= EACH {
            return Err(Decline::Limit);
        }
        *has += 1;
        self.tuples.insert(*tuple, user);
        Ok(())
    }

    /// And nobody's.
    fn release(&mut self, tuple: &Tuple) {
        let Some(user) = self.tuples.remove(tuple) else { return };
        if let Some(has) = self.users.get_mut(&user) {
            *has -= 1;
            if *has == 0 {
                self.users.remove(&user);
            }
        }
    }
}

/// Nanoseconds of CLOCK_MONOTONIC, without a system call where the kernel shows its clock: the library's own clock is made for programs that ask it all the time.
fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: written by the kernel.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The value, also if a thread panicked with it: each change of it is one statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// For an agent that takes connections.
    pub(crate) fn new(
        guard: Guard,
        sorting: &Arc<Sorting>,
        interface: &Interface,
        frame: u32,
        configuration: &Configuration,
    ) -> Arc<Shared> {
        Arc::new(Shared {
            interface: interface.index,
            mac: AtomicU64::new(mac_to_word(interface.mac, 0)),
            frame: AtomicU32::new(frame),
            maps: sorting.maps.clone(),
            sorting: sorting.clone(),
            guard,
            despite_rules: configuration.despite_rules,
            recovers: configuration.recovers,
            last: AtomicU32::new(0),
            table: Mutex::default(),
        })
    }

    fn mac(&self) -> Mac {
        mac_of_word(self.mac.load(Relaxed))
    }

    fn is_taken(&self, tuple: &Tuple) -> bool {
        lock(&self.table).tuples.contains_key(tuple)
    }

    /// For a report.
    pub(crate) fn report(&self) -> report::Connections {
        let table = lock(&self.table);
        let [given_back, lost] = table.given;
        let (taken, refused) = (table.tuples.len(), table.refused.clone());
        report::Connections { taken, given_back, lost, refused, guard: Some(self.guard.process()) }
    }
}

/// A client's thread, as the agent has it.
pub(crate) struct Hands {
    orders: Sender<Order>,
    bell: OwnedFd,
    /// Hangs up when the thread has ended.
    over: Receiver<()>,
}

/// What a thread is told.
enum Order {
    /// Look at the interface again.
    Look,
    /// Give all back, and end. The client's endpoint, if it is gone: what lies in its queue is to be handed on.
    End(Option<Box<Attached>>),
}

impl Hands {
    fn tell(&self, order: Order) {
        let one = 1u64;
        let _ = self.orders.send(order);
        let _ = calls::write(self.bell.as_raw_fd(), (&raw const one).cast(), 8);
    }

    /// Whether it has ended by then.
    fn has_ended_by(&self, until: Instant) -> bool {
        use std::sync::mpsc::RecvTimeoutError::Timeout;
        !matches!(self.over.recv_timeout(until.saturating_duration_since(Instant::now())), Err(Timeout))
    }
}

impl Agent {
    /// Gives a client that has a queue a thread for its connections.
    pub(crate) fn hands(&mut self, number: u32) -> Answer {
        let shared = self.connections.clone().ok_or(libc::EOPNOTSUPP)?;
        let client = self.clients.get_mut(&number).ok_or(libc::ENOTCONN)?;
        if client.hands.is_some() {
            return Err(libc::EALREADY);
        }
        let endpoint = client.endpoint.as_ref().filter(|endpoint| endpoint.kind == Kind::Own).ok_or(libc::ENOTCONN)?;
        let takes_pieces = endpoint.socket.as_ref().is_some_and(|socket| socket.takes_pieces());
        let frames = endpoint.socket.as_ref().map(|socket| socket.fd()).ok_or(libc::ENOTCONN)?;
        // SAFETY: its endpoint has it open.
        let frames = unsafe { BorrowedFd::borrow_raw(frames) }.try_clone_to_owned().map_err(|_| libc::EMFILE)?;
        let [ours, theirs] = pair().map_err(|errno| errno.0)?;
        let (orders, told) = channel();
        let (ends, over) = channel::<()>();
        let bell = event().map_err(|_| libc::EMFILE)?;
        let heard = bell.try_clone().map_err(|_| libc::EMFILE)?;
        let work = Work::new(shared, ours, heard, told, client.who, (endpoint.queue, endpoint.frame, takes_pieces), frames)
            .map_err(|error| error.raw_os_error().unwrap_or(libc::EMFILE))?;
        let run = move || {
            work.run();
            drop(ends);
        };
        std::thread::Builder::new().name("shunt-hands".to_string()).spawn(run).map_err(|_| libc::EAGAIN)?;
        client.hands = Some(Hands { orders, bell, over });
        Ok((Reply::done(), vec![theirs]))
    }

    /// A client is gone: its connections go back to the kernel, and its endpoint ends. `None`: a thread has it now.
    pub(crate) fn end_hands(hands: &Hands, endpoint: Option<Attached>) {
        hands.tell(Order::End(endpoint.map(Box::new)));
        // Until then its queue cannot be lent again.
        hands.has_ended_by(Instant::now() + ONE_ENDS);
    }

    /// The interface may be another now.
    pub(crate) fn tell_hands(&mut self) {
        let Some(shared) = &self.connections else { return };
        shared.mac.store(mac_to_word(self.interface.mac, 0), Relaxed);
        shared.frame.store(self.frame, Relaxed);
        self.clients.values().filter_map(|client| client.hands.as_ref()).for_each(|hands| hands.tell(Order::Look));
    }

    /// Gives back everything: the agent ends. What cannot be reached now is the guard's to try.
    pub(crate) fn give_back_everything(&mut self) {
        let all = self.clients.values_mut();
        let all: Vec<Hands> = all
            .filter_map(|client| {
                let hands = client.hands.take()?;
                hands.tell(Order::End(client.endpoint.take().map(Box::new)));
                Some(hands)
            })
            .collect();
        let until = Instant::now() + ALL_END;
        all.iter().for_each(|hands| {
            hands.has_ended_by(until);
        });
    }
}

/// Both ends of a connection of packets.
fn pair() -> Result<[OwnedFd; 2], shunt_sys::Errno> {
    let mut ends = [-1; 2];
    calls::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr())?;
    // SAFETY: made above, ours.
    Ok(ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each connection is one user's, who may have so many, whatever others have.
    #[test]
    fn a_user_has_a_limit_of_its_own() {
        let mut table = Table::default();
        let tuple = |port: usize| Tuple { ours: ([10, 0, 0, 1], 80).into(), theirs: ([10, 0, 0, 2], port as u16).into() };
        for port in 0..EACH {
            assert_eq!(table.claim(&tuple(port), 7), Ok(()));
        }
        assert_eq!(table.claim(&tuple(EACH), 7), Err(Decline::Limit));
        assert_eq!(table.claim(&tuple(EACH), 8), Ok(()));
        assert_eq!(table.claim(&tuple(EACH), 8), Err(Decline::Ended), "it is taken");
        table.release(&tuple(5));
        table.release(&tuple(5));
        assert_eq!(table.claim(&tuple(5), 7), Ok(()));
        assert_eq!(table.claim(&tuple(EACH + 1), 7), Err(Decline::Limit));
        (0..=EACH).for_each(|port| table.release(&tuple(port)));
        assert!(table.users.is_empty() && table.tuples.is_empty());
    }
}
