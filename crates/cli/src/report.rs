//! `shunt report`: what a bug report needs, in one text file that its sender can read before it is sent.
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use clap::{value_parser, Arg, ArgMatches};

use crate::failure::Failure;
use crate::inspect::processes;
use crate::output::{print, replace};
use crate::run::library;
use crate::this_command;

/// As clap sees it.
pub fn command() -> clap::Command {
    clap::Command::new("report")
        .about("Write one file for a bug report: versions, doctor, configuration, connections, reasons, and what /proc says of your programs")
        .arg(
            Arg::new("output")
                .short('o')
                .long("output")
                .value_name("FILE")
                .help("Write it there; - for standard output [default: shunt-report-DATE.txt here]")
                .value_parser(value_parser!(OsString)),
        )
        .after_help(
            "It is text: look at it before you send it. It holds names of programs, numbers of users and processes, addresses and ports,\n\
             paths of loaded files, and variables whose names begin with SHUNT_ or LD_. It holds no arguments of programs, no other\n\
             variable, and no byte of a connection.",
        )
}

/// A part may take so long.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes kept of a part.
const MOST: usize = 1 << 20;
/// Processes that are told of one by one.
const PROCESSES: usize = 50;

/// Writes it.
///
/// # Errors
/// If the file cannot be written.
pub fn report(matches: &ArgMatches) -> Result<u8, Failure> {
    let text = text();
    let path = match matches.get_one::<OsString>("output") {
        Some(path) if path == "-" => return print(&text).map(|()| 0),
        Some(path) => PathBuf::from(path),
        None => {
            let seconds = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
            PathBuf::from(format!("shunt-report-{}.txt", date(seconds)))
        }
    };
    // Others of the host need not read it.
    replace(&path, &text, 0o600)?;
    print(&format!("{}: {} bytes of text; look at it before you send it\n", path.display(), text.len()))?;
    Ok(0)
}

fn text() -> String {
    let mut text = String::new();
    let mut part = |name: &str, content: &str| {
        let _ = write!(text, "==== {name}\n{}\n", content.trim_end());
    };
    part("shunt", &versions());
    part("machine", &machine());
    for words in [&["doctor"][..], &["config"], &["ss", "--all"], &["ss", "--all", "--json"], &["metrics"], &["agent", "status"]]
    {
        part(&format!("shunt {}", words.join(" ")), &own(words));
    }
    let under_shunt: Vec<u32> = processes::all().into_iter().filter(|pid| processes::has_mapped(*pid, library::FILE)).collect();
    for pid in under_shunt.iter().take(PROCESSES) {
        part(&format!("shunt why {pid}"), &own(&["why", &pid.to_string()]));
        part(&format!("/proc/{pid}"), &process(*pid));
    }
    if under_shunt.len() > PROCESSES {
        part("more", &format!("{} further processes are under shunt", under_shunt.len() - PROCESSES));
    }
    text
}

fn versions() -> String {
    let mut text = format!("command {} (segments {})\n", env!("CARGO_PKG_VERSION"), shunt_segment::VERSION);
    let told = |path: &Path| match std::fs::metadata(path) {
        Ok(metadata) => format!("{} ({} bytes)", path.display(), metadata.len()),
        Err(error) => format!("{} ({error})", path.display()),
    };
    if let Ok(path) = this_command::path() {
        let _ = writeln!(text, "file {}", told(&path));
    }
    match library::find(std::env::var_os(library::VARIABLE).as_deref(), library::VARIABLE) {
        Ok(path) => writeln!(text, "library {}", told(&path)),
        Err(failure) => writeln!(text, "library: {}", failure.message),
    }
    .unwrap_or(());
    text
}

