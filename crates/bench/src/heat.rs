//! The matrix as a picture: a field for each combination, red where shunt is slower than the kernel.

use std::fmt::Write as _;

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use crate::cells::matrix::{title, PLACES, SHAPES, SIDES, SIZES, WAITS};
use crate::contenders::Carrier;
use crate::drawing::{drawing, picture, write_middle, INK, QUIET, SHUNT, WORSE};
use crate::report::{figure, Comparison, Document};
use crate::statistics::median;

const FIELD: (i32, i32) = (40, 26);
const LEFT: i32 = 230;
const TOP: i32 = 160;
/// What a repeat of the same measurement may differ by.
const NOISE: f64 = 0.03;
const ORANGE: RGBColor = RGBColor(240, 140, 0);

/// What the turns say of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Not slower than the kernel by more than noise, beyond doubt.
    NotSlower,
    /// Slower by more than noise, beyond doubt.
    Slower,
    /// The turns do not decide it.
    Open,
}

impl Verdict {
    /// By the interval in which the ratio lies in 95 of 100 cases; of fewer than six turns there is none.
    pub fn of(interval: Option<(f64, f64)>) -> Self {
        match interval {
            Some((least, _)) if least >= 1.0 - NOISE => Verdict::NotSlower,
            Some((_, most)) if most < 1.0 - NOISE => Verdict::Slower,
            _ => Verdict::Open,
        }
    }
}

/// One combination, measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// What was measured.
    pub title: String,
    /// Requests in a second of the kernel and of shunt.
    pub rates: (f64, f64),
    /// How many times better shunt is.
    pub ratio: f64,
    /// Where the ratio lies in 95 of 100 cases; `None` of fewer than six turns.
    pub interval: Option<(f64, f64)>,
    /// Turns of shunt.
    pub turns: usize,
}

impl Field {
    /// What the turns say of it.
    pub fn verdict(&self) -> Verdict {
        Verdict::of(self.interval)
    }

    /// Whether it looks slower by more than noise, and the turns do not decide it.
    pub fn looks_slower(&self) -> bool {
        self.verdict() == Verdict::Open && self.ratio < 1.0 - NOISE
    }

    /// Width of the interval as a share of the ratio.
    fn noise(&self) -> Option<f64> {
        self.interval.map(|(least, most)| (most - least) / self.ratio)
    }
}

/// Each combination that was measured.
pub fn fields(document: &Document) -> Vec<Field> {
    let field = |one: &Comparison| {
        let (title, turns) = (one.row.title.clone(), one.shunt?.values.len());
        let rates = (one.kernel.median()?, one.shunt?.median()?);
        Some(Field { title, rates, ratio: one.ratio()?, interval: one.interval(), turns })
    };
    document.comparisons().iter().filter(|one| one.cell == "matrix").filter_map(field).collect()
}

/// A sentence on the whole, and each field that is slower or looks so, the worst first.
pub fn summary(document: &Document) -> String {
    let mut fields = fields(document);
    fields.sort_by(|one, other| one.ratio.total_cmp(&other.ratio));
    let count = |which: Verdict| fields.iter().filter(|field| field.verdict() == which).count();
    let looks = fields.iter().filter(|field| field.looks_slower()).count();
    let turns = fields.iter().map(|field| field.turns);
    let noise: Vec<f64> = fields.iter().filter_map(Field::noise).collect();
    let mut text = format!(
        "{} combinations: {} slower than the kernel by more than 3 % beyond doubt, {} not slower beyond doubt,\n\
         {} not decided, of which {looks} look slower; {} to {} turns each, the interval of the ratio (95 of 100 cases)\n\
         is {:.0} % wide in the median of all\n",
        fields.len(),
        count(Verdict::Slower),
        count(Verdict::NotSlower),
        count(Verdict::Open),
        turns.clone().min().unwrap_or(0),
        turns.max().unwrap_or(0),
        median(&noise).unwrap_or(f64::NAN) * 100.0,
    );
    for field in fields.iter().filter(|field| field.verdict() == Verdict::Slower || field.looks_slower()) {
        let word = if field.verdict() == Verdict::Slower { "slower" } else { "open" };
        let _ = writeln!(text, "  {word:<6} {:.2} x{}, {} turns: {}", field.ratio, between(field), field.turns, field.title);
    }
    for (carrier, error) in document.cells.iter().flat_map(|cell| &cell.failures) {
        let _ = writeln!(text, "  missing: {} failed: {error}", carrier.title());
    }
    text
}

fn between(field: &Field) -> String {
    field.interval.map_or(String::new(), |(least, most)| format!(" ({least:.2} to {most:.2})"))
}

