//! The scaling model of section 8 against links of known rates: UDP between two hosts, of which the sender's interface has a token bucket.

use std::fmt::{self, Write as _};
use std::io;

use serde::{Deserialize, Serialize};
use shunt_buffers::Semantics;

use super::carrier::{bucket, Carrier};
use super::model::{Fit, Way};
use super::rig::{Measure, Rig};
use super::{median, published, LONG, WARM};

pub const RATES: [u32; 2] = [1, 10];
/// Of a fragment beside its bytes: Ethernet's header and IP's, which the bucket counts.
const HEADS: usize = 14 + 20;
const FRAGMENT: usize = 1480;

/// One semantics by one link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checked {
    pub gigabits: u32,
    pub semantics: String,
    /// Nanoseconds for 60 KB.
    pub actual: f64,
    /// By the model: operations, and the link in place of the base's slope.
    pub model: f64,
    /// The same, and the base's slope beside the link: its copies do not overlap with it.
    pub apart: f64,
}

/// What a link of a rate takes for 60 KB: the last byte leaves when all but the bucket had their time.
fn link(gigabits: u32) -> f64 {
    let bytes = LONG + 8 + (LONG + 8).div_ceil(FRAGMENT) * HEADS;
    (bytes - bucket(gigabits)) as f64 * 8.0 / f64::from(gigabits)
}

/// By the estimates over UDP.
///
/// # Errors
/// `Unsupported`, with a sentence: there is no such link here.
pub fn check(cores: (usize, usize), rounds: usize, estimates: &[(Semantics, Fit)], base: &Fit) -> io::Result<Vec<Checked>> {
    let mut all = Vec::new();
    for gigabits in RATES {
        let mut rig = Rig::new(Carrier::Shaped(gigabits), cores, None)?;
        let kinds = published::PREDICTED.map(|known| known.0);
        let mut times = vec![Vec::new(); kinds.len()];
        for _ in 0..WARM + rounds {
            for (semantics, times) in kinds.iter().zip(&mut times) {
                times.push(rig.pass(&Way::Early.case(*semantics, LONG), Measure::Latency)?.latency);
                // The bucket is full again.
                std::thread::sleep(std::time::Duration::from_micros(200));
            }
        }
        for (semantics, times) in kinds.iter().zip(&mut times) {
            let Some((_, estimate)) = estimates.iter().find(|known| known.0 == *semantics) else { continue };
            let slope = base.each * LONG as f64;
            let model = estimate.at(LONG) - slope + link(gigabits);
            let actual = median(&mut times[WARM..]);
            all.push(Checked { gigabits, semantics: semantics.name().into(), actual, model, apart: model + slope });
        }
    }
    Ok(all)
}

pub fn write(text: &mut String, all: &[Checked]) -> fmt::Result {
    if all.is_empty() {
        return Ok(());
    }
    writeln!(
        text,
        "\nThe model against links of known rates: UDP between two hosts, a token bucket at the sender's interface; 60 KB, us: measured, by the model, and by it\n\
         with the base's slope beside the link's (in brackets, times what was measured)"
    )?;
    for one in all {
        let of = |value: f64| format!("{:.1} ({:.2})", value / 1e3, value / one.actual);
        writeln!(
            text,
            "{:>3} Gb/s  {:<20}{:>10.1}{:>18}{:>18}",
            one.gigabits,
            one.semantics,
            one.actual / 1e3,
            of(one.model),
            of(one.apart)
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_takes_what_does_not_fit_its_bucket() {
        // 42 fragments: 61,440 + 8 bytes in 1,480 each.
        assert_eq!(link(1), (61_448.0 + 42.0 * 34.0 - 4_000.0) * 8.0);
        assert!(link(10) < link(1) / 10.0);
    }
}
