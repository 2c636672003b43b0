//! docs/reference/SEMANTICS-HOSTS.md: a row for each file of scenarios, a column for each arrangement of two hosts.
//!
//! A whole run takes long, so the page is also read: a run of some files leaves what it says about the others.

use crate::across::Across;
use crate::arrangement::Arrangement;
use crate::catalogue::Scenario;
use crate::judge::Verdict;
use crate::matrix::Verdicts;
use std::collections::BTreeMap;

/// What the page says, but for what `across.toml` does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// How many comparisons were as expected, of how many, by file and arrangement.
    cells: BTreeMap<(String, String), (usize, usize)>,
    /// What is said of a scenario, by its name, role and arrangement.
    notes: BTreeMap<(String, String, String), String>,
    /// Arrangements that this machine does not have, with the reason.
    absent: BTreeMap<String, String>,
}

const HEAD: &str = "# Semantics between hosts: what was compared\n\nWritten by `shunt-differential matrix --across`; do not edit. Each scenario with two \
     processes ran with these on two hosts (network namespaces joined by a veth), near as client and as server, on the kernel and under shunt: frames by \
     UDP sockets (`hosts-udp`), and by AF_XDP with an agent on each host that lends its queue (`hosts-xdp`); in network namespaces with a directory in common (`hosts-near`); and with one \
     of the two plain, whose connections the other one's agent takes (`--inet`) and which are given back after so many turns as a seed draws: the plain one is far (`hosts-inet`) or near (`hosts-inet-far`); there neither the order within one answer of epoll_wait is compared, nor that an edge which holds comes once. The transcripts are equal but where it is said. A difference that \
     does not come again in three runs is not counted. A family's scenarios are listed by `shunt-differential list`.\n";

impl Page {
    /// Reads a page that [`Page::render`] wrote; what it does not know it leaves out.
    pub fn parse(text: &str) -> Page {
        let mut page = Page::default();
        let mut columns: Vec<String> = Vec::new();
        for line in text.lines() {
            if let Some(row) = line.strip_prefix("| ") {
                let words: Vec<&str> = row.trim_end_matches('|').split('|').map(str::trim).collect();
                match words.split_first() {
                    Some((&"file", names)) => columns = names.iter().map(|name| (*name).to_owned()).collect(),
                    Some((file, counts)) if *file != "all" => {
                        for (column, count) in columns.iter().zip(counts) {
                            let Some((good, all)) = count.split_once(" of ") else { continue };
                            if let (Ok(good), Ok(all @ 1..)) = (good.parse(), all.parse()) {
                                page.cells.insert((format!("{file}.c"), column.clone()), (good, all));
                            }
                        }
                    }
                    _ => {}
                }
            } else if let Some((what, said)) = line.strip_prefix("- ").and_then(|line| line.split_once("): ")) {
                // "name (role, arrangement): what is said"; names in `across.toml`'s sentences have no brackets before the colon.
                if let Some((name, (role, column))) =
                    what.split_once(" (").and_then(|(name, rest)| Some((name, rest.split_once(", ")?)))
                {
                    page.notes.insert((name.into(), role.into(), column.into()), said.into());
                }
            }
        }
        page
    }

    /// Takes in what a run found: it replaces what was said of the same files in the same arrangements.
    pub fn take(&mut self, across: &Across, scenarios: &[Scenario], verdicts: &Verdicts) {
        let file_of = |name: &str| scenarios.iter().find(|scenario| scenario.name == name).map(|scenario| scenario.file.clone());
        let mut fresh: BTreeMap<(String, String), (usize, usize)> = BTreeMap::new();
        for ((name, role, arrangement), verdict) in verdicts {
            let Some(file) = file_of(name) else { continue };
            let column = arrangement.name().to_owned();
            let counts = fresh.entry((file, column.clone())).or_default();
            counts.0 += usize::from(verdict.passes());
            counts.1 += 1;
            let key = (name.clone(), role.name().to_owned(), column);
            self.notes.remove(&key);
            let said = match verdict {
                Verdict::Differs(_) if across.difference(name, *arrangement).is_none() => "not explained yet",
                Verdict::NotAccelerated => "equal, with a connection that fell back",
                _ => continue,
            };
            self.notes.insert(key, said.into());
        }
        self.cells.extend(fresh);
    }

    /// The machine does not have this arrangement.
    pub fn lacks(&mut self, arrangement: Arrangement, reason: &str) {
        self.absent.insert(arrangement.name().into(), reason.into());
    }

