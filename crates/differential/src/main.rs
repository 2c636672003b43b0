//! The laboratory by hand:
//!
//! ```text
//! shunt-differential list [NAME...]
//! shunt-differential rows                       what has to be exact, and how many scenarios show it
//! shunt-differential show NAME [ARRANGEMENT]    the kernel's transcript, or shunt's in an arrangement such as `both`
//! shunt-differential stability [RUNS] [NAME...]  does the kernel give the same every time?
//! shunt-differential compare [NAME...]          kernel against shunt, differences printed
//! shunt-differential compare --across [ARRANGEMENT...] [NAME...]   the same with near and far on hosts of their own
//! shunt-differential compare --trapped [NAME...]   under `--raw trap`, what makes no calls of its own
//! shunt-differential random COUNT [SEED]        sequences drawn from seeds, from SEED on; a difference is shortened
//! shunt-differential random --across [ARRANGEMENT...] COUNT [SEED]   the same with the sides on hosts of their own
//! shunt-differential seeds NAME COUNT [SEED]    scenarios that draw their calls from seeds, as `soak` runs them
//! shunt-differential replay FILE [ARRANGEMENT]  a sequence from a file, on the kernel or in an arrangement
//! shunt-differential soak MINUTES [SEED]        sequences and scenarios drawn from seeds
//! shunt-differential matrix                     all of it, into docs/SEMANTICS-MATRIX.md
//! shunt-differential matrix --across [ARRANGEMENT...] [FILE.c...]  between hosts, into docs/SEMANTICS-HOSTS.md: everything, or these files anew
//! ```

use shunt_differential::across::Across;
use shunt_differential::compare::difference;
use shunt_differential::deviations::Deviations;
use shunt_differential::judge::{Judge, Verdict};
use shunt_differential::matrix::{self, Verdicts};
use shunt_differential::page::Page;
use shunt_differential::random::{hunt, sequence};
use shunt_differential::rows::Rows;
use shunt_differential::site::Site;
use shunt_differential::trial::Trial;
use shunt_differential::{catalogue, namespace, programs, Arrangement, Role, Scenario};
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;

const USAGE: &str = "usage: shunt-differential list [NAME...] | rows | show NAME [ARRANGEMENT]
       shunt-differential compare [--across | --trapped] [NAME...] | stability [RUNS] [NAME...]
       shunt-differential random [--across] COUNT [SEED] | seeds NAME COUNT [SEED] | replay FILE [ARRANGEMENT] | soak MINUTES [SEED]
       shunt-differential matrix [--across]";

fn main() -> ExitCode {
    if let Err(message) = namespace::become_able() {
        eprintln!("shunt-differential: {message}");
        return ExitCode::from(2);
    }
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["list", rest @ ..] => list(rest),
        ["rows"] => rows(),
        ["show", name, rest @ ..] => show(name, rest.first().copied()),
        ["stability", rest @ ..] => stability(rest),
        ["compare", "--across", rest @ ..] => compare_across(rest),
        ["compare", "--trapped", rest @ ..] => compare_trapped(rest),
        ["compare", rest @ ..] => compare(rest),
        ["soak", minutes, rest @ ..] => soak(minutes, rest.first().copied()),
        ["random", "--across", rest @ ..] => random_across(rest),
        ["random", count, rest @ ..] => random(count, rest.first().copied(), &hunt::ARRANGEMENTS),
        ["seeds", name, count, rest @ ..] => seeds(name, count, rest.first().copied()),
        ["replay", file, rest @ ..] => replay(file, rest.first().copied()),
        ["matrix", "--across", rest @ ..] => write_matrix_across(rest),
        ["matrix"] => write_matrix(),
        _ => Err(USAGE.into()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("shunt-differential: {message}");
            ExitCode::from(2)
        }
    }
}

/// Who reads no further (`list | head`) ends this program, as he ends others; Rust's start-up would have it panic.
fn end_with_the_reader() {
    // SAFETY: the default action runs no code of ours.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
}

