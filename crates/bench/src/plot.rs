//! The run as one picture: how many times better, and how the round trips are distributed.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use crate::contenders::Carrier;
use crate::drawing::{
    drawing, line, micro, picture, short_time, write, write_middle, Area, Drawn, Logarithmic, FLOOR, FLOORS, GRID, INK, KERNEL,
    QUIET, SHUNT, SPINNING, WORSE,
};
use crate::measurement::{Row, Series, Unit};
use crate::report::{self, figure, Comparison, Document};
use crate::statistics::Point;

const WIDTH: i32 = 1180;
const LEFT: i32 = 300;
const RIGHT: i32 = WIDTH - 250;
const ROW: i32 = 26;
const HEAD: i32 = 84;
const CURVES: i32 = 330;
const KERNEL_COLUMN: i32 = WIDTH - 118;
const SHUNT_COLUMN: i32 = WIDTH - 20;
/// What a repeat of the same measurement may differ by.
const NOISE: f64 = 0.03;

/// Bars that a picture has at most before it leaves out those that belong to the one above them.
const MOST_BARS: usize = 64;

/// What has a bar, and whether some rows are in the table alone: those with an indented title, where there are too many to read.
fn with_bars(document: &Document) -> (Vec<Comparison<'_>>, bool) {
    let mut comparisons: Vec<Comparison> = document.comparisons().into_iter().filter(|one| one.ratio().is_some()).collect();
    let all = comparisons.len();
    if all > MOST_BARS {
        comparisons.retain(|one| !one.row.title.starts_with(' '));
    }
    let fewer = comparisons.len() < all;
    (comparisons, fewer)
}

/// The whole picture as an SVG document.
pub fn svg(document: &Document) -> Result<String, String> {
    let (comparisons, fewer) = with_bars(document);
    let timed = document
        .cells
        .iter()
        .flat_map(|cell| &cell.rows)
        .find(|row| row.contenders.iter().any(|(_, series)| !series.curve.is_empty()));
    let bars = if comparisons.is_empty() { 60 } else { bars_height(&comparisons) };
    let height = HEAD + bars + if timed.is_some() { CURVES } else { 0 } + 40;

    picture((WIDTH, height), |area| {
        draw_head(area, document)?;
        match comparisons.is_empty() {
            true => write(area, "Only the kernel was measured: nothing to compare.", (24, HEAD + 20), 15, &QUIET, HPos::Left)?,
            false => draw_bars(area, &comparisons)?,
        }
        if let Some(row) = timed {
            draw_curves(area, row, HEAD + bars)?;
        }
        let further = if fewer { "Rows of percentiles and variants are in the table.  " } else { "" };
        write(area, &format!("{further}made by: {}", document.command), (24, height - 22), 12, &QUIET, HPos::Left)
    })
}

fn draw_head(area: &Area, document: &Document) -> Drawn {
    write(area, "shunt against kernel TCP, the same programs on one host", (24, 18), 24, &INK, HPos::Left)?;
    let conditions = format!(
        "{}.  Medians of interleaved repeats, congestion control {}.",
        document.machine.describe(),
        document.network.congestion_control
    );
    write(area, &conditions, (24, 52), 14, &QUIET, HPos::Left)
}

/// Rows stand in groups, one a cell, with a little air between groups.
fn bars_height(comparisons: &[Comparison]) -> i32 {
    let groups = comparisons.windows(2).filter(|two| two[0].cell != two[1].cell).count() as i32;
    comparisons.len() as i32 * ROW + groups * 10 + 90
}

fn draw_bars(area: &Area, comparisons: &[Comparison]) -> Drawn {
    let reach = comparisons.iter().flat_map(|one| one.ratio().into_iter().chain(one.floor_ratio()));
    let scale = Logarithmic::holding(reach, 1.0, LEFT, RIGHT);
    let (top, bottom) = (HEAD + 30, HEAD + bars_height(comparisons) - 50);
    for tick in scale.ticks() {
        let at = scale.at(tick);
        line(area, (at, top), (at, bottom), &GRID, 1)?;
        write(area, &format!("{tick}×"), (at, top - 20), 13, &QUIET, HPos::Center)?;
    }
    write(area, "kernel", (KERNEL_COLUMN, top - 20), 13, &QUIET, HPos::Right)?;
    write(area, "shunt", (SHUNT_COLUMN, top - 20), 13, &QUIET, HPos::Right)?;
    let mut y = top + 4;
    for (index, comparison) in comparisons.iter().enumerate() {
        if index > 0 && comparisons[index - 1].cell != comparison.cell {
            y += 10;
        }
        draw_bar(area, comparison, scale, y)?;
        y += ROW;
    }
    line(area, (scale.at(1.0), top), (scale.at(1.0), bottom), &INK, 2)?;
    legend(area, bottom + 14)
}

