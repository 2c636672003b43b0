//! TCP and UDP at user level as in U-Net's section 7: round trips and streams by size (figures 8 and 9), and table 3's lines as ratios.
//!
//! Figures 6 and 7 are the kernel's of 1995. What can be compared with today is TCP against the endpoint beneath it, and against the kernel.

use shunt_testkit::hosts::Host;

use super::contender::Contender as _;
use super::datagrams;
use super::endpoints::{Carrier, Endpoints};
use super::programs::Way;
use super::record::{Record, Sheet};
use super::tables::{fewer, median};
use super::taken::{agents, bulk, round_trip};
use super::Plan;

/// Figure 9, of which an aim is made.
pub const ROUND_TRIPS: &str = "U-Net, figure 9: TCP round trip by size, us";
/// Its rows.
pub const BARE: &str = "bare endpoint, xdp";
/// See above.
pub const BOTH: &str = "both ends by --inet";
/// Table 3, of which an aim is made, with its row and column.
pub const RATIOS: &str = "U-Net, table 3: TCP and UDP at user level";
/// See above.
pub const UDP: &str = "UDP, 8 B round trip / bare endpoint (1995: 138 / 65 us)";
/// See above.
pub const TODAY: &str = "today";
/// Figure 8.
const STREAMS: &str = "U-Net, figure 8: TCP stream by what the program sends at once, Gb/s";

const SIZES: [usize; 7] = [1, 8, 64, 256, 1024, 4096, 8192];
const SENDS: [usize; 5] = [256, 1024, 4096, 8192, 65536];

/// Programs at either end; those without shunt spin.
const WAYS: [(&str, [Way; 2]); 3] = [
    (BOTH, [Way::Taken; 2]),
    ("one end by --inet, the other kernel", [Way::Taken, Way::Blocking]),
    ("kernel", [Way::Blocking; 2]),
];

/// All of it.
///
/// # Errors
/// A sentence.
pub fn unet(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let few = fewer(plan);
    let heads = |sizes: &[usize]| sizes.iter().map(|size| format!("{size} B")).collect::<Vec<_>>();
    let mut sheet = Sheet::new(ROUND_TRIPS, &heads(&SIZES), &[1]);
    for size in SIZES {
        let mut figures: [Vec<f64>; 4] = Default::default();
        for _ in 0..few.repeats {
            let bare = Endpoints { name: BARE, carrier: Carrier::Own };
            figures[0].push(if size < 1400 { bare.round_trip(hosts, &few, size)? * 1e6 } else { f64::NAN });
            let _agents = agents(hosts, plan)?;
            for ((name, ways), figures) in WAYS.into_iter().zip(&mut figures[1..]) {
                let found = round_trip(ways, size, hosts, &few);
                figures.push(found.map_err(|error| format!("{name}, {size} B: {error}"))?.0);
            }
        }
        for (name, figures) in std::iter::once(BARE).chain(WAYS.map(|(name, _)| name)).zip(figures) {
            sheet.put(name, &[median(figures)]);
        }
    }
    let figure = |row| sheet.figure(row, "8 B").unwrap_or(f64::NAN);
    let (bare, both, kernel) = (figure(BARE), figure(BOTH), figure(WAYS[2].0));
    let by_datagrams = udp(hosts, &few)?;
    record.add(sheet);
    let mut sheet = Sheet::new(STREAMS, &heads(&SENDS), &[2]);
    let _agents = agents(hosts, plan)?;
    for size in SENDS {
        let mut figures: [Vec<f64>; 3] = Default::default();
        for _ in 0..few.repeats {
            for ((name, ways), figures) in WAYS.into_iter().zip(&mut figures) {
                let found = bulk([(ways[0], &hosts[0]), (ways[1], &hosts[1])], size, &few);
                figures.push(found.map_err(|error| format!("{name}, {size} B: {error}"))?.0);
            }
        }
        WAYS.into_iter().zip(figures).for_each(|((name, _), figures)| sheet.put(name, &[median(figures)]));
    }
    let stream = |row| sheet.figure(row, "8192 B").unwrap_or(f64::NAN);
    let streams = stream(BOTH) / stream(WAYS[2].0);
    record.add(sheet);
    let mut sheet = Sheet::new(RATIOS, &[TODAY, "1995"], &[2]);
    sheet.put("8 B round trip / bare endpoint (1995: 157 / 65 us)", &[both / bare, 157.0 / 65.0]);
    sheet.put("8 B round trip, kernel / user level", &[kernel / both, f64::NAN]);
    sheet.put(UDP, &[by_datagrams[0] / bare, 138.0 / 65.0]);
    sheet.put("UDP, 8 B round trip, kernel / user level", &[by_datagrams[1] / by_datagrams[0], f64::NAN]);
    // The text: 14 to 15 MB/s with a window of 8 KiB, the kernel 9 to 10 with one of 64.
    sheet.put("stream of 8 KiB sends, user level / kernel (1995: 14.5 / 9.5 MB/s)", &[streams, 14.5 / 9.5]);
    record.add(sheet);
    Ok(())
}

/// The round trip of 8 bytes by UDP, us: both ends by --inet, and neither.
fn udp(hosts: &[Host; 2], plan: &Plan<'_>) -> Result<[f64; 2], String> {
    let mut figures: [Vec<f64>; 2] = Default::default();
    for _ in 0..plan.repeats {
        for (way, figures) in [Way::Taken, Way::Blocking].into_iter().zip(&mut figures) {
            let found = datagrams::round_trip([way; 2], 8, hosts, plan);
            figures.push(found.map_err(|error| format!("UDP: {error}"))?.0);
        }
    }
    Ok(figures.map(median))
}
