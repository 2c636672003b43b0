//! Ports over real endpoints: two threads, each with its own.

mod ports;

use ports::{exercise, server_that_vanishes, with_server};
use shunt_am::Config;
use shunt_endpoint::device::shm::Shm;
use shunt_endpoint::device::udp::{ipv4, Options, Udp};
use shunt_endpoint::wrapper::fault::{Fault, Faults};

#[test]
fn over_shared_memory() {
    let new = || Shm::new(Default::default()).unwrap();
    with_server(new(), new(), |config| config, exercise);
    with_server(new(), new(), |config| Config { combine: 1, ..config }, exercise);
}

fn udp() -> Udp {
    Udp::bind(&ipv4([127, 0, 0, 1], 0), Options::default()).unwrap()
}

#[test]
fn over_udp() {
    with_server(udp(), udp(), |config| config, exercise);
}

#[test]
fn over_a_bad_network() {
    let bad = |seed| {
        let faults = Faults { seed, loss: 50_000, duplicate: 20_000, reorder: 20_000, corrupt: 10_000, delay: 0 };
        Fault::new(udp(), faults)
    };
    with_server(bad(1), bad(2), |config| config, exercise);
}

#[test]
fn a_vanished_server_is_noticed() {
    server_that_vanishes(udp(), udp());
    let new = || Shm::new(Default::default()).unwrap();
    server_that_vanishes(new(), new());
}
