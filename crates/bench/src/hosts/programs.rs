//! Unmodified programs on two hosts: over the kernel's TCP, or under shunt.

use std::io;
use std::os::fd::AsRawFd;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use nix::sys::signal::Signal;
use shunt_testkit::hosts::{self, Host};

use super::contender::{Contender, Streamed};
use super::endpoints::{agents, Carrier};
use super::Plan;
use crate::cells::pair::Report;
use crate::process::{Launch, Running};
use crate::programs::{External, Measuring};

/// What carries the bytes of the programs' connections.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The kernel's TCP, blocking calls.
    Blocking,
    /// The kernel's TCP, calls that do not block, again and again.
    Spinning,
    /// As `Spinning`; the interfaces cut no segments for TCP and join none.
    WithoutOffload,
    /// Under shunt, blocking calls, by this device however large a stream is.
    Shunt(Carrier),
    /// Under shunt, blocking calls, over UDP, as it is by default.
    Default,
    /// Under shunt, beside a peer that is not.
    Alone,
    /// The same, and its connections are taken from the kernel, where there is an agent for that.
    Taken,
    /// Under shunt, with a directory in common: network namespaces of one host.
    Near,
    /// As `Near`, through addresses that are translated on the way: hostd introduces them.
    Introduced,
    /// The kernel's TCP, blocking calls, through such addresses.
    Translated,
    /// Under shunt, both in the server's network namespace.
    Together,
    /// The client under shunt, with a directory or without; the server plain.
    ToPlain(bool),
}

/// The measuring programs in one of these ways.
pub struct Programs {
    /// The row's name.
    pub name: &'static str,
    /// The way.
    pub way: Way,
}

pub const START_LIMIT: Duration = Duration::from_secs(5);
pub const RUN_LIMIT: Duration = Duration::from_secs(60);

/// Ports below those that the kernel gives to clients, no one twice.
pub fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(5000);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

impl Way {
    /// A program on a host.
    pub fn launch(self, host: &Host, plan: &Plan<'_>, program: &Path) -> Launch {
        let namespace = format!("--net=/proc/{}/fd/{}", std::process::id(), host.namespace());
        let launch = Launch::plain(Path::new("nsenter")).args([namespace.as_str(), "--"]);
        match self {
            Way::Shunt(carrier) => {
                // A list of subnets takes what device there is; `auto` wants an agent.
                let area = if carrier == Carrier::Udp { "SHUNT_HOSTS=10.77.0.0/24" } else { "SHUNT_HOSTS=auto" };
                launch.args(["env", area, "SHUNT_BULK=0"]).args([plan.shunt.as_os_str()]).args(["run", "--"]).args([program])
            }
            Way::Default => {
                let area = "SHUNT_HOSTS=10.77.0.0/24";
                launch.args(["env", "-u", "SHUNT_BULK", area]).args([plan.shunt.as_os_str()]).args(["run", "--"]).args([program])
            }
            Way::Alone => {
                launch.args(["env", "SHUNT_HOSTS=none"]).args([plan.shunt.as_os_str()]).args(["run", "--"]).args([program])
            }
            Way::Taken => {
                let launch = launch.args(["env", "SHUNT_NEAR=off"]).args([plan.shunt.as_os_str()]);
                launch.args(["run", "--inet", "all", "--"]).args([program])
            }
            Way::ToPlain(false) => Way::Together.launch(host, plan, program),
            Way::Near | Way::Introduced | Way::ToPlain(true) => {
                let directory = format!("SHUNT_NEAR={}", self.near_directory(plan).display());
                let launch = launch.args(["env", "SHUNT_HOSTS=none", directory.as_str()]);
                launch.args([plan.shunt.as_os_str()]).args(["run", "--"]).args([program])
            }
            Way::Together => {
                let launch = launch.args(["env", "SHUNT_HOSTS=none", "SHUNT_NEAR=off"]);
                launch.args([plan.shunt.as_os_str()]).args(["run", "--"]).args([program])
            }
            _ => launch.args([program]),
        }
    }

