//! What is shown, in which order, and what keys do about it.
use std::cmp::Ordering;
use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::crossterm;

use super::rates::{ConnectionRates, ProcessRates, Rank, Rates};
use crate::filter::Filter;
use crate::text_table::bytes_text;

/// Which table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pane {
    #[default]
    Connections,
    Processes,
    FallBacks,
    Ranks,
}

impl Pane {
    pub const ALL: [Pane; 4] = [Pane::Connections, Pane::Processes, Pane::FallBacks, Pane::Ranks];

    /// Its name.
    pub fn title(self) -> &'static str {
        match self {
            Pane::Connections => "Connections",
            Pane::Processes => "Processes",
            Pane::FallBacks => "Fall-backs",
            Pane::Ranks => "Ranks",
        }
    }
}

/// By what rows are in order. Each table has those that it has a column for; by others it is in the order of its rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    #[default]
    Rate,
    Bytes,
    Wakeups,
    Age,
    Cpu,
    Spun,
    Slept,
    FallBacks,
    Program,
}

impl Sort {
    pub const ALL: [Sort; 9] =
        [Sort::Rate, Sort::Bytes, Sort::Wakeups, Sort::Age, Sort::Cpu, Sort::Spun, Sort::Slept, Sort::FallBacks, Sort::Program];

    /// As the command line has it.
    pub fn word(self) -> &'static str {
        match self {
            Sort::Rate => "rate",
            Sort::Bytes => "bytes",
            Sort::Wakeups => "wake-ups",
            Sort::Age => "age",
            Sort::Cpu => "cpu",
            Sort::Spun => "spun",
            Sort::Slept => "slept",
            Sort::FallBacks => "fall-backs",
            Sort::Program => "program",
        }
    }

    /// The one of this word; what clap lets through is one.
    pub fn by_word(word: &str) -> Sort {
        Sort::ALL.into_iter().find(|sort| sort.word() == word).unwrap_or_default()
    }

    /// The next one that this table has.
    fn next(self, pane: Pane) -> Sort {
        use Sort::*;
        let has: &[Sort] = match pane {
            Pane::Connections => &[Rate, Bytes, Wakeups, Age, Program],
            Pane::Processes => &[Rate, Bytes, Wakeups, Cpu, Spun, Slept, FallBacks, Program],
            Pane::FallBacks => &[FallBacks, Program],
            Pane::Ranks => &[Slept, Program],
        };
        let at = has.iter().position(|sort| *sort == self).map_or(0, |at| at + 1);
        has[at % has.len()]
    }
}

/// What a user has chosen.
pub struct View {
    pub pane: Pane,
    pub sort: Sort,
    pub reversed: bool,
    pub filter: Filter,
    pub filter_text: String,
    /// The filter that is being written, and what is wrong with it.
    pub writing: Option<(String, Option<String>)>,
    pub interval: Duration,
    pub paused: bool,
    pub help: bool,
    /// The row that is marked.
    pub at: usize,
    /// Rows that fit.
    pub page: usize,
}

impl Default for View {
    fn default() -> View {
        View {
            pane: Pane::default(),
            sort: Sort::default(),
            reversed: false,
            filter: Filter::All,
            filter_text: String::new(),
            writing: None,
            interval: Duration::from_secs(1),
            paused: false,
            help: false,
            at: 0,
            page: 10,
        }
    }
}

/// What a key asks for beside what it changes in the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The end.
    End,
    /// Another look now: the filter or the interval has changed.
    Look,
    /// The screen again.
    Draw,
}

const STEPS: [f64; 9] = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0];

