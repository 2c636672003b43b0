//! Any segments, at random: `attack` says what must hold.

mod attack;

use attack::{attack, Operation};
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn segments_of_anybody(operations in proptest::collection::vec(operation(), 1..60)) {
        attack(operations.clone(), Recovery::GiveBack);
        attack(operations, Recovery::Own(Law::Cubic));
    }
}
