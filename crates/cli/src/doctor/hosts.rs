//! Streams to other hosts: what there is, and what is missing for them.

use std::ffi::OsStr;
use std::net::UdpSocket;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use shunt_config::{Hosts, Near, Options};

use super::Check;
use crate::inspect::stations;
use crate::inspect::{connection, processes};

/// The UDP port at which a host is asked for streams.
const GATE: u16 = shunt_station::GATE;

/// Agents, the option, the gate's port, and the streams of this moment.
pub fn all() -> Vec<Check> {
    vec![agents(), area(), streams(), hand_overs(), near()]
}

/// Other network namespaces of this host: the directory, and hostd in it.
fn near() -> Check {
    let name = "other containers";
    let value = std::env::var_os("SHUNT_NEAR").unwrap_or_else(|| "auto".into());
    let Ok(near) = Near::parse(value.as_encoded_bytes()) else {
        return Check::limited(
            name,
            format_args!("SHUNT_NEAR={}", value.display()),
            "programs run without shunt until it can be read",
        );
    };
    let Some(bytes) = near.directory() else {
        return Check::ok(name, "switched off (--near off)", "connections to other network namespaces are the kernel's");
    };
    let directory = Path::new(OsStr::from_bytes(bytes));
    if !directory.is_dir() {
        return Check::ok(
            name,
            format_args!("no directory {}", directory.display()),
            "connections to other network namespaces are the kernel's, unless one is mounted into both",
        );
    }
    let not_by_hostd = "programs that share it meet; connections with translated addresses are the kernel's";
    match shunt_hostd::client::ask(directory) {
        Ok((user, _)) if user != 0 && user != rustix::process::geteuid().as_raw() => Check::limited(
            name,
            format_args!("user {user} listens as hostd in {}", directory.display()),
            "it is neither root's nor yours, so programs leave it alone, and connections with translated addresses are the kernel's",
        ),
        Ok((_, counts)) => Check::ok(
            name,
            format_args!("{} has hostd, which has introduced {}", directory.display(), counted(counts.introduced as usize, "connection")),
            "programs that share it meet, also where addresses are translated",
        ),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            Check::ok(name, format_args!("{}, without hostd", directory.display()), not_by_hostd)
        }
        Err(error) => {
            Check::limited(name, format_args!("hostd of {} does not answer: {error}", directory.display()), not_by_hostd)
        }
    }
}

/// Connections that an agent takes from the kernel: one is taken and given back, in a network namespace of its own.
fn hand_overs() -> Check {
    let name = "hand-over";
    match shunt_agent::connections::try_out() {
        Ok(()) => Check::ok(
            name,
            "a connection was taken from the kernel and given back",
            "`shunt agent --take` can do so for programs under `shunt run --inet PORTS`",
        ),
        Err((step, error)) => Check::ok(
            name,
            format_args!("not for this user, or not in this kernel: cannot {step} ({error})"),
            "an agent of root's may; connections that cannot be taken stay the kernel's",
        ),
    }
}

fn agents() -> Check {
    let name = "agents";
    let interfaces = shunt_agent::report::interfaces();
    if interfaces.is_empty() {
        return Check::ok(
            name,
            "none in this network namespace",
            "connections to other hosts are the kernel's; `shunt agent --interface NAME` on both changes that",
        );
    }
    let asked: Vec<_> = interfaces.iter().map(|interface| (interface, shunt_agent::report::ask(interface))).collect();
    if let Some((interface, Err(error))) = asked.iter().find(|(_, answer)| answer.is_err()) {
        return Check::limited(
            name,
            format_args!("the agent of {interface} does not answer: {error}"),
            "connections by that interface may stay with the kernel; start it again",
        );
    }
    let told: Vec<String> = asked
        .iter()
        .filter_map(|(interface, answer)| answer.as_ref().ok().map(|report| (interface, report)))
        .map(|(interface, report)| {
            let dropped: u64 = report.dropped.values().sum();
            format!(
                "{interface}: program {}, since {} s, {} endpoints, {dropped} frames for nobody",
                report.attachment,
                report.seconds,
                report.endpoints.len()
            )
        })
        .collect();
    Check::ok(
        name,
        told.join("; "),
        "programs that start under shunt reach others under shunt on those networks past the kernel's TCP",
    )
}

fn area() -> Check {
    let name = "other hosts";
    let environment: Vec<(String, Vec<u8>)> =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_encoded_bytes()))).collect();
    let found = |wanted: &str| environment.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.as_slice());
    match Options::from_environment(found).map(|options| options.hosts) {
        Ok(Hosts::None) => return Check::ok(name, "switched off (--hosts none)", "connections to other hosts are the kernel's"),
        Err(_) => {
            return Check::limited(name, "the variables of shunt cannot be read", "programs run without shunt until they can")
        }
        Ok(Hosts::Auto | Hosts::Listed(_)) => {}
    }
    // A process of another user that has it keeps ours away; our own keepers share it.
    match UdpSocket::bind(("0.0.0.0", GATE)) {
        Ok(_) => Check::ok(name, format_args!("UDP port {GATE} is free"), "listeners can be asked for streams by other hosts"),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Check::ok(
            name,
            format_args!("UDP port {GATE} is in use"),
            "by keepers of a program under shunt; if another user's, yours are not found",
        ),
        Err(error) => Check::limited(name, format_args!("UDP port {GATE}: {error}"), "other hosts cannot ask for streams here"),
    }
}

fn counted(count: usize, thing: &str) -> String {
    format!("{count} {thing}{}", if count == 1 { "" } else { "s" })
}

fn streams() -> Check {
    let name = "streams";
    // Other network namespaces are other hosts.
    let here = processes::network_namespace(std::process::id());
    let mut pids = processes::all();
    pids.retain(|&pid| processes::network_namespace(pid) == here);
    let stations = stations::of_processes(&pids, &mut connection::of_processes(&pids));
    if stations.count == 0 {
        return Check::ok(name, "no program in this network namespace has streams to other hosts now", "`shunt ss` shows them");
    }
    let fast = stations.streams.iter().filter(|stream| stream.way == "fast").count();
    let found = format!(
        "{} with {}, {fast} of them fast; {} lost their path so far",
        counted(stations.count, "station"),
        counted(stations.streams.len(), "stream"),
        stations.lost
    );
    match stations.lost {
        0 => Check::ok(name, found, "`shunt ss` shows them"),
        _ => Check::limited(name, found, "those went on by TCP: datagrams between the hosts were not let through for seconds"),
    }
}
