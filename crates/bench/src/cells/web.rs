//! Web servers of every make under wrk: nginx with files of several sizes, nginx behind haproxy, Python, Node.js.

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

const HAPROXY: External = External { name: "haproxy", package: "haproxy" };
const PYTHON: External = External { name: "python3", package: "python3" };
const NODE: External = External { name: "node", package: "nodejs" };

const NGINX_NEEDS: &[External] = &[nginx::SERVER, nginx::CLIENT];
const PROXY_NEEDS: &[External] = &[HAPROXY, nginx::SERVER, nginx::CLIENT];
const PYTHON_NEEDS: &[External] = &[PYTHON, nginx::CLIENT];
const NODE_NEEDS: &[External] = &[NODE, nginx::CLIENT];

const FILES: &[Load] = &[
    load("nginx/1K", "nginx, 1 KB, keep-alive", "1k", 32, false),
    load("nginx/1K/close", "nginx, 1 KB, new connection each", "1k", 32, true),
    load("nginx/16K", "nginx, 16 KB, keep-alive", "16k", 32, false),
    load("nginx/128K", "nginx, 128 KB, keep-alive", "128k", 32, false),
    load("nginx/1M", "nginx, 1 MB, keep-alive", "1m", 32, false),
];
const PROXIED: &[Load] = &[
    load("haproxy/1K", "haproxy + nginx, 1 KB", "1k", 32, false),
    load("haproxy/128K", "haproxy + nginx, 128 KB", "128k", 32, false),
];
const ASKED_OF_PYTHON: &[Load] = &[load("python/asyncio", "python asyncio server", "", 8, false)];
const ASKED_OF_NODE: &[Load] = &[load("node/http", "node http server", "", 8, false)];

/// A request, as a row of the table.
#[derive(Debug)]
struct Load {
    /// Name and title of the row.
    row: &'static str,
    title: &'static str,
    path: &'static str,
    connections: u32,
    /// The server closes after each answer.
    closing: bool,
}

const fn load(row: &'static str, title: &'static str, path: &'static str, connections: u32, closing: bool) -> Load {
    Load { row, title, path, connections, closing }
}

/// The server that answers.
#[derive(Clone, Copy, Debug)]
enum Site {
    Nginx,
    /// haproxy in front of nginx: the side-car, two hops on one host.
    Proxy,
    Python,
    Node,
}

/// One server under a few loads.
#[derive(Debug)]
pub struct Web {
    site: Site,
    name: &'static str,
    about: &'static str,
    needs: &'static [External],
    loads: &'static [Load],
}

impl Web {
    /// nginx, which sends files by sendfile(2).
    pub fn files() -> Self {
        Web {
            site: Site::Nginx,
            name: "nginx-files",
            about: "nginx under wrk, 32 connections: files of 1 KB to 1 MB by sendfile, and connections that are not kept",
            needs: NGINX_NEEDS,
            loads: FILES,
        }
    }

    /// haproxy in front of nginx.
    pub fn proxy() -> Self {
        Web {
            site: Site::Proxy,
            name: "haproxy",
            about: "haproxy in front of nginx under wrk, 32 connections: two hops, nothing pinned",
            needs: PROXY_NEEDS,
            loads: PROXIED,
        }
    }

    /// A server on Python's asyncio.
    pub fn python() -> Self {
        Web {
            site: Site::Python,
            name: "python",
            about: "an HTTP server on Python's asyncio under wrk, 8 connections",
            needs: PYTHON_NEEDS,
            loads: ASKED_OF_PYTHON,
        }
    }

    /// A server on Node.js.
    pub fn node() -> Self {
        Web {
            site: Site::Node,
            name: "node",
            about: "an HTTP server on Node.js under wrk, 8 connections",
            needs: NODE_NEEDS,
            loads: ASKED_OF_NODE,
        }
    }
}

