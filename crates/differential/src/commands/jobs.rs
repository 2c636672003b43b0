//! Which scenarios are meant, in which arrangements, and all of these at once.

use shunt_differential::{catalogue, Arrangement, Role, Scenario};
use std::sync::atomic::{AtomicUsize, Ordering};

/// The arrangements of two hosts that `words` begin with, or else `usual`; and the other words.
pub fn arrangements_of<'a, 'b>(words: &'a [&'b str], usual: &[Arrangement]) -> (Vec<Arrangement>, &'a [&'b str]) {
    let named = |word: &&str| Arrangement::named(word).filter(|arrangement| arrangement.has_two_hosts());
    let found: Vec<Arrangement> = words.iter().map_while(named).collect();
    let rest = &words[found.len()..];
    (if found.is_empty() { usual.to_vec() } else { found }, rest)
}

/// The scenarios whose name begins with, or whose family or file is, one of `names`; all of them without names.
pub fn chosen(names: &[&str]) -> Result<Vec<Scenario>, String> {
    let all = catalogue::all();
    if names.is_empty() {
        return Ok(all);
    }
    let found: Vec<Scenario> = all
        .into_iter()
        .filter(|scenario| {
            names.iter().any(|name| scenario.name.starts_with(name) || scenario.family == *name || scenario.file == *name)
        })
        .collect();
    if found.is_empty() {
        return Err(format!("no scenario is called {}; see `list`", names.join(" or ")));
    }
    Ok(found)
}

/// Does `work` for each combination that exists, several at a time because scenarios mostly wait, printing failures as they come;
/// whether there were none.
pub fn each<W>(scenarios: &[Scenario], arrangements: &[Arrangement], work: W) -> bool
where
    W: Fn(&Scenario, Role, Arrangement) -> Result<(), String> + Sync,
{
    let mut jobs = Vec::new();
    for scenario in scenarios {
        for role in scenario.roles() {
            jobs.extend(
                arrangements
                    .iter()
                    .filter(|arrangement| arrangement.applies_to(scenario))
                    .map(|&arrangement| (scenario, role, arrangement)),
            );
        }
    }
    let (next, failed) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| {
                while let Some(&(scenario, role, arrangement)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(text) = work(scenario, role, arrangement) {
                        failed.fetch_add(1, Ordering::Relaxed);
                        println!("--- {} {} {}\n{}", scenario.name, role.name(), arrangement.name(), text);
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!("{} of {} as expected", jobs.len() - failed, jobs.len());
    failed == 0
}
