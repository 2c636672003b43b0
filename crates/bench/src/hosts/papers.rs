//! The tables of U-Net and Fast Sockets with today's layers between hosts in the places of theirs.
//!
//! Absolute figures are thirty years and two kinds of network apart; what can be compared is each layer against what lies beneath
//! it, and against the kernel of its time.

use std::fmt::{self, Write as _};

use shunt_testkit::hosts::Host;

use super::contender::{Contender, Pattern};
use super::endpoints::{Carrier, Endpoints};
use super::kernel::Stream;
use super::messages::Messages;
use super::programs::{Programs, Way};
use super::record::Record;
use super::tables::{fewer, median, turns};
use super::Plan;
use crate::papers::{fit_line, fit_rate};

/// Sizes of round trips and of streams, in bytes: one cell of ATM and less, a packet, what several packets carry.
const TRIPS: [usize; 8] = [1, 8, 48, 256, 1024, 1400, 4 << 10, 64 << 10];
const STREAMS: [usize; 6] = [64, 256, 800, 1400, 4 << 10, 16 << 10];

/// What one layer did: round trips in microseconds and streams in MB/s, by size.
struct Layer {
    name: &'static str,
    trips: Vec<(f64, f64)>,
    streams: Vec<(f64, f64)>,
}

impl Layer {
    fn trip(&self, size: usize) -> Option<f64> {
        at(&self.trips, size)
    }

    /// MB/s with messages of 4 KiB; of a packet where a message is no longer than that.
    fn bandwidth(&self) -> Option<f64> {
        at(&self.streams, 4 << 10).or_else(|| at(&self.streams, 1400))
    }

    /// Round trips up to `most` bytes as a start in microseconds and nanoseconds for each byte.
    fn line(&self, most: usize) -> Option<(f64, f64)> {
        let points: Vec<_> = self.trips.iter().copied().filter(|(size, _)| *size <= most as f64).collect();
        let (start, slope) = fit_line(&points);
        (points.len() > 2).then_some((start, slope * 1e3))
    }
}

fn at(points: &[(f64, f64)], size: usize) -> Option<f64> {
    points.iter().find(|(known, _)| *known == size as f64).map(|(_, value)| *value)
}

/// A figure with so many places behind the point, or a dash.
fn cell(value: Option<f64>, places: usize) -> String {
    value.map_or("-".to_string(), |value| format!("{value:.places$}"))
}

fn ratio(above: Option<f64>, below: Option<f64>) -> Option<f64> {
    Some(above? / below?)
}

/// Measures all layers, and prints the tables.
pub fn papers(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Endpoints { name: "endpoint xdp, own queue", carrier: Carrier::Own }),
        Box::new(Messages { name: "active messages over it", carrier: Carrier::Own }),
        Box::new(Stream),
    ];
    let sockets = plan.sockets.contains(&Carrier::Own);
    if sockets {
        contenders.push(Box::new(Programs { name: "sockets over those", way: Way::Shunt(Carrier::Own) }));
        contenders.push(Box::new(Programs { name: "kernel TCP, programs, spinning", way: Way::Spinning }));
    }
    let mut layers: Vec<Layer> =
        contenders.iter().map(|contender| Layer { name: contender.name(), trips: Vec::new(), streams: Vec::new() }).collect();
    let of = |sizes: &[usize]| Plan { sizes: sizes.to_vec(), ..fewer(plan) };
    let trips = of(&TRIPS);
    turns(
        &contenders,
        &trips,
        Pattern::RoundTrip,
        |contender, size| contender.round_trip(hosts, &trips, size),
        |index, size, figures| {
            if !figures.is_empty() {
                layers[index].trips.push((size as f64, median(figures) * 1e6));
            }
        },
    )?;
    let streams = of(&STREAMS);
    turns(
        &contenders,
        &streams,
        Pattern::Stream,
        |contender, size| contender.stream(hosts, &streams, size).map(|found| found.messages / found.seconds),
        |index, size, figures| {
            if !figures.is_empty() {
                layers[index].streams.push((size as f64, median(figures) * size as f64 / 1e6));
            }
        },
    )?;
    let [raw, messages, tcp, rest @ ..] = &layers[..] else { return Ok(()) };
    let text = &mut String::new();
    let _ = unet(text, raw, messages, rest.first(), tcp);
    if let [sockets, programs] = rest {
        let _ = fast_sockets(text, messages, sockets, programs);
    }
    record.say(text);
    Ok(())
}

