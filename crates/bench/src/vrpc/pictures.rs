//! The figures as SVG: ratios to the bare endpoint of the same round by length, with the papers' numbers as rings; bandwidth; and sections as bars.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::model::{Document, Question, Series, SECTIONS};
use super::published;
use crate::cells::bytes;
use crate::drawing::{drawing, line, picture, write, write_middle, Logarithmic, GRID, INK, KERNEL, QUIET, SHUNT, SPINNING};

const WIDTH: i32 = 900;
const HEIGHT: i32 = 520;
const TOP: i32 = 100;
const BOTTOM: i32 = HEIGHT - 60;
const LEFT: i32 = 90;
const RIGHT: i32 = WIDTH - 210;
const VIOLET: RGBColor = RGBColor(132, 94, 194);

const PARTS: [RGBColor; SECTIONS.len()] = [
    RGBColor(11, 114, 133),
    RGBColor(102, 178, 190),
    RGBColor(206, 212, 218),
    RGBColor(201, 42, 42),
    RGBColor(33, 37, 41),
    RGBColor(232, 120, 120),
    RGBColor(173, 181, 189),
    RGBColor(47, 138, 68),
    RGBColor(130, 201, 120),
];

fn colour(series: Series) -> RGBColor {
    match series {
        Series::Kernel => KERNEL,
        Series::Stream => SPINNING,
        Series::Collapsed => SHUNT,
        _ => VIOLET,
    }
}

/// A curve: what it is, its colour, and a value by length.
struct Curve {
    title: String,
    colour: RGBColor,
    points: Vec<(usize, f64)>,
}

