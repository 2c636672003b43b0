//! The store of `examples/kv.x` over shunt-rpc beside the same over gRPC, in turns of one run: `make bench-rpc-peers`.
//!
//! `kv PROGRAM...` compares shunt's programs in Rust and in C, this one's gRPC by tonic, and gRPC's own library in C++. Each of them is
//! `PROGRAM serve ADDRESS` and `PROGRAM bench ADDRESS ROW MILLISECONDS`, which prints nanoseconds of a call; of a watch, of an event.

#[allow(dead_code)] // the other comparison uses all of it
#[path = "../place.rs"]
mod place;

/// Made from `kv.proto`.
mod proto {
    tonic::include_proto!("kv");
}

use std::collections::BTreeMap;
use std::future::Future;
use std::os::unix::process::CommandExt as _;
use std::pin::Pin;
use std::process::{Child, Command, ExitCode};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use futures::stream::{FuturesUnordered, StreamExt as _};
use proto::key_value_client::KeyValueClient;
use proto::key_value_server::{KeyValue, KeyValueServer};
use proto::{Entry, Event, PutReply, PutRequest, RangeReply, RangeRequest, WatchReply, WatchRequest};
use tokio::runtime::{Builder, Runtime};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Request, Response, Status};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
const ROUNDS: usize = 3;
const TURN: &str = "150";
const ROWS: [&str; 13] = [
    "put/0/1",
    "put/1024/1",
    "put/65536/1",
    "put/0/64",
    "put/1024/64",
    "put/65536/64",
    "range/0/1",
    "range/1024/1",
    "range/65536/1",
    "range/0/64",
    "range/1024/64",
    "range/65536/64",
    "watch/1024/1000",
];

/// What the store remembers.
#[derive(Default)]
struct State {
    keys: BTreeMap<Vec<u8>, Entry>,
    events: Vec<Event>,
    bytes: usize,
    revision: u64,
}

#[derive(Default)]
struct Store(Mutex<State>);

#[tonic::async_trait]
impl KeyValue for Store {
    async fn put(&self, request: Request<PutRequest>) -> Result<Response<PutReply>, Status> {
        let PutRequest { key, value, previous } = request.into_inner();
        let state = &mut *self.0.lock().unwrap();
        state.revision += 1;
        let revision = state.revision;
        let (created, puts) = state.keys.get(&key).map_or((revision, 1), |entry| (entry.created, entry.puts + 1));
        state.bytes += value.len();
        if state.bytes > 64 << 20 {
            (state.events, state.bytes) = (vec![], 0);
        }
        let entry = Entry { key: key.clone(), value, created, modified: revision, puts };
        state.events.push(Event { deleted: false, what: Some(entry.clone()) });
        let old = state.keys.insert(key, entry).filter(|_| previous);
        Ok(Response::new(PutReply { revision, previous: old }))
    }

    async fn range(&self, request: Request<RangeRequest>) -> Result<Response<RangeReply>, Status> {
        let RangeRequest { key, end, limit } = request.into_inner();
        let state = &*self.0.lock().unwrap();
        let end = if end.is_empty() { [&key[..], &[0]].concat() } else { end };
        let mut reply = RangeReply { revision: state.revision, ..RangeReply::default() };
        for (_, entry) in state.keys.range(key..end) {
            reply.count += 1;
            if reply.entries.len() < limit as usize {
                reply.entries.push(entry.clone());
            }
        }
        Ok(Response::new(reply))
    }

    type WatchStream = Pin<Box<dyn futures::Stream<Item = Result<WatchReply, Status>> + Send>>;

    /// What happened so far, a hundred kilobytes or so in a message, as the other stores give it.
    async fn watch(&self, request: Request<WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let WatchRequest { key, end, since } = request.into_inner();
        let state = &*self.0.lock().unwrap();
        let wanted = |event: &&Event| {
            let what = event.what.as_ref().expect("noted by put");
            what.modified >= since && key <= what.key && what.key < end
        };
        let events: Vec<Event> = state.events.iter().filter(wanted).cloned().collect();
        let many =
            events.first().map_or(1, |event| 100_000 / (event.what.as_ref().map_or(0, |what| what.value.len()) + 64)).max(1);
        let next = state.revision + 1;
        let replies: Vec<_> = events.chunks(many).map(|part| Ok(WatchReply { next, events: part.to_vec() })).collect();
        Ok(Response::new(Box::pin(futures::stream::iter(replies))))
    }
}

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

fn serve(path: &str) -> Result<(), Failure> {
    runtime()?.block_on(async {
        let incoming = UnixListenerStream::new(tokio::net::UnixListener::bind(path)?);
        Ok(Server::builder().add_service(KeyValueServer::new(Store::default())).serve_with_incoming(incoming).await?)
    })
}

async fn calls<F: Future<Output = Result<(), Status>>>(
    outstanding: usize,
    length: Duration,
    begin: impl Fn() -> F,
) -> Result<f64, Failure> {
    let mut under_way: FuturesUnordered<F> = FuturesUnordered::new();
    let mut each = 0.0;
    for part in [length / 5, length] {
        let (begun, mut count) = (Instant::now(), 0u32);
        while begun.elapsed() < part {
            while under_way.len() < outstanding {
                under_way.push(begin());
            }
            under_way.next().await.expect("one at least")?;
            count += 1;
        }
        each = begun.elapsed().as_nanos() as f64 / f64::from(count);
    }
    Ok(each)
}

