//! Null calls of `shunt-rpc` between two hosts beside active messages of the same device, turn by turn.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use shunt_am::port::{config_for, memory, Port};
use shunt_rpc::{Client, Options, Server, ServerOptions, Service};
use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::{pair, Host, Joint};

use super::contender::{pin, side_by_side, time_round_trips};
use super::endpoints::Carrier;
use super::messages::{loose, Program};
use crate::statistics::median;

/// A queue that an end gave back is free when the agent has heard of that.
const PATIENCE: Duration = Duration::from_secs(5);

/// Tries until it works, or patience is over.
fn patiently<T>(mut attempt: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let until = Instant::now() + PATIENCE;
    loop {
        match attempt() {
            Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            result => return result,
        }
    }
}

/// Nanoseconds of an active message of one word, and of a null call of program `program`: there and back, medians of turns.
///
/// # Errors
/// A sentence: no hosts can be made here, no agent starts.
pub fn beside_messages<S: Service + 'static>(
    carrier: Carrier,
    shunt: &Path,
    (rounds, time): (usize, Duration),
    program: u32,
    service: fn() -> S,
) -> Result<[f64; 2], String> {
    let hosts = pair(Joint::default())?;
    let own = carrier == Carrier::Own;
    let started = hosts.iter().filter(|_| own).map(|host| Agent::start(host, shunt, &["--lend", "0"]));
    let agents = started.collect::<Result<Vec<_>, _>>()?;
    let mut all = [vec![], vec![]];
    for _ in 0..rounds {
        all[0].push(messages(carrier, &hosts, time)? * 1e9);
        all[1].push(calls(carrier, &hosts, time, program, service)? * 1e9);
    }
    drop(agents);
    Ok(all.map(|values| median(&values).unwrap_or(f64::NAN)))
}

fn messages(carrier: Carrier, hosts: &[Host; 2], time: Duration) -> Result<f64, String> {
    let [a, b] = patiently(|| loose(carrier, hosts.each_ref()))?;
    let serve = |over: &AtomicBool, _: &AtomicU64| {
        let (endpoint, tags, at) = b;
        let config = config_for(&endpoint, 1);
        let mut space = memory(&config);
        let mut port = Port::new(endpoint, &mut space, &config).map_err(|error| format!("{error:?}"))?;
        let peer = port.open(&at, tags).map_err(|error| format!("{error:?}"))?;
        let mut program = Program::default();
        port.accept(peer, &mut program, PATIENCE).map_err(|error| error.to_string())?;
        while !over.load(Relaxed) {
            port.poll(&mut program);
        }
        Ok::<(), String>(())
    };
    let drive = |_: &AtomicU64| {
        let (endpoint, tags, at) = a;
        let config = config_for(&endpoint, 1);
        let mut space = memory(&config);
        let mut port = Port::new(endpoint, &mut space, &config).map_err(|error| format!("{error:?}"))?;
        let peer = port.open(&at, tags).map_err(|error| format!("{error:?}"))?;
        let mut program = Program::default();
        port.connect(peer, &mut program).map_err(|error| error.to_string())?;
        time_round_trips(time, || {
            let before = program.replies();
            port.request(peer, 1, &[7], &[], &mut program).map_err(|error| error.to_string())?;
            while program.replies() == before {
                port.poll(&mut program);
            }
            Ok(())
        })
    };
    let (served, driven) = side_by_side(serve, drive);
    served?;
    driven
}

fn calls<S: Service + 'static>(
    carrier: Carrier,
    hosts: &[Host; 2],
    time: Duration,
    program: u32,
    service: fn() -> S,
) -> Result<f64, String> {
    let at = format!("{}:{}:0", carrier.word(), hosts[1].addresses[0]);
    let at = at.parse().map_err(|error: shunt_rpc::AddressError| error.to_string())?;
    let server = hosts[1].enter(|| {
        // Its thread is where the one that starts it is.
        pin(1);
        let bound = Server::bind(&at, ServerOptions::default());
        bound.and_then(|server| server.spawn(service)).map_err(|error| error.to_string())
    })?;
    hosts[0].enter(|| {
        pin(0);
        let connect = || Client::connect(server.address(), program, 1..=1, Options::default());
        let client = patiently(|| connect().map_err(|error| error.to_string()))?;
        time_round_trips(time, || client.call::<_, ()>(0, &()).map_err(|error| error.to_string()))
    })
}
