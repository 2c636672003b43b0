//! The suites of endpoints, direct access and active messages over libfabric's providers `tcp` and `shm`, and with wrappers.
#![cfg(feature = "libfabric")]

#[path = "../../buffers/tests/pairs/mod.rs"]
mod pairs;
#[path = "../../am/tests/ports/mod.rs"]
#[allow(dead_code)]
mod ports;
mod providers;

use providers::{made, shm, tcp, TCP};
use shunt_endpoint::conformance::wrapped::BAD_NETWORK;
use shunt_endpoint::conformance::Couple;
use shunt_endpoint::wrapper::fault::{Fault, Faults};
use shunt_fabric::{Fabric, Options, Progress};

mod over_tcp {
    use super::*;
    shunt_endpoint::conformance!(|| Some(Couple::new(tcp(), tcp())));

    #[test]
    fn active_messages() {
        ports::with_server(tcp(), tcp(), |config| config, ports::exercise);
    }

    #[test]
    fn a_vanished_server_is_noticed() {
        ports::server_that_vanishes(tcp(), tcp());
    }

    #[test]
    fn every_semantics_of_buffers() {
        pairs::all_pairs(|_| tcp());
    }
}

mod over_tcp_by_thread {
    use super::*;
    fn by_thread() -> Fabric {
        made(Options { progress: Progress::ByThread, ..TCP })
    }
    shunt_endpoint::conformance!(|| Some(Couple::new(by_thread(), by_thread())));
}

mod over_shm {
    use super::*;
    fn couple() -> Option<Couple> {
        Some(Couple::new(shm(), shm()))
    }
    shunt_endpoint::conformance!(couple);
    shunt_endpoint::conformance!(@wrapped couple);

    #[test]
    fn active_messages() {
        ports::with_server(shm(), shm(), |config| config, ports::exercise);
    }

    #[test]
    fn a_vanished_server_is_noticed() {
        ports::server_that_vanishes(shm(), shm());
    }
}

mod with_faults {
    use super::*;
    shunt_endpoint::conformance!(|| Some(Couple::new(tcp(), tcp()).with_faults(BAD_NETWORK)));

    #[test]
    fn active_messages() {
        let bad = |seed| {
            Fault::new(shm(), Faults { seed, loss: 50_000, duplicate: 20_000, reorder: 20_000, corrupt: 10_000, delay: 0 })
        };
        ports::with_server(bad(1), bad(2), |config| config, ports::exercise);
    }
}
