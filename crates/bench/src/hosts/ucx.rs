//! UCX's own measuring program, where it is installed.

use std::io;
use std::time::Duration;

use super::Plan;
use crate::cells::peers::{ucx_one_way, UCX};
use crate::process::Launch;

const LIMIT: Duration = Duration::from_secs(20);

/// Nanoseconds of a round trip of 8 bytes between two processes over shared memory, both ends pinned and at real-time priority as
/// ours are; `None`: it is not installed, or does not run.
pub fn round_trip(plan: &Plan<'_>, test: &str, more: &[&str]) -> Option<f64> {
    let program = UCX.find().ok()?;
    let port = (13_000 + std::process::id() % 10_000).to_string();
    let end = |processor: usize, host: Option<&str>| {
        let launch = Launch::plain("env".as_ref()).args(["UCX_TLS=posix,self,sysv", "UCX_LOG_LEVEL=fatal", "chrt", "-f", "10"]);
        let launch = launch.args([program.as_os_str()]).args(["-t", test, "-s", "8", "-n", "100000", "-w", "10000", "-f"]);
        launch.args(["-p", &port]).args(more).args(host).core(processor).start(plan.scratch)
    };
    let run = || -> io::Result<f64> {
        let (own, other) = plan.cores();
        let mut server = end(other, None)?;
        // It says nothing when it listens.
        if server.wait_end(Duration::from_millis(300))? {
            return Err(io::Error::other("it ended"));
        }
        ucx_one_way(&end(own, Some("127.0.0.1"))?.finish(LIMIT)?.output)
    };
    run().ok().map(|one_way| one_way * 2e3)
}
