//! The receive queue is non-empty, or almost full: U-Net section 3.1.

use super::direct::until;
use super::joined::{joined, send, Joined};
use super::Make;
use crate::upcall::{Condition, Gate};
use crate::Message;

/// An upcall is held back by the gate, and takes all that waits; one for "almost full" comes when so much of a queue without a
/// receiver is used, and not before.
pub fn upcalls(make: Make<'_>) {
    const HALF: u32 = 50;
    let Some(Joined { mut a, mut b, to_b, _keep, .. }) = joined(make) else { return };
    let (gate, lossy) = (Gate::new(), a.capabilities().lossy);
    let message = Message::small(to_b, b"called");
    let mut none = |_: &mut super::Boxed, _: &crate::Arrival| panic!("an upcall of a shut gate");
    gate.disable();
    until("a message to wait", || {
        send(&mut *a, &message);
        assert_eq!(gate.deliver(&mut b, Condition::NonEmpty, &mut none), 0);
        (b.backlog().waiting > 0).then_some(())
    });
    assert!(gate.enable(), "one was held back");
    let mut heard = 0;
    let told = until("the upcall", || {
        let told = gate.deliver(&mut b, Condition::NonEmpty, |_, arrival| heard += usize::from(arrival.head() == b"called"));
        if told == 0 && lossy {
            send(&mut *a, &message);
        }
        (heard > 0).then_some(told)
    });
    assert!(heard == told || lossy, "{heard} of {told}");

    let (mut sent, mut before) = (0, 0);
    let told = loop {
        let backlog = b.backlog();
        assert!(backlog.waiting >= before || lossy, "nobody takes what waits");
        before = backlog.waiting;
        let almost = backlog.waiting * 100 >= backlog.capacity * HALF;
        let told = gate.deliver(&mut b, Condition::AlmostFull(HALF), |_, _| {});
        assert!(told == 0 || told as u32 >= before || lossy, "all that waits");
        assert!(told > 0 || !almost || lossy, "{backlog:?}");
        if told > 0 {
            break told;
        }
        send(&mut *a, &message);
        sent += 1;
        // A network that loses has a thread or a process of its own, which needs its turn.
        if lossy {
            std::thread::yield_now();
        }
        assert!(sent < if lossy { 64 } else { 8 } * backlog.capacity, "never almost full: {backlog:?}");
    };
    assert!(told as u32 * 100 >= b.backlog().capacity * HALF || lossy, "too early: {told}");
}
