//! What happens now, on standard error: one line that is rewritten on a terminal, else a line for
//! each cell.

use std::io::{stderr, IsTerminal, Write};
use std::time::{Duration, Instant};

/// The narrator of a run.
#[derive(Debug)]
pub struct Progress {
    begin: Instant,
    /// Time that no share is charged for.
    granted: Duration,
    terminal: bool,
    cells: usize,
    cell: usize,
    name: String,
}

impl Progress {
    /// For a run of so many cells.
    pub fn new(cells: usize) -> Self {
        Self {
            begin: Instant::now(),
            granted: Duration::ZERO,
            terminal: stderr().is_terminal(),
            cells,
            cell: 0,
            name: String::new(),
        }
    }

    /// Time since the run began.
    pub fn elapsed(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Whether the run has used what belongs to the cells up to this one, of so many seconds.
    pub fn is_past_share_of(&self, limit_seconds: Option<u64>) -> bool {
        let share = self.cell as f64 / self.cells.max(1) as f64;
        limit_seconds.is_some_and(|limit| (self.elapsed() - self.granted).as_secs_f64() > limit as f64 * share)
    }

    /// The present cell needed this time beyond its share, and the others keep theirs.
    pub fn grant(&mut self, time: Duration) {
        self.granted += time;
    }

    /// A cell begins.
    pub fn begin_cell(&mut self, name: &str) {
        self.cell += 1;
        self.name = name.into();
        self.show("");
    }

    /// Within the cell: whose turn it is. Shown on terminals only.
    pub fn turn(&self, repeat: usize, repeats: usize, who: &str) {
        if self.terminal {
            self.show(&format!("repeat {repeat} of {repeats}, {who}"));
        }
    }

    /// A cell is over; `remark` says what a reader should not miss.
    pub fn end_cell(&self, remark: &str) {
        if self.terminal {
            eprint!("\r\x1b[K");
        }
        if !remark.is_empty() {
            eprintln!("{:>4} s  {}: {remark}", self.elapsed().as_secs(), self.name);
        }
    }

    fn show(&self, detail: &str) {
        let line = format!("{:>4} s  {}/{} {:<9} {detail}", self.elapsed().as_secs(), self.cell, self.cells, self.name);
        if self.terminal {
            eprint!("\r\x1b[K{line}");
            let _ = stderr().flush();
        } else {
            eprintln!("{}", line.trim_end());
        }
    }
}
