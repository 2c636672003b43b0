//! The tables of the papers that shunt comes from, with today's figures beside the published ones.
//!
//! Absolute figures are thirty years apart; what can be compared is ratios: a layer against what lies beneath it, and
//! against the kernel of its time.

use std::fmt::Write as _;

use crate::cells::bytes;
use crate::contenders::Carrier;
use crate::measurement::{Row, Series};
use crate::report::Document;

/// Fits `r n / (n + h)` to rates `(n, r(n))`: as `n / r(n)` it is a line. Gives the rate that is never reached, and the size at
/// which half of it is; none for rates that do not rise.
pub fn fit_rate(points: &[(f64, f64)]) -> Option<(f64, f64)> {
    let times: Vec<_> = points.iter().map(|(size, rate)| (*size, size / rate)).collect();
    let (start, slope) = fit_line(&times);
    (points.len() > 2 && slope > 0.0 && start > 0.0).then_some((1.0 / slope, start / slope))
}

/// Fits `t = t0 + b n` by least squares to `(n, t)`; gives `(t0, b)`.
pub fn fit_line(points: &[(f64, f64)]) -> (f64, f64) {
    let count = points.len() as f64;
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), point| (x + point.0 / count, y + point.1 / count));
    let (above, below) =
        points.iter().fold((0.0, 0.0), |(a, b), point| (a + (point.0 - x) * (point.1 - y), b + (point.0 - x).powi(2)));
    let slope = above / below;
    (y - slope * x, slope)
}

fn row<'a>(document: &'a Document, name: &str) -> Option<&'a Row> {
    document.cells.iter().flat_map(|cell| &cell.rows).find(|row| row.name == name)
}

fn median(document: &Document, name: &str, carrier: Carrier) -> Option<f64> {
    row(document, name)?.series(carrier).and_then(Series::median)
}

fn floor(document: &Document, name: &str) -> Option<f64> {
    row(document, name)?.floors.first()?.series.median()
}

const SIZES: [usize; 10] = [1, 8, 48, 64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 1 << 20];

/// Points of the round trips of one contender, up to `most` bytes.
fn round_trips(document: &Document, carrier: Carrier, most: usize) -> Vec<(f64, f64)> {
    let point = |size: &usize| Some((*size as f64, median(document, &format!("latency/{size}B/p50"), carrier)?));
    SIZES.iter().filter(|size| **size <= most).filter_map(point).collect()
}

/// All tables for which the run has figures.
pub fn tables(document: &Document) -> String {
    let mut text = String::from("Today's figures are this machine's; the papers' are in their own units, for their ratios.\n");
    fast_sockets_latency(document, &mut text);
    fast_sockets_bandwidth(document, &mut text);
    shrimp(document, &mut text);
    sovia(document, &mut text);
    text
}

fn fast_sockets_latency(document: &Document, text: &mut String) {
    let _ = writeln!(text, "\nFast Sockets, table 1: round trip, fitted as t0 + bytes * per-byte");
    let _ = writeln!(text, "{:<44} {:>12} {:>12} {:>12}", "", "per byte", "t0", "actual 1 B");
    for (most, title) in [(64 << 10, "to 64 KiB"), (1 << 10, "to 1 KiB")] {
        for carrier in [Carrier::Shunt, Carrier::KernelSpinning, Carrier::Kernel] {
            let points = round_trips(document, carrier, most);
            if points.len() < 3 {
                continue;
            }
            let (start, slope) = fit_line(&points);
            let name = format!("today, {}, {title}", carrier.title());
            let _ = writeln!(text, "{name:<44} {slope:>9.4} ns {start:>9.0} ns {:>9.0} ns", points[0].1);
        }
        let published: &[(&str, f64, f64, f64)] = match most {
            65536 => &[
                ("1997, Fast Sockets", 0.068, 157.8, 57.8),
                ("1997, Active Messages beneath it", 0.129, 38.9, 45.0),
                ("1997, TCP/IP, Myrinet", 0.076, 736.4, 533.0),
            ],
            _ => &[
                ("1997, Fast Sockets", 0.124, 61.4, 57.8),
                ("1997, Active Messages beneath it", 0.123, 45.4, 45.0),
                ("1997, TCP/IP, Myrinet", 0.223, 533.0, 533.0),
            ],
        };
        for (name, slope, start, actual) in published {
            let _ = writeln!(text, "{name:<44} {slope:>9.3} us {start:>9.1} us {actual:>9.1} us");
        }
    }
    let now = (
        median(document, "latency/1B/p50", Carrier::Shunt),
        floor(document, "latency/1B/p50"),
        median(document, "latency/1B/p50", Carrier::KernelSpinning),
    );
    if let (Some(shunt), Some(floor), Some(kernel)) = now {
        let _ = writeln!(
            text,
            "above its layer beneath: today {:.2} x, 1997 1.28 x; faster than TCP: today {:.1} x (spinning), 1997 9.2 x",
            shunt / floor,
            kernel / shunt
        );
    }
}