    /// The server's way.
    fn server(self) -> Way {
        match self {
            Way::ToPlain(_) => Way::Blocking,
            _ => self,
        }
    }

    /// Where the programs meet.
    pub fn near_directory(self, plan: &Plan<'_>) -> PathBuf {
        plan.scratch.join(if self == Way::Introduced { "introduced" } else { "near" })
    }

    /// The server's address at the client.
    fn address(self, hosts: &[Host; 2]) -> String {
        match self {
            Way::Introduced | Way::Translated => hosts::SERVICE.to_string(),
            _ => hosts[1].addresses[0].to_string(),
        }
    }

    /// The client's host.
    fn client(self, hosts: &[Host; 2]) -> &Host {
        match self {
            Way::Together => &hosts[1],
            _ => &hosts[0],
        }
    }

    /// Whether the connection of this program from this local port goes another way than it should.
    fn is_missed(self, server: &Running, port: u16) -> bool {
        match self {
            Way::Shunt(_) => kernel_carries(server, port),
            // Their TCP connections stay beside the streams.
            Way::Near | Way::Introduced | Way::Together => !has_link(server),
            _ => false,
        }
    }

    /// What must hold while a turn runs.
    fn conditions(self, hosts: &[Host; 2], plan: &Plan<'_>) -> Result<Conditions, String> {
        let agents = match self {
            Way::Shunt(carrier) => agents(carrier, hosts.each_ref(), plan)?,
            _ => Vec::new(),
        };
        let switched = if self == Way::WithoutOffload { hosts.iter().map(Offload::switch_off).collect() } else { Ok(Vec::new()) };
        Ok(Conditions { _agents: agents, _offload: switched.map_err(|error| format!("segmentation offload: {error}"))? })
    }
}

struct Conditions {
    _agents: Vec<shunt_testkit::agent::Agent>,
    _offload: Vec<Offload>,
}

/// Whether the kernel carries a connection of this program from this local port. None of them forks, and to look for descendants, among
/// all processes, would take a processor from the measured ones for milliseconds.
fn kernel_carries(running: &Running, port: u16) -> bool {
    hosts::kernel_carries(running.process().as_raw() as u32, port)
}

/// Whether the program has memory in common with a client.
fn has_link(running: &Running) -> bool {
    let entries = std::fs::read_dir(format!("/proc/{}/fd", running.process())).into_iter().flatten().flatten();
    entries.filter_map(|entry| std::fs::read_link(entry.path()).ok()).any(|link| link.to_string_lossy().contains("shunt-link"))
}

/// Turns of one contender that may fall back to the kernel before the measurement gives up: on a busy machine a peer's keeper may
/// get no processor within the time that connect allows.
const TRIES: usize = 5;

/// [`run_pair_once`], again if the connection went through the kernel.
fn run_pair(
    way: Way,
    hosts: &[Host; 2],
    plan: &Plan<'_>,
    program: Measuring,
    arguments: &[String],
    samples: Option<&Path>,
) -> Result<[Report; 2], String> {
    again(|| run_pair_once(way, hosts, plan, program, arguments, samples))
}

/// Repeats a turn whose connection was not accelerated, and says so.
fn again<T>(mut turn: impl FnMut() -> Result<T, String>) -> Result<T, String> {
    let mut fell_back = 0;
    loop {
        match turn() {
            Err(error) if error == NOT_ACCELERATED && fell_back + 1 < TRIES => fell_back += 1,
            result => {
                if fell_back > 0 {
                    eprintln!("(a turn went through the kernel {fell_back} times before this one, and was repeated)");
                }
                return result;
            }
        }
    }
}

