//! An agent on a host, for as long as a test needs it.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::hosts::Host;

/// `shunt agent` on a host's interface; killed when dropped.
pub struct Agent(Child);

impl Agent {
    /// Starts one, and returns when it serves.
    ///
    /// # Errors
    /// A sentence: it could not be started, or ended at once.
    pub fn start(host: &Host, shunt: impl AsRef<OsStr>, arguments: &[&str]) -> Result<Agent, String> {
        Agent::start_in(host, shunt, arguments, Path::new("."))
    }

    /// The same, in a directory.
    ///
    /// # Errors
    /// As there.
    pub fn start_in(host: &Host, shunt: impl AsRef<OsStr>, arguments: &[&str], directory: &Path) -> Result<Agent, String> {
        let mut command = host.command(shunt);
        command.current_dir(directory).args(["agent", "--interface", &host.interface]).args(arguments);
        let child = crate::launch::spawn(command.stdout(Stdio::piped())).map_err(|error| format!("the agent: {error}"))?;
        let mut agent = Agent(child);
        let mut lines = BufReader::new(agent.0.stdout.take().ok_or("no output of the agent")?);
        // Two lines say what it did; none come if it ends.
        for _ in 0..2 {
            let mut line = String::new();
            lines.read_line(&mut line).map_err(|error| error.to_string())?;
            if line.is_empty() {
                return Err("the agent did not start".to_string());
            }
        }
        Ok(agent)
    }

    /// Asks it to end (SIGTERM), and waits for that.
    pub fn stop(mut self) {
        // SAFETY: a child that was not waited for: the number is its.
        unsafe { libc::kill(self.0.id() as i32, libc::SIGTERM) };
        let _ = self.0.wait();
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Seconds of processor time that it has used.
    pub fn time(&self) -> f64 {
        let text = std::fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap_or_default();
        // Behind the name in brackets: state is field 3, user and system time are 14 and 15 (proc_pid_stat(5)).
        let fields: Vec<&str> = text.rsplit_once(')').map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        (ticks(12) + ticks(13)) / 100.0
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
