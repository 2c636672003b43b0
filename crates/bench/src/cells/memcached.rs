//! memcached under memcaslap, libmemcached's load generator: nine reads for each write, keys of 64 bytes, values of 1 KiB.

use std::io;
use std::slice::from_ref;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::getuid;

use super::pair::run_load;
use super::START_LIMIT;
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Figure, Unit};
use crate::network::is_listening;
use crate::process::{Launch, Running};
use crate::programs::External;

pub(crate) const SERVER: External = External { name: "memcached", package: "memcached" };
pub(crate) const CLIENT: External = External { name: "memcaslap", package: "libmemcached-tools" };
const CONNECTIONS: [u32; 2] = [1, 32];

/// One worker thread on one core, the load on the other.
#[derive(Debug)]
pub struct Memcached;

impl Cell for Memcached {
    fn name(&self) -> &'static str {
        "memcached"
    }

    fn about(&self) -> &'static str {
        "memcached under memcaslap, nine reads for each write, 1 and 32 connections"
    }

    fn needs(&self) -> &'static [External] {
        &[SERVER, CLIENT]
    }

    fn repeats(&self, settings: &Settings) -> usize {
        // memcaslap measures whole seconds.
        settings.repeats.min(5)
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let port = instrument.ports.take()?;
        let server = start_server(instrument, contender, port)?;
        let mut turn = Turn::default();
        for connections in CONNECTIONS {
            let client = Launch::through(contender, &CLIENT.find().map_err(io::Error::other)?)
                .args(["-s", &format!("127.0.0.1:{port}"), "-T", "1", "-c", &connections.to_string(), "-t", "1s"])
                .core(instrument.machine.client_core);
            let look = contender.carrier == Carrier::Shunt && repeat == 0;
            let (output, cpu) = run_load(instrument, client, from_ref(&server), look, &mut turn)?;
            let (operations, rate) = parse(&output)?;
            let plural = if connections == 1 { "" } else { "s" };
            let title = format!("memcached, {connections} connection{plural}");
            let figure = Figure::new(format!("memcached/c{connections}"), title, Unit::PerSecond, rate);
            turn.figures.push(figure.with_cpu(cpu / operations));
        }
        server.stop(Signal::SIGTERM, Duration::from_secs(2));
        Ok(turn)
    }
}

fn start_server(instrument: &Instrument, contender: &Contender, port: u16) -> io::Result<Running> {
    // As root it wants to be told whom to become.
    let user: &[&str] = if getuid().is_root() { &["-u", "nobody"] } else { &[] };
    let mut server = Launch::through(contender, &SERVER.find().map_err(io::Error::other)?)
        .args(["-l", "127.0.0.1", "-p", &port.to_string(), "-U", "0", "-t", "1"])
        .args(user)
        .core(instrument.machine.server_core)
        .start(&instrument.scratch)?;
    server.wait_until("listening", START_LIMIT, |_| is_listening(port))?;
    Ok(server)
}

/// Operations, and operations in a second, of the last line: `Run time: 1.0s Ops: 123456 TPS: 123000 Net_rate: 130.1M/s`.
pub(crate) fn parse(output: &str) -> io::Result<(f64, f64)> {
    let field = |name: &str| {
        let line = output.lines().rev().find(|line| line.contains("TPS:"))?;
        line.split(name).nth(1)?.split_ascii_whitespace().next()?.parse::<f64>().ok()
    };
    match (field("Ops:"), field("TPS:")) {
        (Some(operations), Some(rate)) if operations > 0.0 => Ok((operations, rate)),
        _ => Err(io::Error::other(format!("memcaslap finished no operation: {output:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_read() {
        let output = "servers : 127.0.0.1:11211\nwritten_bytes: 1\n\nRun time: 1.0s Ops: 56320 TPS: 56263 Net_rate: 57.8M/s\n";
        assert_eq!(parse(output).unwrap(), (56320.0, 56263.0));
        assert!(parse("connect error\n").is_err());
    }
}
