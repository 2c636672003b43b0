//! `shunt hostd`: introduces the ends of connections between containers; `shunt hostd status`: whether one does, and what it has counted.
use std::ffi::OsString;
use std::path::Path;

use clap::ArgMatches;
use serde::Serialize;
use shunt_hostd::client;
use shunt_hostd::daemon::Daemon;
use shunt_hostd::reading::Networks;
use shunt_hostd::table::Limits;
use shunt_segment::meeting::Counts;

use crate::failure::Failure;
use crate::output::{print, print_json};

/// Where containers meet of themselves.
const USUAL: &str = "/run/shunt";

/// Runs it until a signal, or shows the one that runs.
pub fn hostd(matches: &ArgMatches) -> Result<u8, Failure> {
    if let Some(("status", matches)) = matches.subcommand() {
        return status(directory(matches), matches.get_flag("json"));
    }
    // The reader of what we say may end before us.
    // SAFETY: ignoring a signal runs no code of ours in a handler.
    unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    let number = |name: &str| matches.get_one::<u32>(name).map(|number| *number as usize);
    let usual = Limits::default();
    let all = number("claims").unwrap_or(usual.all);
    let of_user = number("per-user").unwrap_or(all.div_ceil(2));
    let of_network = number("per-network").unwrap_or(usual.of_network);
    let patience = number("patience").map_or(usual.patience, |milliseconds| milliseconds as u64 * 1_000_000);
    let limits = Limits { all, of_user, of_network, patience };
    let networks = if matches.get_flag("user-namespaces") { Networks::All } else { Networks::Own };
    let daemon = Daemon::start(directory(matches), limits, networks).map_err(Failure::of_environment)?;
    let kills = match daemon.is_in_one() {
        true => "",
        false => {
            " This kernel lets nobody have an io_uring with commands to sockets: SIGKILL in the microsecond in which a socket is \
                  read breaks its connection; stop it by SIGTERM."
        }
    };
    let _ = print(&format!("{}: introduces the ends of connections.{kills}\n", daemon.path().display()));
    match daemon.run().map_err(Failure::of_environment)? {}
}

fn directory(matches: &ArgMatches) -> &Path {
    matches.get_one::<OsString>("directory").map_or(Path::new(USUAL), Path::new)
}

#[derive(Serialize)]
struct Status<'a> {
    schema: &'static str,
    directory: &'a Path,
    user: u32,
    introduced: u64,
    waiting: u64,
    alone: u64,
    senseless: u64,
    refused: Refused,
    kill_safe: bool,
}

#[derive(Serialize)]
struct Refused {
    no_connection: u64,
    quota: u64,
    ambiguous: u64,
    forbidden: u64,
}

fn status(directory: &Path, json: bool) -> Result<u8, Failure> {
    let (user, counts) =
        client::ask(directory).map_err(|error| Failure::of_environment(format_args!("{}: {error}", directory.display())))?;
    if json {
        let Counts { introduced, waiting, alone, no_connection, quota, ambiguous, forbidden, senseless, in_one } = counts;
        let refused = Refused { no_connection, quota, ambiguous, forbidden };
        let kill_safe = in_one != 0;
        print_json(&Status {
            schema: "shunt.hostd/1",
            directory,
            user,
            introduced,
            waiting,
            alone,
            senseless,
            refused,
            kill_safe,
        })?;
    } else {
        print(&text(&counts))?;
    }
    Ok(0)
}

/// Counts for people.
pub fn text(counts: &Counts) -> String {
    format!(
        "{} connections introduced, {} ends wait, {} waited in vain; refused: {} no connection, {} beyond a quota, {} ambiguous, {} \
         forbidden; {} made no sense\n",
        counts.introduced,
        counts.waiting,
        counts.alone,
        counts.no_connection,
        counts.quota,
        counts.ambiguous,
        counts.forbidden,
        counts.senseless
    )
}
