//! nginx under wrk: a small file over kept connections, and over a new connection each time.

use std::fs;
use std::io;
use std::slice::from_ref;
use std::time::Duration;

use nix::sys::signal::Signal;

use super::pair::run_load;
use super::START_LIMIT;
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Figure, Unit};
use crate::network::is_listening;
use crate::process::{Launch, Running};
use crate::programs::External;

pub(crate) const SERVER: External = External { name: "nginx", package: "nginx-light" };
pub(crate) const CLIENT: External = External { name: "wrk", package: "wrk" };
const CONNECTIONS: &str = "32";
/// Size of the page that nginx's package installs as its welcome.
const FILE_BYTES: usize = 612;

/// Whether a connection outlives its request.
#[derive(Clone, Copy, Debug)]
enum Load {
    KeepAlive,
    NewConnection,
}

/// Master and one worker on one core, wrk on the other.
#[derive(Debug)]
pub struct Nginx;

impl Cell for Nginx {
    fn name(&self) -> &'static str {
        "nginx"
    }

    fn about(&self) -> &'static str {
        "nginx under wrk, 32 connections, 612-byte file: kept connections, and a new one each request"
    }

    fn needs(&self) -> &'static [External] {
        &[SERVER, CLIENT]
    }

    fn repeats(&self, settings: &Settings) -> usize {
        // wrk measures whole seconds: as many as the small programs need for their repeats.
        settings.repeats.min(5)
    }

    fn prepare(&mut self, instrument: &mut Instrument) -> io::Result<()> {
        let root = instrument.scratch.join("www");
        fs::create_dir_all(&root)?;
        fs::write(root.join("index.html"), vec![b'x'; FILE_BYTES])
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let port = instrument.ports.take()?;
        let server = start_server(instrument, contender, port, Some(instrument.machine.server_core))?;
        let mut turn = Turn::default();
        for load in [Load::KeepAlive, Load::NewConnection] {
            let header: &[&str] = match load {
                Load::KeepAlive => &[],
                Load::NewConnection => &["-H", "Connection: close"],
            };
            let client = Launch::through(contender, &CLIENT.find().map_err(io::Error::other)?)
                .args(["-t", "1", "-c", CONNECTIONS, "-d", "1s"])
                .args(header)
                .args([format!("http://127.0.0.1:{port}/index.html")])
                .core(instrument.machine.client_core);
            let look = contender.carrier == Carrier::Shunt && repeat == 0;
            let (output, cpu) = run_load(instrument, client, from_ref(&server), look, &mut turn)?;
            let seen = parse(&output)?;
            turn.figures.push(figure(load, seen.rate).with_cpu(cpu / seen.requests));
        }
        server.stop(Signal::SIGTERM, Duration::from_secs(2));
        Ok(turn)
    }
}

/// Master and one worker, which serve the scratch directory's `www`; on one core, or where the scheduler puts them.
pub(super) fn start_server(
    instrument: &Instrument,
    contender: &Contender,
    port: u16,
    core: Option<usize>,
) -> io::Result<Running> {
    let home = instrument.scratch.join(format!("nginx-{port}"));
    fs::create_dir_all(&home)?;
    let (home_text, root) = (home.display(), instrument.scratch.join("www"));
    let configuration = home.join("nginx.conf");
    fs::write(
        &configuration,
        format!(
            "daemon off;\nworker_processes 1;\npid {home_text}/pid;\nerror_log {home_text}/error.log;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_requests 1000000000;\n  \
             client_body_temp_path {home_text}/body;\n  proxy_temp_path {home_text}/proxy;\n  \
             fastcgi_temp_path {home_text}/fastcgi;\n  uwsgi_temp_path {home_text}/uwsgi;\n  \
             scgi_temp_path {home_text}/scgi;\n  open_file_cache max=16;\n  \
             server {{ listen 127.0.0.1:{port} backlog=4096; root {}; }}\n}}\n",
            root.display()
        ),
    )?;
    let launch = Launch::through(contender, &SERVER.find().map_err(io::Error::other)?).args([
        "-e".as_ref(),
        home.join("error.log").as_os_str(),
        "-c".as_ref(),
        configuration.as_os_str(),
    ]);
    let launch = core.into_iter().fold(launch, Launch::core);
    let mut server = launch.start(&instrument.scratch)?;
    // The worker accepts; the port is open before it lives.
    server.wait_until("a worker", START_LIMIT, |server| is_listening(port) && server.tree().len() > 1)?;
    Ok(server)
}

/// What wrk said.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Seen {
    /// Answers.
    pub requests: f64,
    /// Answers in a second.
    pub rate: f64,
}

/// Reads wrk's summary; wrong answers and broken connections are errors, not slow requests.
pub(crate) fn parse(output: &str) -> io::Result<Seen> {
    let wrong = |line: &str| {
        let trouble = line.trim();
        trouble.starts_with("Socket errors") || trouble.starts_with("Non-2xx")
    };
    if let Some(line) = output.lines().find(|line| wrong(line)) {
        return Err(io::Error::other(format!("wrk: {}", line.trim())));
    }
    let field = |text: Option<&str>| text.and_then(|text| text.trim().parse::<f64>().ok());
    let rate = output.lines().find_map(|line| field(line.trim().strip_prefix("Requests/sec:")));
    let requests = output.lines().find_map(|line| field(line.trim().split(" requests in ").next()));
    match (requests, rate) {
        (Some(requests), Some(rate)) if requests > 0.0 => Ok(Seen { requests, rate }),
        _ => Err(io::Error::other(format!("wrk finished no request: {output:?}"))),
    }
}

fn figure(load: Load, rate: f64) -> Figure {
    let (name, title) = match load {
        Load::KeepAlive => ("nginx/keep-alive", "nginx + wrk, keep-alive"),
        Load::NewConnection => ("nginx/new-connection", "nginx + wrk, new connection each"),
    };
    Figure::new(name, title, Unit::PerSecond, rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "Running 1s test @ http://127.0.0.1:5000/\n  1 threads and 32 connections\n  \
        57170 requests in 1.10s, 46.34MB read\nRequests/sec:  51973.63\nTransfer/sec:     42.13MB\n";

    #[test]
    fn summary_is_read() {
        assert_eq!(parse(GOOD).unwrap(), Seen { requests: 57170.0, rate: 51973.63 });
    }

    #[test]
    fn broken_connections_and_wrong_answers_are_errors() {
        let broken = format!("{GOOD}  Socket errors: connect 0, read 3, write 0, timeout 0\n");
        let wrong = format!("{GOOD}  Non-2xx or 3xx responses: 57170\n");
        assert!(parse(&broken).unwrap_err().to_string().contains("read 3"));
        assert!(parse(&wrong).is_err());
        assert!(parse("unable to connect to 127.0.0.1:5000 Connection refused\n").is_err());
    }
}
