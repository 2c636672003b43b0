//! The kernel against shunt, and against itself.

use super::jobs::{arrangements_of, chosen, each};
use shunt_differential::across::Across;
use shunt_differential::compare::difference;
use shunt_differential::deviations::Deviations;
use shunt_differential::judge::{Judge, Verdict};
use shunt_differential::trial::Trial;
use shunt_differential::{programs, Arrangement, Scenario};

/// Runs scenarios on the kernel several times: a transcript that differs from itself cannot be compared with anything.
pub fn stability(words: &[&str]) -> Result<bool, String> {
    let (runs, names) = match words.split_first() {
        Some((first, rest)) if first.parse::<u32>().is_ok() => (first.parse().expect("just parsed"), rest),
        _ => (20, words),
    };
    let stable = each(
        &chosen(names)?,
        &[Arrangement::Both, Arrangement::OneProcess, Arrangement::Fortified, Arrangement::HostsNone],
        |scenario, role, arrangement| {
            let trial = Trial::on_kernel(&scenario.name, role, arrangement);
            let outcome = trial.run().map_err(|error| error.to_string())?;
            let in_vain = outcome.in_vain().is_some();
            let first = outcome.lines;
            if in_vain || !first.iter().any(|line| line == "near: exit 0" || line.starts_with("near: killed")) {
                let last = &first[first.len().saturating_sub(6)..];
                return Err(format!("does not run on the kernel; its last lines:\n{}", last.join("\n")));
            }
            for run in 1..runs {
                let again = trial.run().map_err(|error| error.to_string())?.lines;
                if let Some(text) = difference(&first, &again) {
                    return Err(format!("run {run} differs from the first:\n{text}"));
                }
            }
            Ok(())
        },
    );
    Ok(stable)
}

/// Near and far on two hosts, in some arrangements or each of them.
pub fn compare_across(words: &[&str]) -> Result<bool, String> {
    let across = Across::load()?;
    let (arrangements, names) = arrangements_of(words, &across.all());
    let shunt = programs::shunt()?;
    let deviations = Deviations::load()?;
    let judge = Judge::new(&shunt, &deviations);
    Ok(each(&across.among(chosen(names)?), &arrangements, |scenario, role, arrangement| {
        let verdict = judge.judge_across(scenario, role, arrangement).map_err(|error| error.to_string())?;
        if matches!(verdict, Verdict::NotAccelerated) && across.is_late(&scenario.name, arrangement) {
            return Ok(());
        }
        expected(&verdict, is_known(&across, scenario, arrangement))
    }))
}

pub fn compare(names: &[&str]) -> Result<bool, String> {
    compare_in(&chosen(names)?, &Arrangement::ALL, &Deviations::load()?)
}

/// What makes no calls of its own has to be the same under `--raw trap`; what does make them is compared there anyway.
pub fn compare_trapped(names: &[&str]) -> Result<bool, String> {
    let others = chosen(names)?.into_iter().filter(|scenario| !scenario.may_be_trapped());
    let scenarios: Vec<Scenario> = others.map(Scenario::trapped).collect();
    compare_in(&scenarios, &[Arrangement::Trapped], &Deviations::load()?.trapped())
}

fn compare_in(scenarios: &[Scenario], arrangements: &[Arrangement], deviations: &Deviations) -> Result<bool, String> {
    let shunt = programs::shunt()?;
    let judge = Judge::new(&shunt, deviations);
    Ok(each(scenarios, arrangements, |scenario, role, arrangement| {
        expected(&judge.judge(scenario, role, arrangement).map_err(|error| error.to_string())?, false)
    }))
}

/// Whether a difference between hosts is said to be.
pub fn is_known(across: &Across, scenario: &Scenario, arrangement: Arrangement) -> bool {
    across.difference(&scenario.name, arrangement).is_some()
}

/// What is printed of a verdict that is not as expected.
pub fn expected(verdict: &Verdict, known: bool) -> Result<(), String> {
    match verdict {
        Verdict::Differs(text) if !known => Err(text.clone()),
        Verdict::NotAccelerated => Err("equal, but not accelerated\n".into()),
        _ => Ok(()),
    }
}
