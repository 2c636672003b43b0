//! `shunt rpc trace`: what a server tells of its calls, with names.
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::{Duration, Instant};

use clap::ArgMatches;
use serde_json::json;
use shunt_rpc::trace::{Histogram, Record, Subject, CALLS, SUMS};
use shunt_rpc::{look, names, watch, Address, Listed};

use crate::failure::Failure;
use crate::inspect::processes;
use crate::output::{print, print_json};
use crate::text_table::text_table;

/// The server of a process.
fn server_of(pid: u32) -> Result<Address, Failure> {
    let names = names().map_err(|error| Failure::of_environment(format_args!("/proc/net/unix: {error}")))?;
    let addresses = names.iter().filter_map(|name| name.parse::<Address>().ok());
    let of =
        |address: &Address| look(address, &super::options()).is_ok_and(|seen| seen.process.is_some_and(|one| one.pid == pid));
    let found: Vec<Address> = addresses.filter(of).collect();
    match &found[..] {
        [address] => Ok(address.clone()),
        [] => Err(Failure::of_environment(format_args!("process {pid} has no server that may be seen: shunt rpc list"))),
        many => {
            let many: Vec<String> = many.iter().map(Address::to_string).collect();
            Err(Failure::of_usage(format_args!("process {pid} has several servers: {}", many.join(", "))))
        }
    }
}

/// Program, version and procedure by their names.
fn name(interfaces: &[Listed], subject: &Subject) -> String {
    let Subject { program, version, procedure, .. } = *subject;
    let interface = interfaces.iter().find(|one| (one.program, one.version) == (program, version));
    let known = interface.and_then(|one| one.procedures.iter().find(|one| one.0 == u32::from(procedure)));
    let program = interface.map_or_else(|| format!("{program:#x}"), |one| one.name.clone());
    let procedure = known.map_or_else(|| procedure.to_string(), |(_, name, _)| name.clone());
    processes::printable(format!("{program}.{version}.{procedure}").as_bytes())
}

fn duration(nanoseconds: u64) -> String {
    match nanoseconds {
        0..10_000 => format!("{nanoseconds}ns"),
        10_000..10_000_000 => format!("{:.1}us", nanoseconds as f64 / 1e3),
        _ => format!("{:.1}ms", nanoseconds as f64 / 1e6),
    }
}

/// Prints calls as they come, or sums at the end.
pub fn trace(matches: &ArgMatches) -> Result<u8, Failure> {
    let word = matches.get_one::<String>("server").expect("clap requires it");
    let address = match word.parse::<u32>() {
        Ok(pid) => server_of(pid)?,
        Err(_) => super::address(word)?,
    };
    let (sums, as_json) = (matches.get_flag("histogram"), matches.get_flag("json"));
    let interfaces = look(&address, &super::options()).map_err(Failure::of_environment)?.interfaces;
    let mut watch = watch(&address, &super::options(), if sums { SUMS } else { CALLS }).map_err(Failure::of_environment)?;
    let seconds = matches.get_one::<u64>("seconds").copied().or(sums.then_some(10));
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut left = matches.get_one::<u64>("calls").copied().unwrap_or(u64::MAX);
    let (mut all, mut missing, mut first) = (BTreeMap::<Subject, Histogram>::new(), 0, None);
    while left > 0 {
        let wait = until.map_or(Duration::from_secs(60), |until| until.saturating_duration_since(Instant::now()));
        match watch.next(wait) {
            Ok(Some(Record::Call { subject, thread, begun, took, caller, arguments, results })) => {
                left -= 1;
                let since = begun.saturating_sub(*first.get_or_insert(begun)) as f64 / 1e9;
                let name = name(&interfaces, &subject);
                let outcome = subject.outcome;
                if as_json {
                    let line = json!({"seconds": since, "thread": thread, "caller": caller, "procedure": name, "argument_bytes": arguments,
                        "result_bytes": results, "nanoseconds": took, "outcome": outcome.to_string()});
                    print(&format!("{line}\n"))?;
                } else {
                    let took = duration(took);
                    print(&format!("{since:11.6}  {caller:>7}  {name}  {arguments}+{results} bytes  {took}  {outcome}\n"))?;
                }
            }
            Ok(Some(Record::Sum { subject, bucket, calls, took })) => {
                left = left.saturating_sub(calls);
                all.entry(subject).or_default().add(bucket, calls, took);
            }
            Ok(Some(Record::Missing { records })) => {
                missing += records;
                if !sums {
                    crate::failure::warn(format_args!("{records} calls are missing here"));
                }
            }
            Ok(None) => break,
            Err(error) if error.kind() == ErrorKind::WouldBlock && until.is_none_or(|until| Instant::now() < until) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
            Err(error) => return Err(Failure::of_environment(format_args!("{address}: {error}"))),
        }
    }
    if !sums {
        return Ok(0);
    }
    if missing > 0 {
        crate::failure::warn(format_args!("{missing} sums are missing: the figures are too low"));
    }
    let mean = |sum: &Histogram| sum.took / sum.calls.max(1);
    if as_json {
        let one = |(subject, sum): (&Subject, &Histogram)| {
            let buckets: Vec<_> = sum
                .iter()
                .map(|(bucket, calls)| json!({"least_nanoseconds": Histogram::least(bucket), "calls": calls}))
                .collect();
            json!({"procedure": name(&interfaces, subject), "outcome": subject.outcome.to_string(), "calls": sum.calls,
                "mean_nanoseconds": mean(sum), "buckets": buckets})
        };
        print_json(&all.iter().map(one).collect::<Vec<_>>())?;
        return Ok(0);
    }
    let heading = ["PROCEDURE", "OUTCOME", "CALLS", "MEAN", "P50", "P90", "P99", "P99.9", "LONGEST"];
    let row = |(subject, sum): (&Subject, &Histogram)| {
        let mut row = vec![name(&interfaces, subject), subject.outcome.to_string(), sum.calls.to_string(), duration(mean(sum))];
        row.extend([0.5, 0.9, 0.99, 0.999, 1.0].map(|part| duration(sum.quantile(part))));
        row
    };
    print(&text_table(&heading, &all.iter().map(row).collect::<Vec<_>>()))?;
    Ok(0)
}
