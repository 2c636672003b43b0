//! The published matrix: one row for each scenario, one column for each arrangement.

use crate::arrangement::{Arrangement, Role};
use crate::catalogue::Scenario;
use crate::deviations::Deviations;
use crate::judge::Verdict;
use crate::rows::Rows;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The verdicts of a whole run.
pub type Verdicts = BTreeMap<(String, Role, Arrangement), Verdict>;

/// The matrix as Markdown.
pub fn render(scenarios: &[Scenario], rows: &Rows, verdicts: &Verdicts, deviations: &Deviations) -> String {
    let mut text = String::from(HEAD);
    let passed = verdicts.values().filter(|verdict| verdict.passes()).count();
    let failed = verdicts.len() - passed;
    let _ = writeln!(
        text,
        "{} scenarios, {} comparisons with the kernel: {passed} as expected, {failed} not.\n",
        scenarios.len(),
        verdicts.len()
    );
    summary(&mut text, scenarios, rows, verdicts);
    items(&mut text, scenarios, rows, verdicts);
    accepted(&mut text, deviations);
    text.push_str("\n## Every scenario\n");
    for row in &rows.list {
        let _ = writeln!(text, "\n### {}\n", row.name);
        text.push_str(
            "| scenario | what it shows | near | both | client only | server only | one process | fortified | trapped |\n",
        );
        text.push_str("|---|---|---|---|---|---|---|---|---|\n");
        for scenario in row.scenarios(scenarios) {
            for role in scenario.roles() {
                let _ = write!(text, "| `{}` | {} | {} |", scenario.name, scenario.summary.replace('|', "\\|"), role.name());
                for arrangement in Arrangement::ALL {
                    let verdict = verdicts.get(&(scenario.name.clone(), role, arrangement));
                    let _ = write!(text, " {} |", cell(verdict));
                }
                text.push('\n');
            }
        }
    }
    text
}

/// The verdicts on some scenarios.
fn verdicts_on<'a>(scenarios: &[&Scenario], verdicts: &'a Verdicts) -> Vec<&'a Verdict> {
    let members: Vec<&str> = scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
    verdicts.iter().filter(|((name, _, _), _)| members.contains(&name.as_str())).map(|(_, verdict)| verdict).collect()
}

/// One line for each row.
fn summary(text: &mut String, scenarios: &[Scenario], rows: &Rows, verdicts: &Verdicts) {
    text.push_str("| row | scenarios | comparisons | equal, accelerated | equal, through TCP | deviates as listed | differs |\n");
    text.push_str("|---|---|---|---|---|---|---|\n");
    for row in &rows.list {
        let members = row.scenarios(scenarios);
        let of_row = verdicts_on(&members, verdicts);
        let count = |kind: fn(&Verdict) -> bool| of_row.iter().filter(|verdict| kind(verdict)).count();
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {} | {} | {} |",
            row.name,
            members.len(),
            of_row.len(),
            count(|verdict| *verdict == Verdict::Equal),
            count(|verdict| *verdict == Verdict::EqualThroughKernel),
            count(|verdict| matches!(verdict, Verdict::Deviates(_))),
            count(|verdict| !verdict.passes()),
        );
    }
}

/// What each row holds, how many scenarios show it, and which deviations they have.
fn items(text: &mut String, scenarios: &[Scenario], rows: &Rows, verdicts: &Verdicts) {
    text.push_str("\n## What has to be exact\n");
    for row in &rows.list {
        let _ = writeln!(text, "\n**{}**\n\n| what | scenarios | deviations |\n|---|---|---|", row.name);
        for (what, shown) in row.items(scenarios) {
            let mut names: Vec<&str> = Vec::new();
            for verdict in verdicts_on(&shown, verdicts) {
                if let Verdict::Deviates(of_this) = verdict {
                    names.extend(of_this.iter().map(String::as_str));
                }
            }
            names.sort_unstable();
            names.dedup();
            let _ = writeln!(text, "| {what} | {} | {} |", shown.len(), names.join(", "));
        }
    }
}

/// The deviations with their reasons, line by line.
fn accepted(text: &mut String, deviations: &Deviations) {
    text.push_str("\n## Accepted deviations\n\n");
    if deviations.list.is_empty() {
        text.push_str("None.\n");
    }
    for deviation in &deviations.list {
        let (name, reason) = (&deviation.name, deviation.reason.trim());
        let _ = writeln!(text, "**{name}.** {reason}\n\nScenarios: {}.\n", deviation.scenarios.join(", "));
        text.push_str("| the kernel | shunt |\n|---|---|\n");
        for line in &deviation.lines {
            let _ = writeln!(
                text,
                "| `{}` | `{}` |",
                line.shown().replace('|', "\\|"),
                line.shunt.replace('|', "\\|").replace('\n', "`<br>`")
            );
        }
        text.push('\n');
    }
}

fn cell(verdict: Option<&Verdict>) -> String {
    match verdict {
        None => String::new(),
        Some(Verdict::Equal) => "=".into(),
        Some(Verdict::EqualThroughKernel) => "= tcp".into(),
        Some(Verdict::Deviates(names)) => names.join(", "),
        Some(Verdict::Differs(_)) => "**differs**".into(),
        Some(Verdict::NotAccelerated) => "**= tcp, should be accelerated**".into(),
    }
}

const HEAD: &str = "\
# The semantics matrix

Generated by `cargo run --release -p shunt-differential -- matrix`; do not edit.

Each scenario (`crates/differential/scenarios/*.c`) is a program over the libc API which writes down everything an application can observe. It runs
on the kernel and under shunt, and both must write the same. Columns: both ends under shunt; only the client, or only the server, under shunt;
both ends in one process; both under shunt and compiled with `_FORTIFY_SOURCE=2`; both with
`--raw trap`, where a scenario makes calls of its own. `near` is the end whose calls the transcript shows.

`=` is equal over an accelerated connection, `= tcp` is equal through the kernel's TCP (one end without shunt, or no connection made), a name is
an accepted deviation explained before the tables, empty is a combination that does not exist.

";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_tell_accelerated_from_kernel() {
        assert_eq!(cell(Some(&Verdict::Equal)), "=");
        assert_eq!(cell(Some(&Verdict::EqualThroughKernel)), "= tcp");
        assert_eq!(cell(None), "");
        assert_eq!(cell(Some(&Verdict::Deviates(vec!["a".into(), "b".into()]))), "a, b");
    }
}
