//! Servers and a proxy of the system whose connections are taken from the kernel, all others plain: memcached, nginx, haproxy.

use std::fs;
use std::io;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use shunt_testkit::hosts::Host;

use super::programs::{next_port, Way, RUN_LIMIT, START_LIMIT};
use super::record::{Record, Sheet};
use super::taken::{add, TO_KERNEL, TO_RUN, WAYS};
use super::Plan;
use crate::cells::{forwarder, memcached, nginx};
use crate::process::Running;
use crate::programs::External;

/// The table, of which aims are made.
pub const PROGRAMS: &str = "servers whose clients are plain: thousands of requests in a second, us of its processor";
/// Its rows.
pub const ROWS: [&str; 4] =
    ["memcaslap -c 1", "memcaslap -c 32", "nginx, wrk -c 16, 1 KB, kept", "haproxy before a plain nginx, wrk -c 16, 1 KB, kept"];

/// All of it; the agents run.
///
/// # Errors
/// A sentence.
pub fn served(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let heads = ["kernel", "run", "--inet", TO_KERNEL, TO_RUN, "us", "run", "--inet"];
    let mut sheet = Sheet::new(PROGRAMS, &heads, &[1, 1, 1, 2, 2, 1]);
    for (row, connections) in ROWS.into_iter().zip([1, 32]) {
        add(&mut sheet, row, plan, false, WAYS, |way| cached(way, hosts, plan, connections))?;
    }
    add(&mut sheet, ROWS[2], plan, false, WAYS, |way| paged(way, hosts, plan))?;
    add(&mut sheet, ROWS[3], plan, false, WAYS, |way| forwarded(way, hosts, plan))?;
    record.add(sheet);
    Ok(())
}

/// A program without shunt, on this processor.
fn plain(host: &Host, plan: &Plan<'_>, program: External, core: usize, arguments: &[&str]) -> io::Result<Running> {
    start(Way::Blocking, host, plan, program, core, arguments)
}

fn start(way: Way, host: &Host, plan: &Plan<'_>, program: External, core: usize, arguments: &[&str]) -> io::Result<Running> {
    let path = program.find().map_err(io::Error::other)?;
    way.launch(host, plan, &path).args(arguments).core(core).start(plan.scratch)
}

fn wait_for(place: &str, from: &Host) -> io::Result<()> {
    let began = Instant::now();
    while from.enter(|| TcpStream::connect(place)).is_err() {
        if began.elapsed() > START_LIMIT {
            return Err(io::Error::other(format!("nothing listens at {place}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Thousands of requests in a second, and what each costs `server`.
fn loaded(server: &Running, client: Running, read: impl FnOnce(&str) -> io::Result<(f64, f64)>) -> io::Result<(f64, f64)> {
    let before = server.cpu();
    let client = client.finish(RUN_LIMIT)?;
    let processor = server.cpu().saturating_sub(before);
    let (requests, rate) = read(&client.output)?;
    Ok((rate / 1e3, processor.as_secs_f64() * 1e6 / requests))
}

fn cached(way: Way, hosts: &[Host; 2], plan: &Plan<'_>, connections: u32) -> io::Result<(f64, f64)> {
    let (port, address) = (next_port().to_string(), hosts[1].addresses[0].to_string());
    // As root: a queue of one's own is for those whom the agent trusts.
    let words = ["-l", &address, "-p", &port, "-U", "0", "-t", "1", "-u", "root"];
    let server = start(way, &hosts[1], plan, memcached::SERVER, plan.cores().1, &words)?;
    let place = format!("{address}:{port}");
    wait_for(&place, &hosts[0])?;
    let words = ["-s", &place, "-T", "1", "-c", &connections.to_string(), "-t", "1s"];
    let client = plain(&hosts[0], plan, memcached::CLIENT, plan.cores().0, &words)?;
    let figures = loaded(&server, client, memcached::parse);
    server.stop(Signal::SIGTERM, Duration::from_secs(2));
    figures
}

/// nginx in one process, with a file of 1 KB.
fn pages(way: Way, host: &Host, plan: &Plan<'_>, core: usize) -> io::Result<(Running, String)> {
    let (port, address) = (next_port(), host.addresses[0]);
    let home = plan.scratch.join(format!("pages-{port}"));
    fs::create_dir_all(home.join("www"))?;
    fs::write(home.join("www/k"), [b'x'; 1024])?;
    let (configuration, text) = (home.join("nginx.conf"), home.display());
    let bodies = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {text}/{name};\n"));
    let lines = format!(
        "daemon off;\nmaster_process off;\npid {text}/pid;\nevents {{ worker_connections 1024; }}\n\
         http {{\naccess_log off;\nkeepalive_requests 1000000000;\nopen_file_cache max=16;\n{}\
         server {{ listen {address}:{port} backlog=4096; root {text}/www; }}\n}}\n",
        bodies.concat()
    );
    fs::write(&configuration, lines)?;
    let (errors, configuration) = (home.join("errors").display().to_string(), configuration.display().to_string());
    let server = start(way, host, plan, nginx::SERVER, core, &["-e", &errors, "-c", &configuration])?;
    Ok((server, format!("{address}:{port}")))
}

fn asked(host: &Host, plan: &Plan<'_>, place: &str, core: usize) -> io::Result<Running> {
    plain(host, plan, nginx::CLIENT, core, &["-t", "1", "-c", "16", "-d", "1s", &format!("http://{place}/k")])
}

fn wrk(output: &str) -> io::Result<(f64, f64)> {
    nginx::parse(output).map(|seen| (seen.requests, seen.rate))
}

fn paged(way: Way, hosts: &[Host; 2], plan: &Plan<'_>) -> io::Result<(f64, f64)> {
    let (server, place) = pages(way, &hosts[1], plan, plan.cores().1)?;
    wait_for(&place, &hosts[0])?;
    let figures = loaded(&server, asked(&hosts[0], plan, &place, plan.cores().0)?, wrk);
    server.stop(Signal::SIGTERM, Duration::from_secs(2));
    figures
}

/// The proxy has a processor; its clients and what is behind it share the other, on the other host.
fn forwarded(way: Way, hosts: &[Host; 2], plan: &Plan<'_>) -> io::Result<(f64, f64)> {
    let (behind, place) = pages(Way::Blocking, &hosts[0], plan, plan.cores().0)?;
    wait_for(&place, &hosts[1])?;
    let (port, address) = (next_port(), hosts[1].addresses[0]);
    let configuration = plan.scratch.join(format!("proxy-{port}.cfg"));
    let lines = format!(
        "global\n  nbthread 1\n  maxconn 1000\ndefaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n\
         \x20 http-reuse always\nfrontend front\n  bind {address}:{port}\n  default_backend back\nbackend back\n  server nginx {place}\n"
    );
    fs::write(&configuration, lines)?;
    let words = ["-db", "-f", &configuration.display().to_string()];
    let proxy = start(way, &hosts[1], plan, forwarder::PROXY, plan.cores().1, &words)?;
    let place = format!("{address}:{port}");
    wait_for(&place, &hosts[0])?;
    let figures = loaded(&proxy, asked(&hosts[0], plan, &place, plan.cores().0)?, wrk);
    for program in [proxy, behind] {
        program.stop(Signal::SIGTERM, Duration::from_secs(2));
    }
    figures
}
