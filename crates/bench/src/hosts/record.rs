//! What was measured: printed as it comes, and kept for the ratios at the end and for tools.

use std::fs;
use std::io;
use std::path::Path;

use serde::Serialize;

use crate::machine::Machine;
use crate::output::say;

/// Grows when a field changes its meaning or goes away.
const SCHEMA: u32 = 1;

/// A whole run.
#[derive(Debug, Serialize)]
pub struct Record {
    schema: u32,
    version: &'static str,
    command: String,
    machine: Machine,
    /// Turns of each contender.
    repeats: usize,
    /// Measured milliseconds of one turn.
    milliseconds: u64,
    /// Seconds that the run took.
    seconds: f64,
    sheets: Vec<Sheet>,
    /// All that was printed.
    #[serde(skip)]
    text: String,
}

/// One table of figures, all of the unit that the title names.
#[derive(Debug, Serialize)]
pub struct Sheet {
    title: String,
    heads: Vec<String>,
    rows: Vec<Row>,
    /// Places behind the point, column by column; the last one's for all further columns.
    #[serde(skip)]
    places: Vec<usize>,
}

#[derive(Debug, Serialize)]
struct Row {
    name: String,
    /// NaN (`null` for tools): the contender does not do that.
    figures: Vec<f64>,
}

impl Sheet {
    /// An empty one.
    pub fn new(title: &str, heads: &[impl AsRef<str>], places: &[usize]) -> Sheet {
        let heads = heads.iter().map(|head| head.as_ref().to_string()).collect();
        Sheet { title: title.to_string(), heads, rows: Vec::new(), places: places.to_vec() }
    }

    /// Adds figures to a row, which is made if there is none of that name.
    pub fn put(&mut self, name: &str, figures: &[f64]) {
        let at = self.rows.iter().position(|row| row.name == name).unwrap_or_else(|| {
            self.rows.push(Row { name: name.to_string(), figures: Vec::new() });
            self.rows.len() - 1
        });
        self.rows[at].figures.extend(figures);
    }

    /// One figure.
    pub fn figure(&self, row: &str, head: &str) -> Option<f64> {
        let column = self.heads.iter().position(|known| known == head)?;
        let row = self.rows.iter().find(|known| known.name == row)?;
        row.figures.get(column).copied().filter(|figure| figure.is_finite())
    }

    fn text(&self) -> String {
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(self.title.len());
        let mut text = format!("{:width$}", self.title);
        self.heads.iter().for_each(|head| text += &format!(" {head:>9}"));
        for row in &self.rows {
            text += &format!("\n{:width$}", row.name);
            for (at, figure) in row.figures.iter().enumerate() {
                let places = self.places.get(at).or(self.places.last()).copied().unwrap_or(2);
                let cell = if figure.is_finite() { format!("{figure:.places$}") } else { "-".to_string() };
                text += &format!(" {cell:>9}");
            }
        }
        text + "\n"
    }
}

impl Record {
    /// The head of a run.
    pub fn new(repeats: usize, milliseconds: u64) -> Record {
        let machine = Machine::here();
        let command = std::env::args().collect::<Vec<_>>().join(" ");
        let mut record = Record {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            command,
            machine,
            repeats,
            milliseconds,
            seconds: 0.0,
            sheets: Vec::new(),
            text: String::new(),
        };
        record.say(&record.machine.describe());
        if record.machine.load_average > 0.3 * record.machine.usable_cores as f64 {
            record.say(&format!("the machine was busy (load average {}): figures are noisy", record.machine.load_average));
        }
        record.say("hosts are network namespaces joined by a veth of one queue, MTU 1500; kernel TCP is reno");
        record.say(&format!(
            "medians of {repeats} turns of {milliseconds} ms (loss, share, papers: of 3 at most); contenders take turns"
        ));
        record.say(&format!("made by: {}\n", record.command));
        record
    }

    /// Prints a line, or several.
    pub fn say(&mut self, text: &str) {
        say(text);
        self.text += text;
        self.text.push('\n');
    }

    /// Prints a table and keeps it.
    pub fn add(&mut self, sheet: Sheet) {
        self.say(&sheet.text());
        self.sheets.push(sheet);
    }

    /// A figure of a table that was added; `None`: not measured in this run.
    pub fn figure(&self, title: &str, row: &str, head: &str) -> Option<f64> {
        self.sheets.iter().find(|sheet| sheet.title == title)?.figure(row, head)
    }

    /// Writes hosts.txt and hosts.json.
    pub fn write(&mut self, directory: &Path, seconds: f64) -> io::Result<()> {
        self.seconds = seconds;
        fs::create_dir_all(directory)?;
        fs::write(directory.join("hosts.txt"), &self.text)?;
        fs::write(directory.join("hosts.json"), serde_json::to_string_pretty(self)? + "\n")?;
        say(&format!("wrote {} (and .json) in {seconds:.0} s", directory.join("hosts.txt").display()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_is_found_by_its_names_and_what_is_missing_is_a_dash() {
        let mut sheet = Sheet::new("time, us", &["8 B", "64 KiB"], &[2, 0]);
        sheet.put("endpoint", &[1.234]);
        sheet.put("endpoint", &[f64::NAN]);
        sheet.put("TCP", &[7.0, 41.6]);
        assert_eq!((sheet.figure("endpoint", "8 B"), sheet.figure("endpoint", "64 KiB")), (Some(1.234), None));
        assert_eq!(
            (sheet.figure("TCP", "64 KiB"), sheet.figure("UDP", "8 B"), sheet.figure("TCP", "1 B")),
            (Some(41.6), None, None)
        );
        assert_eq!(sheet.text().lines().nth(1), Some("endpoint      1.23         -"));
        assert_eq!(sheet.text().lines().nth(2), Some("TCP           7.00        42"));
    }
}
