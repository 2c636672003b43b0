//! `shunt spmd --view`: what the ranks of a job wait for, from the memory that one of them has open.
use crate::failure::Failure;
use crate::inspect::{jobs, processes};
use crate::output::print;
use crate::text_table::text_table;
use shunt_pgas::view::Row;
use std::time::Duration;

/// Prints a line for each rank; with an interval again and again, until there is no job any more.
///
/// # Errors
/// If neither the process nor one that it has started is a rank that may be looked at.
pub fn view(pid: u32, interval: Option<u64>) -> Result<u8, Failure> {
    show(pid)?;
    while let Some(seconds) = interval {
        std::thread::sleep(Duration::from_secs(seconds));
        if show(pid).is_err() {
            break;
        }
    }
    Ok(0)
}

fn show(pid: u32) -> Result<(), Failure> {
    if !processes::exists(pid) {
        return Err(Failure::of_environment(format!("there is no process {pid}")));
    }
    let mut family = vec![pid];
    let mut at = 0;
    // The list of a hostile family ends, too.
    while at < family.len() && family.len() < 4096 {
        let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", family[at])).unwrap_or_default();
        family.extend(children.split_whitespace().filter_map(|number| number.parse::<u32>().ok()));
        at += 1;
    }
    let job = family.iter().find_map(|pid| jobs::of(*pid)).ok_or_else(|| {
        Failure::of_environment(format!(
            "process {pid} is no rank of a job that may be looked at, and has not started one; a job is started by: shunt spmd -- PROGRAM"
        ))
    })?;
    let line = |(rank, row): (usize, &Row)| {
        let duration = jobs::waited(row).map_or("-".into(), |seconds| format!("{seconds:.3} s"));
        let process = if row.process == 0 { "-".into() } else { row.process.to_string() };
        vec![rank.to_string(), process, row.state().to_owned(), duration, row.wait.to_string()]
    };
    let lines: Vec<_> = job.rows.iter().enumerate().map(line).collect();
    print(&text_table(&["RANK", "PID", "STATE", "SINCE", "WAITS FOR"], &lines))
}
