//! One run of one part on one side.
//!
//! A run has a network namespace with nothing but loopback, and a process namespace: whatever it leaves behind ends with
//! it. A shell stays the first process in there, since a first process is spared signals that tests want to die of.

use crate::paths;
use crate::suite::{Part, Suite};
use crate::verdicts::{self, Verdicts};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What carries the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The kernel's TCP, without any library of ours.
    Kernel,
    /// `shunt run`.
    Shunt,
}

impl Side {
    /// As files are named.
    pub fn name(self) -> &'static str {
        match self {
            Side::Kernel => "kernel",
            Side::Shunt => "shunt",
        }
    }
}

/// The name under which a whole run's end is compared.
pub const WHOLE: &str = "(the run's end)";

/// What the first process does. The default congestion control may be one that paces loopback (bbr), and the user that runs us in
/// the background may have told us to ignore signals that tests send themselves.
const INSIDE: &str = "ip link set lo up; echo reno 2>/dev/null >/proc/sys/net/ipv4/tcp_congestion_control; nice env --default-signal \"$@\"; status=$?
    cat /proc/net/snmp >\"$VERDICTS.snmp\"; exit $status";

/// What came of a run.
#[derive(Debug, Default)]
pub struct Run {
    /// By case.
    pub verdicts: Verdicts,
    /// Connections that the kernel's TCP was asked to open in there (ActiveOpens, RFC 4022): those that shunt carries
    /// are none of them. A run that did not end tells nothing.
    pub opened: Option<u64>,
    /// How often `shunt why` gave each reason, `accelerated` among them, as far as the run asked: `$VERDICTS.why`.
    pub reasons: BTreeMap<String, u64>,
}

/// Runs a part, or of a part that runs for each file only `cases`, and gives the verdicts.
///
/// # Errors
/// A sentence, when it could not be run at all.
pub fn run(suite: &Suite, part: &Part, side: Side, cases: Option<&[String]>) -> Result<Run, String> {
    let place = paths::work().join("runs").join(&suite.name).join(&part.name).join(side.name());
    let _ = fs::remove_dir_all(&place);
    if part.each.is_empty() {
        return run_once(suite, part, side, None, &place);
    }
    let mut all = Run { opened: Some(0), ..Run::default() };
    let files = suite.files(part)?;
    for (index, file) in files.iter().enumerate() {
        if cases.is_none_or(|cases| cases.iter().any(|case| case == file)) {
            let mut run = run_once(suite, part, side, Some(file), &place.join(index.to_string()))?;
            all.opened = all.opened.zip(run.opened).map(|(before, here)| before + here);
            all.verdicts.extend(run.verdicts.remove(WHOLE).map(|verdict| (file.clone(), verdict)));
            all.verdicts.extend(run.verdicts.into_iter().map(|(case, verdict)| (format!("{file}: {case}"), verdict)));
        }
    }
    Ok(all)
}

fn run_once(suite: &Suite, part: &Part, side: Side, case: Option<&str>, place: &Path) -> Result<Run, String> {
    // A short path: tests bind AF_UNIX sockets in there, whose names end after 107 bytes.
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let scratch = std::env::temp_dir().join(format!("conformance-{}-{number}", std::process::id()));
    let _ = fs::remove_dir_all(&scratch);
    for directory in [&scratch, place] {
        fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    let log = place.join("log");
    let told = place.join("verdicts");
    let mut command = Command::new("unshare");
    command.args(namespaces()).args(["--", "sh", "-c", INSIDE, "sh"]);
    if side == Side::Shunt {
        command.arg(paths::shunt()?).args(["run", "--"]);
    }
    command.args(["bash", "-c", &part.command]);
    suite.environment(&mut command);
    let excluded: Vec<&str> =
        suite.excluded.iter().filter_map(|exception| exception.case.split_once('/')).map(|(_, case)| case).collect();
    command
        .env("EXCLUDED", excluded.join("\n"))
        .env("VERDICTS", &told)
        .env("TMPDIR", &scratch)
        .env("CASE", case.unwrap_or_default());
    let output = File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    command.current_dir(&scratch).stdin(Stdio::null()).stdout(output).stderr(errors);
    let ended = within(&mut command, Duration::from_secs(part.limit))?;

    let output = without_path(&read(&log), &scratch);
    let mut verdicts = verdicts::read(part.verdicts, &output, &read(&told));
    verdicts.retain(|case, _| suite.excluded(part, case).is_none());
    verdicts.insert(WHOLE.into(), told_end(ended, part.limit));
    let _ = fs::remove_dir_all(&scratch);
    let opened = opened(&read(&place.join("verdicts.snmp")));
    Ok(Run { verdicts, opened, reasons: reasons(&read(&place.join("verdicts.why"))) })
}

/// The sums of lines such as `nginx: accelerated 51, peer-plain 1, listening 2`.
fn reasons(lines: &str) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for (_, counts) in lines.lines().filter_map(|line| line.split_once(": ")) {
        for (reason, count) in counts.split(", ").filter_map(|count| count.split_once(' ')) {
            *sums.entry(reason.to_owned()).or_default() += count.parse().unwrap_or(0);
        }
    }
    sums
}

