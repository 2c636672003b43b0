//! Curves over a size or a number: latency, bandwidth, scaling. Each is a picture of its own, drawn where the run has its
//! cell; a curve goes through the medians, and its bars reach from the least to the most of the turns.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use crate::cells::bytes;
use crate::contenders::Carrier;
use crate::drawing::{
    drawing, line, micro, picture, short_time, write, write_middle, Area, Drawn, Logarithmic, FLOOR, GRID, INK, KERNEL, QUIET,
    SHUNT, SPINNING,
};
use crate::measurement::{Row, Series, Unit};
use crate::report::{figure, Document};

const WIDTH: i32 = 1180;
const HEAD: i32 = 84;
const PANEL: i32 = 430;
const LEFT: i32 = 90;
const RIGHT: i32 = WIDTH - 300;

/// A median and between what the turns lie.
#[derive(Clone, Copy)]
struct Point {
    x: f64,
    median: f64,
    least: f64,
    most: f64,
}

struct Curve {
    name: String,
    colour: RGBColor,
    width: u32,
    points: Vec<Point>,
    /// What the curve tends to, and where it has half of it.
    half: Option<(f64, f64)>,
}

struct Panel {
    title: &'static str,
    under: &'static str,
    unit: Unit,
    /// How a number on the lower axis is written.
    label: fn(usize) -> String,
    curves: Vec<Curve>,
}

/// The pictures for which the run has figures, by the stems of their files.
pub fn pictures(document: &Document) -> Result<Vec<(&'static str, String)>, String> {
    let all = [
        ("latency", "Round trip by size of the message", vec![latency(document)]),
        ("bandwidth", "One stream by size of the sends", vec![bandwidth(document)]),
        ("scaling", "8-byte requests and echoes, more and more of them at once", vec![connections(document), threads(document)]),
    ];
    let mut drawn = Vec::new();
    for (stem, title, mut panels) in all {
        panels.retain(|panel| panel.curves.iter().any(|curve| curve.points.len() > 1));
        if !panels.is_empty() {
            drawn.push((stem, svg(document, title, &panels)?));
        }
    }
    Ok(drawn)
}

fn latency(document: &Document) -> Panel {
    let percentile = |percent: &'static str, carrier, name: &str, width| {
        let rows = rows(document, "latency/", &format!("B/p{percent}"));
        curve(name.into(), carrier, width, &rows)
    };
    let mut curves = Vec::new();
    for carrier in [Carrier::Kernel, Carrier::KernelSpinning, Carrier::Shunt] {
        curves.push(percentile("50", Some(carrier), carrier.title(), 3));
        curves.push(percentile("99", Some(carrier), &format!("{}, p99", carrier.title()), 1));
    }
    curves.push(percentile("50", None, "floor: a cache line, beyond 48 B a ring", 3));
    Panel { title: "median and 99th percentile", under: "bytes each way", unit: Unit::Nanoseconds, label: bytes, curves }
}

fn bandwidth(document: &Document) -> Panel {
    let rows = rows(document, "bandwidth/", "B");
    let fitted = |name: &str, carrier| {
        let row = document.cells.iter().flat_map(|cell| &cell.rows).find(|row| row.name == format!("bandwidth/{name}"))?;
        series(row, carrier)?.median()
    };
    let curves = [Some(Carrier::Kernel), Some(Carrier::Shunt), None].map(|carrier| {
        let half = fitted("r-infinity", carrier).zip(fitted("n-half", carrier));
        let name = carrier.map_or("floor: a bare byte ring", Carrier::title);
        Curve { half, ..curve(name.into(), carrier, 3, &rows) }
    });
    Panel {
        title: "bytes in a second; the circle is half of what long sends reach (r-infinity, the thin line), at n1/2",
        under: "bytes of one send",
        unit: Unit::BytesPerSecond,
        label: bytes,
        curves: curves.into(),
    }
}

fn connections(document: &Document) -> Panel {
    let mut curves = Vec::new();
    for carrier in [Carrier::Kernel, Carrier::Shunt] {
        curves.push(curve(format!("{}, all active", carrier.title()), Some(carrier), 3, &rows(document, "connections/", "/all")));
        curves.push(curve(format!("{}, 1 % active", carrier.title()), Some(carrier), 1, &rows(document, "connections/", "/few")));
    }
    let (title, under) = ("requests in a second over connections, in an epoll set", "connections");
    Panel { title, under, unit: Unit::PerSecond, label: |number| number.to_string(), curves }
}