impl View {
    /// A key was struck.
    pub fn key(&mut self, key: KeyEvent) -> Asked {
        if key.modifiers.contains(KeyModifiers::CONTROL) && matches!(key.code, KeyCode::Char('c')) {
            return Asked::End;
        }
        if self.writing.is_some() {
            return self.written(key.code);
        }
        if self.help {
            self.help = false;
            return Asked::Draw;
        }
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Asked::End,
            KeyCode::Char('h' | '?') => self.help = true,
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(Pane::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='4') => self.show(Pane::ALL[digit as usize - '1' as usize]),
            KeyCode::Char('s') => self.sort = self.sort.next(self.pane),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('/' | 'f') => self.writing = Some((self.filter_text.clone(), None)),
            KeyCode::Char(' ' | 'p') => {
                self.paused = !self.paused;
                return if self.paused { Asked::Draw } else { Asked::Look };
            }
            KeyCode::Char('+') => return self.step(true),
            KeyCode::Char('-') => return self.step(false),
            KeyCode::Up | KeyCode::Char('k') => self.at = self.at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.at += 1,
            KeyCode::PageUp => self.at = self.at.saturating_sub(self.page),
            KeyCode::PageDown => self.at += self.page,
            KeyCode::Home => self.at = 0,
            KeyCode::End => self.at = usize::MAX / 2,
            _ => {}
        }
        Asked::Draw
    }

    fn written(&mut self, code: KeyCode) -> Asked {
        let Some((text, wrong)) = &mut self.writing else { return Asked::Draw };
        match code {
            KeyCode::Esc => self.writing = None,
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char(character) => text.push(character),
            KeyCode::Enter => match Filter::parse(std::slice::from_ref(text)) {
                Ok(filter) => {
                    (self.filter, self.filter_text) = (filter, text.trim().to_owned());
                    (self.writing, self.at) = (None, 0);
                    return Asked::Look;
                }
                Err(failure) => *wrong = Some(failure.message),
            },
            _ => {}
        }
        Asked::Draw
    }

    fn turn(&mut self, by: usize) {
        let at = Pane::ALL.iter().position(|pane| *pane == self.pane).unwrap_or(0);
        self.show(Pane::ALL[(at + by) % Pane::ALL.len()]);
    }

    fn show(&mut self, pane: Pane) {
        (self.pane, self.at) = (pane, 0);
    }

    fn step(&mut self, longer: bool) -> Asked {
        let now = self.interval.as_secs_f64();
        let next = match longer {
            true => STEPS.into_iter().find(|step| *step > now + 0.01),
            false => STEPS.into_iter().rev().find(|step| *step < now - 0.01),
        };
        if let Some(next) = next {
            self.interval = Duration::from_secs_f64(next);
        }
        Asked::Draw
    }

    /// The rates in the order that was asked for.
    pub fn put_in_order(&self, rates: &mut Rates) {
        let turned = |order: Ordering| if self.reversed { order.reverse() } else { order };
        rates.connections.sort_by(|a, b| turned(self.of_connections(a, b)));
        rates.processes.sort_by(|a, b| turned(self.of_processes(a, b)));
        rates.ranks.sort_by(|a, b| turned(self.of_ranks(a, b)));
    }

    fn of_connections(&self, a: &ConnectionRates, b: &ConnectionRates) -> Ordering {
        let by_rate = || b.bytes_per_second.total_cmp(&a.bytes_per_second);
        match self.sort {
            Sort::Bytes => b.bytes.cmp(&a.bytes),
            Sort::Wakeups => b.wakeups_per_second.total_cmp(&a.wakeups_per_second),
            Sort::Age => b.seconds.cmp(&a.seconds),
            Sort::Program => (&a.client.program, a.client.pid).cmp(&(&b.client.program, b.client.pid)),
            _ => by_rate(),
        }
        .then_with(by_rate)
        .then_with(|| (b.bytes, &a.client.address, a.client.port).cmp(&(a.bytes, &b.client.address, b.client.port)))
    }

    fn of_ranks(&self, a: &Rank, b: &Rank) -> Ordering {
        let longest = || b.waited_seconds.unwrap_or(0.0).total_cmp(&a.waited_seconds.unwrap_or(0.0));
        match self.sort {
            Sort::Slept => longest(),
            Sort::Program => a.program.cmp(&b.program),
            _ => Ordering::Equal,
        }
        .then_with(|| (a.job, a.rank).cmp(&(b.job, b.rank)))
    }

    fn of_processes(&self, a: &ProcessRates, b: &ProcessRates) -> Ordering {
        let moved = |process: &ProcessRates| process.sent_bytes_per_second + process.received_bytes_per_second;
        match self.sort {
            Sort::Bytes => (b.sent_bytes + b.received_bytes).cmp(&(a.sent_bytes + a.received_bytes)),
            Sort::Wakeups => b.wakeups_per_second.total_cmp(&a.wakeups_per_second),
            Sort::Cpu => b.cpu_share.total_cmp(&a.cpu_share),
            Sort::Spun => b.spun_share.total_cmp(&a.spun_share),
            Sort::Slept => b.slept_share.total_cmp(&a.slept_share),
            Sort::FallBacks => b.fall_backs.cmp(&a.fall_backs),
            Sort::Program => (&a.program, a.pid).cmp(&(&b.program, b.pid)),
            _ => Ordering::Equal,
        }
        .then_with(|| moved(b).total_cmp(&moved(a)))
        .then_with(|| a.pid.cmp(&b.pid))
    }
}

