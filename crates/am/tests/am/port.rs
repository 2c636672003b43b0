//! Ports over real endpoints: two threads, each with its own.

use crate::ports::{exercise, server_that_vanishes, stalled_among_others, with_server};
use shunt_am::port::{config_for, join, memory, Port, Table, Trouble};
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

fn bad(seed: u64) -> Fault<Udp> {
    Fault::new(udp(), Faults { seed, loss: 50_000, duplicate: 20_000, reorder: 20_000, corrupt: 10_000, delay: 0 })
}

#[test]
fn over_a_bad_network() {
    with_server(bad(1), bad(2), |config| config, exercise);
}

#[test]
fn two_ports_of_one_thread_are_joined() {
    for seed in 1..5 {
        let (a, b) = (bad(2 * seed), bad(2 * seed + 1));
        let config = config_for(&a, 1);
        let (mut for_a, mut for_b) = (memory(&config), memory(&config));
        let mut ports = (Port::new(a, &mut for_a, &config).unwrap(), Port::new(b, &mut for_b, &config).unwrap());
        let mut tables = (Table::new(()), Table::new(()));
        let peers = join((&mut ports.0, &mut tables.0), (&mut ports.1, &mut tables.1));
        assert_eq!(peers, Ok((0, 0)), "{seed}");
        assert!(ports.0.engine().is_up(0) && ports.1.engine().is_up(0), "{seed}");
        let again = join((&mut ports.0, &mut tables.0), (&mut ports.1, &mut tables.1));
        assert_eq!(again, Err(Trouble::Channel(shunt_endpoint::OpenError::Full)), "{seed}");
    }
}

#[test]
fn a_vanished_server_is_noticed() {
    server_that_vanishes(udp(), udp());
    let new = || Shm::new(Default::default()).unwrap();
    server_that_vanishes(new(), new());
}

#[test]
fn a_stalled_peer_is_noticed_among_others() {
    stalled_among_others(udp, false);
    stalled_among_others(|| Shm::new(Default::default()).unwrap(), false);
    stalled_among_others(|| Shm::new(Default::default()).unwrap(), true);
}
