//! `shunt enable`, `disable` and `status`: a service of systemd under shunt, by a drop-in; and `shunt doctor --unit`.
//!
//! The drop-in says what `shunt run` would put into the program's environment, so units keep their own lines and their updates. Nothing is started
//! or restarted.
pub mod file;
pub mod hardening;
pub mod root;

use std::ffi::{OsStr, OsString};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{value_parser, Arg, ArgMatches, Command};
use serde::Serialize;

use crate::failure::{warn, Failure};
use crate::inspect::processes;
use crate::output::{print, print_json, replace_in};
use crate::run::library;
use crate::settings::{section_name, Files, Origin, Settings};
use file::{full_name, Unit};
use hardening::{findings, Effect, Finding};
use root::Root;

const DROP_IN: &str = "shunt.conf";
const FIRST_LINE: &str = "# Made by shunt enable; shunt disable removes it.";

fn root() -> Arg {
    Arg::new("root")
        .long("root")
        .value_name("DIRECTORY")
        .help("Units lie below this directory, as of an image [default: /]")
        .value_parser(value_parser!(OsString))
}

fn service() -> Arg {
    Arg::new("service").value_name("SERVICE").help("The unit, as redis-server or redis-server.service").required(true)
}

/// The three commands, as clap sees them.
pub fn commands() -> [Command; 3] {
    let enable = Command::new("enable")
        .about("Have a service of systemd run under shunt from its next start on")
        .arg(service())
        .arg(root())
        .arg(
            Arg::new("profile")
                .long("profile")
                .value_name("NAME")
                .help("Take the options of a profile (latency, throughput, frugal, or one of a file)"),
        )
        .arg(
            Arg::new("any-library")
                .long("any-library")
                .help("Preload the library though others than root may change it")
                .action(clap::ArgAction::SetTrue),
        )
        .after_help(
            "Writes /etc/systemd/system/SERVICE.service.d/shunt.conf: LD_PRELOAD, the options that configuration files and the profile give the\n\
             program, and what the unit's own directives would keep it from. A service reads no configuration file itself, so it is to be\n\
             enabled again when one changes. It is not restarted.\n\
             Exit status: 0 if it is written, 1 if something remains that keeps its connections on the kernel, or there is no such unit.",
        );
    let disable = Command::new("disable")
        .about("Take a service of systemd out of shunt from its next start on")
        .arg(service())
        .arg(root())
        .after_help("Removes the file that shunt enable wrote. The service is not restarted.");
    let status = Command::new("status")
        .about("Tell whether a service of systemd is to run under shunt, and whether it does")
        .arg(service())
        .arg(root())
        .arg(Arg::new("json").long("json").help("Print JSON (schema shunt.status/1)").action(clap::ArgAction::SetTrue))
        .after_help("Exit status: 0 if it is enabled, 3 if not, 1 if there is no such unit.");
    [enable, disable, status]
}

fn root_of(matches: &ArgMatches) -> Result<Root, Failure> {
    Root::open(Path::new(matches.get_one::<OsString>("root").map_or(OsStr::new("/"), |root| root)))
}

fn name_of(matches: &ArgMatches) -> &str {
    matches.get_one::<String>("service").map(String::as_str).unwrap_or_default()
}

fn drop_in(name: &str) -> PathBuf {
    Path::new("etc/systemd/system").join(format!("{name}.d")).join(DROP_IN)
}

/// Where the library lies for services: the installed one, or that of this command.
fn library_for_services() -> Result<PathBuf, Failure> {
    library::find(std::env::var_os(library::VARIABLE).as_deref(), library::VARIABLE)
}

/// Writes the drop-in.
///
/// # Errors
/// If there is no such unit, or the file cannot be written.
pub fn enable(matches: &ArgMatches) -> Result<u8, Failure> {
    let root = root_of(matches)?;
    let unit = Unit::read(&root, name_of(matches), Some(DROP_IN))?;
    let library = library_for_services()?;
    if library.as_os_str().as_bytes().iter().any(|byte| byte.is_ascii_whitespace() || b":\"'".contains(byte)) {
        return Err(Failure::of_environment(format_args!("{}: LD_PRELOAD cannot name such a path", library.display())));
    }
    if let Some(why) = library::writable_by_others(&library).filter(|_| !matches.get_flag("any-library")) {
        return Err(Failure::of_environment(format_args!(
            "{why}: its user's code would be the service's; install shunt (make install, or the package), or say --any-library"
        )));
    }
    let found = findings(&unit, &root, &library);
    let text = drop_in_text(&root, &unit, &library, &found, matches.get_one::<String>("profile").map(String::as_str))?;
    let path = drop_in(&unit.name);
    let shown = root.shown(&path);
    refuse_foreign(&root, &path)?;
    let directory = path.parent().unwrap_or(&path);
    let directory = root
        .make_directory(directory)
        .map_err(|error| Failure::of_environment(format_args!("{}: cannot be made: {error}", root.shown(directory).display())))?;
    replace_in(Path::new(&format!("/proc/self/fd/{}", directory.as_raw_fd())), &shown, &text, 0o644)?;
    print(&format!("{}: written\n", shown.display()))?;
    let answered = |finding: &Finding| finding.remedy.as_ref().is_some_and(|remedy| text.contains(remedy.as_str()));
    let remain: Vec<&Finding> = found.iter().filter(|finding| !answered(finding)).collect();
    for finding in &remain {
        print(&format!("{}: {} ({})\n", finding.directive, finding.follows, finding.from))?;
    }
    reload(&root)?;
    print(&format!("it holds from the next start on: systemctl restart {}\n", unit.name))?;
    Ok(u8::from(remain.iter().any(|finding| finding.effect == Effect::Missing)))
}

