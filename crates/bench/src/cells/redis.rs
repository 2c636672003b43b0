//! redis-server under redis-benchmark: small requests, few and many connections, pipelined or not.

use std::collections::HashMap;
use std::io;
use std::slice::from_ref;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::pair::run_load;
use super::{RUN_LIMIT, START_LIMIT};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Figure, Unit};
use crate::network::is_listening;
use crate::process::{Launch, Running};
use crate::programs::External;

const SERVER: External = External { name: "redis-server", package: "redis-server" };
const CLIENT: External = External { name: "redis-benchmark", package: "redis-tools" };

/// One load: the same for every contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Load {
    command: &'static str,
    connections: u32,
    pipeline: u32,
    /// The server's io-threads.
    threads: u32,
}

const fn load(command: &'static str, connections: u32, pipeline: u32) -> Load {
    Load { command, connections, pipeline, threads: 1 }
}

const FEW: [Load; 8] = [
    load("get", 1, 1),
    load("set", 1, 1),
    load("get", 1, 16),
    load("set", 1, 16),
    load("get", 50, 1),
    load("set", 50, 1),
    load("get", 50, 16),
    load("set", 50, 16),
];

const MORE: [Load; 10] = [
    load("get", 1, 1),
    load("set", 1, 1),
    load("get", 1, 16),
    load("get", 50, 1),
    load("set", 50, 1),
    load("get", 50, 16),
    load("get", 500, 1),
    load("get", 500, 16),
    Load { threads: 2, ..load("get", 50, 1) },
    Load { threads: 2, ..load("get", 500, 16) },
];

/// The cell, with the rates seen so far: redis-benchmark counts requests, not seconds, so each
/// contender gets as many as fill the same time.
#[derive(Debug)]
pub struct Redis {
    name: &'static str,
    about: &'static str,
    loads: &'static [Load],
    rates: HashMap<(Load, Carrier), f64>,
}

impl Redis {
    /// The loads of the demo.
    pub fn few() -> Self {
        let about = "redis-server under redis-benchmark: 1 and 50 connections, pipeline 1 and 16, GET and SET";
        Redis { name: "redis", about, loads: &FEW, rates: HashMap::new() }
    }

    /// Up to 500 connections, and with a thread that reads and writes beside the server's own.
    pub fn more() -> Self {
        let about = "redis-server under redis-benchmark: 1, 50 and 500 connections, pipeline 1 and 16, io-threads";
        Redis { name: "redis-more", about, loads: &MORE, rates: HashMap::new() }
    }
}

impl Cell for Redis {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn needs(&self) -> &'static [External] {
        &[SERVER, CLIENT]
    }

    fn repeats(&self, settings: &Settings) -> usize {
        // Eight loads a turn: five turns fill half a minute.
        settings.repeats.min(5)
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let mut turn = Turn::default();
        let mut running: Option<(u32, u16, Running)> = None;
        for load in self.loads.iter().copied() {
            if running.as_ref().is_some_and(|(threads, ..)| *threads != load.threads) {
                running.take().expect("it runs").2.stop(Signal::SIGTERM, Duration::from_secs(2));
            }
            let (_, port, server) = match &mut running {
                Some(running) => running,
                none => {
                    let port = instrument.ports.take()?;
                    none.insert((load.threads, port, start_server(instrument, contender, port, load.threads)?))
                }
            };
            let port = *port;
            let key = (load, contender.carrier);
            let known = match self.rates.get(&key) {
                Some(rate) => *rate,
                None => {
                    let few = 1000 * load.pipeline * if load.connections > 1 { 4 } else { 1 };
                    rate(&client(instrument, contender, port, load, few)?.run(&instrument.scratch, RUN_LIMIT)?.output)?
                }
            };
            let requests = (known * instrument.settings.milliseconds as f64 / 1e3).max(1000.0) as u32;
            let look = contender.carrier == Carrier::Shunt && repeat == 0;
            let client = client(instrument, contender, port, load, requests)?;
            let (output, cpu) = run_load(instrument, client, from_ref(server), look, &mut turn)?;
            let rate = rate(&output)?;
            self.rates.insert(key, rate);
            turn.figures.push(figure(load, rate).with_cpu(cpu / f64::from(requests)));
        }
        if let Some((.., server)) = running {
            server.stop(Signal::SIGTERM, Duration::from_secs(2));
        }
        Ok(turn)
    }
}

fn start_server(instrument: &Instrument, contender: &Contender, port: u16, threads: u32) -> io::Result<Running> {
    let threads: &[String] = match threads {
        1 => &[],
        more => &["--io-threads".into(), more.to_string(), "--io-threads-do-reads".into(), "yes".into()],
    };
    let mut server = Launch::through(contender, &SERVER.find().map_err(io::Error::other)?)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--daemonize", "no", "--protected-mode", "no"])
        .args(threads)
        .core(instrument.machine.server_core)
        .start(&instrument.scratch)?;
    server.wait_until("listening", START_LIMIT, |_| is_listening(port))?;
    Ok(server)
}

fn client(instrument: &Instrument, contender: &Contender, port: u16, load: Load, requests: u32) -> io::Result<Launch> {
    let client = Launch::through(contender, &CLIENT.find().map_err(io::Error::other)?)
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-t", load.command, "--csv"])
        .args(["-c", &load.connections.to_string(), "-P", &load.pipeline.to_string(), "-n", &requests.to_string()])
        .core(instrument.machine.client_core);
    Ok(client)
}

/// `"GET","123456.78",...`: the second field of the last line, in every version of the program.
pub fn rate(output: &str) -> io::Result<f64> {
    output
        .lines()
        .rev()
        .find_map(|line| line.split(',').nth(1)?.trim().trim_matches('"').parse().ok())
        .filter(|rate: &f64| *rate > 0.0)
        .ok_or_else(|| io::Error::other(format!("redis-benchmark printed no rate: {output:?}")))
}

fn figure(load: Load, rate: f64) -> Figure {
    let Load { command, connections, pipeline, threads } = load;
    let plural = if connections == 1 { "" } else { "s" };
    let (row, note) = match threads {
        1 => (String::new(), ""),
        more => (format!("/t{more}"), ", io-threads"),
    };
    Figure::new(
        format!("redis/{command}/c{connections}/p{pipeline}{row}"),
        format!("redis {}, {connections} connection{plural}, pipeline {pipeline}{note}", command.to_uppercase()),
        Unit::PerSecond,
        rate,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_read_from_old_and_new_output() {
        assert_eq!(rate("\"SET\",\"98765.40\"\n").unwrap(), 98765.40);
        let new = "\"test\",\"rps\",\"avg_latency_ms\"\n\"GET\",\"12500.00\",\"0.075\"\n";
        assert_eq!(rate(new).unwrap(), 12500.0);
        assert!(rate("Could not connect\n").is_err());
    }
}