fn draw_bar(area: &Area, comparison: &Comparison, scale: Logarithmic, y: i32) -> Drawn {
    let medians = (comparison.kernel.median(), comparison.shunt.and_then(Series::median));
    let (Some(ratio), (Some(kernel), Some(shunt))) = (comparison.ratio(), medians) else {
        return Ok(());
    };
    let title = match comparison.baseline {
        Carrier::KernelSpinning => format!("{}, kernel spinning", comparison.row.title),
        _ => comparison.row.title.clone(),
    };
    let (one, end, middle) = (scale.at(1.0), scale.at(ratio), y + ROW / 2 - 2);
    write_middle(area, &title, (LEFT - 14, middle), 14, &INK, HPos::Right)?;
    let colour = if ratio >= 1.0 - NOISE { SHUNT } else { WORSE };
    let corners = [(one.min(end), y + 1), (one.max(end), y + ROW - 5)];
    area.draw(&Rectangle::new(corners, colour.filled())).map_err(drawing)?;
    let mut last = end.max(one);
    if let Some(floor) = comparison.floor_ratio() {
        let at = scale.at(floor);
        line(area, (at, y - 1), (at, y + ROW - 3), &FLOOR, 3)?;
        last = last.max(at);
    }
    let number = report::ratio(ratio).replace(" x", "×");
    // Beside the bar where there is room before the floor's mark, else behind the mark.
    let at = if last - end.max(one) > 80 { end.max(one) } else { last };
    write_middle(area, &number, (at + 10, middle), 15, &colour, HPos::Left)?;
    let unit = comparison.row.unit;
    write_middle(area, &micro(figure(unit, kernel)), (KERNEL_COLUMN, middle), 14, &QUIET, HPos::Right)?;
    let mark = match comparison.shunt.and_then(|series| series.accelerated) {
        Some(false) => "*",
        _ => "",
    };
    write_middle(area, &micro(figure(unit, shunt) + mark), (SHUNT_COLUMN, middle), 14, &colour, HPos::Right)
}

fn legend(area: &Area, y: i32) -> Drawn {
    let mut x = LEFT;
    area.draw(&Rectangle::new([(x, y + 2), (x + 26, y + 14)], SHUNT.filled())).map_err(drawing)?;
    write_middle(area, "times better than the kernel, in time or in rate", (x + 34, y + 8), 13, &QUIET, HPos::Left)?;
    x += 330;
    line(area, (x, y), (x, y + 16), &FLOOR, 3)?;
    write_middle(area, "the floor: bare shared memory, bare AF_UNIX", (x + 10, y + 8), 13, &QUIET, HPos::Left)
}

/// How far a percentile is up the axis: every nine counts as much as the one before it.
fn nines(percentile: f64) -> f64 {
    -(1.0 - (percentile / 100.0).min(0.9995)).log10()
}