fn threads(document: &Document) -> Panel {
    let mut curves = Vec::new();
    for carrier in [Carrier::Kernel, Carrier::Shunt] {
        for (row, word, width) in [("threads", "threads", 3), ("processes", "processes", 1)] {
            let rows = rows(document, &format!("threads/{row}/"), "");
            curves.push(curve(format!("{}, {word}", carrier.title()), Some(carrier), width, &rows));
        }
    }
    let (title, under) =
        ("requests in a second over threads or processes a side, a connection each", "threads or processes a side");
    Panel { title, under, unit: Unit::PerSecond, label: |number| number.to_string(), curves }
}

/// Rows named by a number between two texts, in its order.
fn rows<'a>(document: &'a Document, before: &str, after: &str) -> Vec<(usize, &'a Row)> {
    let number = |row: &'a Row| {
        let number = row.name.strip_prefix(before)?.strip_suffix(after)?.parse().ok()?;
        Some((number, row))
    };
    let mut rows: Vec<_> = document.cells.iter().flat_map(|cell| &cell.rows).filter_map(number).collect();
    rows.sort_by_key(|(number, _)| *number);
    rows
}

/// A contender's series, or the first floor's.
fn series(row: &Row, carrier: Option<Carrier>) -> Option<&Series> {
    match carrier {
        Some(carrier) => row.series(carrier),
        None => Some(&row.floors.first()?.series),
    }
}

fn curve(name: String, carrier: Option<Carrier>, width: u32, rows: &[(usize, &Row)]) -> Curve {
    let colour = match carrier {
        Some(Carrier::Kernel) => KERNEL,
        Some(Carrier::KernelSpinning) => SPINNING,
        Some(Carrier::Shunt) => SHUNT,
        None => FLOOR,
    };
    let point = |(number, row): &(usize, &Row)| {
        let series = series(row, carrier)?;
        let reach = |pick: fn(f64, f64) -> f64| series.values.iter().copied().reduce(pick);
        Some(Point { x: *number as f64, median: series.median()?, least: reach(f64::min)?, most: reach(f64::max)? })
    };
    Curve { name, colour, width, points: rows.iter().filter_map(point).collect(), half: None }
}

fn svg(document: &Document, title: &str, panels: &[Panel]) -> Result<String, String> {
    let height = HEAD + panels.len() as i32 * PANEL + 30;
    picture((WIDTH, height), |area| {
        write(area, title, (24, 18), 24, &INK, HPos::Left)?;
        let conditions = format!(
            "{}.  Medians of interleaved turns, bars from the least to the most; congestion control {}.",
            document.machine.describe(),
            document.network.congestion_control
        );
        write(area, &conditions, (24, 52), 14, &QUIET, HPos::Left)?;
        for (number, panel) in panels.iter().enumerate() {
            draw_panel(area, panel, HEAD + number as i32 * PANEL)?;
        }
        write(area, &format!("made by: {}", document.command), (24, height - 22), 12, &QUIET, HPos::Left)
    })
}