/// The table of a pane: its heading, and its rows.
pub fn table(pane: Pane, rates: &Rates) -> (&'static [&'static str], Vec<Vec<String>>) {
    match pane {
        Pane::Connections => (
            &["CLIENT", "PROGRAM", "SERVER", "PROGRAM", "RATE", "SENT", "RECEIVED", "WAKE-UPS", "WAIT", "STATE", "CARRIER"],
            rates.connections.iter().map(connection).collect(),
        ),
        Pane::Processes => (
            &[
                "PID",
                "PROGRAM",
                "CONNS",
                "SENDS",
                "RECEIVES",
                "BYTES",
                "WAKE-UPS",
                "SLEEPS",
                "CPU",
                "SPUN",
                "SLEPT",
                "FALL-BACKS",
            ],
            rates.processes.iter().map(process).collect(),
        ),
        Pane::FallBacks => (&["PID", "PROGRAM", "COUNT", "NEW", "REASON"], rates.processes.iter().flat_map(reasons).collect()),
        Pane::Ranks => {
            (&["JOB", "RANK", "PID", "PROGRAM", "STATE", "WAITED", "WAITS FOR"], rates.ranks.iter().map(rank).collect())
        }
    }
}

/// The columns of a table, by how much they tell.
pub fn by_weight(pane: Pane) -> &'static [usize] {
    match pane {
        Pane::Connections => &[0, 2, 4, 1, 3, 7, 8, 5, 6, 9, 10],
        Pane::Processes => &[0, 1, 3, 4, 8, 9, 10, 6, 11, 2, 7, 5],
        Pane::FallBacks => &[0, 1, 2, 3, 4],
        Pane::Ranks => &[1, 6, 5, 2, 3, 0, 4],
    }
}

fn per_second(bytes: f64) -> String {
    format!("{}/s", bytes_text(bytes.round() as u64))
}

fn times(rate: f64) -> String {
    if rate >= 10_000.0 {
        format!("{:.0}k/s", rate / 1000.0)
    } else {
        format!("{rate:.0}/s")
    }
}

fn connection(row: &ConnectionRates) -> Vec<String> {
    let wait = |waits: Option<&'static str>| waits.unwrap_or("-");
    vec![
        row.client.place(),
        row.client.process(),
        row.server.place(),
        row.server.process(),
        per_second(row.bytes_per_second),
        bytes_text(row.client.sent_bytes),
        bytes_text(row.server.sent_bytes),
        times(row.wakeups_per_second),
        format!("{}/{}", wait(row.client.waits), wait(row.server.waits)),
        row.state.clone(),
        row.carrier.clone(),
    ]
}

fn process(row: &ProcessRates) -> Vec<String> {
    let share = |share: f64| format!("{:.0}%", share * 100.0);
    let worst = row.reasons.first().map(|given| format!(" {}", given.reason)).unwrap_or_default();
    vec![
        row.pid.to_string(),
        row.program.clone(),
        row.connections.to_string(),
        per_second(row.sent_bytes_per_second),
        per_second(row.received_bytes_per_second),
        bytes_text(row.sent_bytes + row.received_bytes),
        times(row.wakeups_per_second),
        times(row.sleeps_per_second),
        share(row.cpu_share),
        share(row.spun_share),
        share(row.slept_share),
        format!("{}{worst}", row.fall_backs),
    ]
}