/// Lines of files of the system that begin with these words; all of them without.
const FILES: [(&str, &[&str]); 15] = [
    ("/etc/os-release", &["PRETTY_NAME"]),
    ("/proc/version", &[]),
    ("/proc/cpuinfo", &["model name", "cpu MHz", "cache size", "siblings", "flags"]),
    ("/proc/meminfo", &["MemTotal", "MemAvailable", "Shmem", "SwapTotal", "HugePages_Total"]),
    ("/proc/loadavg", &[]),
    ("/proc/self/limits", &[]),
    ("/proc/self/cgroup", &[]),
    ("/proc/sys/kernel/yama/ptrace_scope", &[]),
    ("/proc/sys/kernel/unprivileged_userns_clone", &[]),
    ("/proc/sys/kernel/osrelease", &[]),
    ("/proc/sys/net/ipv4/tcp_congestion_control", &[]),
    ("/proc/sys/net/ipv4/ip_local_port_range", &[]),
    ("/proc/sys/net/core/somaxconn", &[]),
    ("/proc/sys/fs/file-max", &[]),
    ("/sys/kernel/mm/transparent_hugepage/shmem_enabled", &[]),
];

fn machine() -> String {
    FILES.iter().map(|(path, words)| excerpt(Path::new(path), words)).collect()
}

/// The lines of a file that begin with one of the words, each once.
fn excerpt(path: &Path, words: &[&str]) -> String {
    let content = match std::fs::read(path) {
        Ok(content) => String::from_utf8_lossy(&content).into_owned(),
        Err(error) => return format!("{}: {error}\n", path.display()),
    };
    let mut lines: Vec<&str> = Vec::new();
    for line in content.lines() {
        if (words.is_empty() || words.iter().any(|word| line.starts_with(word))) && !lines.contains(&line) {
            lines.push(line);
        }
    }
    format!("{}:\n{}\n", path.display(), lines.iter().map(|line| format!("  {line}\n")).collect::<String>().trim_end())
}

/// Words of /proc/PID/status that say what a process may do.
const STATUS: [&str; 14] = [
    "Name",
    "State",
    "Pid",
    "PPid",
    "TracerPid",
    "Uid",
    "Gid",
    "NSpid",
    "Threads",
    "VmSize",
    "VmRSS",
    "CapEff",
    "NoNewPrivs",
    "Seccomp",
];

fn process(pid: u32) -> String {
    let mut text = String::new();
    if let Ok(path) = std::fs::read_link(processes::path(pid, "exe")) {
        let _ = writeln!(text, "exe: {}", processes::printable(path.as_os_str().as_bytes()));
    }
    text += &excerpt(&processes::path(pid, "status"), &STATUS);
    text +=
        &excerpt(&processes::path(pid, "limits"), &["Max open files", "Max file size", "Max address space", "Max locked memory"]);
    text += &excerpt(&processes::path(pid, "cgroup"), &[]);
    let mut namespaces: Vec<String> = ["net", "pid", "user", "mnt"]
        .iter()
        .filter_map(|name| std::fs::read_link(processes::path(pid, &format!("ns/{name}"))).ok())
        .map(|link| link.display().to_string())
        .collect();
    namespaces.sort();
    let _ = writeln!(text, "namespaces: {}", namespaces.join(" "));
    let _ = writeln!(text, "variables:");
    for (name, value) in processes::environment(pid).into_iter().filter(|(name, _)| is_told(name)) {
        let _ = writeln!(text, "  {}={}", processes::printable(&name), processes::printable(&value));
    }
    let _ = writeln!(text, "loaded files:");
    for file in loaded(&String::from_utf8_lossy(&std::fs::read(processes::path(pid, "maps")).unwrap_or_default())) {
        let _ = writeln!(text, "  {}", processes::printable(file.as_bytes()));
    }
    let mut kinds = std::collections::BTreeMap::<String, usize>::new();
    for descriptor in processes::descriptors(pid).unwrap_or_default() {
        let kind = match descriptor.target {
            processes::Target::Socket(_) => "sockets".to_owned(),
            processes::Target::Memory(name) => format!("memfd {}", processes::printable(name.as_bytes())),
            processes::Target::Epoll => "epoll sets".to_owned(),
            processes::Target::Other => "others".to_owned(),
        };
        *kinds.entry(kind).or_default() += 1;
    }
    let _ = writeln!(
        text,
        "descriptors: {}",
        kinds.iter().map(|(kind, count)| format!("{count} {kind}")).collect::<Vec<_>>().join(", ")
    );
    text
}

