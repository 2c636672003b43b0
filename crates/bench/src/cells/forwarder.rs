//! A proxy that does not look at what it passes on: haproxy in front of nginx, bodies of 1 MiB, received and sent, and spliced.

use std::fs;
use std::io;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::pair::run_load;
use super::{nginx, START_LIMIT};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Figure, Unit};
use crate::network::is_listening;
use crate::process::{Launch, Running};
use crate::programs::External;

pub(crate) const PROXY: External = External { name: "haproxy", package: "haproxy" };

/// Row, title, what the proxy is told.
const ROWS: [(&str, &str, &str); 2] = [
    ("forwarder/copied", "haproxy, 1 MiB, received and sent", ""),
    ("forwarder/spliced", "haproxy, 1 MiB, option splice-response", "  option splice-response\n"),
];

/// wrk with 8 connections, nothing pinned: three programs on two processors.
#[derive(Debug)]
pub struct Forwarder;

impl Cell for Forwarder {
    fn name(&self) -> &'static str {
        "forwarder"
    }

    fn about(&self) -> &'static str {
        "haproxy in front of nginx under wrk, 8 connections, bodies of 1 MiB: received and sent, and spliced"
    }

    fn needs(&self) -> &'static [External] {
        &[PROXY, nginx::SERVER, nginx::CLIENT]
    }

    fn repeats(&self, settings: &Settings) -> usize {
        // wrk measures whole seconds.
        settings.repeats.min(5)
    }

    fn prepare(&mut self, instrument: &mut Instrument) -> io::Result<()> {
        let root = instrument.scratch.join("www");
        fs::create_dir_all(&root)?;
        fs::write(root.join("1m"), vec![b'x'; 1 << 20])
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let behind = instrument.ports.take()?;
        let server = nginx::start_server(instrument, contender, behind, None)?;
        let mut programs = vec![server];
        let mut turn = Turn::default();
        for (row, title, told) in ROWS {
            let port = instrument.ports.take()?;
            programs.insert(0, start_proxy(instrument, contender, port, behind, told)?);
            let client = Launch::through(contender, &nginx::CLIENT.find().map_err(io::Error::other)?).args([
                "-t",
                "1",
                "-c",
                "8",
                "-d",
                "1s",
                &format!("http://127.0.0.1:{port}/1m"),
            ]);
            let look = contender.carrier == Carrier::Shunt && repeat == 0;
            let (output, cpu) = run_load(instrument, client, &programs, look, &mut turn)?;
            let seen = nginx::parse(&output)?;
            turn.figures.push(Figure::new(row, title, Unit::PerSecond, seen.rate).with_cpu(cpu / seen.requests));
            programs.remove(0).stop(Signal::SIGTERM, Duration::from_secs(2));
        }
        for program in programs {
            program.stop(Signal::SIGTERM, Duration::from_secs(2));
        }
        Ok(turn)
    }
}

fn start_proxy(instrument: &Instrument, contender: &Contender, port: u16, behind: u16, told: &str) -> io::Result<Running> {
    let configuration = instrument.scratch.join(format!("forwarder-{port}.cfg"));
    fs::write(
        &configuration,
        format!(
            "global\n  nbthread 1\n  maxconn 1000\n\
             defaults\n  mode http\n{told}  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n  http-reuse always\n\
             frontend front\n  bind 127.0.0.1:{port}\n  default_backend back\n\
             backend back\n  server nginx 127.0.0.1:{behind}\n"
        ),
    )?;
    let mut proxy = Launch::through(contender, &PROXY.find().map_err(io::Error::other)?)
        .args(["-db".as_ref(), "-f".as_ref(), configuration.as_os_str()])
        .start(&instrument.scratch)?;
    proxy.wait_until("listening", START_LIMIT, |_| is_listening(port))?;
    Ok(proxy)
}