fn list(names: &[&str]) -> Result<bool, String> {
    end_with_the_reader();
    for scenario in chosen(names)? {
        println!("{:<16} {:<12} {:<36} {}", scenario.file, scenario.family, scenario.name, scenario.summary);
    }
    Ok(true)
}

/// The rows with their items, and how many scenarios show each.
fn rows() -> Result<bool, String> {
    end_with_the_reader();
    let (rows, scenarios) = (Rows::load()?, catalogue::all());
    for row in &rows.list {
        println!("{:>4} {} ({})", row.scenarios(&scenarios).len(), row.name, row.families.join(", "));
        for (what, shown) in row.items(&scenarios) {
            println!("       {:>4} {what}", shown.len());
        }
    }
    println!("{:>4} scenarios", scenarios.len());
    let complaints = rows.complaints(&scenarios);
    complaints.iter().for_each(|complaint| println!("{complaint}"));
    Ok(complaints.is_empty())
}

fn show(name: &str, arrangement: Option<&str>) -> Result<bool, String> {
    let named = |wanted: &str| {
        let found = Arrangement::named(wanted);
        found.ok_or_else(|| format!("there is no arrangement {wanted}; one of them is `both`"))
    };
    let under_shunt =
        arrangement.map(named).transpose()?.map(|arrangement| programs::shunt().map(|shunt| (arrangement, shunt))).transpose()?;
    for scenario in chosen(&[name])? {
        for role in scenario.roles() {
            println!("# {} {}", scenario.name, role.name());
            let trial = match &under_shunt {
                None => Trial::on_kernel(&scenario.name, role, Arrangement::Both),
                Some((arrangement, shunt)) => Trial::under_shunt(&scenario.name, role, *arrangement, shunt),
            };
            println!("{}", trial.run().map_err(|error| error.to_string())?.lines.join("\n"));
        }
    }
    Ok(true)
}

/// Runs scenarios on the kernel several times: a transcript that differs from itself cannot be compared with anything.
fn stability(words: &[&str]) -> Result<bool, String> {
    let (runs, names) = match words.split_first() {
        Some((first, rest)) if first.parse::<u32>().is_ok() => (first.parse().expect("just parsed"), rest),
        _ => (20, words),
    };
    let stable = each(
        &chosen(names)?,
        &[Arrangement::Both, Arrangement::OneProcess, Arrangement::Fortified, Arrangement::HostsNone],
        |scenario, role, arrangement| {
            let trial = Trial::on_kernel(&scenario.name, role, arrangement);
            let first = trial.run().map_err(|error| error.to_string())?.lines;
            if !first.iter().any(|line| line == "near: exit 0" || line.starts_with("near: killed"))
                || first.iter().any(|line| line.contains("PREPARATION"))
            {
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

/// The arrangements of two hosts that `words` begin with, or else `usual`; and the other words.
fn arrangements_of<'a, 'b>(words: &'a [&'b str], usual: &[Arrangement]) -> (Vec<Arrangement>, &'a [&'b str]) {
    let named = |word: &&str| Arrangement::named(word).filter(|arrangement| arrangement.has_two_hosts());
    let found: Vec<Arrangement> = words.iter().map_while(named).collect();
    let rest = &words[found.len()..];
    (if found.is_empty() { usual.to_vec() } else { found }, rest)
}

/// Near and far on two hosts, in some arrangements or each of them.
fn compare_across(words: &[&str]) -> Result<bool, String> {
    let across = Across::load()?;
    let (arrangements, names) = arrangements_of(words, &across.all());
    let shunt = programs::shunt()?;
    let deviations = Deviations::load()?;
    let judge = Judge::new(&shunt, &deviations);
    Ok(each(&across.among(chosen(names)?), &arrangements, |scenario, role, arrangement| {
        match judge.judge_across(scenario, role, arrangement).map_err(|error| error.to_string())? {
            Verdict::Differs(_) if arrangement.accelerates() && across.difference(&scenario.name).is_some() => Ok(()),
            Verdict::Differs(text) => Err(text),
            Verdict::NotAccelerated => Err("equal, but not accelerated\n".into()),
            _ => Ok(()),
        }
    }))
}

/// Everything between hosts, or what the files named say of it, into docs/SEMANTICS-HOSTS.md.
fn write_matrix_across(words: &[&str]) -> Result<bool, String> {
    let across = Across::load()?;
    let (mut arrangements, files) = arrangements_of(words, &across.told());
    let shunt = programs::shunt()?;
    let deviations = Deviations::load()?;
    let judge = Judge::new(&shunt, &deviations);
    let path = programs::workspace().join("docs/SEMANTICS-HOSTS.md");
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
        let known = arrangement.accelerates() && across.difference(&scenario.name).is_some();
        let result = match &verdict {
            Verdict::Differs(text) if !known => Err(text.clone()),
            Verdict::NotAccelerated => Err("equal, but not accelerated\n".into()),
            _ => Ok(()),
        };
        verdicts.lock().expect("no trial panics").insert((scenario.name.clone(), role, arrangement), verdict);
        result
    });
    let verdicts = verdicts.into_inner().expect("no trial panics");
    for scenario in scenarios.iter().filter(|scenario| across.difference(&scenario.name).is_some()) {
        if verdicts.iter().all(|((name, _, _), verdict)| *name != scenario.name || verdict.passes()) {
            println!("{} is said to differ, and did not", scenario.name);
        }
    }
    page.take(&across, &scenarios, &verdicts);
    std::fs::write(&path, page.render(&across, &all)).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}", path.display());
    Ok(passed)
}