/// Whether a variable is told: only those that say how shunt and the loader were set up. Others may hold secrets.
fn is_told(name: &[u8]) -> bool {
    name.starts_with(b"SHUNT_") || [&b"LD_PRELOAD"[..], b"LD_LIBRARY_PATH", b"LD_AUDIT", b"LD_BIND_NOW"].contains(&name)
}

/// The files whose code is mapped, each once.
fn loaded(maps: &str) -> Vec<&str> {
    let mut files: Vec<&str> = Vec::new();
    for line in maps.lines() {
        let mut columns = line.split_ascii_whitespace();
        let executable = columns.nth(1).is_some_and(|mode| mode.contains('x'));
        if let (true, Some(at)) = (executable, line.find('/')) {
            if !files.contains(&&line[at..]) {
                files.push(&line[at..]);
            }
        }
    }
    files
}

/// What a command of this one prints. It cannot harm the report: not by its end, and not by taking for ever.
fn own(words: &[&str]) -> String {
    let Ok(path) = this_command::path() else { return "this command's own file cannot be found".to_owned() };
    let spawned = Command::new(path)
        .args(words)
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => return format!("cannot be started: {error}"),
    };
    let read = |stream: Option<Box<dyn Read + Send>>| {
        let (told, read) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            // Read to the end, so that the writer is not held up.
            if let Some(mut stream) = stream {
                let _ = stream.by_ref().take(MOST as u64).read_to_end(&mut bytes);
                let _ = std::io::copy(&mut stream, &mut std::io::sink());
            }
            let _ = told.send(String::from_utf8_lossy(&bytes).into_owned());
        });
        read
    };
    let output = read(child.stdout.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let errors = read(child.stderr.take().map(|stream| Box::new(stream) as Box<dyn Read + Send>));
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.to_string(),
            Ok(None) if Instant::now() < end => std::thread::sleep(Duration::from_millis(5)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                break format!("ended after {} s", PATIENCE.as_secs());
            }
        }
    };
    // A process that it has started, and that has its output still, is not waited for.
    let patient = |read: std::sync::mpsc::Receiver<String>| read.recv_timeout(Duration::from_secs(2)).unwrap_or_default();
    let (output, errors) = (patient(output), patient(errors));
    let said = if errors.is_empty() { errors } else { format!("standard error:\n{errors}") };
    format!("{output}{said}({status})\n")
}

/// Seconds since 1970 as YYYYMMDD-HHMMSS, UTC: Howard Hinnant's civil_from_days.
fn date(seconds: u64) -> String {
    let (days, rest) = ((seconds / 86_400) as i64 + 719_468, seconds % 86_400);
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * of_year + 2) / 153;
    let (day, month) = (of_year - (153 * shifted + 2) / 5 + 1, if shifted < 10 { shifted + 3 } else { shifted - 9 });
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}{month:02}{day:02}-{:02}{:02}{:02}", rest / 3600, rest / 60 % 60, rest % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        assert_eq!(date(0), "19700101-000000");
        assert_eq!(date(951_782_400), "20000229-000000");
        assert_eq!(date(1_709_251_199), "20240229-235959");
        assert_eq!(date(4_102_444_800), "21000101-000000");
    }

    #[test]
    fn secrets_are_not_told() {
        assert!(is_told(b"SHUNT_SPIN") && is_told(b"LD_PRELOAD"));
        for name in ["AWS_SECRET_ACCESS_KEY", "PATH", "HOME", "MYSHUNT_X", "LD_PRELOAD_SECRET"] {
            assert!(!is_told(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn files_with_code_are_listed_once() {
        let maps = "1-2 r-xp 0 08:01 5 /usr/lib/a b.so\n2-3 r-xp 0 08:01 5 /usr/lib/a b.so\n3-4 rw-p 0 08:01 5 /usr/lib/c.so\n4-5 r-xp 0 0 0 [vdso]\n";
        assert_eq!(loaded(maps), ["/usr/lib/a b.so"]);
    }
}
