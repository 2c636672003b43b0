//! What U-Net's paper says in section 6 of three machines and of seven programs on them.
//!
//! Figure 5 is a picture whose bars have no numbers, and no number is read off it here: numbers are those of table 2, and of figure 5 what
//! the text says of it.

use super::model::Modelled;

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
            let [cm5, cs2, unet] = times.of("matrix")?;
            Some([cs2, unet].iter().all(|other| cm5.computation > other.computation && cm5.communication > other.communication))
        },
    },
    Sentence {
        says: "sample sort, small: the CM-5 has the slower processor and the lower overhead",
        holds: |times| {
            let [cm5, cs2, unet] = times.of("sample-sort-small")?;
            Some([cs2, unet].iter().all(|other| cm5.computation > other.computation && cm5.communication < other.communication))
        },
    },
    Sentence {
        says: "sample sort: U-Net and CS-2 are about equal (within 1.5 x), U-Net with the faster processor",
        holds: |times| {
            let alike = ["sample-sort-small", "sample-sort-bulk"].map(|program| {
                let [_, cs2, unet] = times.of(program)?;
                Some(about_equal(unet.total(), cs2.total()) && unet.computation < cs2.computation)
            });
            Some(alike[0]? && alike[1]?)
        },
    },
    Sentence {
        says: "sample sort: in bulk, U-Net and CS-2 gain on the CM-5",
        holds: |times| {
            let (small, bulk) = (times.of("sample-sort-small")?, times.of("sample-sort-bulk")?);
            Some([CS2, UNET].iter().all(|&at| bulk[at].total() / bulk[CM5].total() < small[at].total() / small[CM5].total()))
        },
    },
    Sentence {
        says: "sorts in bulk: U-Net is faster than the CM-5",
        holds: |times| {
            let faster = ["sample-sort-bulk", "radix-sort-bulk"].map(|program| {
                let [cm5, _, unet] = times.of(program)?;
                Some(unet.total() < cm5.total())
            });
            Some(faster[0]? && faster[1]?)
        },
    },
    Sentence {
        says: "radix sort, small: U-Net is slower than the CM-5",
        holds: |times| times.of("radix-sort-small").map(|[cm5, _, unet]| unet.total() > cm5.total()),
    },
    Sentence {
        says: "components: U-Net is slower than the CM-5 (ours asks for little: strips are joined in themselves first)",
        holds: |times| times.of("components").map(|[cm5, _, unet]| unet.total() > cm5.total()),
    },
    Sentence {
        says: "radix sort, small: U-Net and CS-2 are about equal (within 1.5 x; by table 2's overheads 1.8 x apart)",
        holds: |times| times.of("radix-sort-small").map(|[_, cs2, unet]| about_equal(unet.total(), cs2.total())),
    },
    Sentence {
        says: "radix sort in bulk and components: U-Net and CS-2 are about equal (within 1.5 x)",
        holds: |times| {
            let alike = ["radix-sort-bulk", "components"].map(|program| {
                let [_, cs2, unet] = times.of(program)?;
                Some(about_equal(unet.total(), cs2.total()))
            });
            Some(alike[0]? && alike[1]?)
        },
    },
];

fn about_equal(one: f64, other: f64) -> bool {
    (1.0 / 1.5..=1.5).contains(&(one / other))
}
