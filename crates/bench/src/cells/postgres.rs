//! PostgreSQL under pgbench over TCP: a process for each connection, real work for each request.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::slice::from_ref;
use std::time::Duration;

use nix::sys::signal::Signal;
use nix::unistd::{chown, getuid, Gid, Uid, User};

use super::pair::run_load;
use super::START_LIMIT;
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Figure, Unit};
use crate::network::is_listening;
use crate::process::{Launch, Running};
use crate::programs::External;

const INITDB: External = External { name: "initdb", package: "postgresql" };
const SERVER: External = External { name: "postgres", package: "postgresql" };
const CLIENT: External = External { name: "pgbench", package: "postgresql-contrib" };
/// Making and filling a database takes seconds on a slow disk.
const SET_UP_LIMIT: Duration = Duration::from_secs(60);

/// What pgbench is to do.
#[derive(Debug)]
struct Load {
    /// Row and title.
    row: &'static str,
    title: &'static str,
    /// Its option, if any.
    mode: &'static [&'static str],
    clients: u32,
}

const fn load(row: &'static str, title: &'static str, mode: &'static [&'static str], clients: u32) -> Load {
    Load { row, title, mode, clients }
}

const SELECT_1: Load = load("postgres/select/c1", "pgbench -S, 1 client", &["-S"], 1);
const SELECT_8: Load = load("postgres/select/c8", "pgbench -S, 8 clients", &["-S"], 8);
const TPC_B: Load = load("postgres/tpc-b/c8", "pgbench (TPC-B), 8 clients", &[], 8);
const CONNECT: Load = load("postgres/connect/c4", "pgbench -S -C, 4 clients", &["-S", "-C"], 4);

/// `pgbench -S`: one indexed SELECT a transaction. Nothing is pinned: with eight clients there are
/// more processes than cores, and where they run is the scheduler's to decide.
#[derive(Debug)]
pub struct Postgres {
    name: &'static str,
    about: &'static str,
    loads: &'static [Load],
    data: PathBuf,
    user: Option<(Uid, Gid)>,
}

impl Postgres {
    fn new(name: &'static str, about: &'static str, loads: &'static [Load]) -> Self {
        Postgres { name, about, loads, data: PathBuf::new(), user: None }
    }

    /// The loads of the demo.
    pub fn few() -> Self {
        Self::new("postgres", "PostgreSQL under pgbench -S over TCP, 1 and 8 clients", &[SELECT_1, SELECT_8])
    }

    /// Writing transactions, and a connection for each transaction, too.
    pub fn more() -> Self {
        let about = "PostgreSQL under pgbench over TCP: -S, TPC-B, and -C (a new connection for each transaction)";
        Self::new("postgres-more", about, &[SELECT_1, SELECT_8, TPC_B, CONNECT])
    }
}

impl Cell for Postgres {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn needs(&self) -> &'static [External] {
        &[INITDB, SERVER, CLIENT]
    }

    fn repeats(&self, settings: &Settings) -> usize {
        // pgbench measures whole seconds.
        settings.repeats.min(5)
    }

    fn prepare(&mut self, instrument: &mut Instrument) -> io::Result<()> {
        self.user = unprivileged_user()?;
        self.data = instrument.scratch.join("postgres");
        fs::create_dir_all(&self.data)?;
        if let Some((user, group)) = self.user {
            chown(&self.data, Some(user), Some(group))?;
        }
        Launch::plain(&INITDB.find().map_err(io::Error::other)?)
            .args(["--no-sync", "--auth=trust", "--username=bench", "--locale=C", "-D"])
            .args([&self.data])
            .user(self.user)
            .run(&instrument.scratch, SET_UP_LIMIT)?;
        let port = instrument.ports.take()?;
        let bare = Contender { carrier: Carrier::Kernel, prefix: Vec::new() };
        let server = self.start_server(instrument, &bare, port)?;
        self.client(&bare, port)?.args(["-i", "-q", "-s", "1", "postgres"]).run(&instrument.scratch, SET_UP_LIMIT)?;
        server.stop(Signal::SIGINT, Duration::from_secs(10));
        Ok(())
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let port = instrument.ports.take()?;
        let server = self.start_server(instrument, contender, port)?;
        let mut turn = Turn::default();
        for load in self.loads {
            let client = self
                .client(contender, port)?
                .args(["-n", "-T", "1", "-c", &load.clients.to_string()])
                .args(load.mode)
                .args(["postgres"]);
            let look = contender.carrier == Carrier::Shunt && repeat == 0;
            let (output, cpu) = run_load(instrument, client, from_ref(&server), look, &mut turn)?;
            let seen = parse(&output)?;
            let figure = Figure::new(load.row, load.title, Unit::PerSecond, seen.rate);
            turn.figures.push(figure.with_cpu(cpu / seen.transactions));
        }
        // SIGINT is PostgreSQL's fast shutdown: sessions are ended, the data stays whole.
        server.stop(Signal::SIGINT, Duration::from_secs(10));
        Ok(turn)
    }
}

impl Postgres {
    fn start_server(&self, instrument: &Instrument, contender: &Contender, port: u16) -> io::Result<Running> {
        let mut server = Launch::through(contender, &SERVER.find().map_err(io::Error::other)?)
            .args(["-p", &port.to_string(), "-h", "127.0.0.1", "-k", "", "-c", "fsync=off", "-D"])
            .args([&self.data])
            .user(self.user)
            .start(&instrument.scratch)?;
        server.wait_until("listening", START_LIMIT, |_| is_listening(port))?;
        // The port opens while the server still reads its log of the last shutdown.
        server.wait_until("ready", START_LIMIT, |_| {
            fs::read_to_string(self.data.join("postmaster.pid")).is_ok_and(|text| text.lines().any(|line| line.trim() == "ready"))
        })?;
        Ok(server)
    }

    fn client(&self, contender: &Contender, port: u16) -> io::Result<Launch> {
        Ok(Launch::through(contender, &CLIENT.find().map_err(io::Error::other)?)
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "bench"])
            .user(self.user))
    }
}

/// PostgreSQL refuses to run as root: its own user then, or `nobody`.
fn unprivileged_user() -> io::Result<Option<(Uid, Gid)>> {
    if !getuid().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Ok(Some(user)) = User::from_name(name) {
            return Ok(Some((user.uid, user.gid)));
        }
    }
    Err(io::Error::other("neither the user postgres nor nobody exists, and the server refuses to run as root"))
}

/// What pgbench said.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    transactions: f64,
    rate: f64,
}

fn parse(output: &str) -> io::Result<Seen> {
    let number = |prefix: &str| {
        output
            .lines()
            .find_map(|line| line.strip_prefix(prefix)?.split([' ', '/']).find(|word| !word.is_empty())?.parse::<f64>().ok())
    };
    let transactions = number("number of transactions actually processed:");
    match (transactions, number("tps =")) {
        (Some(transactions), Some(rate)) if transactions > 0.0 => Ok(Seen { transactions, rate }),
        _ => Err(io::Error::other(format!("pgbench finished no transaction: {output:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_is_read() {
        let output = "transaction type: <builtin: select only>\nnumber of transactions actually processed: 12345\n\
                      latency average = 0.080 ms\ntps = 12410.5 (without initial connection time)\n";
        assert_eq!(parse(output).unwrap(), Seen { transactions: 12345.0, rate: 12410.5 });
        assert!(parse("pgbench: error: connection failed\n").is_err());
    }
}
