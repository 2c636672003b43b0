//! The `shunt` command.
//!
//! It owns what a user sees: the command line, messages, exit statuses and reports. It refuses to know how connections
//! are accelerated; it puts the preload library into a program's environment, and reads what the library writes into
//! shared memory.
//!
//! There is no Rust `main`: the standard library's start-up ignores SIGPIPE and opens /dev/null in place of closed
//! standard descriptors, and `shunt run` must hand both to the program as it found them.
#![cfg_attr(not(test), no_main)]

mod agent;
mod capture;
mod command_line;
mod config;
mod cut;
mod doctor;
mod failure;
mod filter;
mod hostd;
mod inspect;
mod man;
mod metrics;
mod output;
mod report;
mod rpc;
mod run;
mod settings;
mod shared_link;
mod spmd;
mod spmd_view;
mod ss;
mod text_table;
mod this_command;
mod top;
mod unit;
mod why;

use std::process::ExitCode;

use clap::FromArgMatches;
use failure::Failure;

/// The entry point that the C start-up code calls. The arguments are read through [`std::env::args_os`], which glibc
/// fills before this runs.
// SAFETY: no other symbol of this program is named `main`, and the signature is the one C start-up code expects.
#[cfg_attr(not(test), no_mangle)]
pub extern "C" fn main(_count: libc::c_int, _arguments: *const *const libc::c_char) -> libc::c_int {
    match dispatch() {
        Ok(status) => libc::c_int::from(status),
        Err(failure) => {
            failure.report();
            libc::c_int::from(failure.status)
        }
    }
}

fn dispatch() -> Result<u8, Failure> {
    let matches = match command_line::command().try_get_matches_from(command_line::words(std::env::args_os())) {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version go to standard output with status 0, mistakes to standard error with status 2.
            let _ = error.print();
            return Ok(error.exit_code() as u8);
        }
    };
    match matches.subcommand() {
        Some(("run", matches)) => match run::run(matches)? {},
        Some(("config", matches)) => config::config(matches),
        Some(("spmd", matches)) => spmd::spmd(matches),
        Some(("spmd-agent", _)) => spmd::agent(),
        Some(("ss", matches)) => ss::ss(matches),
        Some(("why", matches)) => why::why(matches),
        Some(("top", matches)) => top::top(matches),
        Some(("metrics", matches)) => metrics::metrics(matches),
        Some(("doctor", matches)) => match matches.get_many::<String>("probe").map(|words| words.collect::<Vec<_>>()) {
            None => match matches.get_one::<String>("unit") {
                None => doctor::doctor(matches.get_flag("json")),
                Some(unit) => {
                    let root = matches.get_one::<std::ffi::OsString>("root").map_or("/".as_ref(), |root| root.as_os_str());
                    unit::doctor(unit, root.as_ref(), matches.get_flag("json"))
                }
            },
            Some(words) => match (words[0].as_str(), words.get(1).and_then(|port| port.parse().ok())) {
                ("ask", Some(port)) => doctor::probe::ask(port),
                _ => doctor::probe::serve(),
            },
        },
        Some(("capture", matches)) => capture::capture(matches),
        Some(("cut", matches)) => cut::cut(matches),
        Some(("report", matches)) => report::report(matches),
        Some(("enable", matches)) => unit::enable(matches),
        Some(("disable", matches)) => unit::disable(matches),
        Some(("status", matches)) => unit::status(matches),
        Some(("agent", matches)) => agent::agent(matches),
        Some(("hostd", matches)) => hostd::hostd(matches),
        Some(("rpc", matches)) => rpc::rpc(matches),
        Some(("bench", matches)) => bench(matches),
        Some(("man", matches)) => man::man(matches),
        Some(("completions", matches)) => completions(matches),
        _ => unreachable!("clap accepts the subcommands of command_line.rs alone"),
    }
}

/// `shunt completions`: what a shell offers behind `shunt`.
fn completions(matches: &clap::ArgMatches) -> Result<u8, Failure> {
    let shell: clap_complete::Shell = *matches.get_one("shell").expect("clap requires it");
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command_line::command(), "shunt", &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

/// `shunt bench`: the instrument of `shunt_bench`, as its own command would run it.
fn bench(matches: &clap::ArgMatches) -> Result<u8, Failure> {
    // The instrument was written for Rust's start-up, and expects errors instead of a signal from programs that died.
    // SAFETY: ignoring a signal runs no code of ours in a handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let code = shunt_bench::Bench::from_arg_matches(matches).map_err(Failure::of_usage)?.run();
    // An ExitCode tells its number to the Rust start-up alone; it can be compared.
    Ok((0..=u8::MAX).find(|status| ExitCode::from(*status) == code).unwrap_or(1))
}