/// ActiveOpens of /proc/net/snmp: a line of names and a line of figures for each protocol.
fn opened(table: &str) -> Option<u64> {
    let mut lines = table.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, figures) = (lines.next()?, lines.next()?);
    let mut columns = names.split(' ').zip(figures.split(' '));
    columns.find(|(name, _)| *name == "ActiveOpens").and_then(|(_, figure)| figure.parse().ok())
}

/// A run's output with what it calls its own scratch files, which has another name in each run, made the same.
fn without_path(output: &str, scratch: &Path) -> String {
    let path = scratch.to_string_lossy();
    let mut pieces = output.split(&*path);
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| text + "SCRATCH" + piece.trim_start_matches(|c: char| !c.is_whitespace()))
}

fn read(file: &Path) -> String {
    fs::read(file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn told_end(ended: Option<ExitStatus>, limit: u64) -> String {
    match ended {
        None => format!("failed: did not end in {limit} s"),
        Some(status) => match (status.code(), status.signal()) {
            (Some(0), _) => "ok".into(),
            (Some(code), _) => format!("failed: exit {code}"),
            (None, signal) => format!("failed: signal {}", signal.unwrap_or(0)),
        },
    }
}

/// Waits for the process; at the deadline its namespace, and with it all that it started, is ended.
fn within(command: &mut Command, limit: Duration) -> Result<Option<ExitStatus>, String> {
    let mut child = command.spawn().map_err(|error| format!("unshare: {error}"))?;
    let deadline = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(Some(status)),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(20)),
            Ok(None) => {
                child.kill().and_then(|()| child.wait()).map_err(|error| format!("unshare: {error}"))?;
                return Ok(None);
            }
            Err(error) => return Err(format!("unshare: {error}")),
        }
    }
}

/// What `unshare` is asked for; a user other than root needs a user namespace as well.
fn namespaces() -> &'static [&'static str] {
    const MINE: &[&str] = &["--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
    const USER: &[&str] = &["--user", "--map-root-user", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
    static CHOSEN: std::sync::OnceLock<&[&str]> = std::sync::OnceLock::new();
    CHOSEN.get_or_init(|| {
        let works = |flags: &[&str]| {
            let status = Command::new("unshare").args(flags).arg("true").stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        if works(MINE) {
            MINE
        } else {
            USER
        }
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn connections_are_counted() {
        let table = "Ip: Forwarding\nIp: 2\nTcp: RtoAlgorithm ActiveOpens PassiveOpens\nTcp: 1 42 41\n";
        assert_eq!(super::opened(table), Some(42));
        assert_eq!(super::opened(""), None);
    }

    #[test]
    fn reasons_are_summed() {
        let sums = super::reasons("nginx: accelerated 5, peer-plain 1\nnginx: accelerated 2, listening 1\n");
        let told: Vec<(&str, u64)> = sums.iter().map(|(reason, count)| (&**reason, *count)).collect();
        assert_eq!(told, [("accelerated", 7), ("listening", 1), ("peer-plain", 1)]);
    }

    #[test]
    fn scratch_names_are_the_same_in_each_run() {
        let told = super::without_path("ok 1 - made /tmp/c-1/x9Qf2 there\nok 2", std::path::Path::new("/tmp/c-1"));
        assert_eq!(told, "ok 1 - made SCRATCH there\nok 2");
    }
}