fn drop_in_text(root: &Root, unit: &Unit, library: &Path, found: &[Finding], profile: Option<&str>) -> Result<String, Failure> {
    let mut text = format!("{FIRST_LINE}\n[Service]\n");
    let quoted = |name: &str, value: &str| {
        // As systemd.exec(5) has it: specifiers begin with %, and \ and \" are escaped.
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
        format!("Environment=\"{name}={value}\"\n")
    };
    // What the unit preloads itself stays, before ours.
    let own: Vec<String> = unit.list("Environment").iter().flat_map(|line| preloaded(&line.value)).collect();
    let library = library.to_string_lossy();
    let all: Vec<&str> = own.iter().map(String::as_str).filter(|path| *path != library).chain([library.as_ref()]).collect();
    text += &quoted("LD_PRELOAD", &all.join(":"));

    let program = unit.programs().first().and_then(|path| section_name(path.as_os_str()).map(str::to_owned));
    let profile = profile.map(OsString::from);
    let flag = |name: &str| (name == crate::settings::PROFILE_FLAG).then_some(profile.as_deref()).flatten();
    // Variables of the command are not the service's, and neither are its user's files.
    let files = Files::of_system(root)?;
    let settings = Settings::resolve(&files, flag, |_: &str| None::<&OsStr>, program.as_deref())?;
    for setting in settings.list.iter().filter(|setting| !matches!(setting.origin, Origin::Default)) {
        text += &quoted(setting.entry.variable, &setting.value.to_string_lossy());
    }
    for finding in found {
        if let Some(remedy) = finding.remedy.as_ref().filter(|remedy| is_taken(remedy)) {
            text += &format!("# against {} ({})\n{remedy}\n", finding.directive.replace('\n', " "), finding.from);
        }
    }
    Ok(text)
}

/// What is said in the drop-in without asking: sockets between programs of one host, and files that are read. The rest is the administrator's to weigh.
fn is_taken(remedy: &str) -> bool {
    remedy.starts_with("RestrictAddressFamilies=") || remedy.starts_with("BindReadOnlyPaths=")
}

/// The libraries in an assignment of Environment.
fn preloaded(value: &str) -> Vec<String> {
    let Some(at) = value.find("LD_PRELOAD=") else { return vec![] };
    let rest = &value[at + "LD_PRELOAD=".len()..];
    let quoted = at > 0 && value.as_bytes()[at - 1] == b'"';
    let end = if quoted { rest.find('"') } else { rest.find(char::is_whitespace) };
    rest[..end.unwrap_or(rest.len())].split([':', ' ']).filter(|path| !path.is_empty()).map(str::to_owned).collect()
}

/// A file of this name that is not ours is left alone.
fn refuse_foreign(root: &Root, path: &Path) -> Result<(), Failure> {
    let shown = root.shown(path);
    match root.find(path).and_then(|file| file.read()) {
        Ok(text) if text.starts_with(FIRST_LINE.as_bytes()) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(_) => {
            Err(Failure::of_environment(format_args!("{}: was not made by shunt enable; it is left as it is", shown.display())))
        }
        Err(error) => Err(Failure::of_environment(format_args!("{}: cannot be read: {error}", shown.display()))),
    }
}

/// systemd reads units anew, where it runs and the units are its own.
fn reload(root: &Root) -> Result<(), Failure> {
    if !root.is_own() || !Path::new("/run/systemd/system").exists() {
        return Ok(());
    }
    match std::process::Command::new("systemctl").arg("daemon-reload").status() {
        Ok(status) if status.success() => Ok(()),
        other => {
            warn(format_args!(
                "systemctl daemon-reload: {}",
                other.map_or_else(|error| error.to_string(), |status| status.to_string())
            ));
            Ok(())
        }
    }
}

/// Removes the drop-in.
///
/// # Errors
/// If the file is another's, or cannot be removed.
pub fn disable(matches: &ArgMatches) -> Result<u8, Failure> {
    let root = root_of(matches)?;
    let name = full_name(name_of(matches))?;
    let path = drop_in(&name);
    let shown = root.shown(&path);
    if root.find(&path).is_err_and(|error| error.kind() == std::io::ErrorKind::NotFound) {
        print(&format!("{name} is not enabled: there is no {}\n", shown.display()))?;
        return Ok(0);
    }
    refuse_foreign(&root, &path)?;
    root.remove(&path)
        .map_err(|error| Failure::of_environment(format_args!("{}: cannot be removed: {error}", shown.display())))?;
    print(&format!("{}: removed\n", shown.display()))?;
    reload(&root)?;
    print(&format!("it holds from the next start on: systemctl restart {name}\n"))?;
    Ok(0)
}