/// One server and one client; what each said about itself, and the median of the client's samples if it wrote some.
fn run_pair_once(
    way: Way,
    hosts: &[Host; 2],
    plan: &Plan<'_>,
    program: Measuring,
    arguments: &[String],
    samples: Option<&Path>,
) -> Result<[Report; 2], String> {
    let _conditions = way.conditions(hosts, plan)?;
    let (port, address) = (next_port(), hosts[1].addresses[0].to_string());
    let path = program.path(plan.scratch);
    let place = |address| ["--port".to_string(), port.to_string(), "--host".to_string(), address];
    let milliseconds = plan.time.as_millis().to_string();
    let run = || -> io::Result<[Report; 2]> {
        let server = way.server().launch(&hosts[1], plan, &path).args(["server"]).args(place(address)).args(arguments);
        let mut server = server.core(plan.cores().1).start(plan.scratch)?;
        server.wait_for_output("ready", START_LIMIT)?;
        let client = way.launch(way.client(hosts), plan, &path).args(["client"]).args(place(way.address(hosts))).args(arguments);
        let client = client.args(["--milliseconds", &milliseconds]);
        let client = samples.iter().fold(client, |client, path| client.args(["--samples".as_ref(), path.as_os_str()]));
        let mut client = client.core(plan.cores().0).start(plan.scratch)?;
        // In the middle of the turn, when every connection stands.
        let ended = client.wait_end(plan.time / 2 + Duration::from_millis(20))?;
        if !ended && way.is_missed(&server, port) {
            return Err(io::Error::other(NOT_ACCELERATED));
        }
        let said = |output: String| {
            let line = output.lines().rev().find(|line| line.starts_with('{')).unwrap_or_default().to_string();
            serde_json::from_str::<Report>(&line).map_err(io::Error::other)
        };
        let (client, server) = (client.finish(RUN_LIMIT)?, server.finish(RUN_LIMIT)?);
        Ok([said(client.output)?, said(server.output)?])
    };
    run().map_err(|error| error.to_string())
}

impl Contender for Programs {
    fn name(&self) -> &'static str {
        self.name
    }

    fn round_trip(&self, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<f64, String> {
        let samples = plan.scratch.join("samples");
        let mut arguments = vec!["--size".to_string(), size.to_string()];
        if matches!(self.way, Way::Spinning | Way::WithoutOffload) {
            arguments.extend(["--spin".to_string(), "1".to_string()]);
        }
        run_pair(self.way, hosts, plan, Measuring::PingPong, &arguments, Some(&samples))?;
        let bytes = std::fs::read(&samples).map_err(|error| error.to_string())?;
        let mut times: Vec<u32> =
            bytes.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]])).collect();
        times.sort_unstable();
        times.get(times.len() / 2).map(|time| f64::from(*time) / 1e9).ok_or_else(|| "no samples".to_string())
    }

    fn stream(&self, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<Streamed, String> {
        let arguments = ["--size".to_string(), size.to_string()];
        let [client, server] = run_pair(self.way, hosts, plan, Measuring::Stream, &arguments, None)?;
        let seconds = client.elapsed_ns as f64 / 1e9;
        let processor = (client.cpu_ns + server.cpu_ns) as f64 / 1e9;
        Ok(Streamed { messages: client.operations as f64 / size as f64, seconds, processor, lost: 0.0 })
    }
}

/// Connections one after another, made, accepted and closed: seconds that each takes.
pub fn connect(way: Way, hosts: &[Host; 2], plan: &Plan<'_>, connections: u32) -> Result<f64, String> {
    let arguments = ["--connections".to_string(), connections.to_string()];
    let [client, server] = run_pair_once(way, hosts, plan, Measuring::Connect, &arguments, None)?;
    let end = server.end_ns.max(client.end_ns);
    Ok((end - client.start_ns) as f64 / 1e9 / client.operations.max(1) as f64)
}

/// Whether a program's stream to the other host is accelerated over this device.
///
/// # Errors
/// Anything else that keeps the programs from running.
pub fn accelerates(carrier: Carrier, hosts: &[Host; 2], plan: &Plan<'_>) -> Result<bool, String> {
    match run_pair(Way::Shunt(carrier), hosts, plan, Measuring::PingPong, &[], None) {
        Ok(_) => Ok(true),
        Err(error) if error == NOT_ACCELERATED => Ok(false),
        Err(error) => Err(error),
    }
}

