//! The last checks: the library is loaded into a program, and a connection between two programs is accelerated.
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use shunt_segment::process::kind;
use shunt_segment::reason::Reason;

use super::Check;
use crate::failure::Failure;
use crate::inspect::process_state::State;
use crate::inspect::processes::{self, Target};
use crate::run::library::VARIABLE;
use crate::this_command;

/// A program that says nothing for so long hangs.
const PATIENCE: Duration = Duration::from_secs(20);

/// The name of the check that tells whether programs load the library.
pub const LIBRARY: &str = "library";

/// The memory map of the process that reads it.
const MAPS: &str = "/proc/self/maps";

/// The checks that need the library.
pub fn library_and_connection(library: Result<PathBuf, Failure>) -> Vec<Check> {
    let library = match library {
        Ok(library) => library,
        Err(failure) => return vec![Check::missing(LIBRARY, failure.message, "shunt run cannot start programs")],
    };
    match loads(&library) {
        Ok(()) => vec![
            Check::ok(LIBRARY, library.display(), "a program loads it"),
            connection(&library).unwrap_or_else(|error| {
                Check::missing("trial connection", error, "programs under shunt may fail; please report this")
            }),
        ],
        Err(why) => {
            vec![Check::missing(LIBRARY, format_args!("{}: {why}", library.display()), "no program can load it")]
        }
    }
}

/// Runs cat(1) with the library, and looks for the library in the map of its memory.
fn loads(library: &Path) -> Result<(), String> {
    // Without /proc a complaint of the dynamic loader is all that can be looked for.
    let can_look = Path::new(MAPS).exists();
    let output = Command::new("cat")
        .arg(if can_look { MAPS } else { "/dev/null" })
        .env("LD_PRELOAD", library)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cat cannot be run: {error}"))?;
    let (maps, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let name = library.canonicalize().unwrap_or_else(|_| library.into());
    let loaded = if can_look { maps.contains(&*name.to_string_lossy()) } else { errors.is_empty() };
    match (output.status.success(), loaded) {
        (true, true) => Ok(()),
        (true, false) => Err(errors.lines().next().unwrap_or("the dynamic loader ignored it").to_owned()),
        (false, _) => Err(format!("a program with it ended with {}", output.status)),
    }
}

/// A probe under shunt. Dropping it ends it.
struct Probe {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Probe {
    fn start(library: &Path, arguments: &[&str]) -> std::io::Result<Probe> {
        let command = this_command::path()?;
        let mut probe = Command::new(&command);
        // It is the machine that is examined, not the options that happen to be set.
        for entry in &shunt_config::TABLE {
            probe.env_remove(entry.variable);
        }
        let mut child = probe
            .arg("run")
            .arg("--")
            .arg(&command)
            .args(["doctor", "--probe"])
            .args(arguments)
            .env(VARIABLE, library)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?);
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Ok(Probe { child, lines })
    }

    /// The next line that it prints.
    fn line(&mut self) -> Result<String, String> {
        self.lines.recv_timeout(PATIENCE).map_err(|_| {
            let _ = self.child.kill();
            let mut errors = String::new();
            if let Some(mut pipe) = self.child.stderr.take() {
                let _ = pipe.read_to_string(&mut errors);
            }
            match errors.trim() {
                "" => "a program under shunt hung or died".to_owned(),
                errors => errors.lines().last().unwrap_or_default().to_owned(),
            }
        })
    }

    /// Why its connection is carried as it is: the row of its first TCP socket that is no listener.
    fn reason(&self) -> Option<Reason> {
        let pid = self.child.id();
        let descriptors = processes::descriptors(pid).ok()?;
        let state = State::find(pid, &descriptors)?;
        descriptors
            .iter()
            .filter(|descriptor| matches!(descriptor.target, Target::Socket(_)))
            .filter_map(|descriptor| state.row(descriptor.number))
            .find(|row| matches!(row.kind, kind::STREAM | kind::TCP))?
            .reason
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn connection(library: &Path) -> Result<Check, String> {
    let name = "trial connection";
    let say = |error: std::io::Error| error.to_string();
    let mut server = Probe::start(library, &["serve"]).map_err(say)?;
    let port = server.line()?;
    let mut client = Probe::start(library, &["ask", &port]).map_err(say)?;
    client.line()?;
    Ok(match client.reason() {
        Some(Reason::Accelerated) => {
            Check::ok(name, "two programs talked through shared memory", "programs under shunt are accelerated")
        }
        Some(reason) => {
            Check::missing(name, format_args!("two programs talked through the kernel ({})", reason.word()), reason.text())
        }
        None if !Path::new(MAPS).exists() => {
            Check::limited(name, "two programs talked", "without /proc this command cannot see what carried their connection")
        }
        None => Check::missing(
            name,
            "two programs talked, and the library kept no record of it",
            "shunt why cannot tell what carries a connection",
        ),
    })
}