    /// The page; `scenarios` are all that run between hosts.
    pub fn render(&self, across: &Across, scenarios: &[Scenario]) -> String {
        let mut text = String::from(HEAD);
        let columns: Vec<&str> = Arrangement::HOSTS
            .iter()
            .map(|arrangement| arrangement.name())
            .filter(|name| self.cells.keys().any(|(_, column)| column == name))
            .collect();
        for (name, reason) in self.absent.iter().filter(|(name, _)| !columns.contains(&name.as_str())) {
            text.push_str(&format!(
                "\n`{name}` was not compared, because the machine on which this was written does not have it: {reason}.\n"
            ));
        }
        text.push_str("\n| file |");
        columns.iter().for_each(|column| text.push_str(&format!(" {column} |")));
        text.push_str("\n|---|");
        columns.iter().for_each(|_| text.push_str("---:|"));
        text.push('\n');
        let mut files: Vec<&str> = scenarios.iter().map(|scenario| scenario.file.as_str()).collect();
        files.dedup();
        let mut row = |title: &str, rows: &[&str]| {
            text.push_str(&format!("| {title} |"));
            for column in &columns {
                let of_rows = rows.iter().filter_map(|file| self.cells.get(&((*file).to_owned(), (*column).to_owned())));
                let (good, all) = of_rows.fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
                text.push_str(&format!(" {good} of {all} |"));
            }
            text.push('\n');
        };
        files.iter().for_each(|file| row(file.trim_end_matches(".c"), &[file]));
        row("all", &files);
        text.push_str("\n## What differs\n\n");
        for difference in across.differences() {
            text.push_str(&format!("- {}: {}\n", difference.scenarios.join(", "), difference.reason));
        }
        let exists = |name: &str| scenarios.iter().any(|scenario| scenario.name == name);
        for ((name, role, column), said) in self.notes.iter().filter(|((name, _, _), _)| exists(name)) {
            text.push_str(&format!("- {name} ({role}, {column}): {said}\n"));
        }
        text.push_str("\n## What does not run between hosts\n\n");
        for (names, reason) in across.exceptions() {
            text.push_str(&format!("- {}: {reason}\n", names.join(", ")));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arrangement::Role;
    use crate::catalogue;

    fn verdicts(scenarios: &[Scenario], arrangement: Arrangement, verdict: &Verdict) -> Verdicts {
        let roles = scenarios.iter().flat_map(|scenario| scenario.roles().into_iter().map(move |role| (scenario, role)));
        roles.map(|(scenario, role)| ((scenario.name.clone(), role, arrangement), verdict.clone())).collect()
    }

    #[test]
    fn a_run_of_one_file_leaves_what_is_said_of_the_others() {
        let across = Across::load().expect("parses");
        let scenarios = across.among(catalogue::all());
        let of = |file: &str| -> Vec<Scenario> { scenarios.iter().filter(|scenario| scenario.file == file).cloned().collect() };
        let mut page = Page::default();
        for arrangement in [Arrangement::HostsUdp, Arrangement::HostsXdp] {
            page.take(&across, &scenarios, &verdicts(&of("vectors.c"), arrangement, &Verdict::NotAccelerated));
            page.take(&across, &scenarios, &verdicts(&of("threads.c"), arrangement, &Verdict::NotAccelerated));
        }
        let mut read = Page::parse(&page.render(&across, &scenarios));
        assert_eq!(read, page);
        read.take(&across, &scenarios, &verdicts(&of("vectors.c"), Arrangement::HostsXdp, &Verdict::Equal));
        let count = of("vectors.c").iter().map(|scenario| scenario.roles().len()).sum();
        let cell =
            |page: &Page, file: &str, arrangement: Arrangement| page.cells[&(file.to_owned(), arrangement.name().to_owned())];
        assert_eq!(cell(&read, "vectors.c", Arrangement::HostsXdp), (count, count));
        assert_eq!(cell(&read, "vectors.c", Arrangement::HostsUdp), (0, count));
        assert_eq!(cell(&read, "threads.c", Arrangement::HostsXdp).0, 0);
        let name = &of("vectors.c")[0].name;
        let noted = |arrangement: Arrangement| {
            read.notes.contains_key(&(name.clone(), Role::Client.name().to_owned(), arrangement.name().to_owned()))
        };
        assert!(noted(Arrangement::HostsUdp) && !noted(Arrangement::HostsXdp));
    }

    #[test]
    fn a_machine_without_an_arrangement_is_told() {
        let across = Across::load().expect("parses");
        let mut page = Page::default();
        page.lacks(Arrangement::HostsXdp, "the agent did not start");
        assert!(page.render(&across, &[]).contains("`hosts-xdp` was not compared"));
    }
}
