//! `shunt rpc list`.
use clap::ArgMatches;
use serde::Serialize;
use shunt_rpc::{look, names, onc::rpcbind, Address, Listed, Place, Seen};
use std::time::Duration;

use crate::failure::Failure;
use crate::inspect::processes;
use crate::output::{print, print_json};

#[derive(Serialize)]
struct Server {
    address: String,
    pid: Option<u32>,
    program: Option<String>,
    user: Option<u32>,
    /// Why it tells nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    silent: Option<String>,
    interfaces: Vec<Interface>,
}

#[derive(Serialize)]
struct Interface {
    name: String,
    program: u32,
    version: u32,
    procedures: Vec<Procedure>,
}

#[derive(Serialize)]
struct Procedure {
    number: u32,
    name: String,
    definition: String,
}

impl Interface {
    fn of(listed: Listed) -> Interface {
        let procedures = listed.procedures.into_iter();
        let procedures = procedures.map(|(number, name, definition)| Procedure { number, name, definition }).collect();
        Interface { name: listed.name, program: listed.program, version: listed.version, procedures }
    }
}

impl Server {
    fn at(address: &Address) -> Server {
        let address_text = address.to_string();
        match look(address, &super::options()) {
            Ok(Seen { process, interfaces }) => Server {
                address: address_text,
                pid: process.map(|process| process.pid),
                program: process.and_then(|process| processes::program(process.pid)),
                user: process.map(|process| process.uid),
                silent: None,
                interfaces: interfaces.into_iter().map(Interface::of).collect(),
            },
            Err(error) => {
                let (pid, program, user) = (None, None, None);
                Server { address: address_text, pid, program, user, silent: Some(error.to_string()), interfaces: vec![] }
            }
        }
    }

    fn text(&self) -> String {
        let process = match (self.pid, self.user) {
            (Some(pid), Some(user)) => format!("  {}/{pid}, user {user}", self.program.as_deref().unwrap_or("?")),
            _ => String::new(),
        };
        // Servers may say anything.
        let shown = |text: &str| processes::printable(text.as_bytes());
        let mut text = match &self.silent {
            Some(why) => format!("{}  tells nothing: {}\n", shown(&self.address), shown(why)),
            None => format!("{}{process}\n", shown(&self.address)),
        };
        for Interface { name, program, version, procedures } in &self.interfaces {
            text += &format!("    {} ({program:#x}), version {version}\n", shown(name));
            procedures.iter().for_each(|procedure| text += &format!("        {}\n", shown(&procedure.definition)));
        }
        text
    }
}

/// What rpcbind of a host has registered, one of many.
#[derive(Serialize)]
struct Registration {
    program: u32,
    version: u32,
    net: String,
    address: String,
    owner: String,
}

/// Prints what rpcbind of a host has registered, for servers by SunRPC tell nothing themselves.
fn registrations(place: &Place, json: bool) -> Result<u8, Failure> {
    let host = &place.host;
    let entries = rpcbind::dump(place.transport, host, Duration::from_secs(5))
        .map_err(|error| Failure::of_environment(format_args!("rpcbind of {host}: {error}; is it running there?")))?;
    let entries: Vec<Registration> = entries
        .into_iter()
        .map(|rpcbind::Entry { program, version, net, address, owner }| Registration { program, version, net, address, owner })
        .collect();
    if json {
        print_json(&entries)?;
    } else {
        let line = |it: &Registration| {
            let [net, address, owner] = [&it.net, &it.address, &it.owner].map(|text| processes::printable(text.as_bytes()));
            format!("{:#010x}  version {}  {net:<6} {address:<28} {owner}\n", it.program, it.version)
        };
        print(&entries.iter().map(line).collect::<String>())?;
    }
    Ok(0)
}

/// Prints the servers.
pub fn list(matches: &ArgMatches) -> Result<u8, Failure> {
    let addresses = match matches.get_one::<String>("address") {
        Some(address) => match super::address(address)? {
            Address::SunRpc(place) if place.port.is_none() => return registrations(&place, matches.get_flag("json")),
            address => vec![address],
        },
        None => {
            let names = names().map_err(|error| Failure::of_environment(format_args!("/proc/net/unix: {error}")))?;
            names.iter().filter_map(|name| name.parse().ok()).collect()
        }
    };
    let servers: Vec<Server> = addresses.iter().map(Server::at).collect();
    if let (true, [Server { silent: Some(why), .. }]) = (matches.contains_id("address"), &servers[..]) {
        return Err(Failure::of_environment(processes::printable(why.as_bytes())));
    }
    if matches.get_flag("json") {
        print_json(&servers)?;
    } else if servers.is_empty() {
        print("no servers\n")?;
    } else {
        print(&servers.iter().map(Server::text).collect::<String>())?;
    }
    Ok(0)
}
