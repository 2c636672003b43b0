//! Marks: sizes of segments that a SYN names, by which a server sees that the connection's client waits in the directory.
//!
//! They lie below those that streams to other hosts show ([`shunt_rendezvous::shown`] reads both), are odd, and are below what the interface has: no program
//! names such by itself.

/// How many marks there are. Each odd number of bytes less costs a connection that TCP carries after all.
const CHOICE: u32 = 32;
/// What the greatest is less than the interface's largest segment, which is taken for even.
const ABOVE: u32 = 129;
/// Where the program or the interface allows less than this there is no room for marks.
const LEAST_SEGMENT: u32 = 600;

/// A mark for an interface whose largest segment has so many bytes, by a random number; `None`: it has no room.
pub fn drawn(largest: u32, random: u64) -> Option<u16> {
    let largest = largest.min(u32::from(i16::MAX as u16)) & !1;
    (largest >= LEAST_SEGMENT).then(|| (largest - ABOVE - 2 * (random % u64::from(CHOICE)) as u32) as u16)
}

/// Whether a SYN that named segments of so many bytes shows a mark, by an interface whose largest segment has `own`.
pub fn is_one(segment: u32, own: u32) -> bool {
    let less = (own.min(u32::from(i16::MAX as u16)) & !1).wrapping_sub(segment);
    segment >= LEAST_SEGMENT - ABOVE - 2 * CHOICE && less % 2 == 1 && (ABOVE..ABOVE + 2 * CHOICE).contains(&less)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_seen_as_one_and_nothing_else() {
        for largest in [600, 1400, 1440, 1460, 8960, 32_767, 65_483] {
            let marks: Vec<u16> = (0..64).map(|random| drawn(largest, random).expect("room")).collect();
            assert!(marks.iter().all(|mark| is_one(u32::from(*mark), largest) && mark % 2 == 1), "{largest} {marks:?}");
            let count = (0..=largest).filter(|segment| is_one(*segment, largest)).count();
            assert_eq!(count, CHOICE as usize, "{largest}");
        }
        assert_eq!(drawn(536, 0), None);
        assert!(!is_one(0, 1460) && !is_one(1460, 1460) && !is_one(1459, 1460), "not those of other hosts");
    }
}
