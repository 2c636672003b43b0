//! What U-Net's paper says in section 6 of three machines and of seven programs on them.
//!
//! Figure 5 is a picture whose bars have no numbers, and no number is read off it here: numbers are those of table 2, and of figure 5 what
//! the text says of it.

use super::model::{Modelled, Time};

/// A row of table 2.
pub struct Machine {
    pub name: &'static str,
    /// Of the ATM cluster's processors of 50 and 60 MHz the slower ones, for which a barrier waits.
    pub megahertz: f64,
    /// Microseconds of a processor for a message.
    pub overhead: f64,
    /// Microseconds.
    pub round_trip: f64,
    /// Megabytes in a second: so the text has them; the table prints Mb/s.
    pub bandwidth: f64,
}

/// CM-5, CS-2 and U-Net's cluster; figure 5's unit is the first one's time.
pub const MACHINES: [Machine; 3] = [
    Machine { name: "CM-5", megahertz: 33.0, overhead: 3.0, round_trip: 12.0, bandwidth: 10.0 },
    Machine { name: "CS-2", megahertz: 40.0, overhead: 11.0, round_trip: 25.0, bandwidth: 39.0 },
    Machine { name: "U-Net", megahertz: 50.0, overhead: 6.0, round_trip: 71.0, bandwidth: 14.0 },
];

pub const CM5: usize = 0;
pub const CS2: usize = 1;
pub const UNET: usize = 2;

/// A sentence of section 6 about figure 5, and whether modelled times say it, too.
pub struct Sentence {
    pub says: &'static str,
    pub holds: fn(&Modelled) -> Option<bool>,
}

/// Of eight processors, as figure 5 is.
pub const SENTENCES: [Sentence; 9] = [
    Sentence {
        says: "matrix: the CM-5 has the slower processor and the lower bandwidth",
        holds: |times| {
            let slower = |cm5: Time, other: Time| cm5.computation > other.computation && cm5.communication > other.communication;
            each(times, &["matrix"], |[cm5, cs2, unet]| slower(cm5, cs2) && slower(cm5, unet))
        },
    },
    Sentence {
        says: "sample sort, small: the CM-5 has the slower processor and the lower overhead",
        holds: |times| {
            let lower = |cm5: Time, other: Time| cm5.computation > other.computation && cm5.communication < other.communication;
            each(times, &["sample-sort-small"], |[cm5, cs2, unet]| lower(cm5, cs2) && lower(cm5, unet))
        },
    },
    Sentence {
        says: "sample sort: U-Net and CS-2 are about equal (within 1.5 x), U-Net with the faster processor",
        holds: |times| {
            let alike = |[_, cs2, unet]: Times| about_equal(unet, cs2) && unet.computation < cs2.computation;
            each(times, &["sample-sort-small", "sample-sort-bulk"], alike)
        },
    },
    Sentence {
        says: "sample sort: in bulk, U-Net and CS-2 gain on the CM-5",
        holds: |times| {
            let small = times.of("sample-sort-small")?;
            let part = |of: Times, at: usize| of[at].total() / of[CM5].total();
            each(times, &["sample-sort-bulk"], |bulk| [CS2, UNET].iter().all(|&at| part(bulk, at) < part(small, at)))
        },
    },
    Sentence {
        says: "sorts in bulk: U-Net is faster than the CM-5",
        holds: |times| each(times, &["sample-sort-bulk", "radix-sort-bulk"], |[cm5, _, unet]| unet.total() < cm5.total()),
    },
    Sentence {
        says: "radix sort, small: U-Net is slower than the CM-5",
        holds: |times| each(times, &["radix-sort-small"], |[cm5, _, unet]| unet.total() > cm5.total()),
    },
    Sentence {
        says: "components: U-Net is slower than the CM-5 (ours asks for little: strips are joined in themselves first)",
        holds: |times| each(times, &["components"], |[cm5, _, unet]| unet.total() > cm5.total()),
    },
    Sentence {
        says: "radix sort, small: U-Net and CS-2 are about equal (within 1.5 x; by table 2's overheads 1.8 x apart)",
        holds: |times| each(times, &["radix-sort-small"], |[_, cs2, unet]| about_equal(unet, cs2)),
    },
    Sentence {
        says: "radix sort in bulk and components: U-Net and CS-2 are about equal (within 1.5 x)",
        holds: |times| each(times, &["radix-sort-bulk", "components"], |[_, cs2, unet]| about_equal(unet, cs2)),
    },
];

/// As `MACHINES` are.
type Times = [Time; MACHINES.len()];

/// Whether all of these programs do; none if one was not measured.
fn each(times: &Modelled, programs: &[&str], holds: impl Fn(Times) -> bool) -> Option<bool> {
    let all: Option<Vec<Times>> = programs.iter().map(|program| times.of(program)).collect();
    Some(all?.into_iter().all(holds))
}

fn about_equal(one: Time, other: Time) -> bool {
    (1.0 / 1.5..=1.5).contains(&(one.total() / other.total()))
}