/// Every field in a line of its own.
pub fn table(document: &Document) -> String {
    let mut text = format!(
        "{}\n{}\nmade by: {}\n\n{:<60} {:>10} {:>10} {:>8} {:<18} {:>5}\n",
        document.machine.describe(),
        document.network.describe(),
        document.command,
        "requests in a second",
        "kernel",
        "shunt",
        "ratio",
        " in 95 of 100",
        "turns"
    );
    for comparison in document.comparisons().iter().filter(|one| one.cell == "matrix") {
        let unit = comparison.row.unit;
        let rate = |value: Option<f64>| value.map_or("-".into(), |value| figure(unit, value));
        let kernel = rate(comparison.kernel.median());
        let shunt = rate(comparison.shunt.and_then(|series| series.median()));
        let ratio = comparison.ratio().map_or("-".into(), |ratio| format!("{ratio:.2} x"));
        let interval = comparison.interval().map_or(String::new(), |(least, most)| format!("({least:.2} to {most:.2})"));
        let turns = comparison.row.series(Carrier::Shunt).map_or(0, |series| series.values.len());
        let line = format!("{:<60} {kernel:>10} {shunt:>10} {ratio:>8}  {interval:<17} {turns:>5}", comparison.row.title);
        let _ = writeln!(text, "{}", line.trim_end());
    }
    for warning in &document.warnings {
        let _ = writeln!(text, "warning: {warning}");
    }
    text
}

/// From white (equal) to blue (ten times faster and more); red is slower, orange looks so and is not decided.
fn colour(field: &Field) -> RGBColor {
    let blend = |to: RGBColor, share: f64| {
        let mix = |to: u8| (255.0 + (f64::from(to) - 255.0) * share.clamp(0.0, 1.0)).round() as u8;
        RGBColor(mix(to.0), mix(to.1), mix(to.2))
    };
    match field.verdict() {
        Verdict::Slower => blend(WORSE, 0.35 + (1.0 - field.ratio)),
        _ if field.looks_slower() => blend(ORANGE, 0.4),
        _ => blend(SHUNT, field.ratio.max(1.0).log10()),
    }
}

/// A ratio in the few letters of a field: two places only where they decide.
fn short(ratio: f64) -> String {
    match ratio {
        ratio if ratio < 1.995 => format!("{ratio:.2}"),
        ratio if ratio < 9.95 => format!("{ratio:.1}"),
        ratio => format!("{ratio:.0}"),
    }
}

