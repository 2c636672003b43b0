//! Figures 3 to 7 as SVG: the published lines on the left, this machine's points on the right.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use shunt_buffers::Semantics;

use super::ablations::Ablation;
use super::carrier::Carrier;
use super::model::{Measured, Way};
use super::processor::Processor;
use super::published;
use super::LONG;
use crate::drawing::{line, picture, write, write_middle, Area, Drawn, GRID, INK, QUIET};

const WIDTH: i32 = 1180;
const HEIGHT: i32 = 520;
const TOP: i32 = 110;
const BOTTOM: i32 = HEIGHT - 60;

const COLOURS: [RGBColor; 8] = [
    RGBColor(201, 42, 42),
    RGBColor(11, 114, 133),
    RGBColor(214, 137, 16),
    RGBColor(47, 138, 68),
    RGBColor(132, 94, 194),
    RGBColor(60, 90, 200),
    RGBColor(134, 142, 150),
    RGBColor(33, 37, 41),
];

type Points = Vec<(f64, f64)>;

struct Panel<'a> {
    title: String,
    unit: &'a str,
    curves: Vec<Curve>,
}

struct Curve {
    name: String,
    colour: RGBColor,
    points: Points,
}

impl From<(Semantics, Points)> for Curve {
    fn from((semantics, points): (Semantics, Points)) -> Curve {
        Curve { name: semantics.name().into(), colour: COLOURS[semantics.index()], points }
    }
}

/// The figures for which there are points, by the stems of their files.
pub fn all(
    carrier: Carrier,
    measured: &[Measured],
    processor: &[Processor],
    ablations: &[Ablation],
) -> Result<Vec<(String, String)>, String> {
    let of = |way: Way, from: f64, to: f64, value: &dyn Fn(&Measured, (f64, f64)) -> f64| -> Vec<(Semantics, Points)> {
        let kinds = measured.iter().filter(|one| one.way == way);
        let points = |one: &Measured| {
            one.latencies
                .iter()
                .filter(|point| (from..=to).contains(&point.0))
                .map(|point| (point.0, value(one, *point)))
                .collect()
        };
        kinds.map(|one| (one.semantics, points(one))).collect()
    };
    let micro = |_: &Measured, point: (f64, f64)| point.1 / 1e3;
    let mut drawn = Vec::new();
    let there = |way: &Way| measured.iter().any(|one| one.way == *way);
    let figures =
        [("figure-3", Way::Early), ("figure-6", Way::Aligned), ("figure-7", Way::Unaligned), ("outboard", Way::Outboard)];
    for (stem, way) in figures.into_iter().filter(|figure| there(&figure.1)) {
        let column = Way::ALL.iter().position(|known| *known == way).unwrap_or(0);
        let then = Semantics::ALL.into_iter().filter_map(|semantics| {
            let (each, fixed) = published::LATENCIES[semantics.index()].get(column)?;
            Some((semantics, [4096.0, LONG as f64].map(|length| (length, each * length + fixed)).to_vec()))
        });
        let title = format!("Latency with {}", way.title());
        drawn.push((stem, title, then.collect::<Vec<_>>(), "µs", of(way, 4096.0, LONG as f64, &micro)));
    }
    let then =
        Semantics::ALL.map(|semantics| (semantics, vec![(4096.0, f64::NAN), (LONG as f64, published::utilization(semantics))]));
    let title = "Processors' time of both ends, early demultiplexing, a message a millisecond".to_owned();
    let busy = processor.iter().filter_map(|one| {
        let semantics = Semantics::ALL.into_iter().find(|known| known.name() == one.semantics)?;
        let points = one.points.iter().map(|(length, ours, theirs)| (*length as f64, (ours + theirs) / 1e3));
        Some((semantics, points.collect()))
    });
    drawn.push(("figure-4", title, then.into(), "µs", busy.collect()));
    let title = "Latency of short messages, early demultiplexing".to_owned();
    drawn.push(("figure-5", title, Vec::new(), "µs", of(Way::Early, 0.0, 4096.0, &micro)));
    let mut done = drawn
        .into_iter()
        .map(|(stem, title, then, unit, now): (_, String, Vec<(Semantics, Points)>, _, Vec<(Semantics, Points)>)| {
            let percent = stem == "figure-4";
            let panels = [
                Panel {
                    title: if percent { "1996: of the processor, %, at 60 KB" } else { "1996: µs, by table 7" }.into(),
                    unit: if percent { "%" } else { "µs" },
                    curves: then.into_iter().map(Curve::from).collect(),
                },
                Panel {
                    title: format!("today, over {}", carrier.word()),
                    unit,
                    curves: now.into_iter().map(Curve::from).collect(),
                },
            ];
            Ok((format!("genie-{stem}-{}", carrier.word()), draw(&title, &panels)?))
        })
        .collect::<Result<Vec<_>, String>>()?;
    if !ablations.is_empty() {
        let title = format!("Messages without a technique: times as long, over {}", carrier.word());
        done.push((format!("genie-ablations-{}", carrier.word()), draw(&title, &panels_of(ablations))?));
    }
    Ok(done)
}