fn compare(names: &[&str]) -> Result<bool, String> {
    compare_in(&chosen(names)?, &Arrangement::ALL, &Deviations::load()?)
}

/// What makes no calls of its own has to be the same under `--raw trap`; what does make them is compared there anyway.
fn compare_trapped(names: &[&str]) -> Result<bool, String> {
    let others = chosen(names)?.into_iter().filter(|scenario| !scenario.may_be_trapped());
    let scenarios: Vec<Scenario> = others.map(Scenario::trapped).collect();
    compare_in(&scenarios, &[Arrangement::Trapped], &Deviations::load()?.trapped())
}

fn compare_in(scenarios: &[Scenario], arrangements: &[Arrangement], deviations: &Deviations) -> Result<bool, String> {
    let shunt = programs::shunt()?;
    let judge = Judge::new(&shunt, deviations);
    Ok(each(scenarios, arrangements, |scenario, role, arrangement| {
        match judge.judge(scenario, role, arrangement).map_err(|error| error.to_string())? {
            Verdict::Differs(text) => Err(text),
            Verdict::NotAccelerated => Err("equal, but not accelerated\n".into()),
            _ => Ok(()),
        }
    }))
}

/// Sequences of `count` seeds. A difference that does not come again is told, and fails a soak only: it may be the machine.
fn random(count: &str, first: Option<&str>, arrangements: &[Arrangement]) -> Result<bool, String> {
    let shunt = programs::shunt()?;
    let count: u64 = count.parse().map_err(|_| format!("random: {count} is not a number of seeds, as in `random 100`"))?;
    let first: u64 =
        first.unwrap_or("1").parse().map_err(|_| "random: the first seed is a number, as in `random 100 1`".to_owned())?;
    let tally = Tally::default();
    each_seed(first, |seed| seed < first + count, |seed| tally.hunt(seed, arrangements, &shunt));
    Ok(tally.told())
}

/// The same with the sides on hosts of their own.
fn random_across(words: &[&str]) -> Result<bool, String> {
    match arrangements_of(words, &hunt::ACROSS) {
        (arrangements, [count, rest @ ..]) => random(count, rest.first().copied(), &arrangements),
        _ => Err("random --across: the number of seeds is missing, as in `random --across 100`".into()),
    }
}

