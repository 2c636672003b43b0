//! The rows: what has to be exactly as on Linux, and which scenarios show it.
//!
//! `rows.toml` names the families of each row, and the items of each row with patterns of scenario names. A scenario may show
//! several items; a family without a row, or a pattern that finds nothing, fails the tests.

use crate::catalogue::Scenario;
use serde::Deserialize;
use std::path::PathBuf;

/// All rows, in the order of the file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rows {
    /// The rows.
    #[serde(rename = "row")]
    pub list: Vec<Row>,
}

/// One row.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Row {
    /// As in the matrix.
    pub name: String,
    /// The families of scenarios that belong to it.
    pub families: Vec<String>,
    /// Each begins with what has to be so, followed by patterns of the scenarios that show it; `*` in a pattern stands for
    /// anything.
    pub items: Vec<Vec<String>>,
}

impl Rows {
    /// Reads `rows.toml`.
    ///
    /// # Errors
    /// A sentence with the place in the file.
    pub fn load() -> Result<Rows, String> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("rows.toml");
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        toml::from_str(&text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// The row of a family.
    pub fn of_family(&self, family: &str) -> Option<&Row> {
        self.list.iter().find(|row| row.families.iter().any(|name| name == family))
    }

    /// What is wrong with the file, one sentence each: families without a row, patterns without a scenario, items without a
    /// pattern.
    pub fn complaints(&self, scenarios: &[Scenario]) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut families: Vec<&str> = scenarios.iter().map(|scenario| scenario.family.as_str()).collect();
        families.dedup();
        for family in families.into_iter().filter(|family| self.of_family(family).is_none()) {
            complaints.push(format!("the family {family} has no row: add it to `families` of one"));
        }
        for item in self.list.iter().flat_map(|row| &row.items) {
            let Some((what, patterns)) = item.split_first() else { continue };
            if patterns.is_empty() {
                complaints.push(format!("no scenario shows: {what}"));
            }
            for pattern in patterns.iter().filter(|pattern| !scenarios.iter().any(|scenario| matches(pattern, &scenario.name))) {
                complaints.push(format!("{what}: no scenario is called {pattern}"));
            }
        }
        complaints
    }
}

impl Row {
    /// The row's scenarios.
    pub fn scenarios<'a>(&self, all: &'a [Scenario]) -> Vec<&'a Scenario> {
        all.iter().filter(|scenario| self.families.contains(&scenario.family)).collect()
    }

    /// The items, each with the scenarios that show it; these may be of other rows' families.
    pub fn items<'a>(&self, all: &'a [Scenario]) -> Vec<(&str, Vec<&'a Scenario>)> {
        let shown = self.items.iter().filter_map(|item| item.split_first());
        shown
            .map(|(what, patterns)| {
                let found = all.iter().filter(|scenario| patterns.iter().any(|pattern| matches(pattern, &scenario.name)));
                (what.as_str(), found.collect())
            })
            .collect()
    }
}

/// Whether `name` is of the form `pattern`, in which `*` stands for any text.
fn matches(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, rest)) => name
            .strip_prefix(head)
            .is_some_and(|tail| (0..=tail.len()).filter(|&at| tail.is_char_boundary(at)).any(|at| matches(rest, &tail[at..]))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_text() {
        assert!(matches("bind_*", "bind_twice") && matches("*_twice", "bind_twice") && matches("b*d*e", "bind_twice"));
        assert!(matches("bind", "bind") && matches("bind*", "bind"));
        assert!(!matches("bind", "bind_twice") && !matches("*_once", "bind_twice") && !matches("bind_*", "bind"));
    }

    #[test]
    fn the_file_parses_and_no_family_has_two_rows() {
        let rows = Rows::load().expect("parses");
        let mut families: Vec<&String> = rows.list.iter().flat_map(|row| &row.families).collect();
        let count = families.len();
        families.sort();
        families.dedup();
        assert_eq!(families.len(), count);
    }
}