impl Cell for Web {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn needs(&self) -> &'static [External] {
        self.needs
    }

    fn repeats(&self, settings: &Settings) -> usize {
        // wrk measures whole seconds.
        settings.repeats.min(5)
    }

    fn prepare(&mut self, instrument: &mut Instrument) -> io::Result<()> {
        let root = instrument.scratch.join("www");
        fs::create_dir_all(&root)?;
        for (name, size) in [("1k", 1 << 10), ("16k", 16 << 10), ("128k", 128 << 10), ("1m", 1 << 20)] {
            fs::write(root.join(name), vec![b'x'; size])?;
        }
        Ok(())
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let (port, servers) = self.start(instrument, contender)?;
        let mut turn = Turn::default();
        for load in self.loads {
            let close: &[&str] = if load.closing { &["-H", "Connection: close"] } else { &[] };
            let client = Launch::through(contender, &nginx::CLIENT.find().map_err(io::Error::other)?)
                .args(["-t", "1", "-c", &load.connections.to_string(), "-d", "1s"])
                .args(close)
                .args([format!("http://127.0.0.1:{port}/{}", load.path)]);
            let client = if self.pinned() { client.core(instrument.machine.client_core) } else { client };
            let look = contender.carrier == Carrier::Shunt && repeat == 0;
            let (output, cpu) = run_load(instrument, client, &servers, look, &mut turn)?;
            let seen = nginx::parse(&output)?;
            let figure = Figure::new(load.row, load.title, Unit::PerSecond, seen.rate);
            turn.figures.push(figure.with_cpu(cpu / seen.requests));
        }
        for server in servers {
            server.stop(Signal::SIGTERM, Duration::from_secs(2));
        }
        Ok(turn)
    }
}

impl Web {
    /// Three programs on two cores run where the scheduler puts them.
    fn pinned(&self) -> bool {
        !matches!(self.site, Site::Proxy)
    }

    /// Starts what answers: its port, and its programs, the one that wrk talks to first.
    fn start(&self, instrument: &mut Instrument, contender: &Contender) -> io::Result<(u16, Vec<Running>)> {
        let port = instrument.ports.take()?;
        let core = instrument.machine.server_core;
        let servers = match self.site {
            Site::Nginx => vec![nginx::start_server(instrument, contender, port, Some(core))?],
            Site::Proxy => {
                let behind = instrument.ports.take()?;
                let server = nginx::start_server(instrument, contender, behind, None)?;
                vec![start_proxy(instrument, contender, port, behind)?, server]
            }
            Site::Python => vec![start_script(instrument, contender, PYTHON, "server.py", PYTHON_SERVER, port)?],
            Site::Node => vec![start_script(instrument, contender, NODE, "server.js", NODE_SERVER, port)?],
        };
        Ok((port, servers))
    }
}

fn start_proxy(instrument: &Instrument, contender: &Contender, port: u16, behind: u16) -> io::Result<Running> {
    let configuration = instrument.scratch.join(format!("haproxy-{port}.cfg"));
    fs::write(
        &configuration,
        format!(
            "global\n  nbthread 1\n  maxconn 1000\n\
             defaults\n  mode http\n  timeout connect 5s\n  timeout client 30s\n  timeout server 30s\n  http-reuse always\n\
             frontend front\n  bind 127.0.0.1:{port}\n  default_backend back\n\
             backend back\n  server nginx 127.0.0.1:{behind}\n"
        ),
    )?;
    let mut proxy = Launch::through(contender, &HAPROXY.find().map_err(io::Error::other)?)
        .args(["-db".as_ref(), "-f".as_ref(), configuration.as_os_str()])
        .start(&instrument.scratch)?;
    proxy.wait_until("listening", START_LIMIT, |_| is_listening(port))?;
    Ok(proxy)
}

fn start_script(
    instrument: &Instrument,
    contender: &Contender,
    interpreter: External,
    name: &str,
    text: &str,
    port: u16,
) -> io::Result<Running> {
    let script = instrument.scratch.join(name);
    fs::write(&script, text)?;
    let mut server = Launch::through(contender, &interpreter.find().map_err(io::Error::other)?)
        .args([script.as_os_str(), port.to_string().as_ref()])
        .core(instrument.machine.server_core)
        .start(&instrument.scratch)?;
    server.wait_until("listening", START_LIMIT, |_| is_listening(port))?;
    Ok(server)
}

/// Answers each request on a kept connection with 13 bytes.
const PYTHON_SERVER: &str = include_str!("../../programs/server.py");
/// The same on Node.js.
const NODE_SERVER: &str = include_str!("../../programs/server.js");
