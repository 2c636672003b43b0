//! The suite over the switch in the process, plain and behind wrappers.

use shunt_endpoint::conformance::Couple;
use shunt_endpoint::device::local::Switch;
use shunt_endpoint::wrapper::fault::Faults;

fn plain() -> Option<Couple> {
    let switch = Switch::new().unwrap();
    Some(Couple::new(switch.plug().unwrap(), switch.plug().unwrap()))
}

mod switch {
    use super::*;
    shunt_endpoint::conformance!(plain);
    shunt_endpoint::conformance!(@wrapped plain);
}

mod without_faults {
    use super::*;
    shunt_endpoint::conformance!(|| plain().map(|couple| couple.with_faults(Faults::default())));
}

mod worse_network {
    use super::*;
    const BAD: Faults = Faults { seed: 0, loss: 200_000, duplicate: 50_000, reorder: 100_000, corrupt: 20_000, delay: 3 };
    shunt_endpoint::conformance!(|| plain().map(|couple| couple.with_faults(BAD)));
}
