//! `shunt top`: what goes on now, by connection, by process and by reason, once each interval.
//!
//! Programs do nothing for it: what they keep for themselves is read from outside ([`crate::inspect`]), and rates are differences of two such
//! looks. A terminal gets a view of its own ([`screen`]), a pipe gets tables or a line of JSON each time ([`batch`]).
mod batch;
mod rates;
mod sample;
mod screen;
mod view;

use std::time::Duration;

use clap::{value_parser, Arg, ArgAction, ArgMatches, Command};

use crate::failure::Failure;
use crate::filter::Filter;
use crate::inspect::processes;
use view::{Sort, View};

/// As clap sees it.
pub fn command() -> Command {
    Command::new("top")
        .about("Show what your connections and processes do now (those of all users, for root): rates, wake-ups, waiting, fall-backs")
        .arg(
            Arg::new("batch")
                .short('b')
                .long("batch")
                .help("Print tables each time, rather than take the terminal")
                .action(ArgAction::SetTrue),
        )
        .arg(Arg::new("json").long("json").help("Print a line of JSON each time (schema shunt.top/1)").action(ArgAction::SetTrue))
        .arg(
            Arg::new("interval")
                .short('d')
                .long("interval")
                .value_name("SECONDS")
                .default_value("1")
                .help("Time between two looks")
                .value_parser(interval),
        )
        .arg(
            Arg::new("count")
                .short('n')
                .long("count")
                .value_name("TIMES")
                .help("End after so many [default: never]")
                .value_parser(value_parser!(u64).range(1..)),
        )
        .arg(
            Arg::new("sort")
                .long("sort")
                .value_name("BY")
                .default_value(Sort::Rate.word())
                .help("The largest first")
                .value_parser(Sort::ALL.map(Sort::word)),
        )
        .arg(
            Arg::new("filter")
                .value_name("FILTER")
                .help("Show only these, as shunt ss takes it: dport = :6379 and not state closing")
                .num_args(0..),
        )
        .after_help(
            "Keys: q ends; Tab, 1, 2, 3, 4 choose connections, processes, fall-backs, ranks; s sorts by the next column, r reverses; / takes a filter;\n\
             space stops and goes on; + and - change the interval; arrows, PgUp, PgDn, Home, End move; h shows all keys.\n\n\
             RATE is of bytes sent. WAKE-UPS counts bells: one wakes a sleeper at the other end. CPU, SPUN and SLEPT are shares of one\n\
             processor's time, of all threads together: running, looking for bytes before a sleep, asleep in a wait on connections. Waits\n\
             that end within the first looks are in CPU alone. Of each process, FALL-BACKS counts connections that the kernel carries\n\
             instead, since it started. RANKS are of programs that share memory (shunt spmd): what each waits for, since when, and which\n\
             rank has the lock or is missing in the barrier.\n\
             Exit status: 2 wrong option or filter.",
        )
}

/// Seconds, as people write them.
fn interval(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "seconds are expected, as in 0.5".to_owned())?;
    if !(0.1..=3600.0).contains(&seconds) {
        return Err("0.1 to 3600 seconds are allowed".to_owned());
    }
    Ok(Duration::from_secs_f64(seconds))
}

/// Shows it until it is ended.
///
/// # Errors
/// If the filter has a mistake, processes are not shown here, or there is no terminal and no other way was asked for.
pub fn top(matches: &ArgMatches) -> Result<u8, Failure> {
    let words: Vec<String> = matches.get_many::<String>("filter").into_iter().flatten().cloned().collect();
    let sort: &String = matches.get_one("sort").expect("it has a default");
    let view = View {
        filter: Filter::parse(&words)?,
        filter_text: words.join(" "),
        sort: Sort::by_word(sort),
        interval: *matches.get_one("interval").expect("it has a default"),
        ..View::default()
    };
    processes::are_shown()?;
    let count = matches.get_one::<u64>("count").copied();
    let json = matches.get_flag("json");
    if json || matches.get_flag("batch") {
        return batch::run(&view, json, count);
    }
    if !rustix::termios::isatty(std::io::stdout()) {
        return Err(Failure::of_usage("top: standard output is no terminal; into a pipe or file: shunt top -b, or --json"));
    }
    screen::run(view, count)
}