/// Ablations in two panels, for their legends.
fn panels_of(ablations: &[Ablation]) -> Vec<Panel<'static>> {
    let halves = ablations.chunks(ablations.len().div_ceil(2).max(1)).enumerate();
    halves
        .map(|(number, half)| Panel {
            title: if number == 0 { "without / with; above 1 the technique pays".into() } else { String::new() },
            unit: "x",
            curves: half
                .iter()
                .zip(COLOURS)
                .map(|(one, colour)| Curve {
                    name: one.technique.split(',').next().unwrap_or_default().chars().take(26).collect(),
                    colour,
                    points: one.points.iter().map(|point| (point.0 as f64, point.3)).collect(),
                })
                .collect(),
        })
        .collect()
}

fn draw(title: &str, panels: &[Panel]) -> Result<String, String> {
    picture((WIDTH, HEIGHT), |area| {
        write(area, title, (24, 18), 24, &INK, HPos::Left)?;
        let with: Vec<&Panel> = panels.iter().filter(|panel| !panel.curves.is_empty()).collect();
        let width = (WIDTH - 24) / with.len().max(1) as i32;
        for (number, panel) in with.iter().enumerate() {
            draw_panel(area, panel, 70 + number as i32 * width, 24 + (number as i32 + 1) * width - 190)?;
        }
        Ok(())
    })
}

fn draw_panel(area: &Area, panel: &Panel, left: i32, right: i32) -> Drawn {
    write(area, &panel.title, (left, 66), 15, &QUIET, HPos::Left)?;
    let points = || panel.curves.iter().flat_map(|curve| &curve.points).filter(|point| !point.1.is_nan());
    let most = points().fold((1.0, 0.001), |most: (f64, f64), point| (most.0.max(point.0), most.1.max(point.1)));
    let step = step(most.1);
    let top = (most.1 / step).ceil() * step;
    let x = |value: f64| left + (value / most.0 * f64::from(right - left)).round() as i32;
    let y = |value: f64| BOTTOM - (value / top * f64::from(BOTTOM - TOP)).round() as i32;
    for number in 0..=(top / step).round() as i32 {
        let value = f64::from(number) * step;
        line(area, (left, y(value)), (right, y(value)), &GRID, 1)?;
        write_middle(area, &format!("{value} {}", panel.unit), (left - 8, y(value)), 13, &QUIET, HPos::Right)?;
    }
    for quarter in 0..=4 {
        let bytes = most.0 * f64::from(quarter) / 4.0;
        let label = if most.0 > 8192.0 { format!("{:.0} KB", bytes / 1024.0) } else { format!("{bytes:.0} B") };
        write(area, &label, (x(bytes), BOTTOM + 10), 13, &QUIET, HPos::Center)?;
    }
    let mut last: Vec<(i32, &Curve)> = Vec::new();
    for curve in &panel.curves {
        let Curve { colour, points, .. } = curve;
        let seen: Vec<(i32, i32)> =
            points.iter().filter(|point| !point.1.is_nan()).map(|point| (x(point.0), y(point.1))).collect();
        seen.windows(2).try_for_each(|two| line(area, two[0], two[1], colour, 2))?;
        if let Some(end) = seen.last() {
            area.draw(&Circle::new(*end, 3, colour.filled())).map_err(crate::drawing::drawing)?;
            last.push((end.1, curve));
        }
    }
    // The legend in the order of the curves' ends, as the paper has it, with room between the lines.
    last.sort_by_key(|one| one.0);
    let mut free = TOP - 10;
    for (height, curve) in last {
        let place = height.max(free);
        free = place + 17;
        write_middle(area, &curve.name, (right + 10, place), 13, &curve.colour, HPos::Left)?;
    }
    Ok(())
}

/// A round step that cuts a scale into about five.
fn step(most: f64) -> f64 {
    let power = 10f64.powf((most / 5.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|step| most / step <= 6.0).unwrap_or(power * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round() {
        assert_eq!([0.9, 5.0, 13.0, 6000.0].map(step), [0.2, 1.0, 5.0, 1000.0]);
    }

    #[test]
    fn figures_are_drawn_from_what_there_is() {
        let one = Measured {
            semantics: Semantics::COPY,
            way: Way::Early,
            latencies: vec![(64.0, 400.0), (4096.0, 900.0), (61440.0, 6000.0)],
            operations: Default::default(),
            times: Default::default(),
        };
        let drawn = {
            let ablation = Ablation {
                technique: "region hiding".into(),
                without: "unmapping".into(),
                published: "4".into(),
                points: vec![(4096, 1000.0, 1500.0, 1.5)],
            };
            all(Carrier::Shm, &[one], &[], &[ablation]).unwrap()
        };
        assert_eq!(drawn.len(), 4, "figures 3, 4 and 5, and ablations");
        assert!(drawn.iter().all(|(stem, svg)| stem.ends_with("-shm") && svg.starts_with("<svg")));
        assert!(drawn[0].1.contains("early demultiplexing"));
    }
}
