//! The suite over the switch in the process, plain and behind a bad network.

use shunt_endpoint::conformance::Couple;
use shunt_endpoint::device::local::Switch;
use shunt_endpoint::wrapper::fault::{Fault, Faults};

fn plain() -> Option<Couple> {
    let switch = Switch::new().unwrap();
    Some(Couple::new(switch.plug().unwrap(), switch.plug().unwrap()))
}

fn faulty(faults: Faults) -> Option<Couple> {
    let switch = Switch::new().unwrap();
    let wrap = |seed| Fault::new(switch.plug().unwrap(), Faults { seed, ..faults });
    Some(Couple::new(wrap(1), wrap(2)))
}

mod switch {
    shunt_endpoint::conformance!(super::plain);
}

mod without_faults {
    shunt_endpoint::conformance!(|| super::faulty(Default::default()));
}

mod bad_network {
    use super::Faults;
    const BAD: Faults = Faults { seed: 0, loss: 200_000, duplicate: 50_000, reorder: 100_000, corrupt: 20_000, delay: 3 };
    shunt_endpoint::conformance!(|| super::faulty(BAD));
}
