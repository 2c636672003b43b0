//! `shunt agent`: serves endpoints on an interface; `shunt agent status`: what agents do.
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use clap::ArgMatches;
use serde::Serialize;
use shunt_agent::ebpf::kernel::Attachment;
use shunt_agent::report::{self, Report, NO_PROGRAM};
use shunt_agent::{Agent, Configuration, End};

use crate::failure::Failure;
use crate::output::{print, print_json};
use crate::text_table::{bytes_text, text_table};

/// Runs the agent until a signal or the end of the interface, or shows what agents do.
pub fn agent(matches: &ArgMatches) -> Result<u8, Failure> {
    if let Some(("status", matches)) = matches.subcommand() {
        return status(matches.get_one("interface").map(String::as_str), matches.get_flag("json"));
    }
    // The reader of what we say may end before us.
    // SAFETY: ignoring a signal runs no code of ours in a handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    // Nor does a limit of file sizes end it: that is an error of the capture.
    // SAFETY: as above.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let configuration = configuration(matches)?;
    // Standard output may be the capture's.
    let say = match &configuration.capture {
        Some(path) if path.as_os_str() == "-" => |text: &str| eprint_line(text),
        _ => |text: &str| say(text),
    };
    let mut agent = Agent::start(configuration).map_err(Failure::of_environment)?;
    let report = agent.report(0);
    say(&started(&report));
    let end = agent.run().map_err(Failure::of_environment)?;
    let endpoints = agent.report(0).endpoints.len();
    drop(agent);
    let interface = report.interface;
    match end {
        End::Signal(number) => {
            say(&format!("{interface}: signal {number}; the program is detached, {endpoints} endpoints have lost their agent"));
            Ok(0)
        }
        End::Removed => Err(Failure::of_environment(format_args!("{interface} was removed, and its agent ends"))),
    }
}

