//! Upcalls by signals: the handler runs on arrival, is held back by the gate, and no message is left behind.

use shunt_endpoint::conformance::direct::until;
use shunt_endpoint::conformance::{connect, meet, provide};
use shunt_endpoint::device::local::Switch;
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::upcall::{request_signal, Gate};
use shunt_endpoint::{Channel, Endpoint, Message};
use shunt_sys::{libc, Errno};
use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::SeqCst};

const SIGNAL: i32 = libc::SIGUSR2;

/// An endpoint that is driven by upcalls alone, on one thread.
struct Machine {
    gate: Gate,
    endpoint: UnsafeCell<Box<dyn Endpoint + Send>>,
    /// Messages that were handled, and signals that came.
    seen: AtomicU64,
    signals: AtomicU64,
}

impl Machine {
    fn upcall(&self) -> usize {
        // SAFETY: of one thread, and the gate lets one upcall at a time use it.
        let endpoint = unsafe { &mut **self.endpoint.get() };
        self.gate.deliver_and_arm(endpoint, |_, arrival| {
            assert_eq!(arrival.head(), self.seen.load(SeqCst).to_le_bytes());
            self.seen.fetch_add(1, SeqCst);
        })
    }
}

static MACHINE: AtomicPtr<Machine> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn handler(_: i32) {
    // SAFETY: set before signals are asked for, and kept.
    let machine = unsafe { &*MACHINE.load(SeqCst) };
    machine.signals.fetch_add(1, SeqCst);
    machine.upcall();
}

fn send(endpoint: &mut dyn Endpoint, channel: Channel, number: u64) {
    until("room", || endpoint.send(&Message::small(channel, &number.to_le_bytes())).ok());
    until("the way", || endpoint.flush().expect("a device that works").then_some(()));
}

fn signals_deliver(mut a: impl Endpoint + Send, mut b: impl Endpoint + Send + 'static) {
    const ROUNDS: u64 = 1000;
    provide(&mut a, 64);
    provide(&mut b, 64);
    let (to_b, _) = connect(&mut a, &mut b);
    meet(&mut a, &mut b);
    // SAFETY: asks for the number of this thread.
    let thread = unsafe { shunt_sys::syscall!(libc::SYS_gettid) } as u32;
    request_signal(&b, thread, SIGNAL).expect("signals");
    // Kept for ever: a signal may come late.
    let machine: &'static Machine = Box::leak(Box::new(Machine {
        gate: Gate::new(),
        endpoint: UnsafeCell::new(Box::new(b)),
        seen: AtomicU64::new(0),
        signals: AtomicU64::new(0),
    }));
    MACHINE.store(std::ptr::from_ref(machine).cast_mut(), SeqCst);
    assert_eq!(machine.upcall(), 0, "armed, and nothing waits");

    // On arrival.
    send(&mut a, to_b, 0);
    until("the handler", || (machine.seen.load(SeqCst) == 1).then_some(()));
    assert!(machine.signals.load(SeqCst) > 0);

    // Held back, and made up for.
    machine.gate.disable();
    let before = machine.signals.load(SeqCst);
    send(&mut a, to_b, 1);
    until("the signal", || (machine.signals.load(SeqCst) > before).then_some(()));
    assert_eq!(machine.seen.load(SeqCst), 1, "a critical section");
    assert!(machine.gate.enable(), "one was held back");
    assert_eq!(machine.upcall(), 1);

    // At any moment of a thread that shuts and opens the gate all the time: none is lost.
    let seen = &machine.seen;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for round in 2..ROUNDS {
                send(&mut a, to_b, round);
                until("an upcall", || (seen.load(SeqCst) > round).then_some(()));
            }
        });
        let mut turns = 0u64;
        until("all messages", || {
            turns += 1;
            machine.gate.disable();
            (0..turns * 31 % 400).for_each(|_| std::hint::spin_loop());
            if machine.gate.enable() {
                machine.upcall();
            }
            (machine.seen.load(SeqCst) == ROUNDS).then_some(())
        });
    });
}

#[test]
fn handlers_run_on_arrival() {
    // SAFETY: a handler of the right kind; zero is valid for the rest.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        assert_eq!(libc::sigaction(SIGNAL, &action, std::ptr::null_mut()), 0);
    }
    let udp = || Udp::bind(&ipv4([127, 0, 0, 1], 0), Options::default()).unwrap();
    signals_deliver(udp(), udp());
    let shm = || Shm::new(Default::default()).unwrap();
    signals_deliver(shm(), shm());
}

/// The kernel would take the request, and never send a signal.
#[test]
fn where_there_is_no_socket_it_is_refused() {
    let endpoint = Switch::new().unwrap().plug().unwrap();
    assert_eq!(request_signal(&endpoint, 1, SIGNAL), Err(Errno(libc::EOPNOTSUPP)));
}
