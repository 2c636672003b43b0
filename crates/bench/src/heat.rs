//! The matrix as a picture: a field for each combination, red where shunt is slower than the kernel.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::cells::matrix::{PLACES, SHAPES, SIDES, SIZES, WAITS};
use crate::report::{Comparison, Document};

const FIELD: (i32, i32) = (44, 30);
const LEFT: i32 = 190;
const TOP: i32 = 150;
/// What a repeat of the same measurement may differ by.
pub const NOISE: f64 = 0.03;
const FONT: &str = "Ubuntu, DejaVu Sans, Helvetica, Arial, sans-serif";

/// One combination, measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// What was measured.
    pub title: String,
    /// How many times better shunt is.
    pub ratio: f64,
    /// Where the ratio lies in 95 of 100 cases; `None` of fewer than six turns.
    pub interval: Option<(f64, f64)>,
    /// Turns of shunt.
    pub turns: usize,
}

impl Field {
    /// Whether shunt is slower by more than noise, beyond doubt.
    pub fn is_red(&self) -> bool {
        self.interval.is_some_and(|(_, most)| most < 1.0 - NOISE)
    }

    /// Whether shunt looks slower by more than noise, and the turns do not decide it.
    pub fn is_open(&self) -> bool {
        self.ratio < 1.0 - NOISE && !self.is_red()
    }
}

/// Each combination that was measured.
pub fn fields(document: &Document) -> Vec<Field> {
    let field = |one: &Comparison| {
        let (title, turns) = (one.row.title.clone(), one.shunt?.values.len());
        Some(Field { title, ratio: one.ratio()?, interval: one.interval(), turns })
    };
    document.comparisons().iter().filter(|one| one.cell == "matrix").filter_map(field).collect()
}

/// A sentence on the whole, and each field that is red or open, the worst first.
pub fn summary(document: &Document) -> String {
    let mut fields = fields(document);
    fields.sort_by(|one, other| one.ratio.total_cmp(&other.ratio));
    let count = |which: fn(&Field) -> bool| fields.iter().filter(|field| which(field)).count();
    let mut text = format!(
        "{} combinations: {} slower than the kernel by more than 3 %, {} that look so and are not decided\n",
        fields.len(),
        count(Field::is_red),
        count(Field::is_open)
    );
    for field in fields.iter().filter(|field| field.is_red() || field.is_open()) {
        let interval = field.interval.map_or(String::new(), |(least, most)| format!(" ({least:.2} to {most:.2})"));
        let word = if field.is_red() { "slower" } else { "open" };
        text += &format!("  {word:<6} {:.2} x{interval}, {} turns: {}\n", field.ratio, field.turns, field.title);
    }
    text
}

/// From red (slower) over white (equal) to blue (ten times faster and more).
fn colour(field: &Field) -> RGBColor {
    let blend = |to: (f64, f64, f64), share: f64| {
        let mix = |to: f64| (255.0 + (to - 255.0) * share.clamp(0.0, 1.0)).round() as u8;
        RGBColor(mix(to.0), mix(to.1), mix(to.2))
    };
    if field.is_red() {
        blend((201.0, 42.0, 42.0), 0.35 + (1.0 - field.ratio))
    } else if field.is_open() {
        blend((240.0, 140.0, 0.0), 0.3)
    } else {
        blend((11.0, 114.0, 133.0), field.ratio.max(1.0).log10())
    }
}

