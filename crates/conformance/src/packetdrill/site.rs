//! Two hosts for one script: packetdrill's client at the kernel under test, and its server at the other end of the wire.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use shunt_testkit::agent::Agent;
use shunt_testkit::hosts::{self, Host, Joint, Offload};

use super::{Plan, Verdict};
use crate::paths;

/// Longer than any script.
const DEADLINE: Duration = Duration::from_secs(90);
/// What scripts may be late by, in microseconds: the machine is in use.
const TOLERANCE: &str = "--tolerance_usecs=30000";
/// What scripts and packetdrill call on this machine goes through these first: its namespace has no interface `tun0`, and may choose no congestion control
/// but those that the system allows to all.
const TOOLS: [(&str, &str); 2] = [
    ("tc", "#!/bin/sh\nexit 0\n"),
    (
        "sysctl",
        "#!/bin/sh\nfor word; do shift\n  case $word in net.ipv4.tcp_congestion_control=*)\n    allowed=$(cat /proc/sys/net/ipv4/tcp_allowed_congestion_control)\n    \
         case \" $allowed \" in *\" ${word#*=} \"*) ;; *) word=net.ipv4.tcp_congestion_control=reno ;; esac ;;\n  esac\n  set -- \"$@\" \"$word\"\ndone\n\
         PATH=/usr/sbin:/sbin:/usr/bin:/bin exec sysctl \"$@\"\n",
    ),
];

/// Where things are.
pub struct Site {
    packetdrill: PathBuf,
    tools: PathBuf,
    library: PathBuf,
    shunt: PathBuf,
}

/// A process that ends with its script.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Site {
    /// Looks whether all is there.
    pub fn prepare(source: &Path) -> Result<Site, String> {
        let packetdrill = source.join("gtests/net/packetdrill/packetdrill");
        let library = paths::workspace().join("target/release/libshunt_drill.so");
        for (file, how) in [(&packetdrill, "./configure && make there"), (&library, "cargo build --release -p shunt-drill")] {
            if !file.is_file() {
                return Err(format!("{} is not built: {how}", file.display()));
            }
        }
        let tools = paths::work().join("packetdrill");
        fs::create_dir_all(&tools).map_err(|error| format!("{}: {error}", tools.display()))?;
        for (name, text) in TOOLS {
            let file = tools.join(name);
            let made = fs::write(&file, text).and_then(|()| fs::set_permissions(&file, fs::Permissions::from_mode(0o755)));
            made.map_err(|error| format!("{}: {error}", file.display()))?;
        }
        Ok(Site { packetdrill, tools, library, shunt: paths::shunt()? })
    }

    /// Runs a script; with a plan, an agent takes its connections.
    pub fn run(&self, script: &Path, plan: Option<Plan>) -> Result<Verdict, String> {
        let hosts = hosts::pair(Joint::default())?;
        for host in &hosts {
            // packetdrill wants segments as they are on a wire, with their checksums.
            for what in [Offload::Sums, Offload::Segments, Offload::Cutting, Offload::Joining] {
                host.offload(what, false).map_err(|error| format!("offloads: {error}"))?;
            }
            // Or the server's kernel answers that it is no router.
            host.set("net/ipv4/ip_forward", "0").map_err(|error| format!("forwarding: {error}"))?;
        }
        let _agent = match plan {
            Some(_) => Some(Agent::start(&hosts[0], &self.shunt, &["--lend", "0", "--take"])?),
            None => None,
        };
        let mut server = self.command(&hosts[1], script);
        server
            .args(["--wire_server", &format!("--wire_server_dev={}", hosts[1].interface)])
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        let _server = Running(server.spawn().map_err(|error| format!("packetdrill: {error}"))?);
        wait_for_listener(&hosts[1]);
        let report = self.tools.join(format!("report.{}", std::process::id()));
        let _ = fs::remove_file(&report);
        let mut client = self.command(&hosts[0], script);
        client.args([
            "--wire_client",
            &format!("--wire_client_dev={}", hosts[0].interface),
            &format!("--wire_server_at={}", hosts[1].addresses[0]),
            "--local_ip=192.168.0.1",
            "--gateway_ip=192.168.0.2",
            "--netmask_ip=255.255.0.0",
            "--remote_ip=192.0.2.1",
            TOLERANCE,
        ]);
        for word in
            ["TFO_COOKIE=3021b9d889017eeb", "CODE=host_unreachable", "CMSG_LEVEL_IP=SOL_IP", "CMSG_TYPE_RECVERR=IP_RECVERR"]
        {
            client.args(["-D", word]);
        }
        client.arg(script.file_name().unwrap_or_default());
        if let Some(Plan { calls, frames }) = plan {
            client
                .env("LD_PRELOAD", &self.library)
                .env("SHUNT_DRILL_INTERFACE", &hosts[0].interface)
                .env("SHUNT_DRILL_EVERY", calls.to_string())
                .env("SHUNT_DRILL_FRAMES", frames.to_string())
                .env("SHUNT_DRILL_REPORT", &report);
        }
        let complaint = finish(client)?;
        let told = fs::read_to_string(&report).unwrap_or_default();
        let counts = told
            .lines()
            .filter_map(|line| line.rsplit_once(' '))
            .filter_map(|(what, count)| Some((what.to_string(), count.parse().ok()?)));
        Ok(Verdict { complaint, counts: counts.collect() })
    }

    fn command(&self, host: &Host, script: &Path) -> Command {
        let mut command = host.command(&self.packetdrill);
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:/usr/sbin:/sbin:{path}", self.tools.display()));
        command.current_dir(script.parent().unwrap_or(Path::new("."))).stdin(Stdio::null());
        command
    }
}

/// The server is there when its port is in the table.
fn wait_for_listener(host: &Host) {
    const PORT: &str = ":1F91 "; // 8081
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        let table = host.enter(|| fs::read_to_string("/proc/thread-self/net/tcp").unwrap_or_default());
        if table.lines().any(|line| line.contains(PORT)) {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What it complains of, at last; `None`: it passed.
fn finish(mut command: Command) -> Result<Option<String>, String> {
    let spawned = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn();
    let mut client = Running(spawned.map_err(|error| format!("packetdrill: {error}"))?);
    let until = Instant::now() + DEADLINE;
    let status = loop {
        match client.0.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if Instant::now() >= until => return Ok(Some("it does not end".to_string())),
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let mut said = String::new();
    if let Some(mut output) = client.0.stderr.take() {
        let _ = output.read_to_string(&mut said);
    }
    let words: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = words[words.len().saturating_sub(3)..].join("\n    ");
    Ok(if status.success() { None } else { Some(format!("{status}: {last}")) })
}
