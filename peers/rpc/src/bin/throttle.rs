//! The rate limiter throttlecrab-server, as it is on crates.io, behind its own gRPC and behind `throttle.x`: `make bench-rpc-peers`.
//!
//! `throttle C-PROGRAM GRPC-PROGRAM` compares callers in Rust and in C or C++ of both, in turns of one run. What is asked is what the server's own
//! benchmark asks: 1,000 keys at random, a burst of 100 and 10 a minute. Both faces have the same actor, store and metrics, and a runtime of one thread.

#[allow(dead_code)] // the other comparisons use all of it
#[path = "../place.rs"]
mod place;

/// Made from `throttle.x`.
#[allow(dead_code)] // what of it this program does not call
mod interface {
    include!(concat!(env!("OUT_DIR"), "/throttle.rs"));
}

use std::collections::VecDeque;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures::stream::{FuturesUnordered, StreamExt as _};
use interface::{Decision, RateLimiterV1, RateLimiterV1Client, RateLimiterV1Server};
use shunt_rpc::xdr::Bytes;
use shunt_rpc::{Context, Fault, Pending, Server, ServerOptions};
use throttlecrab::PeriodicStore;
use throttlecrab_server::actor::{RateLimiterActor, RateLimiterHandle};
use throttlecrab_server::grpc::rate_limiter_client::RateLimiterClient;
use throttlecrab_server::grpc::ThrottleRequest;
use throttlecrab_server::metrics::{Metrics, Transport as Kind};
use throttlecrab_server::transport::grpc::GrpcTransport;
use throttlecrab_server::transport::Transport as _;
use throttlecrab_server::types::ThrottleRequest as Asked;
use tokio::runtime::{Builder, Runtime};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const SERVER_CORE: usize = 0;
const CLIENT_CORE: usize = 1;
const ROUNDS: usize = 5;
const TURN: &str = "150";
/// Calls outstanding; the server's own benchmark has ten callers.
const ROWS: [&str; 3] = ["1", "10", "64"];

fn runtime() -> Result<Runtime, Failure> {
    Ok(Builder::new_current_thread().enable_all().build()?)
}

/// The server's own limiter, with its defaults. In a runtime.
fn limiter(metrics: &Arc<Metrics>) -> RateLimiterHandle {
    let store = PeriodicStore::builder().capacity(100_000).cleanup_interval(Duration::from_secs(300)).build();
    RateLimiterActor::spawn_periodic(100_000, store, Arc::clone(metrics))
}

/// The face that is new.
struct Face {
    runtime: Runtime,
    limiter: RateLimiterHandle,
    metrics: Arc<Metrics>,
}

impl Face {
    fn new(runtime: Runtime) -> Self {
        let metrics = Arc::new(Metrics::new());
        let limiter = runtime.block_on(async { limiter(&metrics) });
        Self { runtime, limiter, metrics }
    }
}

impl RateLimiterV1 for Face {
    fn throttle(
        &mut self,
        _: &Context<'_>,
        key: Bytes<1024>,
        max_burst: i32,
        count_per_period: i32,
        period: i32,
        quantity: i32,
    ) -> Result<Decision, Fault> {
        // Faults have gRPC's numbers.
        let key = String::from_utf8(key.0).map_err(|_| Fault::new(3, "the key is no text"))?;
        let request = Asked {
            key: key.clone(),
            max_burst: max_burst.into(),
            count_per_period: count_per_period.into(),
            period: period.into(),
            quantity: quantity.into(),
            timestamp: SystemTime::now(),
        };
        let found = self.runtime.block_on(self.limiter.throttle(request)).map_err(|error| Fault::new(13, error.to_string()))?;
        self.metrics.record_request_with_key(Kind::Grpc, found.allowed, &key);
        Ok(Decision {
            allowed: found.allowed,
            limit: found.limit as i32,
            remaining: found.remaining as i32,
            retry_after: found.retry_after as i32,
            reset_after: found.reset_after as i32,
        })
    }
}

fn serve(face: &str, at: &str) -> Result<(), Failure> {
    if face == "shunt" {
        let server = Server::bind(&at.parse()?, ServerOptions::default())?;
        return Ok(server.run(|| RateLimiterV1Server(Face::new(runtime().expect("a runtime"))))?);
    }
    let port = at.parse()?;
    runtime()?.block_on(async {
        let metrics = Arc::new(Metrics::new());
        let limiter = limiter(&metrics);
        GrpcTransport::new("127.0.0.1", port, metrics).start(limiter).await.map_err(Into::into)
    })
}

/// Keys at random.
struct Keys(Vec<String>, u32);

impl Keys {
    fn new() -> Self {
        Self((0..1000).map(|at| format!("key_{at}")).collect(), 1)
    }

    fn next(&mut self) -> &str {
        self.1 = self.1.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        &self.0[self.1 as usize / 65_536 % self.0.len()]
    }
}

