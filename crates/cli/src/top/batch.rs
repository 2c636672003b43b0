//! For pipes and files: tables, or a line of JSON, each time.
use super::rates::Rates;
use super::sample::Sample;
use super::view::{summary, table, Pane, View};
use crate::failure::Failure;
use crate::output::print;
use crate::text_table::text_table;

/// Prints until it is ended, or `count` times.
pub fn run(view: &View, json: bool, count: Option<u64>) -> Result<u8, Failure> {
    let mut before = Sample::take();
    let mut left = count;
    while left != Some(0) {
        std::thread::sleep(view.interval);
        let now = Sample::take();
        let mut rates = Rates::between(&before, &now, &view.filter);
        view.put_in_order(&mut rates);
        let text = match json {
            true => serde_json::to_string(&rates).map(|line| line + "\n"),
            false => Ok(tables(&rates)),
        };
        print(&text.map_err(|error| Failure::of_environment(format_args!("cannot make JSON: {error}")))?)?;
        before = now;
        left = left.map(|left| left - 1);
    }
    Ok(0)
}

fn tables(rates: &Rates) -> String {
    let mut text = format!("{}\n", summary(rates));
    for pane in Pane::ALL {
        let (heading, rows) = table(pane, rates);
        if !rows.is_empty() {
            text.push_str(&text_table(heading, &rows));
        }
    }
    text + "\n"
}
