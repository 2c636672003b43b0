//! The agent: who may have what, what it survives, what it leaves behind.
#[path = "../agents/mod.rs"]
mod agents;
mod captures;
mod ends;
mod hostile;
mod interface;
mod program;
mod refusals;
mod runs;
mod users;

use std::time::{Duration, Instant};

use shunt_endpoint::{Arrival, Channel, Endpoint, Message, SendError};
use shunt_testkit::hosts::Host;
use shunt_xdp::protocol::{Kind, Sizes};
use shunt_xdp::Xdp;

const DEADLINE: Duration = Duration::from_secs(20);

/// Waits until it holds.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < DEADLINE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Sends until the message has arrived at the other end.
fn pass(from: &mut dyn Endpoint, to: &mut dyn Endpoint, channel: Channel, bytes: &[u8]) {
    let mut arrival = Arrival::empty();
    until("a message passes", || {
        match from.send(&Message::small(channel, bytes)) {
            Ok(_) | Err(SendError::NoResource) => {}
            Err(error) => panic!("{error:?}"),
        }
        from.flush().expect("the device works");
        if !to.receive(&mut arrival) {
            return false;
        }
        let same = arrival.head() == bytes;
        to.release(&mut arrival);
        same
    });
}

/// An endpoint with a queue of its own: the kernel frees a queue some time after the last descriptor of its socket.
fn attach_own(host: &Host) -> Xdp {
    let mut made = None;
    until("the queue can be lent", || {
        made = host.enter(|| Xdp::attach(&host.interface, Kind::Own, false, Sizes::default())).ok();
        made.is_some()
    });
    made.expect("made")
}

fn program_of(host: &Host) -> Option<String> {
    let output = host.command("ip").args(["-d", "link", "show", &host.interface]).output().expect("ip runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.contains("xdp").then_some(text)
}