fn bench_shunt(at: &str, outstanding: usize, length: Duration) -> Result<f64, Failure> {
    let limiter = RateLimiterV1Client::connect(at).map_err(|error| error.to_string())?;
    let (mut keys, mut under_way, mut each) = (Keys::new(), VecDeque::new(), 0.0);
    for part in [length / 5, length] {
        let (begun, mut count) = (Instant::now(), 0u32);
        while begun.elapsed() < part {
            while under_way.len() < outstanding {
                under_way.push_back(limiter.throttle_begin(&keys.next().into(), &100, &10, &60, &1, None)?);
            }
            let first: Pending<'_, Decision> = under_way.pop_front().expect("one at least");
            assert_eq!(first.wait()?.limit, 100);
            count += 1;
        }
        each = begun.elapsed().as_nanos() as f64 / f64::from(count);
    }
    Ok(each)
}

async fn bench_grpc(port: &str, outstanding: usize, length: Duration) -> Result<f64, Failure> {
    let limiter = RateLimiterClient::connect(format!("http://127.0.0.1:{port}")).await?;
    let (mut keys, mut under_way, mut each) = (Keys::new(), FuturesUnordered::new(), 0.0);
    for part in [length / 5, length] {
        let (begun, mut count) = (Instant::now(), 0u32);
        while begun.elapsed() < part {
            while under_way.len() < outstanding {
                let mut limiter = limiter.clone();
                let key = keys.next().to_owned();
                let request = ThrottleRequest { key, max_burst: 100, count_per_period: 10, period: 60, quantity: 1 };
                under_way.push(async move { limiter.throttle(request).await });
            }
            assert_eq!(under_way.next().await.expect("one at least")?.into_inner().limit, 100);
            count += 1;
        }
        each = begun.elapsed().as_nanos() as f64 / f64::from(count);
    }
    Ok(each)
}

/// A server's process, which ends with this.
struct Served(Child);

impl Served {
    fn new(program: &str, face: &str, at: &str) -> Result<Self, Failure> {
        let mut command = Command::new(program);
        command.args(["serve", face, at]);
        let own = || {
            place::settle(SERVER_CORE);
            Ok(())
        };
        // SAFETY: between fork and exec: two system calls.
        unsafe { command.pre_exec(own) };
        Ok(Self(command.spawn()?))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

fn compare(c: &str, grpc: &str) -> Result<(), Failure> {
    let place = place::Place::new()?;
    let own = std::env::current_exe()?.to_string_lossy().into_owned();
    let name = format!("{}-throttle", place.name());
    // One that is free now.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
    let _servers = [Served::new(&own, "shunt", &name)?, Served::new(&own, "grpc", &port)?];
    let callers: [(&str, Vec<&str>); 4] = [
        ("shunt-rpc, Rust", vec![&own, "bench", "shunt", &name]),
        ("shunt-rpc, C", vec![c, &name]),
        ("tonic, Rust", vec![&own, "bench", "grpc", &port]),
        ("gRPC, C++", vec![grpc, &port]),
    ];
    place::settle(CLIENT_CORE);
    // Until both can be called: callers of gRPC do not wait for their servers.
    std::thread::sleep(Duration::from_millis(500));
    let mut found = vec![[const { vec![] }; ROWS.len()]; callers.len()];
    for _ in 0..ROUNDS {
        for (at, row) in ROWS.iter().enumerate() {
            for ((about, words), found) in callers.iter().zip(&mut found) {
                let output = Command::new(words[0]).args(&words[1..]).args([row, TURN]).output()?;
                let said = || format!("{about} {row}: {}", String::from_utf8_lossy(&output.stderr));
                let value: f64 = String::from_utf8_lossy(&output.stdout).trim().parse().map_err(|_| said())?;
                found[at].push(value);
            }
        }
    }
    let names: String = callers.iter().map(|(about, _)| format!("{about:>18}")).collect();
    println!("\nthrottlecrab-server behind shunt-rpc and gRPC (TCP): us of a call, medians of {ROUNDS} turns\n");
    println!("{:<14}{names}{:>14}{:>14}", "outstanding", "tonic / Rust", "C++ / C");
    for (at, row) in ROWS.iter().enumerate() {
        let values: Vec<f64> = found.iter().map(|one| median(&one[at]) / 1000.0).collect();
        let cells: String = values.iter().map(|value| format!("{value:>18.2}")).collect();
        println!("{row:<14}{cells}{:>14.1}{:>14.1}", values[2] / values[0], values[3] / values[1]);
    }
    Ok(())
}

fn run(words: &[&str]) -> Result<(), Failure> {
    match *words {
        ["serve", face, at] => serve(face, at),
        ["bench", face, at, outstanding, milliseconds] => {
            let (outstanding, length) = (outstanding.parse()?, Duration::from_millis(milliseconds.parse()?));
            let each = match face {
                "shunt" => bench_shunt(at, outstanding, length)?,
                _ => runtime()?.block_on(bench_grpc(at, outstanding, length))?,
            };
            println!("{each:.1}");
            Ok(())
        }
        [c, grpc] => compare(c, grpc),
        _ => Err("throttle C-PROGRAM GRPC-PROGRAM".into()),
    }
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    // Servers live as long as the comparison, which has many turns.
    place::end_after(300);
    match run(&words.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("throttle: {error}");
            ExitCode::FAILURE
        }
    }
}
