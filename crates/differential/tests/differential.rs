//! Every scenario in every role and arrangement, each a trial of its own: `cargo test --release -p shunt-differential --
//! half_close`.

use libtest_mimic::{Arguments, Failed, Trial};
use shunt_differential::across::Across;
use shunt_differential::deviations::Deviations;
use shunt_differential::judge::{Judge, Verdict};
use shunt_differential::random::{hunt, sequence};
use shunt_differential::rows::Rows;
use shunt_differential::{catalogue, namespace, programs, Arrangement, Scenario};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(message) = namespace::become_able() {
        eprintln!("differential: {message}");
        return ExitCode::FAILURE;
    }
    let mut arguments = Arguments::from_args();
    // Scenarios mostly wait, so several share a core.
    let cores = std::thread::available_parallelism().map_or(2, |cores| cores.get());
    arguments.test_threads.get_or_insert(5 * cores);
    let deviations: &Deviations = match Deviations::load() {
        Ok(deviations) => Box::leak(Box::new(deviations)),
        Err(message) => {
            eprintln!("differential: {message}");
            return ExitCode::FAILURE;
        }
    };
    libtest_mimic::run(&arguments, trials(deviations)).exit_code()
}

/// Every sequence that once showed a difference, in each arrangement.
fn replays(shunt: &'static Path) -> Vec<Trial> {
    let stored = match sequence::stored() {
        Ok(stored) => stored,
        Err(message) => return vec![Trial::test("sequences_can_be_read", move || Err(Failed::from(message)))],
    };
    let mut trials = Vec::new();
    for (name, operations) in stored {
        for arrangement in hunt::ARRANGEMENTS {
            let operations = operations.clone();
            trials.push(Trial::test(format!("sequences::{name}::{}", arrangement.name()), move || {
                let setting = hunt::Setting::under_shunt(arrangement, shunt);
                let steps = hunt::record(&operations, setting)?;
                match hunt::perform(&operations, &steps, setting)? {
                    hunt::Outcome::Same(_) => Ok(()),
                    hunt::Outcome::Differs(difference) => Err(Failed::from(format!("- the kernel, + shunt\n{difference}"))),
                }
            }));
        }
    }
    trials
}

fn trials(deviations: &'static Deviations) -> Vec<Trial> {
    let scenarios = catalogue::all();
    let known: Vec<String> = scenarios.iter().map(|scenario| scenario.name.clone()).collect();
    let mut trials = vec![Trial::test("deviations_name_scenarios_that_exist", move || {
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        let strangers = deviations.strangers(&known);
        if strangers.is_empty() {
            Ok(())
        } else {
            Err(Failed::from(format!("deviations.toml names scenarios that do not exist: {}", strangers.join(", "))))
        }
    })];
    let all = scenarios.clone();
    trials.push(Trial::test("every_family_has_a_row_and_every_item_a_scenario", move || {
        let complaints = Rows::load()?.complaints(&all);
        if complaints.is_empty() {
            Ok(())
        } else {
            Err(Failed::from(format!("rows.toml:\n{}", complaints.join("\n"))))
        }
    }));
    let across = match Across::load() {
        Ok(across) => across,
        Err(message) => {
            trials.push(Trial::test("scenarios_between_hosts_can_be_read", move || Err(Failed::from(message))));
            return trials;
        }
    };
    let strangers = across.strangers(&scenarios);
    trials.push(Trial::test("scenarios_between_hosts_exist", move || match strangers.as_slice() {
        [] => Ok(()),
        names => Err(Failed::from(format!("across.toml names what is no duet: {}", names.join(", ")))),
    }));
    let shunt: &'static Path = match programs::shunt() {
        Ok(path) => Box::leak(path.into_boxed_path()),
        Err(message) => {
            trials.push(Trial::test("the_shunt_command_is_built", move || Err(Failed::from(message))));
            return trials;
        }
    };
    let judge: &'static Judge<'static> = Box::leak(Box::new(Judge::new(shunt, deviations)));
    trials.extend(replays(shunt));
    let quick = across.quick(scenarios.clone());
    trials.extend(scenarios.iter().flat_map(|scenario| comparisons(judge, scenario, &Arrangement::ALL, Allowed::default())));
    trials.extend(quick.iter().flat_map(|scenario| {
        let in_each = across.arrangements().into_iter().map(|arrangement| {
            let differs = across.difference(&scenario.name, arrangement).is_some();
            let late = across.is_late(&scenario.name, arrangement);
            comparisons(judge, scenario, &[arrangement], Allowed { differs, late })
        });
        in_each.flatten().collect::<Vec<_>>()
    }));
    trials
}

/// What a scenario may do between hosts.
#[derive(Clone, Copy, Default)]
struct Allowed {
    /// Differ.
    differs: bool,
    /// Be the kernel's.
    late: bool,
}

/// One trial for each role and arrangement of a scenario.
fn comparisons(
    judge: &'static Judge<'static>,
    scenario: &Scenario,
    arrangements: &[Arrangement],
    allowed: Allowed,
) -> Vec<Trial> {
    let mut trials = Vec::new();
    for role in scenario.roles() {
        for &arrangement in arrangements.iter().filter(|arrangement| arrangement.applies_to(scenario)) {
            let scenario = scenario.clone();
            let name = format!("{}::{}::{}::{}", scenario.family, scenario.name, role.name(), arrangement.name());
            let across = arrangement.has_two_hosts() && arrangement.accelerates();
            let verdict = move || match across {
                true => judge.judge_across(&scenario, role, arrangement),
                false => judge.judge(&scenario, role, arrangement),
            };
            trials.push(Trial::test(name, move || match verdict()? {
                Verdict::Differs(_) if across && allowed.differs => Ok(()),
                Verdict::NotAccelerated if allowed.late => Ok(()),
                Verdict::Differs(text) => Err(Failed::from(format!("- the kernel, + shunt\n{text}"))),
                Verdict::NotAccelerated => Err(Failed::from("equal, but the connection was not accelerated")),
                _ => Ok(()),
            }));
        }
    }
    trials
}