fn fast_sockets_bandwidth(document: &Document, text: &mut String) {
    let _ = writeln!(text, "\nFast Sockets, tables 2 and 3: bandwidth, fitted as r n / (n + n1/2)");
    let _ = writeln!(text, "{:<44} {:>14} {:>12}", "", "r-infinity", "n1/2");
    let fit = |name: &str, most: Option<f64>, half: Option<f64>, text: &mut String| {
        if let (Some(most), Some(half)) = (most, half) {
            let _ = writeln!(text, "{name:<44} {:>9.0} MB/s {half:>10.0} B", most / 1e6);
        }
    };
    for carrier in [Carrier::Shunt, Carrier::Kernel] {
        let (most, half) = (median(document, "bandwidth/r-infinity", carrier), median(document, "bandwidth/n-half", carrier));
        fit(&format!("today, {}", carrier.title()), most, half, text);
    }
    fit("today, bare byte ring", floor(document, "bandwidth/r-infinity"), floor(document, "bandwidth/n-half"), text);
    for (cell, title) in [("ttcp", "ttcp (nuttcp)"), ("netperf", "netperf")] {
        for carrier in [Carrier::Shunt, Carrier::Kernel] {
            let fitted = |what: &str| median(document, &format!("{cell}/{what}"), carrier);
            fit(&format!("today, {}, {title}", carrier.title()), fitted("r-infinity"), fitted("n-half"), text);
        }
    }
    for (name, most, half) in [
        ("1997, Fast Sockets", 32.9, 441.0),
        ("1997, Active Messages beneath it", 39.2, 372.0),
        ("1997, TCP/IP, Myrinet", 29.6, 2098.0),
        ("1997, Fast Sockets, ttcp", 38.57, 560.7),
        ("1997, TCP/IP, ttcp", 19.59, 687.5),
        ("1997, Fast Sockets, netperf", 41.57, 785.7),
        ("1997, TCP/IP, netperf", 23.72, 1189.0),
    ] {
        let _ = writeln!(text, "{name:<44} {most:>9.1} MB/s {half:>10.0} B");
    }
    let half = (median(document, "bandwidth/n-half", Carrier::Shunt), floor(document, "bandwidth/n-half"));
    if let (Some(shunt), Some(ring)) = half {
        let _ = writeln!(text, "n1/2 against the layer beneath: today {:.2} x, 1997 1.19 x", shunt / ring);
    }
}

/// Sizes and rates of a cell's stream for one contender, or for its floor.
fn stream(document: &Document, cell: &str, carrier: Option<Carrier>) -> Vec<(usize, f64)> {
    let point = |row: &Row| {
        let size = row.name.strip_prefix(cell)?.strip_prefix('/')?.strip_suffix('B')?.parse().ok()?;
        let series = match carrier {
            Some(carrier) => row.series(carrier)?,
            None => &row.floors.first()?.series,
        };
        Some((size, series.median()?))
    };
    document.cells.iter().flat_map(|found| &found.rows).filter_map(point).collect()
}

fn at(points: &[(usize, f64)], size: usize) -> Option<f64> {
    points.iter().find(|(known, _)| *known == size).map(|(_, value)| *value)
}

/// A figure with so many places behind the point, or a dash.
fn or_dash(value: Option<f64>, places: usize) -> String {
    value.map_or("-".into(), |value| format!("{value:.places$}"))
}

/// A stream by size: each rate, and what part it is of the largest, beside that part by the published fit `n / (n + n1/2)`.
fn by_size(document: &Document, cell: &str, (most, half): (f64, f64), text: &mut String) {
    let shunt = stream(document, cell, Some(Carrier::Shunt));
    let (kernel, ring) = (stream(document, cell, Some(Carrier::Kernel)), stream(document, cell, None));
    let Some(today) = median(document, &format!("{cell}/r-infinity"), Carrier::Shunt) else {
        let skipped = document.cells.iter().find(|found| found.name == cell).and_then(|found| found.skipped.as_deref());
        let why = skipped.map_or(format!("`shunt bench papers` would, and `shunt bench cell {cell}`"), String::from);
        let _ = writeln!(text, "today: not measured, {why}");
        return;
    };
    let _ = writeln!(text, "{:>10} {:>34} {:>28}", "", "today, MB/s", "1997, by the text's fit");
    let heads = ["size", "shunt", "of r-inf", "of ring", "kernel", "MB/s", "of r-inf"];
    let [size, a, b, c, d, e, f] = heads;
    let _ = writeln!(text, "{size:>10} {a:>9} {b:>9} {c:>8} {d:>9} {e:>12} {f:>9}");
    for (size, rate) in &shunt {
        let share = *size as f64 / (*size as f64 + half);
        let of_ring = at(&ring, *size).map(|ring| rate / ring);
        let _ = writeln!(
            text,
            "{:>10} {:>9.0} {:>9.2} {:>8} {:>9} {:>12.2} {share:>9.2}",
            bytes(*size),
            rate / 1e6,
            rate / today,
            or_dash(of_ring, 2),
            or_dash(at(&kernel, *size).map(|rate| rate / 1e6), 0),
            most * share,
        );
    }
}