fn rank(row: &Rank) -> Vec<String> {
    vec![
        row.job.to_string(),
        row.rank.to_string(),
        row.pid.to_string(),
        row.program.clone(),
        row.state.to_owned(),
        row.waited_seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.3} s")),
        row.waits_for.clone(),
    ]
}

fn reasons(row: &ProcessRates) -> Vec<Vec<String>> {
    let one = |given: &super::rates::Given| {
        let new = if given.more > 0 { format!("+{}", given.more) } else { "-".to_owned() };
        let told = format!("{}: {}", given.reason, given.explanation);
        vec![row.pid.to_string(), row.program.clone(), given.count.to_string(), new, told]
    };
    row.reasons.iter().map(one).collect()
}

/// A line about all of it.
pub fn summary(rates: &Rates) -> String {
    let bytes: f64 = rates.connections.iter().map(|connection| connection.bytes_per_second).fold(0.0, |all, one| all + one);
    let wakeups: f64 = rates.connections.iter().map(|connection| connection.wakeups_per_second).fold(0.0, |all, one| all + one);
    let fall_backs: u64 = rates.processes.iter().map(|process| process.fall_backs).sum();
    let named = |count: usize, one: &str, more: &str| format!("{count} {}", if count == 1 { one } else { more });
    let ranks = match rates.ranks.len() {
        0 => String::new(),
        count => format!(", {}", named(count, "rank", "ranks")),
    };
    format!(
        "{}, {}{ranks}; {}, {} wake-ups, {fall_backs} fall-backs",
        named(rates.processes.len(), "process", "processes"),
        named(rates.connections.len(), "connection", "connections"),
        per_second(bytes),
        times(wakeups),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn struck(view: &mut View, keys: &str) -> Vec<Asked> {
        let code = |key| match key {
            '\n' => KeyCode::Enter,
            '\t' => KeyCode::Tab,
            '\x1b' => KeyCode::Esc,
            '\x08' => KeyCode::Backspace,
            key => KeyCode::Char(key),
        };
        keys.chars().map(|key| view.key(KeyEvent::new(code(key), KeyModifiers::NONE))).collect()
    }

    #[test]
    fn a_filter_is_taken_once_it_is_right() {
        let mut view = View::default();
        struck(&mut view, "/dport x");
        assert_eq!(struck(&mut view, "\n"), [Asked::Draw]);
        assert!(view.writing.as_ref().unwrap().1.as_ref().unwrap().contains("has no port"));
        struck(&mut view, "\x08");
        assert_eq!(struck(&mut view, "80\n"), [Asked::Draw, Asked::Draw, Asked::Look]);
        assert_eq!((view.filter_text.as_str(), view.writing.is_none()), ("dport 80", true));
        struck(&mut view, "/q\x1b");
        assert_eq!(view.filter_text, "dport 80", "given up");
        assert_eq!(struck(&mut view, "q"), [Asked::End]);
    }

    #[test]
    fn keys_choose_tables_order_and_interval() {
        let mut view = View::default();
        struck(&mut view, "\t");
        assert_eq!(view.pane, Pane::Processes);
        struck(&mut view, "3s");
        assert_eq!((view.pane, view.sort), (Pane::FallBacks, Sort::FallBacks));
        struck(&mut view, "\t++-");
        assert_eq!((view.pane, view.interval.as_secs()), (Pane::Ranks, 2));
        struck(&mut view, "\t");
        assert_eq!(view.pane, Pane::Connections);
        for _ in 0..20 {
            struck(&mut view, "-");
        }
        assert_eq!(view.interval.as_millis(), 100);
        for sort in Sort::ALL {
            assert_eq!(Sort::by_word(sort.word()), sort);
        }
    }
}