fn draw_panel(area: &Area, panel: &Panel, top: i32) -> Drawn {
    let (high, low) = (top + 36, top + PANEL - 66);
    let points = || panel.curves.iter().flat_map(|curve| &curve.points);
    let mut numbers: Vec<f64> = points().map(|point| point.x).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    let across = Logarithmic { from: first * 0.9, to: last * 1.1, left: LEFT, right: RIGHT };
    let least = points().map(|point| point.least).fold(f64::INFINITY, f64::min);
    let up = Logarithmic::holding(points().map(|point| point.most), least, low, high);

    write(area, panel.title, (LEFT, top + 4), 15, &INK, HPos::Left)?;
    for tick in up.ticks() {
        let y = up.at(tick);
        line(area, (LEFT, y), (RIGHT, y), &GRID, 1)?;
        let text = match panel.unit {
            Unit::Nanoseconds => short_time(tick),
            unit => figure(unit, tick).replace(".00", "").replace(".0", ""),
        };
        write_middle(area, &text, (LEFT - 10, y), 13, &QUIET, HPos::Right)?;
    }
    let mut free = LEFT - 40;
    for number in numbers {
        let x = across.at(number);
        line(area, (x, high), (x, low), &GRID, 1)?;
        if x >= free {
            write(area, &(panel.label)(number as usize), (x, low + 8), 13, &QUIET, HPos::Center)?;
            free = x + 56;
        }
    }
    write(area, panel.under, ((LEFT + RIGHT) / 2, low + 30), 13, &QUIET, HPos::Center)?;
    let mut y = high + 8;
    for curve in panel.curves.iter().filter(|curve| !curve.points.is_empty()) {
        draw_curve(area, curve, across, up)?;
        line(area, (RIGHT + 18, y), (RIGHT + 42, y), &curve.colour, curve.width)?;
        write_middle(area, &curve.name, (RIGHT + 50, y), 14, &INK, HPos::Left)?;
        if let Some((most, half)) = curve.half {
            y += 20;
            let words = format!("r-infinity {}, n1/2 {half:.0} B", figure(panel.unit, most));
            write_middle(area, &words, (RIGHT + 50, y), 13, &QUIET, HPos::Left)?;
        }
        let ends = [curve.points[0], curve.points[curve.points.len() - 1]].map(|point| micro(figure(panel.unit, point.median)));
        y += 20;
        write_middle(area, &format!("{} to {}", ends[0], ends[1]), (RIGHT + 50, y), 13, &QUIET, HPos::Left)?;
        y += 28;
    }
    Ok(())
}

fn draw_curve(area: &Area, curve: &Curve, across: Logarithmic, up: Logarithmic) -> Drawn {
    let at = |point: &Point| (across.at(point.x), up.at(point.median));
    for point in &curve.points {
        let x = across.at(point.x);
        line(area, (x, up.at(point.least)), (x, up.at(point.most)), &curve.colour, 1)?;
        if curve.width > 1 {
            area.draw(&Circle::new(at(point), 4, curve.colour.filled())).map_err(drawing)?;
        }
    }
    let path: Vec<_> = curve.points.iter().map(at).collect();
    area.draw(&PathElement::new(path, curve.colour.stroke_width(curve.width))).map_err(drawing)?;
    if let Some((most, half)) = curve.half {
        line(area, (across.left, up.at(most)), (across.right, up.at(most)), &curve.colour, 1)?;
        let middle = (across.at(half), up.at(most / 2.0));
        line(area, (middle.0, middle.1), (middle.0, up.left), &curve.colour, 1)?;
        area.draw(&Circle::new(middle, 8, curve.colour.stroke_width(2))).map_err(drawing)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::{Collector, Figure};

    #[test]
    fn a_picture_is_drawn_of_what_the_run_has() {
        let mut collector = Collector::default();
        let rate = |name: &str, value| vec![Figure::new(format!("bandwidth/{name}"), "", Unit::BytesPerSecond, value)];
        for (size, share) in [(8, 0.02), (1024, 0.7), (65536, 1.0)] {
            collector.add(Carrier::Kernel, rate(&format!("{size}B"), 4e9 * share), None);
            collector.add(Carrier::Shunt, rate(&format!("{size}B"), 9e9 * share), None);
        }
        collector.add(Carrier::Shunt, rate("r-infinity", 9.1e9), None);
        collector.add(Carrier::Shunt, rate("n-half", 430.0), None);
        collector.add(Carrier::Shunt, vec![Figure::new("connections/1/all", "", Unit::PerSecond, 1e5)], None);
        let drawn = pictures(&crate::report::tests::document_of(collector)).unwrap();
        // Of connections there is one point alone, which is no curve.
        assert_eq!(drawn.iter().map(|(stem, _)| *stem).collect::<Vec<_>>(), ["bandwidth"]);
        for text in ["r-infinity 9.10 GB/s, n1/2 430 B", "64 KiB", "1 GB/s", "bytes of one send"] {
            assert!(drawn[0].1.contains(text), "{text} is missing from the picture");
        }
    }

    #[test]
    fn rows_are_in_the_order_of_their_numbers() {
        let mut collector = Collector::default();
        for count in ["10000", "50", "few"] {
            collector.add(Carrier::Shunt, vec![Figure::new(format!("connections/{count}/all"), "", Unit::PerSecond, 1.0)], None);
        }
        let document = crate::report::tests::document_of(collector);
        assert_eq!(rows(&document, "connections/", "/all").iter().map(|(number, _)| *number).collect::<Vec<_>>(), [50, 10_000]);
    }
}