/// One way by size: half of a round trip's median.
fn one_way(document: &Document, text: &mut String) {
    let _ =
        writeln!(text, "{:>10} {:>10} {:>12} {:>16} {:>16}", "size", "shunt", "x beneath", "kernel spinning", "kernel blocking");
    for size in SIZES {
        let name = format!("latency/{size}B/p50");
        let half = |carrier| median(document, &name, carrier).map(|trip| trip / 2e3);
        let shunt = half(Carrier::Shunt);
        if shunt.is_none() {
            continue;
        }
        let above = shunt.zip(floor(document, &name)).map(|(shunt, line)| shunt * 2e3 / line);
        let _ = writeln!(
            text,
            "{:>10} {:>7} us {:>12} {:>13} us {:>13} us",
            bytes(size),
            or_dash(shunt, 3),
            or_dash(above, 2),
            or_dash(half(Carrier::KernelSpinning), 2),
            or_dash(half(Carrier::Kernel), 2)
        );
    }
    let _ = writeln!(text, "{:>10} beneath: a cache line up to 48 B, a bare ring for what is larger", "");
}

fn shrimp(document: &Document, text: &mut String) {
    let _ = writeln!(text, "\nSHRIMP, figure 10: bandwidth of sockets over mapped memory (r-infinity 13.5 MB/s, n1/2 256 B)");
    by_size(document, "bandwidth", (13.5, 256.0), text);
    let _ = writeln!(text, "\nSHRIMP, figure 11: one way (1997: 11 us for small messages, 2.75 x the hardware's 4 us)");
    one_way(document, text);
    let _ = writeln!(text, "\nSHRIMP, figure 12: ttcp (r-infinity 12.4 MB/s, n1/2 512 B)");
    by_size(document, "ttcp", (12.4, 512.0), text);
    let _ = writeln!(text, "\nSHRIMP, figure 13: netperf (r-infinity 13 MB/s, n1/2 256 B)");
    by_size(document, "netperf", (13.0, 256.0), text);
    let (half, most, ring) = (
        median(document, "bandwidth/n-half", Carrier::Shunt),
        median(document, "bandwidth/r-infinity", Carrier::Shunt),
        floor(document, "bandwidth/r-infinity"),
    );
    if let (Some(half), Some(most), Some(ring)) = (half, most, ring) {
        let _ = writeln!(text, "\nn1/2                  today {half:>6.0} B      1997 256 B (ttcp 512 B)");
        let _ = writeln!(text, "of the raw bandwidth  today {:>6.2}        1997 0.92 (ttcp) to 1", most / ring);
    }
}