/// The heat map as an SVG document.
pub fn svg(document: &Document) -> Result<String, String> {
    let fields = fields(document);
    let columns = WAITS.len() * PLACES.len() * SIDES.len();
    let rows = SIZES.len() * SHAPES.len();
    let size = (LEFT + columns as i32 * FIELD.0 + 30, TOP + rows as i32 * FIELD.1 + 50);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (size.0 as u32, size.1 as u32)).into_drawing_area();
        let write = |text: &str, at: (i32, i32), height: i32, side: HPos, colour: &RGBColor| {
            let style = TextStyle::from((FONT, height).into_font()).color(colour).pos(Pos::new(side, VPos::Center));
            area.draw_text(text, &style, at).map_err(|error| error.to_string())
        };
        let (ink, quiet) = (RGBColor(33, 37, 41), RGBColor(110, 118, 126));
        area.fill(&WHITE).map_err(|error| error.to_string())?;
        write("shunt / kernel TCP, requests in a second", (24, 26), 22, HPos::Left, &ink)?;
        write(&document.machine.describe(), (24, 54), 13, HPos::Left, &quiet)?;
        for (w, wait) in WAITS.iter().enumerate() {
            for (p, (place, _)) in PLACES.iter().enumerate() {
                let first = (w * PLACES.len() + p) * SIDES.len();
                let x = LEFT + first as i32 * FIELD.0;
                if p == 0 {
                    write(wait, (x + 3 * FIELD.0, TOP - 62), 15, HPos::Center, &ink)?;
                }
                write(place, (x + FIELD.0, TOP - 40), 13, HPos::Center, &quiet)?;
                for (s, side) in SIDES.iter().enumerate() {
                    write(side, (x + s as i32 * FIELD.0 + FIELD.0 / 2, TOP - 18), 11, HPos::Center, &quiet)?;
                }
            }
        }
        for (k, size) in SIZES.iter().enumerate() {
            for (shape, (connections, threads)) in SHAPES.iter().enumerate() {
                let y = TOP + (k * SHAPES.len() + shape) as i32 * FIELD.1;
                let label = format!("{size} B, {connections} conn., {threads} thr.");
                write(&label, (LEFT - 10, y + FIELD.1 / 2), 13, HPos::Right, &ink)?;
                let mut x = LEFT;
                for wait in WAITS {
                    for (place, _) in PLACES {
                        for side in SIDES {
                            let title =
                                format!("{size} B, {connections} connections, {threads} threads, {wait}, {place}, {side}");
                            if let Some(field) = fields.iter().find(|field| field.title == title) {
                                let ratio = field.ratio;
                                let corners = [(x + 1, y + 1), (x + FIELD.0 - 1, y + FIELD.1 - 1)];
                                let shape = Rectangle::new(corners, colour(field).filled());
                                area.draw(&shape).map_err(|error| error.to_string())?;
                                let number = if ratio >= 9.95 { format!("{ratio:.0}") } else { format!("{ratio:.1}") };
                                let middle = (x + FIELD.0 / 2, y + FIELD.1 / 2);
                                let dark = ratio > 6.0;
                                write(&number, middle, 12, HPos::Center, if dark { &WHITE } else { &ink })?;
                            }
                            x += FIELD.0;
                        }
                    }
                }
            }
        }
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::contenders::Carrier;
    use crate::measurement::{Collector, Figure, Unit};

    #[test]
    fn fields_are_red_when_the_turns_decide_it_and_open_when_they_do_not() {
        let mut collector = Collector::default();
        let rows = [
            ("8 B, 1 connections, 1 threads, poll, apart, both", [5.0; 8]),
            ("8 B, 50 connections, 1 threads, edge, apart, both", [0.5; 8]),
            ("8 B, 50 connections, 1 threads, edge, apart, client", [0.9, 0.9, 0.9, 0.9, 0.9, 1.1, 1.1, 1.1]),
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
            found.iter().map(|field| (field.is_red(), field.is_open())).collect::<Vec<_>>(),
            [(false, false), (true, false), (false, true)]
        );
        let text = summary(&document);
        assert!(text.starts_with("3 combinations: 1 slower than the kernel by more than 3 %, 1 that look so"), "{text}");
        assert!(text.contains("slower 0.50 x (0.50 to 0.50), 8 turns: 8 B, 50") && text.contains("open   0.90 x (0.90 to 1.10)"));
        let drawn = svg(&document).unwrap();
        assert!(drawn.contains(">\n5.0\n<") || drawn.contains("5.0"));
        assert_ne!(colour(&found[1]), colour(&found[2]));
    }
}