fn eprint_line(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn say(text: &str) {
    let _ = print(&format!("{text}\n"));
}

fn started(report: &Report) -> String {
    let queues: Vec<String> = report.queues.iter().map(|queue| format!("{} ({})", queue.queue, queue.mode)).collect();
    let queues = match queues.as_slice() {
        [] => "has no queue for emulated endpoints".to_string(),
        queues => format!("serves emulated endpoints on queue {}", queues.join(", ")),
    };
    let lent = lent(report);
    let program = match report.attachment.as_str() {
        NO_PROGRAM => "will attach a program, with the first endpoint,".to_string(),
        place => format!("attached a program ({place})"),
    };
    let mut text = format!(
        "{}: {program} that takes UDP datagrams to port {} with a tag of an endpoint here; all other frames \
         pass.\n{}: {queues}, {lent}. Addresses: {}. Frames of up to {} bytes.",
        report.interface,
        report.port,
        report.interface,
        if report.addresses.is_empty() { "none yet".to_string() } else { report.addresses.join(", ") },
        report.largest_frame
    );
    if let Some(error) = &report.native_error {
        text.push_str(&format!("\n{}: the driver did not take the program ({error}), so frames cost more.", report.interface));
    }
    if report.connections.guard.is_some() {
        text.push_str(&match report.queues.len() + report.lent.len() {
            1 => format!("\n{}: takes TCP connections of processes that have queue 0 and ask for it (option inet).", report.interface),
            queues => format!(
                "\n{0}: no TCP connections can be taken: it has {queues} receive queues, and frames are steered where there is one: ethtool -L {0} combined 1",
                report.interface
            ),
        });
    }
    text
}

fn lent(report: &Report) -> String {
    match report.lent.as_slice() {
        [] => "lends none".to_string(),
        queues => format!("lends {}", queues.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}

fn configuration(matches: &ArgMatches) -> Result<Configuration, Failure> {
    let text = |name: &str| matches.get_one::<String>(name).map(String::as_str);
    let number = |name: &str| matches.get_one::<u32>(name).copied();
    let mut configuration = Configuration::new(text("interface").unwrap_or_default());
    if let Some(port) = matches.get_one("port") {
        configuration.port = *port;
    }
    configuration.lend = text("lend").map(queues).transpose()?;
    for user in matches.get_many::<String>("trust").into_iter().flatten() {
        configuration.trusted.push(user_number(user)?);
    }
    configuration.attachment = text("attach").map(|how| match how {
        "native" => Attachment::Native,
        _ => Attachment::Generic,
    });
    configuration.mode = text("mode").map(|mode| match mode {
        "copy" => shunt_agent::Mode::Copy,
        _ => shunt_agent::Mode::ZeroCopy,
    });
    let limits = &mut configuration.limits;
    limits.endpoints = number("endpoints").unwrap_or(limits.endpoints);
    limits.bytes = number("memory").map_or(limits.bytes, |mebibytes| u64::from(mebibytes) << 20);
    limits.tags = number("tags").unwrap_or(limits.tags);
    configuration.take = matches.get_flag("take");
    configuration.capture = matches.get_one::<OsString>("capture").map(PathBuf::from);
    configuration.capture_length = number("capture-length").unwrap_or(configuration.capture_length);
    configuration.despite_rules = matches.get_flag("despite-rules");
    configuration.recovers = text("recovery").map_or(configuration.recovers, |how| how == "own");
    configuration.spin = number("spin").unwrap_or(configuration.spin);
    Ok(configuration)
}

/// `none`, `1,2`, `1-3`.
fn queues(text: &str) -> Result<Vec<u32>, Failure> {
    if text == "none" {
        return Ok(Vec::new());
    }
    let wrong = || Failure::of_usage(format_args!("--lend {text}: queues are numbers and ranges, as in 1,2 or 1-3, or none"));
    let mut all = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let parse = |number: &str| number.parse::<u32>().ok().filter(|number| *number < 4096).ok_or_else(wrong);
        let range = parse(first)?..=parse(last)?;
        if range.is_empty() {
            return Err(Failure::of_usage(format_args!("--lend {text}: {part} runs backwards")));
        }
        all.extend(range);
    }
    Ok(all.into_iter().collect())
}

fn user_number(user: &str) -> Result<u32, Failure> {
    if let Ok(number) = user.parse() {
        return Ok(number);
    }
    let unknown = || Failure::of_usage(format_args!("--trust {user}: there is no such user"));
    let name = std::ffi::CString::new(user).map_err(|_| unknown())?;
    // SAFETY: a string that ends with a zero byte; the answer is read before the next call.
    unsafe { libc::getpwnam(name.as_ptr()).as_ref() }.map(|entry| entry.pw_uid).ok_or_else(unknown)
}

#[derive(Serialize)]
struct Status {
    agents: Vec<Report>,
}

fn status(interface: Option<&str>, json: bool) -> Result<u8, Failure> {
    let agents = match interface {
        Some(interface) => vec![report::ask(interface).map_err(Failure::of_environment)?],
        // One that ended since is none.
        None => report::interfaces().iter().filter_map(|interface| report::ask(interface).ok()).collect(),
    };
    if json {
        print_json(&Status { agents })?;
    } else if agents.is_empty() {
        print("no agent in this network namespace\n")?;
    } else {
        print(&agents.iter().map(text).collect::<Vec<_>>().join("\n"))?;
    }
    Ok(0)
}

/// The report of one agent for people.
pub fn text(report: &Report) -> String {
    let mut text = format!(
        "{}: process {}, {}s, UDP port {}, program {}, frames up to {} bytes; {}\n",
        report.interface,
        report.pid,
        report.seconds,
        report.port,
        report.attachment,
        report.largest_frame,
        lent(report)
    );
    if let Some(error) = &report.native_error {
        text.push_str(&format!("  the driver did not take the program: {error}\n"));
    }
    for queue in &report.queues {
        text.push_str(&format!(
            "  queue {} ({}): {} frames sent, {} received, {} overrun\n",
            queue.queue, queue.mode, queue.sent, queue.received, queue.overrun
        ));
    }
    let counts = |counts: &std::collections::BTreeMap<String, u64>| {
        let all: Vec<String> =
            counts.iter().filter(|(_, count)| **count > 0).map(|(name, count)| format!("{name} {count}")).collect();
        if all.is_empty() {
            "none".to_string()
        } else {
            all.join(", ")
        }
    };
    let dropped = counts(&report.dropped);
    text.push_str(&format!(
        "  program: {}; datagrams by the kernel {}; dropped: {dropped}\n",
        counts(&report.sorted),
        report.astray
    ));
    let connections = &report.connections;
    if connections.guard.is_some() {
        text.push_str(&format!(
            "  connections: {} taken, {} given back, {} lost",
            connections.taken, connections.given_back, connections.lost
        ));
        text.push_str(&connections.refused.as_ref().map_or("\n".to_string(), |refused| format!(" ({refused})\n")));
    }
    if let Some(capture) = &report.capture {
        let state = capture.failure.as_ref().map_or(String::new(), |failure| format!("; it has ended: {failure}"));
        text.push_str(&format!("  capture {}: {} frames, {} missing{state}\n", capture.file, capture.frames, capture.lost));
    }
    for (user, (endpoints, bytes)) in &report.users {
        text.push_str(&format!("  user {user}: {endpoints} endpoints, {}\n", bytes_text(*bytes)));
    }
    if !report.endpoints.is_empty() {
        text.push_str(&text_table(
            &["  PID", "USER", "KIND", "QUEUE", "ADDRESS", "SENT", "RECEIVED", "UNSENT", "DROPPED", "TAG", "STATE", "PEER"],
            &report.endpoints.iter().flat_map(rows).collect::<Vec<_>>(),
        ));
    }
    text
}

/// A row for each channel, the first of which tells of the endpoint.
fn rows(endpoint: &report::Endpoint) -> Vec<Vec<String>> {
    let dropped: u64 = endpoint.dropped.values().sum();
    let head = vec![
        format!("  {}", endpoint.pid),
        endpoint.user.to_string(),
        endpoint.kind.clone(),
        format!("{} ({})", endpoint.queue, endpoint.mode),
        endpoint.address.clone(),
        endpoint.sent.to_string(),
        endpoint.received.to_string(),
        endpoint.unsent.to_string(),
        dropped.to_string(),
    ];
    let none = [String::from("-"), String::from("-"), String::from("-")];
    let channels: Vec<[String; 3]> =
        endpoint.channels.iter().map(|channel| [channel.tag.clone(), channel.state.clone(), channel.peer.clone()]).collect();
    let channels = if channels.is_empty() { vec![none] } else { channels };
    let blank = vec![String::new(); head.len()];
    let lines = channels.into_iter().enumerate();
    lines.map(|(line, channel)| [if line == 0 { head.clone() } else { blank.clone() }, channel.to_vec()].concat()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_are_numbers_and_ranges() {
        assert!(queues("none").unwrap().is_empty());
        assert_eq!(queues("2").unwrap(), vec![2u32]);
        assert_eq!(queues("3,1-2,2").unwrap(), vec![1u32, 2, 3]);
        for wrong in ["", "x", "1-", "-1", "1,,2", "99999", "3-1"] {
            assert_eq!(queues(wrong).unwrap_err().status, 2, "{wrong}");
        }
    }
}