const NOT_ACCELERATED: &str = "the connection was not accelerated";

/// redis-server on one host, redis-benchmark on the other, with so many connections and requests under way in each: requests in a
/// second, and microseconds of processor time that each cost both hosts.
pub fn redis(way: Way, hosts: &[Host; 2], plan: &Plan<'_>, load: (u32, u32), requests: u32) -> Result<(f64, f64), String> {
    again(|| redis_once(way, hosts, plan, load, requests))
}

fn redis_once(
    way: Way,
    hosts: &[Host; 2],
    plan: &Plan<'_>,
    (connections, pipeline): (u32, u32),
    requests: u32,
) -> Result<(f64, f64), String> {
    let server = External { name: "redis-server", package: "redis-server" }.find()?;
    let client = External { name: "redis-benchmark", package: "redis-tools" }.find()?;
    let _conditions = way.conditions(hosts, plan)?;
    let (port, address) = (next_port(), hosts[1].addresses[0].to_string());
    let run = || -> io::Result<(f64, f64)> {
        let server = way.server().launch(&hosts[1], plan, &server).args(["--port", &port.to_string(), "--bind", &address]);
        let server = server.args(["--save", "", "--appendonly", "no", "--protected-mode", "no"]);
        let mut server = server.core(plan.cores().1).start(plan.scratch)?;
        server.wait_for_output("Ready to accept connections", START_LIMIT)?;
        let client = way.launch(way.client(hosts), plan, &client).args([
            "-h",
            &way.address(hosts),
            "-p",
            &port.to_string(),
            "-t",
            "get",
            "--csv",
        ]);
        let client = client.args(["-c", &connections.to_string(), "-P", &pipeline.to_string(), "-n", &requests.to_string()]);
        let client = client.core(plan.cores().0).start(plan.scratch)?;
        // redis-benchmark asks for the configuration by a connection of its own first.
        let mut client = client;
        let ended = client.wait_end(Duration::from_millis(200))?;
        if !ended && way.is_missed(&server, port) {
            return Err(io::Error::other(NOT_ACCELERATED));
        }
        let client = client.finish(RUN_LIMIT)?;
        let processor = client.cpu + server.cpu();
        server.stop(Signal::SIGTERM, Duration::from_secs(2));
        let rate = crate::cells::redis::rate(&client.output)?;
        Ok((rate, processor.as_secs_f64() * 1e6 / f64::from(requests)))
    };
    run().map_err(|error| error.to_string())
}

/// Segmentation offload of an interface is off while this exists.
struct Offload {
    host: RawFd,
    interface: String,
}

/// linux/ethtool.h: generic and TCP segmentation on sending, joining on receiving.
const FEATURES: [u32; 3] = [0x24, 0x1f, 0x2c];

impl Offload {
    fn switch_off(host: &Host) -> io::Result<Offload> {
        let offload = Offload { host: host.namespace(), interface: host.interface.clone() };
        host.enter(|| set_features(&offload.interface, 0))?;
        Ok(offload)
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        let (host, interface) = (self.host, self.interface.as_str());
        let restored = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // SAFETY: concerns the new thread alone; the descriptor belongs to a host that outlives the turn.
                match unsafe { libc::setns(host, libc::CLONE_NEWNET) } {
                    0 => set_features(interface, 1),
                    _ => Err(io::Error::last_os_error()),
                }
            });
            thread.join().expect("the thread does not panic")
        });
        if let Err(error) = restored {
            eprintln!("segmentation offload of {interface} stays off: {error}");
        }
    }
}

/// netdevice(7), SIOCETHTOOL: switches each of the features.
fn set_features(interface: &str, on: u32) -> io::Result<()> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    let socket = std::net::UdpSocket::bind("0.0.0.0:0")?;
    for command in FEATURES {
        // struct ethtool_value: a command and a value.
        let mut value = [command, on];
        // SAFETY: zero is a valid ifreq.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().take(libc::IFNAMSIZ - 1).zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
        // SAFETY: the request and the value that it points to outlive the call.
        if unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL as _, &request) } == -1 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