fn sovia(document: &Document, text: &mut String) {
    let _ = writeln!(text, "\nSOVIA, figure 9(a): one way (2003, 4 B: SOVIA 10.5 us, VIA beneath it 8.5, TCP 55)");
    one_way(document, text);
    let _ = writeln!(text, "\nSOVIA, figure 9(b): bandwidth, Mbps (2003, 32 KB: SOVIA and VIA 815, TCP 450)");
    let _ = writeln!(text, "{:>10} {:>10} {:>10} {:>10}", "size", "shunt", "kernel", "ratio");
    let kernel = stream(document, "bandwidth", Some(Carrier::Kernel));
    for (size, rate) in stream(document, "bandwidth", Some(Carrier::Shunt)) {
        let below = at(&kernel, size);
        let ratio = or_dash(below.map(|below| rate / below), 2);
        let _ = writeln!(
            text,
            "{:>10} {:>10.0} {:>10} {ratio:>10}",
            bytes(size),
            rate * 8e-6,
            or_dash(below.map(|rate| rate * 8e-6), 0)
        );
    }
    let now = (
        median(document, "latency/8B/p50", Carrier::Shunt),
        floor(document, "latency/8B/p50"),
        median(document, "latency/8B/p50", Carrier::Kernel),
        median(document, "bandwidth/65536B", Carrier::Shunt),
        median(document, "bandwidth/65536B", Carrier::Kernel),
    );
    if let (Some(trip), Some(line), Some(kernel), Some(stream), Some(kernel_stream)) = now {
        let _ = writeln!(
            text,
            "\nabove its layer       today {:.2} x              2003 1.24 x (10.5 us over VIA's 8.5)",
            trip / line
        );
        let _ = writeln!(text, "faster than TCP       today {:.0} x blocking       2003 5.2 x (55 us)", kernel / trip);
        let _ = writeln!(
            text,
            "bandwidth over TCP    today {:.2} x              2003 1.81 x (815 Mbps over 450)",
            stream / kernel_stream
        );
    }
    let _ = writeln!(text, "\nSOVIA, table I: a file over FTP, between memory file systems");
    for (name, bytes, published) in [
        ("ftp/19M", 19_090_223.0, "2003: SOVIA 573 Mbps, TCP 262, local copy 611"),
        ("ftp/146M", 145_864_380.0, "2003: SOVIA 532 Mbps, TCP 254, local copy 538"),
    ] {
        let rates = (median(document, name, Carrier::Shunt), median(document, name, Carrier::Kernel), floor(document, name));
        if let (Some(shunt), Some(kernel), local) = rates {
            let local = local.map_or(String::new(), |rate| format!(", local copy {:.0}", rate * 8e-6));
            let _ = writeln!(
                text,
                "{bytes:>11.0} bytes  today: shunt {:.0} Mbps, TCP {:.0}{local}   {published}",
                shunt * 8e-6,
                kernel * 8e-6
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::{Collector, Figure, Unit};

    #[test]
    fn a_line_is_fitted_exactly() {
        let (start, slope) = fit_line(&[(1.0, 58.0), (100.0, 157.0), (1000.0, 1057.0)]);
        assert!((start - 57.0).abs() < 1e-6 && (slope - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_rate_is_fitted_exactly() {
        let point = |size: f64| (size, 40.0 * size / (size + 400.0));
        let (most, half) = fit_rate(&[64.0, 800.0, 4096.0].map(point)).expect("a rising rate");
        assert!((most - 40.0).abs() < 1e-6 && (half - 400.0).abs() < 1e-6, "{most} {half}");
        assert_eq!(fit_rate(&[(64.0, 9.0), (800.0, 9.0)]), None);
    }

    #[test]
    fn tables_hold_what_the_run_has_and_nothing_else() {
        let mut collector = Collector::default();
        let figure = |size: usize, time| vec![Figure::new(format!("latency/{size}B/p50"), "", Unit::Nanoseconds, time)];
        for size in [1, 8, 1024] {
            collector.add_floor("cache line", figure(size, 100.0));
            collector.add(Carrier::Shunt, figure(size, 128.0), None);
            collector.add(Carrier::KernelSpinning, figure(size, 6400.0), None);
        }
        let text = tables(&crate::report::tests::document_of(collector));
        assert!(text.contains("today 1.28 x, 1997 1.28 x; faster than TCP: today 50.0 x"), "{text}");
        assert!(!text.contains("19090223 bytes  today"));
        assert!(text.contains("     8 B   0.064 us         1.28          3.20 us             - us"), "{text}");
    }

    #[test]
    fn a_stream_stands_beside_the_published_fit() {
        let mut collector = Collector::default();
        let figure = |name: &str, value| vec![Figure::new(format!("bandwidth/{name}"), "", Unit::BytesPerSecond, value)];
        collector.add_floor("ring", figure("256B", 8e9));
        collector.add(Carrier::Shunt, figure("256B", 4e9), None);
        collector.add(Carrier::Shunt, figure("r-infinity", 16e9), None);
        let text = tables(&crate::report::tests::document_of(collector));
        assert!(text.contains("     256 B      4000      0.25     0.50         -         6.75      0.50"), "{text}");
        assert!(text.contains("     256 B      32000          -          -"), "{text}");
        assert!(text.contains("today: not measured, `shunt bench papers` would, and `shunt bench cell ttcp`"), "{text}");
    }

    #[test]
    fn netperf_stands_in_both_papers_that_ran_it() {
        let mut collector = Collector::default();
        let figure = |name: &str, value| vec![Figure::new(format!("netperf/{name}"), "", Unit::BytesPerSecond, value)];
        for (name, value) in [("256B", 4e9), ("r-infinity", 16e9), ("n-half", 700.0)] {
            collector.add(Carrier::Shunt, figure(name, value), None);
        }
        let text = tables(&crate::report::tests::document_of(collector));
        assert!(text.contains("today, shunt, netperf                            16000 MB/s        700 B"), "{text}");
        let (_, figure_13) = text.split_once("figure 13").unwrap();
        assert!(figure_13.contains("     256 B      4000      0.25        -         -         6.50      0.50"), "{text}");
    }
}