/// A figure of curves over lengths, each of which has its place.
struct Figure {
    title: &'static str,
    /// What the scale counts.
    scale: &'static str,
    curves: Vec<Curve>,
    /// Published numbers, at the shortest length.
    rings: Vec<(&'static str, f64)>,
}

/// The figures for which there are points, by the stems of their files.
pub fn all(run: &Document) -> Result<Vec<(&'static str, String)>, String> {
    let ratios = |question: Question, title: &str, series: Series| Curve {
        title: title.into(),
        colour: colour(series),
        points: points(run, question, |length| run.over(Series::Endpoint, series, question, length)),
    };
    let called = |question| Series::CALLED.map(|series| ratios(question, series.title(), series)).into();
    let mut by_reference = vec![
        ratios(Question::Echo, Series::Collapsed.title(), Series::Collapsed),
        ratios(Question::Echo, "shunt's, by value", Series::Own),
        ratios(Question::Reference, "by reference", Series::Own),
        ratios(Question::Changed, "and changed", Series::Own),
    ];
    for (curve, colour) in by_reference[2..].iter_mut().zip([RGBColor(47, 138, 68), RGBColor(201, 42, 42)]) {
        curve.colour = colour;
    }
    let rates = Series::CALLED.map(|series| {
        let rate = |length| run.at(series, Question::Echo, length).map(|time| length as f64 / time * 1e3);
        let mut points = points(run, Question::Echo, rate);
        points.retain(|point| point.0 > 0);
        Curve { title: series.title().into(), colour: colour(series), points }
    });
    let beneath = "times the layer beneath: today the bare endpoint of the same round";
    let hardware = |time: f64| time / published::SHRIMP_HARDWARE;
    let sockets = |time: f64| time / (2.0 * published::SOVIA_ONE_WAY);
    let shrimp = || vec![("vRPC 1997", hardware(published::VRPC)), ("ShrimpRPC 1997", hardware(published::SHRIMP_RPC))];
    let figures = [
        ("rpc-shrimp-figure-4", "SHRIMP, figure 4: arguments and results by length", beneath, called(Question::Echo), shrimp()),
        ("rpc-shrimp-figure-6", "SHRIMP, figure 6: an in-out argument by length", beneath, by_reference, shrimp()),
        ("rpc-bandwidth", "Calls: arguments in a second, as many back", "MB/s", rates.into(), vec![]),
        (
            "rpc-sovia-figure-10",
            "SOVIA, figure 10: a string, which gives an int",
            beneath,
            called(Question::Text),
            vec![("TCP 2003", sockets(published::TCP)), ("SOVIA 2003", sockets(published::SOVIA))],
        ),
    ];
    let mut drawn = vec![];
    for (stem, title, scale, curves, rings) in figures {
        let figure = Figure { title, scale, curves, rings };
        if figure.curves.iter().any(|curve| !curve.points.is_empty()) {
            drawn.push((stem, draw(&figure)?));
        }
    }
    if let Some(svg) = bars(run)? {
        drawn.push(("rpc-shrimp-figure-5", svg));
    }
    Ok(drawn)
}

fn points(run: &Document, question: Question, value: impl Fn(usize) -> Option<f64>) -> Vec<(usize, f64)> {
    run.lengths(question).into_iter().filter_map(|length| Some((length, value(length)?))).collect()
}

fn draw(figure: &Figure) -> Result<String, String> {
    let mut lengths: Vec<usize> = figure.curves.iter().flat_map(|curve| &curve.points).map(|point| point.0).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let values = figure.curves.iter().flat_map(|curve| &curve.points).map(|point| point.1);
    let scale = Logarithmic::holding(values.chain(figure.rings.iter().map(|ring| ring.1)), 1.0, BOTTOM, TOP);
    let steps = lengths.len().max(2) as i32 - 1;
    let x = |length: usize| {
        let place = lengths.iter().position(|known| *known == length).unwrap_or(0) as i32;
        LEFT + 20 + place * (RIGHT - LEFT - 30) / steps
    };
    picture((WIDTH, HEIGHT), |area| {
        write(area, figure.title, (24, 18), 24, &INK, HPos::Left)?;
        write(area, figure.scale, (24, 58), 15, &QUIET, HPos::Left)?;
        for tick in scale.ticks() {
            line(area, (LEFT, scale.at(tick)), (RIGHT, scale.at(tick)), &GRID, 1)?;
            write_middle(area, &format!("{tick}"), (LEFT - 8, scale.at(tick)), 13, &QUIET, HPos::Right)?;
        }
        for length in &lengths {
            let label = if *length == 0 { "void".into() } else { bytes(*length) };
            write(area, &label, (x(*length), BOTTOM + 10), 12, &QUIET, HPos::Center)?;
        }
        let mut ends = vec![];
        for curve in &figure.curves {
            let seen: Vec<(i32, i32)> = curve.points.iter().map(|point| (x(point.0), scale.at(point.1))).collect();
            seen.windows(2).try_for_each(|two| line(area, two[0], two[1], &curve.colour, 2))?;
            for place in &seen {
                area.draw(&Circle::new(*place, 3, curve.colour.filled())).map_err(drawing)?;
            }
            ends.extend(seen.last().map(|end| (end.1, &curve.title[..], curve.colour)));
        }
        // The legend in the order of the curves' ends, with room between the lines.
        ends.sort_by_key(|end| end.0);
        let mut free = TOP - 10;
        for (height, title, colour) in ends {
            let place = height.max(free);
            free = place + 18;
            write_middle(area, title, (RIGHT + 12, place), 14, &colour, HPos::Left)?;
        }
        for (name, value) in &figure.rings {
            let place = (LEFT + 20, scale.at(*value));
            area.draw(&Circle::new(place, 6, INK.stroke_width(2))).map_err(drawing)?;
            write_middle(area, name, (place.0 + 12, place.1 - 10), 12, &INK, HPos::Left)?;
        }
        Ok(())
    })
}

/// Figure 5: a bar for each contender and length, a colour for each section. `None` where there are none.
fn bars(run: &Document) -> Result<Option<String>, String> {
    let lengths = run.lengths(Question::Sections);
    let all = [Series::Collapsed, Series::Stream, Series::Kernel];
    let rows: Vec<(Series, usize)> = all
        .into_iter()
        .flat_map(|series| lengths.iter().map(move |length| (series, *length)))
        .filter(|(series, length)| run.at(*series, Question::Sections, *length).is_some())
        .collect();
    if rows.is_empty() {
        return Ok(None);
    }
    let (left, right, each) = (210, WIDTH - 60, 20);
    let bottom = 90 + rows.len() as i32 * each;
    let height = bottom + 30 + SECTIONS.len() as i32 * 20;
    let drawn = picture((WIDTH, height), |area| {
        write(area, "SHRIMP, figure 5: the sections of a call, part of its time", (24, 18), 24, &INK, HPos::Left)?;
        for (place, (series, length)) in rows.iter().enumerate() {
            let y = 70 + place as i32 * each;
            let title = format!("{}, {}", series.title(), if *length == 0 { "void".into() } else { bytes(*length) });
            write_middle(area, &title, (left - 8, y + 8), 13, &colour(*series), HPos::Right)?;
            let times: Vec<f64> = (0..SECTIONS.len())
                .map(|part| run.at(*series, Question::Section(part), *length).unwrap_or(0.0).max(0.0))
                .collect();
            let sum: f64 = times.iter().sum();
            let mut from = 0.0;
            for (time, colour) in times.iter().zip(PARTS) {
                let x = |value: f64| left + (value / sum.max(1.0) * f64::from(right - left)).round() as i32;
                let corners = [(x(from), y), (x(from + time), y + each - 4)];
                area.draw(&Rectangle::new(corners, colour.filled())).map_err(drawing)?;
                from += time;
            }
        }
        for (place, (name, colour)) in SECTIONS.iter().zip(PARTS).enumerate() {
            let y = bottom + 10 + place as i32 * 20;
            area.draw(&Rectangle::new([(left, y), (left + 14, y + 14)], colour.filled())).map_err(drawing)?;
            write_middle(area, name, (left + 22, y + 7), 13, &QUIET, HPos::Left)?;
        }
        Ok(())
    })?;
    Ok(Some(drawn))
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::document;
    use super::*;

    #[test]
    fn every_figure_of_a_whole_run_is_drawn() {
        let drawn = all(&document()).unwrap();
        let stems: Vec<_> = drawn.iter().map(|figure| figure.0).collect();
        let expected =
            ["rpc-shrimp-figure-4", "rpc-shrimp-figure-6", "rpc-bandwidth", "rpc-sovia-figure-10", "rpc-shrimp-figure-5"];
        assert_eq!(stems, expected);
        assert!(drawn.iter().all(|figure| figure.1.starts_with("<svg")));
        for part in ["ShrimpRPC 1997", "SunRPC, collapsed", "64 KiB"] {
            assert!(drawn[0].1.contains(part), "{part}");
        }
        assert!(drawn[4].1.contains("server: arguments decoded") && drawn[4].1.contains("SunRPC, kernel, 1440 B"));
    }

    #[test]
    fn without_libtirpc_only_what_there_is_is_drawn() {
        let mut run = document();
        run.points.retain(|point| matches!(point.series, Series::Endpoint | Series::Own));
        let stems: Vec<_> = all(&run).unwrap().into_iter().map(|figure| figure.0).collect();
        assert_eq!(stems, ["rpc-shrimp-figure-4", "rpc-shrimp-figure-6", "rpc-bandwidth", "rpc-sovia-figure-10"]);
        assert!(all(&Document::new(String::new(), String::new())).unwrap().is_empty());
    }
}