fn unet(text: &mut String, raw: &Layer, messages: &Layer, sockets: Option<&Layer>, tcp: &Layer) -> fmt::Result {
    writeln!(
        text,
        "U-Net, table 3: round trip of a small message, and bandwidth with 4 KiB (of the bare endpoint: with a packet)"
    )?;
    writeln!(text, "{:<44} {:>10} {:>7} {:>12} {:>7}", "", "round trip", "x raw", "bandwidth", "x raw")?;
    for layer in [Some(raw), Some(messages), sockets, Some(tcp)].into_iter().flatten() {
        let (trip, rate) = (layer.trip(8), layer.bandwidth());
        writeln!(
            text,
            "{:<44} {:>7} us {:>7} {:>7} Mb/s {:>7}",
            format!("today, {}", layer.name),
            cell(trip, 1),
            cell(ratio(trip, raw.trip(8)), 2),
            cell(rate.map(|rate| rate * 8.0), 0),
            cell(ratio(rate, raw.bandwidth()), 2)
        )?;
    }
    let published = [
        ("raw AAL5", 65.0, 120.0),
        ("active messages", 71.0, 118.0),
        ("UDP over it", 138.0, 120.0),
        ("TCP over it", 157.0, 115.0),
    ];
    for (name, trip, rate) in published {
        writeln!(
            text,
            "{:<44} {trip:>7.0} us {:>7.2} {rate:>7.0} Mb/s {:>7.2}",
            format!("1995, {name}"),
            trip / 65.0,
            rate / 120.0
        )?;
    }
    writeln!(text, "\nU-Net, figure 3: round trips by size, fitted as start + bytes * per-byte, up to 1,400 bytes")?;
    writeln!(text, "{:<44} {:>10} {:>12} {:>12}", "", "8 B", "start", "per byte")?;
    for layer in [raw, messages] {
        let line = layer.line(1400);
        writeln!(
            text,
            "{:<44} {:>7} us {:>9} us {:>9} ns",
            format!("today, {}", layer.name),
            cell(layer.trip(8), 1),
            cell(line.map(|line| line.0), 1),
            cell(line.map(|line| line.1), 2)
        )?;
    }
    // The text beside the figure: 120 us at 48 bytes and 6 us for each further cell of 48; UAM 135 us + 0.2 us for each byte.
    writeln!(text, "{:<44} {:>7} us {:>9} us {:>9} ns", "1995, raw AAL5", 65, 114, 125)?;
    writeln!(text, "{:<44} {:>7} us {:>9} us {:>9} ns", "1995, active messages", 71, 135, 200)?;
    let slope = |layer: &Layer| layer.line(1400).map(|line| line.1);
    writeln!(
        text,
        "active messages against raw: small {} x, 1995 1.09 x; per byte {} x, 1995 1.60 x (two copies more)",
        cell(ratio(messages.trip(8), raw.trip(8)), 2),
        cell(ratio(slope(messages), slope(raw)), 2)
    )?;
    writeln!(text, "\nU-Net, figure 4: bandwidth by size, as a part of the most that the bare endpoint reached")?;
    let most = raw.streams.iter().map(|(_, rate)| *rate).fold(f64::NAN, f64::max);
    write!(text, "{:<44}", "")?;
    for size in STREAMS {
        write!(text, " {:>9}", format!("{size} B"))?;
    }
    writeln!(text)?;
    for layer in [raw, messages] {
        write!(text, "{:<44}", format!("today, {}", layer.name))?;
        for size in STREAMS {
            write!(text, " {:>9}", cell(at(&layer.streams, size).map(|rate| rate / most), 2))?;
        }
        writeln!(text)?;
    }
    writeln!(
        text,
        "1995: the raw interface saturates the fibre with 800 bytes; stores reach 0.80 of it with 2 KiB, 0.98 with 4 KiB\n"
    )
}

fn fast_sockets(text: &mut String, messages: &Layer, sockets: &Layer, tcp: &Layer) -> fmt::Result {
    writeln!(
        text,
        "Fast Sockets, tables 1 and 2, between hosts: round trips as start + bytes * per-byte, bandwidth as r n / (n + n1/2)"
    )?;
    writeln!(text, "{:<44} {:>10} {:>12} {:>12} {:>12} {:>9}", "", "1 B", "start", "per byte", "r", "n1/2")?;
    for layer in [sockets, messages, tcp] {
        let (line, rate) = (layer.line(64 << 10), fit_rate(&layer.streams));
        writeln!(
            text,
            "{:<44} {:>7} us {:>9} us {:>9} ns {:>7} MB/s {:>7} B",
            format!("today, {}", layer.name),
            cell(layer.trip(1), 1),
            cell(line.map(|line| line.0), 1),
            cell(line.map(|line| line.1), 2),
            cell(rate.map(|rate| rate.0), 0),
            cell(rate.map(|rate| rate.1), 0)
        )?;
    }
    for (name, trip, start, slope, most, half) in [
        ("1997, Fast Sockets", 57.8, 157.8, 68.0, 32.9, 441.0),
        ("1997, Active Messages beneath it", 45.0, 38.9, 129.0, 39.2, 372.0),
        ("1997, TCP/IP, Myrinet", 533.0, 736.4, 76.0, 29.6, 2098.0),
    ] {
        writeln!(text, "{name:<44} {trip:>7.1} us {start:>9.1} us {slope:>9.0} ns {most:>7.1} MB/s {half:>7.0} B")?;
    }
    let most = |layer: &Layer| fit_rate(&layer.streams).map(|rate| rate.0);
    writeln!(text, "above its layer: today {} x, 1997 1.28 x; faster than TCP: today {} x (spinning), 1997 9.2 x; bandwidth of its layer's: today {}, 1997 0.84\n",
        cell(ratio(sockets.trip(1), messages.trip(1)), 2),
        cell(ratio(tcp.trip(1), sockets.trip(1)), 1),
        cell(ratio(most(sockets), most(messages)), 2)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_knows_its_line_and_its_bandwidth() {
        let trips = vec![(1.0, 10.0), (1024.0, 10.0 + 2.046), (1400.0, 10.0 + 2.798), (65536.0, 500.0)];
        let layer = Layer { name: "it", trips, streams: vec![(64.0, 90.0), (1400.0, 700.0)] };
        let (start, slope) = layer.line(1400).expect("three points");
        assert!((start - 9.998).abs() < 1e-6 && (slope - 2.0).abs() < 1e-6, "{start} {slope}");
        assert_eq!((layer.trip(1), layer.trip(2), layer.bandwidth()), (Some(10.0), None, Some(700.0)));
        assert_eq!((cell(ratio(layer.trip(1), Some(4.0)), 1), cell(ratio(None, Some(4.0)), 1)), ("2.5".into(), "-".into()));
    }
}