fn draw_curves(area: &Area, row: &Row, top: i32) -> Drawn {
    let mut curves: Vec<(String, RGBColor, &[Point])> = Vec::new();
    let floors = row.floors.iter().filter(|floor| !floor.series.curve.is_empty());
    for (floor, colour) in floors.zip(FLOORS.iter().cycle()) {
        curves.push((format!("floor ({})", floor.title), *colour, &floor.series.curve));
    }
    for (carrier, series) in row.contenders.iter().rev().filter(|(_, series)| !series.curve.is_empty()) {
        let colour = match carrier {
            Carrier::Kernel => KERNEL,
            Carrier::KernelSpinning => SPINNING,
            Carrier::Shunt => SHUNT,
        };
        curves.push((carrier.title().into(), colour, &series.curve));
    }
    let shown = |point: &&Point| (1.0..=99.95).contains(&point.percentile);
    let reach = curves.iter().flat_map(|(_, _, curve)| curve.iter().filter(shown)).map(|point| point.nanoseconds as f64);
    let scale = Logarithmic::holding(reach, 100.0, LEFT, RIGHT);
    let (high, low) = (top + 52, top + CURVES - 40);
    let height = |percentile: f64| low - (nines(percentile) / nines(99.9) * f64::from(low - high)) as i32;

    let title = row.title.trim_end_matches(", p50").to_string();
    write(area, &format!("{title}: how many of the round trips were over by then"), (24, top + 4), 16, &INK, HPos::Left)?;
    for tick in scale.ticks() {
        line(area, (scale.at(tick), high), (scale.at(tick), low), &GRID, 1)?;
        let text = short_time(tick);
        write(area, &text, (scale.at(tick), low + 8), 13, &QUIET, HPos::Center)?;
    }
    for percentile in [0.0, 50.0, 90.0, 99.0, 99.9] {
        let y = height(percentile);
        line(area, (LEFT, y), (RIGHT, y), &GRID, 1)?;
        write_middle(area, &format!("{percentile} %"), (LEFT - 14, y), 13, &QUIET, HPos::Right)?;
    }
    for (index, (name, colour, curve)) in curves.iter().enumerate() {
        let points: Vec<(i32, i32)> =
            curve.iter().filter(shown).map(|point| (scale.at(point.nanoseconds as f64), height(point.percentile))).collect();
        area.draw(&PathElement::new(points, colour.stroke_width(3))).map_err(drawing)?;
        let median = curve.iter().find(|point| point.percentile == 50.0).map_or(0.0, |point| point.nanoseconds as f64);
        let y = high + 10 + index as i32 * 24;
        line(area, (RIGHT + 16, y), (RIGHT + 40, y), colour, 3)?;
        let text = format!("{name}: median {}", micro(figure(Unit::Nanoseconds, median)));
        write_middle(area, &text, (RIGHT + 48, y), 13, &INK, HPos::Left)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drawing::png;
    use crate::measurement::{Collector, Figure};
    use crate::statistics::Distribution;

    #[test]
    fn the_scale_holds_what_it_was_made_for() {
        let scale = Logarithmic::holding([0.5, 260.0].into_iter(), 1.0, 0, 1000);
        assert!(scale.at(0.5) > 0 && scale.at(260.0) < 1000 && scale.at(0.5) < scale.at(1.0));
        assert!(scale.ticks().contains(&1.0) && scale.ticks().contains(&100.0));
        assert_eq!(nines(99.0).round() as i32, 2);
    }

    #[test]
    fn a_picture_of_many_rows_has_those_that_stand_for_themselves() {
        let rows = |count: usize| {
            let mut collector = Collector::default();
            for number in 0..count {
                let title = if number % 2 == 0 { format!("load {number}") } else { "  p99".into() };
                for carrier in [Carrier::Kernel, Carrier::Shunt] {
                    collector.add(carrier, vec![Figure::new(number.to_string(), title.clone(), Unit::PerSecond, 1.0)], None);
                }
            }
            let document = report::tests::document_of(collector);
            let (bars, fewer) = with_bars(&document);
            (bars.len(), fewer)
        };
        assert_eq!((rows(MOST_BARS), rows(MOST_BARS + 2)), ((MOST_BARS, false), (MOST_BARS / 2 + 1, true)));
    }

    #[test]
    fn a_run_becomes_a_picture() {
        let mut collector = Collector::default();
        let round_trip = |nanoseconds: u32| {
            let samples: Vec<u32> = (0..1000).map(|number| nanoseconds + number / 50 * nanoseconds / 50).collect();
            let figure = Figure::new("pingpong/8B/p50", "8 B round trip, p50", Unit::Nanoseconds, f64::from(nanoseconds));
            vec![figure.with_distribution(Distribution::of(&samples))]
        };
        let stream = |rate| vec![Figure::new("stream/65536B", "stream, 64 KiB sends", Unit::BytesPerSecond, rate)];
        collector.add_floor("cache line", round_trip(150));
        collector.add_floor("byte ring 4 MiB", round_trip(200));
        collector.add_floor("byte ring 1 MiB", stream(15e9));
        for (carrier, nanoseconds, rate) in
            [(Carrier::Kernel, 50_000, 4e9), (Carrier::KernelSpinning, 7_700, 4e9), (Carrier::Shunt, 200, 3e9)]
        {
            collector.add(carrier, round_trip(nanoseconds), None);
            collector.add(carrier, stream(rate), None);
        }
        let drawn = svg(&report::tests::document_of(collector)).unwrap();
        for text in ["8 B round trip, p50", "250×", "0.75×", "floor (cache line)", "99.9 %", "#845EC2"] {
            assert!(drawn.contains(text), "{text} is missing from the picture");
        }
        assert!(drawn.matches("#C92A2A").count() >= 2, "what is slower than the kernel is red");
        assert!(png(&drawn).unwrap().starts_with(b"\x89PNG"));
    }
}
