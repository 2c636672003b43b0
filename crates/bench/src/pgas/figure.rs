//! Figure 5 of U-Net: what each program computes and communicates, by processes; and its table 2 beside this machine.
//!
//! The figure's bars have no numbers in the paper, whose unit is the CM-5's time; here the unit is the time of two processes. `model` has its
//! columns.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::fmt::Write as _;

use super::published::{Machine, MACHINES};
use crate::drawing::{picture, write, write_middle, Area, Drawn, GRID, INK, KERNEL, QUIET, SHUNT};

/// A program at one number of processes: nanoseconds, and how many percent of them it communicates.
pub struct Bar {
    pub program: &'static str,
    pub ranks: usize,
    pub time: f64,
    pub share: f64,
}

/// This machine's numbers, as far as they were measured: nanoseconds of a put, of a ping-pong, of a put of 1 MiB, and of a cycle.
pub struct Own {
    pub put: Option<f64>,
    pub round_trip: Option<f64>,
    pub bulk: Option<f64>,
    pub cycle: Option<f64>,
}

impl Own {
    /// Of the rows of single operations.
    pub fn of(row: impl Fn(&str) -> Option<f64>) -> Own {
        let put = row("p-8").or_else(|| row("put-8"));
        Own { put, round_trip: row("ping-pong"), bulk: row("put-1M"), cycle: row("cycle") }
    }
}

/// One bar of a picture: what it stands for beside others of its group, and its two parts in the picture's unit.
pub struct Stack {
    pub group: &'static str,
    pub label: String,
    pub computed: f64,
    pub communicated: f64,
}

pub fn table(bars: &[Bar], own: &Own) -> String {
    let mut text = "\nFigure 5: ms in computation + in communication; time / that of two processes\n".to_owned();
    let mut programs: Vec<&str> = bars.iter().map(|bar| bar.program).collect();
    programs.dedup();
    for program in programs {
        let _ = write!(text, "{program:<24}");
        let two = bars.iter().find(|bar| bar.program == program && bar.ranks == 2).map(|bar| bar.time);
        for bar in bars.iter().filter(|bar| bar.program == program) {
            let (computed, communicated) = parts(bar);
            let ratio = two.map_or(String::new(), |two| format!("{:.2}", bar.time / two));
            let _ = write!(text, "  {}: {computed:>6.1} + {communicated:>5.1} {ratio:>5}", bar.ranks);
        }
        text.push('\n');
    }
    text + &table_2(own)
}

