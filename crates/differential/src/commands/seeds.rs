//! Sequences and scenarios that are drawn from seeds.

use super::jobs::{arrangements_of, chosen};
use shunt_differential::compare::difference;
use shunt_differential::random::{hunt, sequence};
use shunt_differential::trial::Trial;
use shunt_differential::{catalogue, programs, Arrangement, Scenario};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Sequences of `count` seeds. A difference that does not come again is told, and fails a soak only: it may be the machine.
pub fn random(count: &str, first: Option<&str>, arrangements: &[Arrangement]) -> Result<bool, String> {
    let shunt = programs::shunt()?;
    let count: u64 = count.parse().map_err(|_| format!("random: {count} is not a number of seeds, as in `random 100`"))?;
    let first: u64 =
        first.unwrap_or("1").parse().map_err(|_| "random: the first seed is a number, as in `random 100 1`".to_owned())?;
    let tally = Tally::default();
    each_seed(first, |seed| seed < first + count, |seed| tally.hunt(seed, arrangements, &shunt));
    Ok(tally.told())
}

/// The same with the sides on hosts of their own.
pub fn random_across(words: &[&str]) -> Result<bool, String> {
    match arrangements_of(words, &hunt::ACROSS) {
        (arrangements, [count, rest @ ..]) => random(count, rest.first().copied(), &arrangements),
        _ => Err("random --across: the number of seeds is missing, as in `random --across 100`".into()),
    }
}

/// The scenarios whose name begins with `name` and whose calls come from a seed, for `count` seeds.
pub fn seeds(name: &str, count: &str, first: Option<&str>) -> Result<bool, String> {
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
pub fn soak(minutes: &str, first: Option<&str>) -> Result<bool, String> {
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

/// A stored sequence, with what the kernel did, or the first difference in an arrangement.
pub fn replay(file: &str, arrangement: Option<&str>) -> Result<bool, String> {
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
                let under_shunt = run(Trial::under_shunt(scenario, role, arrangement, shunt));
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