/// What became of many seeds.
#[derive(Default)]
struct Tally {
    seeds: std::sync::atomic::AtomicU64,
    unstable: AtomicUsize,
    accelerated: AtomicUsize,
    operations: AtomicUsize,
    passing: AtomicUsize,
    failed: AtomicUsize,
}

impl Tally {
    fn hunt(&self, seed: u64, arrangements: &[Arrangement], shunt: &std::path::Path) {
        self.seeds.fetch_add(1, Ordering::Relaxed);
        match hunt::hunt(seed, arrangements, shunt) {
            Err(error) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                println!("--- seed {seed}: {error}");
            }
            Ok(hunt::Verdict::Equal(operations, accelerated)) => {
                self.operations.fetch_add(operations, Ordering::Relaxed);
                self.accelerated.fetch_add(usize::from(accelerated > 0), Ordering::Relaxed);
            }
            Ok(hunt::Verdict::Unstable(difference)) => {
                self.unstable.fetch_add(1, Ordering::Relaxed);
                if std::env::var_os("LABORATORY_VERBOSE").is_some() {
                    println!("--- seed {seed} is unstable\n{difference}");
                }
            }
            Ok(hunt::Verdict::Passing(arrangement, _, difference)) => {
                self.passing.fetch_add(1, Ordering::Relaxed);
                println!("--- seed {seed} {}, not every time: - the kernel, + shunt\n{difference}", arrangement.name());
            }
            Ok(hunt::Verdict::Differs(arrangement, operations, difference)) => {
                self.failed.fetch_add(1, Ordering::Relaxed);
                println!("--- seed {seed} {}: - the kernel, + shunt\n{difference}", arrangement.name());
                println!("# for sequences/NAME.txt:\n{}", hunt::annotated(&operations, arrangement).unwrap_or_default());
            }
        }
    }

    /// The scenarios whose calls come from a seed, in each arrangement.
    fn run_scenarios(&self, scenarios: &[Scenario], seed: u64, shunt: &std::path::Path) {
        for (scenario, role) in
            scenarios.iter().flat_map(|scenario| scenario.roles().into_iter().map(move |role| (scenario, role)))
        {
            for arrangement in Arrangement::ALL.into_iter().filter(|arrangement| arrangement.applies_to(scenario)) {
                let run = |trial: Trial| Trial { seed: Some(seed), ..trial }.run().map(|outcome| outcome.lines);
                let kernel = run(Trial::on_kernel(&scenario.name, role, arrangement));
                let under_shunt = run(Trial::under_shunt(&scenario.name, role, arrangement, shunt));
                let found = match (kernel, under_shunt) {
                    (Ok(expected), Ok(got)) => difference(&expected, &got),
                    (Err(error), _) | (_, Err(error)) => Some(error.to_string()),
                };
                if let Some(text) = found {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    let name = &scenario.name;
                    println!("--- LABORATORY_SEED={seed} {name} {} {}\n{text}", role.name(), arrangement.name());
                }
            }
        }
    }

    fn told(&self) -> bool {
        let count = |number: &AtomicUsize| number.load(Ordering::Relaxed);
        println!(
            "{} seeds: {} operations, {} seeds with accelerated connections, {} unstable on the kernel, {} differ, {} differ now and then",
            self.seeds.load(Ordering::Relaxed),
            count(&self.operations),
            count(&self.accelerated),
            count(&self.unstable),
            count(&self.failed),
            count(&self.passing)
        );
        count(&self.failed) == 0
    }
}

/// Does `work` for seed after seed while `more` says so, several at a time.
fn each_seed(first: u64, more: impl Fn(u64) -> bool + Sync, work: impl Fn(u64) + Sync) {
    let next = std::sync::atomic::AtomicU64::new(first);
    // Actors mostly wait for each other.
    let several = 6 * std::thread::available_parallelism().map_or(1, |cores| cores.get());
    std::thread::scope(|scope| {
        for _ in 0..several {
            scope.spawn(|| loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if !more(seed) {
                    return;
                }
                work(seed);
            });
        }
    });
}