/// The machines' numbers beside this one's: in their units, and by the clock of each one's processor.
fn table_2(own: &Own) -> String {
    type Row = (&'static str, Option<f64>, fn(&Machine) -> f64, &'static str, fn(&Machine) -> f64, &'static str);
    // Nanoseconds, and bytes in a nanosecond.
    let bandwidth = own.bulk.map(|bulk| 1048576.0 / bulk);
    let rows: [Row; 3] = [
        (
            "message overhead",
            own.put,
            |machine| machine.overhead * 1e3,
            "ns",
            |machine| machine.overhead * machine.megahertz,
            "cycles",
        ),
        (
            "round trip",
            own.round_trip,
            |machine| machine.round_trip * 1e3,
            "ns",
            |machine| machine.round_trip * machine.megahertz,
            "cycles",
        ),
        (
            "bandwidth",
            bandwidth,
            |machine| machine.bandwidth / 1e3,
            "GB/s",
            |machine| machine.bandwidth / machine.megahertz,
            "B/cycle",
        ),
    ];
    let mut text = format!("\n{:<51} {:>11}", "Table 2, and how many times better this machine is", "here");
    MACHINES.iter().for_each(|machine| text += &format!(" {:>22}", machine.name));
    for (name, value, theirs, unit, in_cycles, of_cycles) in rows {
        let Some(value) = value else { continue };
        let is_rate = name == "bandwidth";
        let mut line = |unit: &str, value: f64, theirs: fn(&Machine) -> f64| {
            let _ = write!(text, "\n{:<51} {value:>11.2}", format!("{name}, {unit}"));
            for machine in &MACHINES {
                let other = theirs(machine);
                let times = if is_rate { value / other } else { other / value };
                let _ = write!(text, " {:>22}", format!("{other:.*} ({times:.1} x)", if is_rate { 3 } else { 0 }));
            }
        };
        line(unit, value, theirs);
        if let Some(cycle) = own.cycle {
            line(of_cycles, if is_rate { value * cycle } else { value / cycle }, in_cycles);
        }
    }
    text.push('\n');
    text
}

/// Milliseconds.
fn parts(bar: &Bar) -> (f64, f64) {
    let communicated = bar.time * bar.share / 100.0;
    ((bar.time - communicated) / 1e6, communicated / 1e6)
}

pub fn json(bars: &[Bar]) -> serde_json::Value {
    let row = |bar: &Bar| {
        let (computed, communicated) = parts(bar);
        serde_json::json!({ "program": bar.program, "processes": bar.ranks, "computation_ms": computed, "communication_ms": communicated })
    };
    bars.iter().map(row).collect()
}

const WIDTH: i32 = 900;
const LEFT: i32 = 60;
const TOP: i32 = 60;
const HIGH: i32 = 260;
/// Bars end here, in a picture's unit, and say what they come to: one that is hundreds would leave nothing of others.
const CUT: f64 = 10.0;

/// Figure 5: the unit of each program is its time with two processes.
pub fn svg(bars: &[Bar]) -> Result<String, String> {
    let unit = |program: &str| bars.iter().find(|bar| bar.program == program && bar.ranks == 2).map_or(1.0, |bar| bar.time);
    let stack = |bar: &Bar| {
        let (whole, share) = (bar.time / unit(bar.program), bar.share / 100.0);
        Stack { group: bar.program, label: bar.ranks.to_string(), computed: whole * (1.0 - share), communicated: whole * share }
    };
    let stacks: Vec<Stack> = bars.iter().map(stack).collect();
    stacked("Seven Split-C programs: 2, 4 and 8 processes, time of two = 1", &stacks)
}

/// Groups of stacked bars: computation below, communication above.
pub fn stacked(title: &str, stacks: &[Stack]) -> Result<String, String> {
    let mut groups: Vec<&str> = stacks.iter().map(|stack| stack.group).collect();
    groups.dedup();
    let longest = stacks.iter().map(|stack| stack.computed + stack.communicated).fold(1.0, f64::max);
    let most = longest.min(CUT) * 1.1;
    let step = if most > 4.0 { 1.0 } else { 0.5 };
    let room = (WIDTH - LEFT - 20) / groups.len().max(1) as i32;
    let height = |value: f64| (value.min(CUT) / most * f64::from(HIGH)).round() as i32;
    picture((WIDTH, TOP + HIGH + 60), |area| {
        write(area, title, (LEFT, 14), 16, &INK, HPos::Left)?;
        write(area, "computation", (LEFT + 20, 38), 12, &INK, HPos::Left)?;
        fill(area, (LEFT, 38), (LEFT + 14, 50), &SHUNT)?;
        write(area, "communication and waiting", (LEFT + 140, 38), 12, &INK, HPos::Left)?;
        fill(area, (LEFT + 120, 38), (LEFT + 134, 50), &KERNEL)?;
        let bottom = TOP + HIGH;
        for tick in (0..=10).map(|steps| f64::from(steps) * step).filter(|tick| *tick <= most) {
            let at = bottom - height(tick);
            fill(area, (LEFT, at), (WIDTH - 20, at + 1), &GRID)?;
            write_middle(area, &format!("{tick}"), (LEFT - 8, at), 12, &QUIET, HPos::Right)?;
        }
        for (number, group) in groups.iter().enumerate() {
            let start = LEFT + number as i32 * room + 8;
            let own: Vec<&Stack> = stacks.iter().filter(|stack| stack.group == *group).collect();
            let wide = (room - 16) / own.len() as i32;
            for (place, stack) in own.into_iter().enumerate() {
                let left = start + place as i32 * wide;
                let right = left + wide - 4;
                let (computed, whole) = (bottom - height(stack.computed), stack.computed + stack.communicated);
                let top = bottom - height(whole);
                fill(area, (left, computed), (right, bottom), &SHUNT)?;
                fill(area, (left, top), (right, computed), &KERNEL)?;
                if whole > CUT {
                    write(area, &format!("{whole:.0}"), ((left + right) / 2, top - 14), 11, &INK, HPos::Center)?;
                }
                write(
                    area,
                    &stack.label,
                    ((left + right) / 2, bottom + 4),
                    if wide < 30 { 8 } else { 11 },
                    &QUIET,
                    HPos::Center,
                )?;
            }
            write(area, group, (start + (room - 16) / 2, bottom + 22), 11, &INK, HPos::Center)?;
        }
        Ok(())
    })
}

fn fill(area: &Area, from: (i32, i32), to: (i32, i32), colour: &RGBColor) -> Drawn {
    area.draw(&Rectangle::new([from, to], colour.filled())).map_err(crate::drawing::drawing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_split_and_drawn() {
        let bar = |ranks, time, share| Bar { program: "matrix", ranks, time, share };
        let bars = [bar(2, 20e6, 10.0), bar(4, 22e6, 25.0)];
        let own = Own { put: Some(5.0), round_trip: Some(300.0), bulk: Some(50e3), cycle: Some(0.5) };
        let text = table(&bars, &own);
        assert!(text.contains("2:   18.0 +   2.0  1.00") && text.contains("4:   16.5 +   5.5  1.10"), "{text}");
        assert!(
            text.contains("3000 (600.0 x)") && text.contains("12000 (40.0 x)") && text.contains("0.010 (2097.2 x)"),
            "{text}"
        );
        // By the clock: 99 cycles of the CM-5 for a message, 10 of these.
        assert!(text.contains("99 (9.9 x)") && text.contains("0.303 (34.6 x)"), "{text}");
        assert_eq!(json(&bars)[1]["communication_ms"], 5.5);
        assert!(svg(&bars).unwrap().contains("matrix"));
        let long = Stack { group: "sort", label: "here".to_owned(), computed: 3.0, communicated: 273.0 };
        let short = Stack { group: "sort", label: "CM-5".to_owned(), computed: 0.5, communicated: 0.5 };
        let picture = stacked("", &[short, long]).unwrap();
        // The short one has a tenth of the room.
        assert!(picture.contains("276") && picture.contains("height=\"12\""), "{picture}");
    }
}