#[derive(Serialize)]
struct Status {
    schema: &'static str,
    unit: String,
    files: Vec<String>,
    enabled: bool,
    /// The library that it is to load, and whether that is there.
    library: Option<String>,
    library_is_there: bool,
    processes: Vec<Running>,
    findings: Vec<Finding>,
}

#[derive(Serialize)]
struct Running {
    pid: u32,
    program: String,
    under_shunt: bool,
}

/// Tells of it.
///
/// # Errors
/// If there is no such unit.
pub fn status(matches: &ArgMatches) -> Result<u8, Failure> {
    let root = root_of(matches)?;
    let unit = Unit::read(&root, name_of(matches), None)?;
    let preloads: Vec<String> = unit.list("Environment").iter().flat_map(|line| preloaded(&line.value)).collect();
    let library = preloads.into_iter().rev().find(|path| Path::new(path).file_name() == Some(OsStr::new(library::FILE)));
    let at = library.as_deref().map_or_else(|| Path::new("/usr/lib/shunt/libshunt.so"), Path::new);
    let status = Status {
        schema: "shunt.status/1",
        enabled: library.is_some(),
        library_is_there: library.as_ref().is_some_and(|path| root.find(Path::new(path)).is_ok()),
        processes: if root.is_own() { running(&unit.name) } else { vec![] },
        findings: findings(&unit, &root, at),
        files: unit.files.iter().map(|file| file.display().to_string()).collect(),
        unit: unit.name,
        library,
    };
    let code = if status.enabled { 0 } else { 3 };
    if matches.get_flag("json") {
        print_json(&status)?;
    } else {
        print(&status_text(&status))?;
    }
    Ok(code)
}

fn status_text(status: &Status) -> String {
    let mut text = match &status.library {
        Some(library) if status.library_is_there => format!("{}: enabled, by {library}\n", status.unit),
        Some(library) => format!("{}: enabled, but {library} is not there: the service runs on the kernel\n", status.unit),
        None => format!("{}: not enabled (shunt enable {})\n", status.unit, status.unit),
    };
    for process in &status.processes {
        let runs = match (process.under_shunt, status.enabled) {
            (true, true) => "runs under shunt",
            (true, false) => "runs under shunt until it is restarted",
            (false, true) => "does not run under shunt until it is restarted",
            (false, false) => "does not run under shunt",
        };
        text += &format!("{} (process {}) {runs}\n", process.program, process.pid);
    }
    text + &text_of(&status.findings)
}

/// The findings, a line each.
pub fn text_of(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let effect = match finding.effect {
            Effect::Note => "note",
            Effect::Limited => "limited",
            Effect::Missing => "missing",
        };
        text += &format!("{effect:8} {}: {} ({})\n", finding.directive, finding.follows, finding.from);
        if let Some(remedy) = &finding.remedy {
            text += &format!("         against it: {remedy}\n");
        }
    }
    text
}

/// The processes of a service that runs, by its control group.
fn running(name: &str) -> Vec<Running> {
    // In whichever slice, and in groups that the service has made in its own.
    let one = |pid: u32| {
        let groups = std::fs::read_to_string(processes::path(pid, "cgroup")).ok()?;
        groups.lines().any(|line| line.split('/').skip(1).any(|part| part == name)).then_some(())?;
        let program = processes::program(pid)?;
        Some(Running { pid, program, under_shunt: processes::has_mapped(pid, library::FILE) })
    };
    processes::all().into_iter().filter_map(one).collect()
}

/// `shunt doctor --unit`: the directives that keep the service's connections on the kernel, or limit them.
///
/// # Errors
/// If there is no such unit.
pub fn doctor(name: &str, root: &Path, json: bool) -> Result<u8, Failure> {
    #[derive(Serialize)]
    struct Report {
        schema: &'static str,
        unit: String,
        findings: Vec<Finding>,
    }
    let root = Root::open(root)?;
    let unit = Unit::read(&root, name, None)?;
    let library = library_for_services()?;
    let findings = findings(&unit, &root, &library);
    let missing = findings.iter().any(|finding| finding.effect == Effect::Missing);
    if json {
        print_json(&Report { schema: "shunt.doctor.unit/1", unit: unit.name, findings })?;
    } else if findings.is_empty() {
        print(&format!("{}: no directive of it is in shunt's way\n", unit.name))?;
    } else {
        print(&text_of(&findings))?;
    }
    Ok(u8::from(missing))
}

#[cfg(test)]
mod tests {
    use super::preloaded;

    #[test]
    fn what_a_unit_preloads_itself_is_found() {
        assert_eq!(preloaded("A=b LD_PRELOAD=/x.so:/y.so C=d"), ["/x.so", "/y.so"]);
        assert_eq!(preloaded("\"LD_PRELOAD=/x.so /y.so\" C=d"), ["/x.so", "/y.so"]);
        assert!(preloaded("A=b").is_empty());
    }
}