/// A stored sequence, with what the kernel did, or the first difference in an arrangement.
fn replay(file: &str, arrangement: Option<&str>) -> Result<bool, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
    let operations = sequence::parse(&text)?;
    let told = |error: std::io::Error| error.to_string();
    let Some(name) = arrangement else {
        print!("{}", hunt::annotated(&operations, Arrangement::Both).map_err(told)?);
        return Ok(true);
    };
    let shunt = programs::shunt()?;
    let arrangement = Arrangement::named(name).ok_or_else(|| format!("there is no arrangement {name}; one of them is `both`"))?;
    let setting = hunt::Setting::under_shunt(arrangement, &shunt);
    let steps = hunt::record(&operations, setting).map_err(told)?;
    match hunt::perform(&operations, &steps, setting).map_err(told)? {
        hunt::Outcome::Same(accelerated) => {
            println!("equal, {}", if accelerated { "accelerated" } else { "through the kernel" });
            Ok(true)
        }
        hunt::Outcome::Differs(difference) => {
            println!("- the kernel, + shunt\n{difference}");
            Ok(false)
        }
    }
}

/// The scenarios whose name begins with `name` and whose calls come from a seed, for `count` seeds.
fn seeds(name: &str, count: &str, first: Option<&str>) -> Result<bool, String> {
    let shunt = programs::shunt()?;
    let number =
        |word: &str| word.parse::<u64>().map_err(|_| format!("seeds: {word} is not a number, as in `seeds dgram 100 1`"));
    let (count, first) = (number(count)?, first.map_or(Ok(1), number)?);
    let scenarios: Vec<Scenario> = chosen(&[name])?.into_iter().filter(|scenario| scenario.name.ends_with("_any")).collect();
    let tally = Tally::default();
    each_seed(
        first,
        |seed| seed < first + count,
        |seed| {
            tally.seeds.fetch_add(1, Ordering::Relaxed);
            tally.run_scenarios(&scenarios, seed, &shunt);
        },
    );
    Ok(tally.told())
}

/// Fresh seeds for as long as asked: sequences, and every eighth time the scenarios whose calls come from a seed. Races count as
/// failures here.
fn soak(minutes: &str, first: Option<&str>) -> Result<bool, String> {
    let shunt = programs::shunt()?;
    let minutes: f64 = minutes.parse().map_err(|_| format!("soak: {minutes} is not a number of minutes, as in `soak 5`"))?;
    let fresh = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_secs()) * 1000;
    let first: u64 = match first {
        Some(word) => word.parse().map_err(|_| "soak: the first seed is a number, as in `soak 5 1000`".to_owned())?,
        None => fresh,
    };
    println!("seeds from {first} on");
    let scenarios: Vec<Scenario> = catalogue::all().into_iter().filter(|scenario| scenario.name.ends_with("_any")).collect();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs_f64(minutes * 60.0);
    let tally = Tally::default();
    each_seed(
        first,
        |_| std::time::Instant::now() < deadline,
        |seed| {
            tally.hunt(seed, &hunt::ARRANGEMENTS, &shunt);
            if seed % 8 == 0 {
                tally.run_scenarios(&scenarios, seed, &shunt);
            }
        },
    );
    Ok(tally.told() && tally.passing.load(Ordering::Relaxed) == 0)
}

fn write_matrix() -> Result<bool, String> {
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
    let path = programs::workspace().join("docs/SEMANTICS-MATRIX.md");
    let text = matrix::render(&scenarios, &Rows::load()?, &verdicts.into_inner().expect("no trial panics"), &deviations);
    std::fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    println!("{}", path.display());
    Ok(passed)
}

/// The scenarios whose name begins with, or whose family or file is, one of `names`; all of them without names.
fn chosen(names: &[&str]) -> Result<Vec<Scenario>, String> {
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
fn each<W>(scenarios: &[Scenario], arrangements: &[Arrangement], work: W) -> bool
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
