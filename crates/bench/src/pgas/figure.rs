//! Figure 5 of U-Net: what each program computes and communicates, by processes; and its table 2 beside this machine.
//!
//! The figure's bars have no numbers in the paper, whose unit is the CM-5's time. Here the unit is the time of two processes.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use std::fmt::Write as _;

use crate::drawing::{picture, write, write_middle, Area, Drawn, GRID, INK, KERNEL, QUIET, SHUNT};

/// A program at one number of processes: nanoseconds, and how many percent of them it communicates.
pub struct Bar {
    pub program: &'static str,
    pub ranks: usize,
    pub time: f64,
    pub share: f64,
}

/// Table 2 of the paper: CM-5, CS-2 and U-Net. Microseconds, microseconds, megabytes in a second (the paper's text and table differ in the unit).
const MACHINES: [(&str, [f64; 3]); 3] =
    [("message overhead", [3.0, 11.0, 6.0]), ("round trip", [12.0, 25.0, 71.0]), ("bandwidth", [10.0, 39.0, 14.0])];

/// This machine's numbers, as far as they were measured: nanoseconds of a put, of a ping-pong, and of a put of 1 MiB.
pub struct Machine {
    pub put: Option<f64>,
    pub round_trip: Option<f64>,
    pub bulk: Option<f64>,
}

impl Machine {
    /// Of the rows of single operations.
    pub fn of(row: impl Fn(&str) -> Option<f64>) -> Machine {
        let put = row("p-8").or_else(|| row("put-8"));
        Machine { put, round_trip: row("ping-pong"), bulk: row("put-1M") }
    }
}

pub fn table(bars: &[Bar], machine: &Machine) -> String {
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
    let _ = writeln!(text, "\nTable 2, and how many times better this machine is: {:>10} {:>10} {:>10}", "CM-5", "CS-2", "U-Net");
    let own = [machine.put, machine.round_trip, machine.bulk];
    for ((row, values), own) in MACHINES.iter().zip(own) {
        let Some(own) = own else { continue };
        let shown = if *row == "bandwidth" { format!("{:.1} GB/s", 1048.576e3 / own) } else { format!("{own:.1} ns") };
        let _ = write!(text, "{row:<24} {shown:>24}  ");
        for value in values {
            let ratio = if *row == "bandwidth" { 1048.576e6 / own / value } else { value * 1e3 / own };
            let _ = write!(text, " {ratio:>9.0}x");
        }
        text.push('\n');
    }
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

/// Stacked bars: computation below, communication above.
pub fn svg(bars: &[Bar]) -> Result<String, String> {
    let mut programs: Vec<&str> = bars.iter().map(|bar| bar.program).collect();
    programs.dedup();
    let unit = |program: &str| bars.iter().find(|bar| bar.program == program && bar.ranks == 2).map_or(1.0, |bar| bar.time);
    let most = bars.iter().map(|bar| bar.time / unit(bar.program)).fold(1.0, f64::max) * 1.1;
    let room = (WIDTH - LEFT - 20) / programs.len().max(1) as i32;
    let height = |value: f64| (value / most * f64::from(HIGH)).round() as i32;
    picture((WIDTH, TOP + HIGH + 60), |area| {
        write(area, "Seven Split-C programs: 2, 4 and 8 processes, time of two = 1", (LEFT, 14), 16, &INK, HPos::Left)?;
        write(area, "computation", (LEFT + 20, 38), 12, &INK, HPos::Left)?;
        fill(area, (LEFT, 38), (LEFT + 14, 50), &SHUNT)?;
        write(area, "communication and waiting", (LEFT + 140, 38), 12, &INK, HPos::Left)?;
        fill(area, (LEFT + 120, 38), (LEFT + 134, 50), &KERNEL)?;
        let bottom = TOP + HIGH;
        for tick in [0.0, 0.5, 1.0, 1.5, 2.0].into_iter().filter(|tick| *tick <= most) {
            let at = bottom - height(tick);
            fill(area, (LEFT, at), (WIDTH - 20, at + 1), &GRID)?;
            write_middle(area, &format!("{tick}"), (LEFT - 8, at), 12, &QUIET, HPos::Right)?;
        }
        for (number, program) in programs.iter().enumerate() {
            let start = LEFT + number as i32 * room + 8;
            for (place, bar) in bars.iter().filter(|bar| bar.program == *program).enumerate() {
                let left = start + place as i32 * (room - 16) / 3;
                let right = left + (room - 16) / 3 - 4;
                let whole = bar.time / unit(program);
                let computed = bottom - height(whole * (1.0 - bar.share / 100.0));
                fill(area, (left, computed), (right, bottom), &SHUNT)?;
                fill(area, (left, bottom - height(whole)), (right, computed), &KERNEL)?;
                write(area, &bar.ranks.to_string(), ((left + right) / 2, bottom + 4), 11, &QUIET, HPos::Center)?;
            }
            write(area, program, (start + (room - 16) / 2, bottom + 22), 11, &INK, HPos::Center)?;
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
        let machine = Machine { put: Some(5.0), round_trip: Some(300.0), bulk: Some(50e3) };
        let text = table(&bars, &machine);
        assert!(text.contains("2:   18.0 +   2.0  1.00") && text.contains("4:   16.5 +   5.5  1.10"), "{text}");
        assert!(text.contains("600x") && text.contains("40x") && text.contains("2097x"), "{text}");
        assert_eq!(json(&bars)[1]["communication_ms"], 5.5);
        assert!(svg(&bars).unwrap().contains("matrix"));
    }
}