async fn bench(client: KeyValueClient<Channel>, row: &str, length: Duration) -> Result<f64, Failure> {
    let parts: Vec<&str> = row.split('/').collect();
    let [what, bytes, many] = parts[..] else { return Err("a row has three parts".into()) };
    let (bytes, many): (usize, usize) = (bytes.parse()?, many.parse()?);
    let put = PutRequest { key: b"key".into(), value: vec![7; bytes], previous: false };
    let first = client.clone().put(put.clone()).await?.into_inner().revision;
    match what {
        "put" => {
            let begin = || {
                let (mut client, put) = (client.clone(), put.clone());
                async move { client.put(put).await.map(drop) }
            };
            calls(many, length, begin).await
        }
        "range" => {
            let begin = || {
                let mut client = client.clone();
                async move {
                    let reply = client.range(RangeRequest { key: b"key".into(), end: vec![], limit: 1 }).await?.into_inner();
                    assert_eq!(reply.entries[0].value.len(), bytes);
                    Ok(())
                }
            };
            calls(many, length, begin).await
        }
        _ => {
            for _ in 1..many {
                client.clone().put(put.clone()).await?;
            }
            let (begun, mut count) = (Instant::now(), 0);
            while begun.elapsed() < length {
                let all = WatchRequest { key: b"key".into(), end: b"kez".into(), since: first };
                let mut stream = client.clone().watch(all).await?.into_inner();
                let mut got = 0;
                while let Some(reply) = stream.message().await? {
                    got += reply.events.len();
                }
                assert_eq!(got, many);
                count += got;
            }
            Ok(begun.elapsed().as_nanos() as f64 / count as f64)
        }
    }
}

/// A contender: its words, its program, and where its server is.
struct Contender {
    about: &'static str,
    program: String,
    address: String,
    rows: [Vec<f64>; ROWS.len()],
    server: Child,
}

impl Contender {
    fn new(about: &'static str, program: &str, address: String) -> Result<Self, Failure> {
        let mut command = Command::new(program);
        command.args(["serve", &address]);
        let own = || {
            place::settle(SERVER_CORE);
            Ok(())
        };
        // SAFETY: between fork and exec: two system calls.
        unsafe { command.pre_exec(own) };
        let server = command.spawn().map_err(|error| format!("{program}: {error}"))?;
        Ok(Self { about, program: program.into(), address, rows: Default::default(), server })
    }

    /// `None`: it has no such row.
    fn measure(&self, row: &str) -> Result<Option<f64>, Failure> {
        if row.starts_with("watch") && self.about.ends_with('C') {
            return Ok(None);
        }
        let output = Command::new(&self.program).args(["bench", &self.address, row, TURN]).output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let said = || format!("{} {row}: {}", self.about, String::from_utf8_lossy(&output.stderr));
        Ok(Some(text.trim().parse().map_err(|_| said())?))
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn compare(rust: &str, c: &str, grpc: &str) -> Result<(), Failure> {
    let place = place::Place::new()?;
    let own = std::env::current_exe()?.to_string_lossy().into_owned();
    let socket = |name| place.socket(name).display().to_string();
    let mut all = vec![
        Contender::new("shunt-rpc, Rust", rust, format!("{}-rust", place.name()))?,
        Contender::new("shunt-rpc, C", c, format!("{}-c", place.name()))?,
        Contender::new("tonic, Rust", &own, socket("tonic"))?,
        Contender::new("gRPC, C++", grpc, socket("grpc"))?,
    ];
    place::settle(CLIENT_CORE);
    // Until all can be called: callers of gRPC do not wait for their servers.
    std::thread::sleep(Duration::from_millis(500));
    for _ in 0..ROUNDS {
        for (at, row) in ROWS.iter().enumerate() {
            for contender in &mut all {
                if let Some(value) = contender.measure(row)? {
                    contender.rows[at].push(value);
                }
            }
        }
    }
    let names: Vec<String> = all.iter().map(|one| format!("{:>18}", one.about)).collect();
    println!("a store over shunt-rpc and gRPC (AF_UNIX): us of a call, medians of {ROUNDS} turns; of a watch, us of an event\n");
    println!("{:<18}{}{:>14}{:>14}", "row/bytes/many", names.concat(), "tonic / Rust", "C++ / C");
    for (at, row) in ROWS.iter().enumerate() {
        let values: Vec<f64> = all.iter().map(|one| median(&one.rows[at]) / 1000.0).collect();
        let cell = |value: f64, width, places| {
            if value.is_nan() {
                format!("{:>width$}", "-")
            } else {
                format!("{value:>width$.places$}")
            }
        };
        let cells: String = values.iter().map(|&value| cell(value, 18, 2)).collect();
        println!("{row:<18}{cells}{}{}", cell(values[2] / values[0], 14, 1), cell(values[3] / values[1], 14, 1));
    }
    Ok(())
}

fn run(words: &[&str]) -> Result<(), Failure> {
    match *words {
        ["serve", path] => serve(path),
        ["bench", path, row, milliseconds] => {
            let length = Duration::from_millis(milliseconds.parse()?);
            let each = runtime()?.block_on(async {
                let channel = Endpoint::from_shared(format!("unix:{path}"))?.connect().await?;
                bench(KeyValueClient::new(channel), row, length).await
            })?;
            println!("{each:.1}");
            Ok(())
        }
        [rust, c, grpc] => compare(rust, c, grpc),
        _ => Err("kv RUST-PROGRAM C-PROGRAM GRPC-PROGRAM".into()),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // Servers live as long as the comparison, which has many turns.
    place::end_after(300);
    match run(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kv: {error}");
            ExitCode::FAILURE
        }
    }
}
