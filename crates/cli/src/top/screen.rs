//! The terminal: draws the view, and takes keys.
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyEventKind};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Row, Table, TableState};
use ratatui::Frame;

use super::rates::Rates;
use super::sample::Sample;
use super::view::{self, summary, table, Asked, Pane, View};
use crate::failure::Failure;

const KEYS: &str = "q end  Tab next table  s sort  r reverse  / filter  space stop  +- interval  h help";

const HELP: &str = "\
q, Esc, ^C   end
Tab, 1 to 4  connections, processes, fall-backs, ranks
s, r         sort by the next column; the other way round
/, f         filter, as shunt ss takes it: dport = :6379 and not state closing
space, p     stop, go on
+, -         longer, shorter interval
arrows, PgUp, PgDn, Home, End

CPU SPUN SLEPT are shares of one processor, of all threads together.
WAKE-UPS counts bells, each of which wakes a sleeper at the other end.";

/// Shows it until a key ends it, or `count` times.
pub fn run(mut view: View, count: Option<u64>) -> Result<u8, Failure> {
    let failed = |error: std::io::Error| Failure::of_environment(format_args!("top: the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(failed)?;
    let shown = watch(&mut terminal, &mut view, count);
    ratatui::restore();
    shown.map(|()| 0).map_err(failed)
}

fn watch(terminal: &mut ratatui::DefaultTerminal, view: &mut View, count: Option<u64>) -> std::io::Result<()> {
    let mut samples = [Sample::take(), Sample::take()];
    let mut left = count;
    let mut rates = Rates::between(&samples[0], &samples[1], &view.filter);
    // The first rates come soon, whatever the interval.
    let mut due = Instant::now() + view.interval.min(Duration::from_millis(300));
    loop {
        view.put_in_order(&mut rates);
        terminal.draw(|frame| draw(frame, view, &rates))?;
        let wait = if view.paused { Duration::from_secs(3600) } else { due.saturating_duration_since(Instant::now()) };
        if event::poll(wait)? {
            let Event::Key(key) = event::read()? else { continue };
            if key.kind == KeyEventKind::Release {
                continue;
            }
            let interval = view.interval;
            match view.key(key) {
                Asked::End => return Ok(()),
                Asked::Draw if view.interval == interval => {}
                Asked::Draw => due = due.min(Instant::now() + view.interval),
                // By another filter, of the same two looks.
                Asked::Look => rates = Rates::between(&samples[0], &samples[1], &view.filter),
            }
            continue;
        }
        if view.paused {
            continue;
        }
        samples.swap(0, 1);
        samples[1] = Sample::take();
        rates = Rates::between(&samples[0], &samples[1], &view.filter);
        due = Instant::now() + view.interval;
        left = left.map(|left| left - 1);
        if left == Some(0) {
            view.put_in_order(&mut rates);
            terminal.draw(|frame| draw(frame, view, &rates))?;
            return Ok(());
        }
    }
}

fn draw(frame: &mut Frame<'_>, view: &mut View, rates: &Rates) {
    let rows = [Constraint::Length(1), Constraint::Length(1), Constraint::Min(2), Constraint::Length(1)];
    let [head, tabs, body, foot] = Layout::vertical(rows).areas(frame.area());
    let every = if view.paused { "stopped".to_owned() } else { format!("every {}s", view.interval.as_secs_f64()) };
    frame.render_widget(Line::from(format!("shunt top, {every}: {}", summary(rates))), head);

    let mut spans = Vec::new();
    for pane in Pane::ALL {
        let style = if pane == view.pane { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
        spans.extend([Span::styled(format!(" {} ", pane.title()), style), Span::raw(" ")]);
    }
    let way = if view.reversed { " (reversed)" } else { "" };
    spans.push(Span::raw(format!("sort: {}{way}", view.sort.word())));
    if !view.filter_text.is_empty() {
        spans.push(Span::raw(format!("  filter: {}", view.filter_text)));
    }
    frame.render_widget(Line::from(spans), tabs);
    draw_table(frame, view, rates, body);

    let last = match &view.writing {
        Some((text, None)) => format!("filter: {text}_"),
        Some((text, Some(wrong))) => format!("filter: {text}_   {}", wrong.trim_start_matches("filter: ")),
        None => KEYS.to_owned(),
    };
    frame.render_widget(Line::styled(last, Style::new().add_modifier(Modifier::DIM)), foot);
    if view.help {
        let height = (HELP.lines().count() as u16 + 2).min(body.height);
        let area = Rect { height, ..body };
        frame.render_widget(Clear, area);
        frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title("Keys")), area);
    }
}

fn draw_table(frame: &mut Frame<'_>, view: &mut View, rates: &Rates, area: Rect) {
    let (heading, rows) = table(view.pane, rates);
    view.page = usize::from(area.height.saturating_sub(1)).max(1);
    view.at = view.at.min(rows.len().saturating_sub(1));
    if rows.is_empty() {
        let nothing = match (view.pane, view.filter_text.is_empty()) {
            (Pane::Connections, true) => "no accelerated connections",
            (Pane::Processes, true) => "no processes under shunt",
            (Pane::FallBacks, true) => "no connection has fallen back",
            (Pane::Ranks, true) => "no job of ranks that share memory",
            (_, false) => "nothing that the filter lets through",
        };
        return frame.render_widget(Line::from(nothing), area);
    }
    let columns = fitting(view.pane, heading, &rows, usize::from(area.width));
    let bold = Style::new().add_modifier(Modifier::BOLD);
    let cells = |row: &[String]| Row::new(columns.iter().map(|(column, _)| row[*column].clone()).collect::<Vec<_>>());
    let head: Vec<&str> = columns.iter().map(|(column, _)| heading[*column]).collect();
    let shown = Table::new(rows.iter().map(|row| cells(row)), columns.iter().map(|(_, width)| Constraint::Length(*width as u16)))
        .header(Row::new(head).style(bold))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(Some(view.at));
    // The marked row is on the screen, and as many before it as fit.
    *state.offset_mut() = view.at.saturating_sub(view.page - 1);
    frame.render_stateful_widget(shown, area, &mut state);
}

/// The columns that a terminal of this width has room for, with their widths: those that tell most come first, the last one may be cut.
fn fitting(pane: Pane, heading: &[&str], rows: &[Vec<String>], width: usize) -> Vec<(usize, usize)> {
    let widest = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([heading[column].len()]).max().unwrap_or(0)
    };
    let mut left = width;
    let mut columns: Vec<(usize, usize)> = Vec::new();
    for column in view::by_weight(pane) {
        let gap = usize::from(!columns.is_empty());
        let wanted = widest(*column);
        let given = wanted.min(left.saturating_sub(gap));
        if given < wanted.min(6) || given == 0 {
            continue;
        }
        columns.push((*column, given));
        left -= given + gap;
    }
    columns.sort_unstable();
    columns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_terminals_show_what_tells_most() {
        let heading =
            ["CLIENT", "PROGRAM", "SERVER", "PROGRAM", "RATE", "SENT", "RECEIVED", "WAKE-UPS", "WAIT", "STATE", "CARRIER"];
        let rows = vec![heading.iter().map(|cell| format!("{cell:-<15}")).collect::<Vec<_>>()];
        for width in [0, 1, 20, 79, 80, 81, 300] {
            let columns = fitting(Pane::Connections, &heading, &rows, width);
            let taken: usize = columns.iter().map(|(_, given)| given + 1).sum();
            assert!(taken <= width + 1, "{width}: {columns:?}");
        }
        let shown = |width| {
            fitting(Pane::Connections, &heading, &rows, width).iter().map(|(column, _)| heading[*column]).collect::<Vec<_>>()
        };
        assert_eq!(shown(47), ["CLIENT", "SERVER", "RATE"]);
        assert_eq!(shown(300), heading);
    }
}
