//! Sleeping until something happens: one descriptor for each endpoint.
//!
//! Most providers' completion queues have descriptors (`FI_WAIT_FD`), which an epoll joins. Where they have none (`shm`), a
//! thread looks in the sleeper's stead, each 20 to 500 us while another one sleeps and never otherwise, and rings a bell.
//!
//! Neither tells when a provider that took no more takes again (a connection came up by another thread, say). While messages
//! wait for that, a sleeper is woken each millisecond.

use crate::interface::{Interface, Queue};
use shunt_sys::{calls, libc, Errno};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often one looks: so soon at first, and twice as long after each look in vain.
const FIRST: Duration = Duration::from_micros(20);
const LAST: Duration = Duration::from_micros(500);
/// How long messages wait that the provider did not take, before it is asked again.
const AGAIN: Duration = Duration::from_millis(1);

/// A descriptor of ours.
struct Owned(i32);

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = calls::close(self.0);
    }
}

/// What an endpoint's owner sleeps on.
pub enum Bells {
    /// The provider's descriptors and a timer, in an epoll.
    Queues(Queues),
    /// A bell, rung by a thread that looks.
    Watched(Watch),
}

impl Bells {
    /// For the queues of an interface.
    ///
    /// # Errors
    /// What the system answers.
    pub fn of(interface: &Arc<Interface>) -> Result<Bells, Errno> {
        match interface.facts().waits {
            waits if waits.contains(&-1) => Watch::new(interface).map(Bells::Watched),
            waits => Queues::new(waits).map(Bells::Queues),
        }
    }

    /// What becomes readable.
    pub fn descriptor(&self) -> i32 {
        match self {
            Bells::Queues(queues) => queues.epoll.0,
            Bells::Watched(watch) => watch.shared.bell.0,
        }
    }

    /// From now on what happens makes the descriptor readable; false: something has happened, look again. `stuck`: messages
    /// wait that the provider did not take.
    pub fn arm(&mut self, interface: &Interface, stuck: bool) -> bool {
        match self {
            Bells::Queues(queues) => {
                if !interface.may_sleep() {
                    return false;
                }
                if stuck {
                    queues.set(AGAIN);
                }
                true
            }
            Bells::Watched(watch) => {
                watch.shared.lock().arm(stuck);
                watch.shared.changed.notify_one();
                true
            }
        }
    }

    /// Nothing makes the descriptor readable any more, as far as that is ours.
    pub fn disarm(&mut self) {
        match self {
            Bells::Queues(queues) if queues.ticking => queues.set(Duration::ZERO),
            Bells::Queues(_) => {}
            Bells::Watched(watch) => {
                // Under the lock, so that no ring comes after it.
                let mut state = watch.shared.lock();
                state.armed = false;
                let mut count = 0u64;
                let _ = calls::read(watch.shared.bell.0, (&raw mut count).cast(), 8);
            }
        }
    }
}

/// Descriptors of the provider.
pub struct Queues {
    epoll: Owned,
    timer: Owned,
    ticking: bool,
}

impl Queues {
    fn new(waits: [i32; 2]) -> Result<Queues, Errno> {
        let epoll = Owned(calls::epoll_create1(libc::EPOLL_CLOEXEC)?);
        let timer = Owned(calls::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_CLOEXEC | libc::TFD_NONBLOCK)?);
        for descriptor in [waits[0], waits[1], timer.0] {
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
            match calls::epoll_ctl(epoll.0, libc::EPOLL_CTL_ADD, descriptor, &mut event) {
                // One descriptor for both queues.
                Ok(()) | Err(Errno(libc::EEXIST)) => {}
                Err(errno) => return Err(errno),
            }
        }
        Ok(Queues { epoll, timer, ticking: false })
    }

    /// Zero: never.
    fn set(&mut self, after: Duration) {
        let time = |after: Duration| libc::timespec { tv_sec: after.as_secs() as i64, tv_nsec: after.subsec_nanos().into() };
        let new = libc::itimerspec { it_interval: time(Duration::ZERO), it_value: time(after) };
        let _ = calls::timerfd_settime(self.timer.0, 0, &new, core::ptr::null_mut());
        self.ticking = !after.is_zero();
    }
}

/// A thread that looks while another one sleeps.
pub struct Watch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    bell: Owned,
}

#[derive(Default)]
struct State {
    armed: bool,
    stuck: bool,
    over: bool,
    /// Which arming this is.
    number: u64,
}

impl State {
    fn arm(&mut self, stuck: bool) {
        (self.armed, self.stuck, self.number) = (true, stuck, self.number + 1);
    }
}

impl Shared {
    /// No thread panics while holding it.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Watch {
    fn new(interface: &Arc<Interface>) -> Result<Watch, Errno> {
        let bell = Owned(calls::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)?);
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), bell });
        let (interface, theirs) = (interface.clone(), shared.clone());
        let thread = std::thread::Builder::new().name("fabric-watch".into()).spawn(move || look(&interface, &theirs));
        Ok(Watch { shared, thread: Some(thread.map_err(|_| Errno(libc::EAGAIN))?) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn look(interface: &Interface, shared: &Shared) {
    let mut state = shared.lock();
    let (mut number, mut since, mut pause) = (0, Instant::now(), FIRST);
    loop {
        if state.over {
            return;
        }
        if !state.armed {
            state = shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        if state.number != number {
            (number, since, pause) = (state.number, Instant::now(), FIRST);
        }
        let stuck = state.stuck;
        drop(state);
        let found = interface.waits(Queue::Received)
            // The sender may go on.
            || stuck && (interface.waits(Queue::Sent) || since.elapsed() >= AGAIN);
        if !found {
            std::thread::sleep(pause);
            pause = (pause * 2).min(LAST);
        }
        state = shared.lock();
        if found && state.armed && state.number == number {
            state.armed = false;
            let one = 1u64;
            let _ = calls::write(shared.bell.0, (&raw const one).cast(), 8);
        }
    }
}
