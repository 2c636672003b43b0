//! `shunt spmd`: starts the ranks of a job. What a job is belongs to `shunt-pgas`.
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::ErrorKind;

use crate::failure::Failure;
use shunt_pgas::launch::{self, Job};
use shunt_pgas::Ended;

/// Runs a job, and says why it ended if not all was well.
///
/// # Errors
/// If a size is none, or if the program or the job's memory cannot be had.
pub fn spmd(matches: &clap::ArgMatches) -> Result<u8, Failure> {
    if let Some(pid) = matches.get_one::<u32>("view") {
        return crate::spmd_view::view(*pid, matches.get_one::<u64>("interval").copied());
    }
    let program: Vec<OsString> = matches.get_many("program").expect("clap requires it").cloned().collect();
    let heap = match matches.get_one::<String>("heap") {
        Some(text) => shunt_pgas::bytes(text)
            .filter(|size| *size > 0)
            .ok_or_else(|| Failure::of_usage(format!("--heap {text} is no size; sizes are written as 64M or 2G")))?,
        None => shunt_pgas::heap_from_environment().map_err(Failure::of_usage)?,
    };
    let asked = matches.get_one::<u16>("ranks").map(|ranks| usize::from(*ranks));
    let hosts = matches.get_one::<String>("hosts").map(|text| launch::hosts::hosts(text, asked).map_err(Failure::of_usage));
    let hosts = hosts.transpose()?;
    if matches.get_flag("check") {
        // For the ranks, and the agents that start some.
        std::env::set_var(shunt_pgas::CHECK, "1");
    }
    let ranks = match &hosts {
        Some(hosts) => hosts.iter().map(|host| host.ranks).sum(),
        None => asked.unwrap_or_else(|| launch::processors().len()),
    };
    let job = Job { ranks, heap, program, label: matches.get_flag("label"), bind: matches.get_flag("bind") };
    let cannot = |error: std::io::Error| {
        let message = format!("cannot run {} ranks of {}: {error}", job.ranks, job.program[0].to_string_lossy());
        match error.kind() {
            ErrorKind::NotFound => Failure::not_found(message),
            ErrorKind::PermissionDenied => Failure::not_executable(message),
            _ => Failure::of_environment(message),
        }
    };
    let trace = matches.get_one::<OsString>("trace");
    if let Some(hosts) = hosts {
        let rsh: &String = matches.get_one("rsh").expect("has a default");
        let device: &String = matches.get_one("device").expect("has a default");
        let device = device.parse().map_err(Failure::of_usage)?;
        let agent = [std::env::current_exe().map_err(cannot)?.into_os_string(), "spmd-agent".into()];
        let outcome = match trace {
            None => launch::remote::run(&job, &hosts, device, rsh, &agent).map_err(cannot)?,
            Some(path) => {
                let run = |file| launch::remote::run_traced(&job, &hosts, device, rsh, &agent, file);
                let (mut outcome, worst) = traced(path, run)?.map_err(cannot)?;
                outcome.status = outcome.status.max(worst);
                outcome
            }
        };
        return match outcome.why {
            None => Ok(outcome.status as u8),
            Some(message) => Err(Failure { message, status: outcome.status as u8 }),
        };
    }
    let outcome = match trace {
        None => launch::run(&job).map_err(cannot)?,
        Some(path) => {
            let (mut outcome, worst) = traced(path, |file| launch::run_traced(&job, file))?.map_err(cannot)?;
            // The job's own trouble is the more important.
            outcome.status = outcome.status.max(worst);
            outcome
        }
    };
    match outcome.cause {
        // The program's own wish needs no words.
        None | Some((Ended::Asked { .. }, _)) => Ok(outcome.status as u8),
        Some((why @ Ended::Launcher { .. }, _)) => Err(Failure { message: format!("{why}"), status: outcome.status as u8 }),
        Some((why, process)) => {
            Err(Failure { message: format!("{why} (process {process}); the job is over"), status: outcome.status as u8 })
        }
    }
}

/// How a traced job ended, and the least status if its file could not be written.
type Traced<T> = std::io::Result<(T, i32)>;

/// Runs a job whose ranks are traced; the file is there before they start.
fn traced<T>(path: &OsStr, run: impl FnOnce(File) -> std::io::Result<(T, std::io::Result<()>)>) -> Result<Traced<T>, Failure> {
    let cannot = |error: std::io::Error| {
        let path = path.to_string_lossy();
        Failure::of_environment(format!(
            "--trace {path}: cannot be written: {error}; name a file in a directory that you may write"
        ))
    };
    let file = File::create(path).map_err(cannot)?;
    Ok(run(file).map(|(outcome, written)| match written {
        Ok(()) => (outcome, 0),
        Err(error) => {
            cannot(error).report();
            (outcome, 1)
        }
    }))
}

/// A host's part of a job, for the launcher at the other end of standard input and output.
///
/// # Errors
/// If there is no launcher there.
pub fn agent() -> Result<u8, Failure> {
    launch::agent::serve().map(|()| 0).map_err(|error| Failure::of_environment(format!("spmd-agent: {error}")))
}
