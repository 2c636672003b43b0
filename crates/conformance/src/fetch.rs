//! Debian's packages, unpacked without being installed.
//!
//! `apt-get` works on lists and a configuration of its own here, so that it needs no privilege, finds source packages
//! on machines that do not list them, and leaves the machine's own lists as they are. It checks what it fetches by the
//! archive's signatures as always.

use crate::paths;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Unpacks a source package into `sources/NAME`, with Debian's patches.
///
/// # Errors
/// A sentence that names the log.
pub fn source(name: &str) -> Result<(), String> {
    unpacked(name, &paths::sources(), "source --download-only", |downloads, target| {
        let description = only_file(downloads, ".dsc")?;
        let mut command = Command::new("dpkg-source");
        command.args(["--no-check", "-x"]).arg(description).arg(target);
        Ok(command)
    })
}

/// Unpacks a package into `packages/NAME`.
///
/// # Errors
/// A sentence that names the log.
pub fn package(name: &str) -> Result<(), String> {
    unpacked(name, &paths::packages(), "download", |downloads, target| {
        let file = only_file(downloads, ".deb")?;
        let mut command = Command::new("dpkg");
        command.arg("-x").arg(file).arg(target);
        Ok(command)
    })
}

fn unpacked(
    name: &str,
    parent: &Path,
    how: &str,
    unpack: impl Fn(&Path, &Path) -> Result<Command, String>,
) -> Result<(), String> {
    let target = parent.join(name);
    if target.is_dir() {
        return Ok(());
    }
    println!("fetching {name}");
    let downloads = paths::work().join("downloads").join(name);
    let _ = fs::remove_dir_all(&downloads);
    make(&downloads)?;
    make(parent)?;
    let log = downloads.join("log");
    let configuration = configuration()?;
    let apt =
        |words: &[&str]| run(Command::new("apt-get").arg("-q").args(words).env("APT_CONFIG", &configuration), &downloads, &log);
    let mut words: Vec<&str> = how.split(' ').collect();
    words.push(name);
    if apt(&words).is_err() {
        // The lists are missing, or older than the archive.
        apt(&["update"])?;
        apt(&words)?;
    }
    // By rename: what was cut off in the middle is not taken for whole.
    let half = parent.join(format!(".{name}"));
    let _ = fs::remove_dir_all(&half);
    run(&mut unpack(&downloads, &half)?, &downloads, &log)?;
    fs::rename(&half, &target).map_err(|error| format!("{}: {error}", target.display()))?;
    fs::remove_dir_all(&downloads).map_err(|error| format!("{}: {error}", downloads.display()))
}

/// Writes apt's configuration and gives its path.
fn configuration() -> Result<PathBuf, String> {
    let home = paths::work().join("apt");
    for directory in ["lists/partial", "cache/archives/partial", "no-parts"] {
        make(&home.join(directory))?;
    }
    let release = fs::read_to_string("/etc/os-release").map_err(|error| format!("/etc/os-release: {error}"))?;
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let codename = codename.ok_or("/etc/os-release names no release of Debian: the suites come from Debian's archive")?;
    let archive = "http://deb.debian.org/debian";
    let lists = format!("deb {archive} {codename} main\ndeb-src {archive} {codename} main\n");
    write(&home.join("sources.list"), &lists)?;
    let home_text = home.display();
    let text = format!(
        "Dir::Etc::SourceList \"{home_text}/sources.list\";\nDir::Etc::SourceParts \"{home_text}/no-parts\";\n\
         Dir::State::Lists \"{home_text}/lists\";\nDir::Cache \"{home_text}/cache\";\nAcquire::Languages \"none\";\n\
         APT::Sandbox::User \"\";\nAcquire::Retries \"3\";\n"
    );
    let file = home.join("apt.conf");
    write(&file, &text)?;
    Ok(file)
}

fn run(command: &mut Command, directory: &Path, log: &Path) -> Result<(), String> {
    let output =
        fs::OpenOptions::new().create(true).append(true).open(log).map_err(|error| format!("{}: {error}", log.display()))?;
    let errors = output.try_clone().map_err(|error| error.to_string())?;
    let status = command.current_dir(directory).stdout(output).stderr(errors).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("{command:?} ended with {status}; see {}", log.display())),
        Err(error) => Err(format!("{command:?}: {error}")),
    }
}

fn only_file(directory: &Path, ending: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let found = entries.filter_map(|entry| Some(entry.ok()?.path())).find(|path| path.to_string_lossy().ends_with(ending));
    found.ok_or_else(|| format!("{} holds no file *{ending}", directory.display()))
}

fn make(directory: &Path) -> Result<(), String> {
    fs::create_dir_all(directory).map_err(|error| format!("{}: {error}", directory.display()))
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}
