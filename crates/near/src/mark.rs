//! Marks: sizes of segments that a SYN names, by which a server sees that the connection's client waits, and where.
//!
//! They lie below those that streams to other hosts show ([`shunt_rendezvous::shown`] reads both), are odd, and are below what the interface has: no program
//! names such by itself. Each is of one kind, and a server looks for its client in that one's way alone: in another way another process might have waited.

/// How many marks there are. Each odd number of bytes less costs a connection that TCP carries after all.
const CHOICE: u32 = 32;
/// What the greatest is less than the interface's largest segment, which is taken for even.
const ABOVE: u32 = 129;
/// Where the program or the interface allows less than this there is no room for marks.
const LEAST_SEGMENT: u32 = 600;

/// Where the client waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// At a name in the directory.
    Named,
    /// In the memory of a link.
    Announced,
    /// At hostd.
    Introduced,
}

impl Kind {
    /// That of a mark. By the number itself, which both ends see, and not by what it is less than one's own interface's, which may differ.
    fn of(mark: u32) -> Kind {
        match mark % 8 {
            1 => Kind::Announced,
            5 => Kind::Introduced,
            _ => Kind::Named,
        }
    }
}

/// A mark of this kind for an interface whose largest segment has so many bytes, by a random number; `None`: it has no room.
pub fn drawn(kind: Kind, largest: u32, random: u64) -> Option<u16> {
    let largest = largest.min(u32::from(i16::MAX as u16)) & !1;
    if largest < LEAST_SEGMENT {
        return None;
    }
    let marks = || (0..CHOICE).map(|less| largest - ABOVE - 2 * less).filter(|mark| Kind::of(*mark) == kind);
    marks().nth(random as usize % marks().count()).map(|mark| mark as u16)
}

/// The kind of mark that a SYN shows which named segments of so many bytes, by an interface whose largest segment has `own`; `None`: it shows none.
pub fn shown(segment: u32, own: u32) -> Option<Kind> {
    let less = (own.min(u32::from(i16::MAX as u16)) & !1).wrapping_sub(segment);
    let is_one = segment >= LEAST_SEGMENT - ABOVE - 2 * CHOICE && less % 2 == 1 && (ABOVE..ABOVE + 2 * CHOICE).contains(&less);
    is_one.then(|| Kind::of(segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_seen_as_one_of_its_kind_and_nothing_else() {
        for largest in [600, 1400, 1440, 1460, 8960, 32_767, 65_483] {
            for (kind, choice) in [(Kind::Named, 16), (Kind::Announced, 8), (Kind::Introduced, 8)] {
                let marks: Vec<u16> = (0..64).map(|random| drawn(kind, largest, random).expect("room")).collect();
                assert!(
                    marks.iter().all(|mark| shown(u32::from(*mark), largest) == Some(kind) && mark % 2 == 1),
                    "{largest} {marks:?}"
                );
                let count = (0..=largest).filter(|segment| shown(*segment, largest) == Some(kind)).count();
                let drawn: std::collections::BTreeSet<_> = marks.iter().collect();
                assert!(count == choice && drawn.len() == choice, "{largest} {kind:?}");
            }
        }
        assert_eq!(drawn(Kind::Named, 536, 0), None);
        assert!([0, 1460, 1459].iter().all(|segment| shown(*segment, 1460).is_none()), "not those of other hosts");
    }

    /// Where the interfaces of the two ends have other sizes a mark is another's, if any, but never of another kind.
    #[test]
    fn no_mark_is_taken_for_one_of_another_kind() {
        for kind in [Kind::Named, Kind::Announced, Kind::Introduced] {
            for (random, own) in (0..16).flat_map(|random| (1300..1600).map(move |own| (random, own))) {
                let mark = drawn(kind, 1460, random).expect("room");
                assert!(shown(u32::from(mark), own).is_none_or(|seen| seen == kind), "{mark} {own}");
            }
        }
    }
}