/// The heat map as an SVG document.
pub fn svg(document: &Document) -> Result<String, String> {
    let fields = fields(document);
    let columns = (WAITS.len() * PLACES.len() * SIDES.len()) as i32;
    let rows = (SIZES.len() * SHAPES.len()) as i32;
    let size = (LEFT + columns * FIELD.0 + 30, TOP + rows * FIELD.1 + 100);
    picture(size, |area| {
        let write = |text: &str, at: (i32, i32), height: i32, side: HPos, colour: &RGBColor| {
            write_middle(area, text, at, height, colour, side)
        };
        let fill = |from: (i32, i32), to: (i32, i32), colour: RGBColor| {
            area.draw(&Rectangle::new([from, to], colour.filled())).map_err(drawing)
        };
        write("Requests in a second: shunt / kernel TCP", (24, 26), 22, HPos::Left, &INK)?;
        write(&document.machine.describe(), (24, 54), 13, HPos::Left, &QUIET)?;
        for (line, words) in summary(document).lines().take(3).enumerate() {
            write(words, (LEFT + 12 * FIELD.0, 20 + line as i32 * 18), 13, HPos::Left, &QUIET)?;
        }
        let bottom = TOP + rows * FIELD.1;
        for (w, wait) in WAITS.iter().enumerate() {
            for (p, (place, _)) in PLACES.iter().enumerate() {
                let x = LEFT + ((w * PLACES.len() + p) * SIDES.len()) as i32 * FIELD.0;
                if p == 0 {
                    write(wait, (x + 9 * FIELD.0 / 2, TOP - 66), 16, HPos::Center, &INK)?;
                }
                write(place, (x + 3 * FIELD.0 / 2, TOP - 42), 13, HPos::Center, &QUIET)?;
                for (s, (side, _)) in SIDES.iter().enumerate() {
                    write(side, (x + s as i32 * FIELD.0 + FIELD.0 / 2, TOP - 20), 11, HPos::Center, &QUIET)?;
                }
                // A line between places, a stronger one between ways of waiting.
                let shade = if p == 0 { QUIET } else { RGBColor(200, 205, 210) };
                fill((x - 1, TOP - if p == 0 { 76 } else { 50 }), (x, bottom), shade)?;
            }
        }
        for (k, bytes) in SIZES.iter().enumerate() {
            for (s, shape) in SHAPES.iter().enumerate() {
                let y = TOP + (k * SHAPES.len() + s) as i32 * FIELD.1;
                let label = title(*bytes, *shape, "", "", "");
                write(label.trim_end_matches(", "), (LEFT - 10, y + FIELD.1 / 2), 13, HPos::Right, &INK)?;
                let places = WAITS.iter().flat_map(|wait| PLACES.iter().map(move |(place, _)| (wait, place)));
                let columns = places.flat_map(|(wait, place)| SIDES.iter().map(move |(side, _)| (wait, place, side)));
                for (column, (wait, place, side)) in columns.enumerate() {
                    let title = title(*bytes, *shape, wait, place, side);
                    let Some(field) = fields.iter().find(|field| field.title == title) else { continue };
                    let x = LEFT + column as i32 * FIELD.0;
                    fill((x + 1, y + 1), (x + FIELD.0 - 2, y + FIELD.1 - 1), colour(field))?;
                    let middle = (x + FIELD.0 / 2, y + FIELD.1 / 2);
                    let ink = if field.ratio > 6.0 { WHITE } else { INK };
                    write(&short(field.ratio), middle, 12, HPos::Center, &ink)?;
                    if field.verdict() == Verdict::Open {
                        fill((x + FIELD.0 - 7, y + 3), (x + FIELD.0 - 4, y + 6), ORANGE)?;
                    }
                }
            }
        }
        let (mut x, y) = (LEFT, bottom + 26);
        let legend = [
            (WORSE, 300, "slower by more than 3 %, beyond doubt"),
            (RGBColor(249, 209, 153), 300, "looks slower, the turns do not decide it"),
            (RGBColor(170, 212, 218), 260, "faster: the darker, the more"),
            (ORANGE, 0, "not decided whether more than 3 % slower"),
        ];
        for (colour, width, words) in legend {
            let small = width == 0;
            fill((x, y - if small { 2 } else { 6 }), (x + if small { 4 } else { 20 }, y + if small { 2 } else { 6 }), colour)?;
            write(words, (x + if small { 12 } else { 28 }, y), 13, HPos::Left, &QUIET)?;
            x += width;
        }
        let words = "both, client, server: who is under shunt.  apart: a core each; one core: both ends on it; crowded: four \
                     processes a side (12 connections each where it says 50) on all cores, none pinned.";
        write(words, (LEFT, y + 26), 13, HPos::Left, &QUIET)?;
        write(&format!("made by: {}", document.command), (LEFT, y + 50), 12, HPos::Left, &QUIET)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement::{Collector, Figure, Unit};

    #[test]
    fn fields_are_red_when_the_turns_decide_it_and_open_when_they_do_not() {
        let mut collector = Collector::default();
        let rows = [
            ("8 B, 1 connection, 1 thread, poll, apart, both", [5.0; 8]),
            ("8 B, 50 connections, 1 thread, edge, apart, both", [0.5; 8]),
            ("8 B, 50 connections, 1 thread, edge, apart, server", [0.9, 0.9, 0.9, 0.9, 0.9, 1.1, 1.1, 1.1]),
            ("8 B, 50 connections, 1 thread, edge, apart, client", [0.9, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2, 1.2]),
        ];
        for (title, rates) in rows {
            for rate in rates {
                let figure = |value| vec![Figure::new(format!("matrix/{title}"), title, Unit::PerSecond, value)];
                collector.add(Carrier::Kernel, figure(1.0), None);
                collector.add(Carrier::Shunt, figure(rate), None);
            }
        }
        let mut document = crate::report::tests::document_of(collector);
        document.cells[0].name = "matrix".into();
        let found = fields(&document);
        assert_eq!(
            found.iter().map(|field| (field.verdict(), field.looks_slower())).collect::<Vec<_>>(),
            [(Verdict::NotSlower, false), (Verdict::Slower, false), (Verdict::Open, true), (Verdict::Open, false)]
        );
        let text = summary(&document);
        assert!(
            text.starts_with("4 combinations: 1 slower than the kernel by more than 3 % beyond doubt, 1 not slower"),
            "{text}"
        );
        assert!(text.contains("2 not decided, of which 1 look slower; 8 to 8 turns each"), "{text}");
        assert!(text.contains("slower 0.50 x (0.50 to 0.50), 8 turns: 8 B, 50") && text.contains("open   0.90 x (0.90 to 1.10)"));
        assert_eq!(table(&document).lines().filter(|line| line.contains("50 connections")).count(), 3);
        let drawn = svg(&document).unwrap();
        assert!(drawn.contains("5.0") && drawn.contains("0.50"));
        assert_ne!(colour(&found[1]), colour(&found[2]));
    }

    #[test]
    fn five_turns_decide_nothing() {
        assert_eq!(Verdict::of(None), Verdict::Open);
    }
}
