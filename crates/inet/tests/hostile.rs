//! Any segments, at random: `attack` says what must hold.

mod attack;

use attack::{attack, compare, Operation};
use proptest::prelude::*;
use shunt_inet::header::{FIN, RST, SYN, URG};
use shunt_inet::Recovery;
use shunt_path::Law;

fn operation() -> impl Strategy<Value = Operation> {
    let near = prop_oneof![-3000i32..6000, any::<i32>()];
    let clock = proptest::option::weighted(0.95, prop_oneof![-5i32..50, any::<i32>()]);
    let blocks = proptest::collection::vec((near.clone(), near.clone()), 0..4);
    let flags = prop_oneof![40 => Just(0u8), 1 => Just(FIN), 1 => Just(RST), 1 => Just(SYN), 1 => Just(URG), 1 => any::<u8>()];
    prop_oneof![
        6 => (near.clone(), 0u16..3000, near, any::<u16>(), clock, blocks, flags)
            .prop_map(|(from, length, acknowledged, window, clock, blocks, flags)| Operation::Segment { from, length, acknowledged, window, clock, blocks, flags }),
        1 => (0u32..100_000).prop_map(Operation::Offer),
        1 => (0u16..5000).prop_map(Operation::Read),
        2 => (0u32..2_000_000_000).prop_map(Operation::Wait),
    ]
}

/// Those that an engine keeps, mostly: near what is expected, and in order.
fn likely() -> impl Strategy<Value = Operation> {
    let from = prop_oneof![6 => Just(0i32), 2 => -1500i32..0, 1 => 1i32..1500, 1 => any::<i32>()];
    let acknowledged = prop_oneof![4 => Just(0i32), 4 => 0i32..3000, 1 => -3000i32..0, 1 => any::<i32>()];
    let clock = prop_oneof![6 => 0i32..50, 2 => -3i32..0, 1 => any::<i32>()].prop_map(Some);
    let window = prop_oneof![1 => Just(0u16), 1 => Just(5000u16), 2 => any::<u16>()];
    prop_oneof![
        8 => (from, 0..LONGEST, acknowledged, window, clock).prop_map(|(from, length, acknowledged, window, clock)| Operation::Segment {
            from, length, acknowledged, window, clock, blocks: Vec::new(), flags: 0
        }),
        1 => operation(),
    ]
}

/// Operations of a case, and bytes of a segment, each of which the kernel of the comparison looks after by itself.
const MOST: usize = if cfg!(miri) { 20 } else { 60 };
const LONGEST: u16 = if cfg!(miri) { 100 } else { 1500 };

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 2000 }))]

    #[test]
    fn segments_of_anybody(operations in proptest::collection::vec(operation(), 1..MOST)) {
        attack(operations.clone(), Recovery::GiveBack);
        attack(operations.clone(), Recovery::Exchanges(Law::Cubic));
        attack(operations, Recovery::Own(Law::Cubic));
    }

    #[test]
    fn what_is_given_back_is_what_the_kernel_would_have(operations in proptest::collection::vec(likely(), 1..MOST), at in 0..MOST + 20) {
        compare(operations, at);
    }
}
