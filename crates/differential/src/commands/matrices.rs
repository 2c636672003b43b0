//! The documents that tell what is the same: target/semantics-matrix.md and docs/reference/SEMANTICS-HOSTS.md.

use super::compare::{expected, is_known};
use super::jobs::{arrangements_of, each};
use shunt_differential::across::Across;
use shunt_differential::deviations::Deviations;
use shunt_differential::judge::Judge;
use shunt_differential::matrix::{self, Verdicts};
use shunt_differential::page::Page;
use shunt_differential::rows::Rows;
use shunt_differential::site::Site;
use shunt_differential::{catalogue, programs, Arrangement, Scenario};
use std::sync::Mutex;

/// Everything between hosts, or what the files named say of it, into docs/reference/SEMANTICS-HOSTS.md.
pub fn write_matrix_across(words: &[&str]) -> Result<bool, String> {
    let across = Across::load()?;
    let (mut arrangements, files) = arrangements_of(words, &across.told());
    let shunt = programs::shunt()?;
    let deviations = Deviations::load()?;
    let judge = Judge::new(&shunt, &deviations);
    let path = programs::workspace().join("docs/reference/SEMANTICS-HOSTS.md");
    let all = across.among(catalogue::all());
    let mut page = match files {
        [] => Page::default(),
        _ => Page::parse(&std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?),
    };
    if let Some(stranger) = files.iter().find(|file| !all.iter().any(|scenario| scenario.file == **file)) {
        return Err(format!("matrix --across: {stranger} is no file of scenarios that run between hosts"));
    }
    arrangements.retain(|arrangement| match Site::two_hosts(*arrangement, Some(&shunt)) {
        Ok(_) => true,
        Err(reason) => {
            println!("{}: {reason}", arrangement.name());
            page.lacks(*arrangement, &reason.to_string());
            false
        }
    });
    let chosen = |scenario: &&Scenario| files.is_empty() || files.contains(&scenario.file.as_str());
    let scenarios: Vec<Scenario> = all.iter().filter(chosen).cloned().collect();
    let verdicts = Mutex::new(Verdicts::new());
    let passed = each(&scenarios, &arrangements, |scenario, role, arrangement| {
        let verdict = judge.judge_across(scenario, role, arrangement).map_err(|error| error.to_string())?;
        let result = expected(&verdict, is_known(&across, scenario, arrangement));
        verdicts.lock().expect("no trial panics").insert((scenario.name.clone(), role, arrangement), verdict);
        result
    });
    let verdicts = verdicts.into_inner().expect("no trial panics");
    for scenario in scenarios
        .iter()
        .filter(|scenario| arrangements.iter().any(|arrangement| across.difference(&scenario.name, *arrangement).is_some()))
    {
        if verdicts.iter().all(|((name, _, _), verdict)| *name != scenario.name || verdict.passes()) {
            println!("{} is said to differ, and did not", scenario.name);
        }
    }
    page.take(&across, &scenarios, &verdicts);
    std::fs::write(&path, page.render(&across, &all)).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}", path.display());
    Ok(passed)
}

pub fn write_matrix() -> Result<bool, String> {
    let shunt = programs::shunt()?;
    let deviations = Deviations::load()?;
    let judge = Judge::new(&shunt, &deviations);
    let scenarios = catalogue::all();
    let verdicts = Mutex::new(Verdicts::new());
    let passed = each(&scenarios, &Arrangement::ALL, |scenario, role, arrangement| {
        let verdict = judge.judge(scenario, role, arrangement).map_err(|error| error.to_string())?;
        let result = if verdict.passes() { Ok(()) } else { Err(format!("{verdict:?}")) };
        verdicts.lock().expect("no trial panics").insert((scenario.name.clone(), role, arrangement), verdict);
        result
    });
    let path = programs::workspace().join("target/semantics-matrix.md");
    let text = matrix::render(&scenarios, &Rows::load()?, &verdicts.into_inner().expect("no trial panics"), &deviations);
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}", path.display());
    Ok(passed)
}
