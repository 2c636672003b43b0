//! Nothing stays behind: neither a process nor a file, however the run ends.
//!
//! The process that the user started becomes the supervisor; the measuring happens in a child.
//! The supervisor is the reaper of all descendants (`PR_SET_CHILD_SUBREAPER`, prctl(2)): whatever
//! the child leaves when it ends, crashes or is killed is adopted here and waited for, and killed by
//! its process id if it does not end by itself. Every started program also asks for SIGKILL when its parent dies
//! (`PR_SET_PDEATHSIG`), which covers a killed supervisor.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::prctl;
use nix::sys::signal::{self, SaFlags, SigAction, SigHandler, SigSet, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::{fork, ForkResult, Pid};

/// How the directories of runs begin.
const PREFIX: &str = "shunt-bench-";

/// Runs `body` in a child with a directory that exists as long as it does.
///
/// Must be called while the process has one thread. Returns the child's exit code; 128 plus the
/// signal's number where a signal ended it, as a shell would.
pub fn supervise(body: impl FnOnce(&Path) -> u8) -> ExitCode {
    sweep();
    let template = std::env::temp_dir().join(format!("{PREFIX}XXXXXX"));
    let scratch = match nix::unistd::mkdtemp(&template) {
        Ok(path) => path,
        Err(error) => {
            eprintln!("shunt bench: cannot make a directory {}: {error}", template.display());
            return ExitCode::FAILURE;
        }
    };
    let _held = hold(&scratch);
    // Servers change their user: let them look in.
    let _ = fs::set_permissions(&scratch, std::os::unix::fs::PermissionsExt::from_mode(0o755));
    let _ = prctl::set_child_subreaper(true);
    let watched = SigSet::from_iter([Signal::SIGCHLD, Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    let before = watched.thread_swap_mask(signal::SigmaskHow::SIG_BLOCK).unwrap_or_else(|_| SigSet::empty());
    let supervisor = nix::unistd::getpid();

    // SAFETY: this process has one thread, so the child may do anything.
    match unsafe { fork() } {
        Ok(ForkResult::Child) => {
            let _ = before.thread_set_mask();
            die_with(supervisor);
            let code = body(&scratch);
            // Not a return: what the caller does after a run is the supervisor's to do.
            std::process::exit(i32::from(code))
        }
        Ok(ForkResult::Parent { child }) => {
            let status = wait_for(child, &watched);
            let left = reap_descendants();
            if left > 0 {
                eprintln!("shunt bench: ended {left} processes that were left");
            }
            remove(&scratch);
            let _ = before.thread_set_mask();
            ExitCode::from(status)
        }
        Err(error) => {
            eprintln!("shunt bench: cannot fork: {error}");
            remove(&scratch);
            ExitCode::FAILURE
        }
    }
}

/// Waits for the child, and for what was adopted and ended meanwhile: processes of shunt's own, which have no other parent. A
/// request to end is passed on as one that cannot be refused.
fn wait_for(child: Pid, watched: &SigSet) -> u8 {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(ended, code)) if ended == child => return code as u8,
            Ok(WaitStatus::Signaled(ended, signal, _)) if ended == child => return 128 + signal as u8,
            Ok(WaitStatus::StillAlive) => {}
            Ok(_) | Err(Errno::EINTR) => continue,
            Err(_) => return 1,
        }
        match watched.wait() {
            Ok(Signal::SIGCHLD) | Err(_) => {}
            Ok(request) => {
                let _ = signal::kill(child, Signal::SIGKILL);
                let _ = waitpid(child, None);
                return 128 + request as u8;
            }
        }
    }
}

/// How long what ends with its last program may take for it, on a crowded machine.
const ENDS_WITHIN: Duration = Duration::from_secs(2);

/// Waits for everything that descends from this process, and kills what does not end by itself. Returns how many those were.
fn reap_descendants() -> usize {
    let me = nix::unistd::getpid();
    let began = Instant::now();
    while began.elapsed() < ENDS_WITHIN {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => std::thread::sleep(Duration::from_millis(5)),
            Ok(_) | Err(Errno::EINTR) => {}
            Err(_) => return 0,
        }
    }
    let mut ended = 0;
    loop {
        // Children of a killed child become ours in the next round.
        let children = children_of(me);
        if children.is_empty() {
            return ended;
        }
        for child in children {
            let _ = signal::kill(child, Signal::SIGKILL);
            if waitpid(child, None).is_ok() {
                ended += 1;
            }
        }
    }
}

/// Processes whose parent is `parent`, by proc_pid_stat(5).
pub fn children_of(parent: Pid) -> Vec<Pid> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|process| parent_of(*process) == Some(parent.as_raw()))
        .map(Pid::from_raw)
        .collect()
}

fn parent_of(process: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may hold anything; the fields after it do not.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Marks a directory as in use for as long as this process or the forked one lives: flock(2).
fn hold(scratch: &Path) -> Option<Flock<File>> {
    Flock::lock(File::open(scratch).ok()?, FlockArg::LockExclusiveNonblock).ok()
}

/// Removes what earlier runs left whose supervisor was killed.
fn sweep() {
    for entry in fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten() {
        let ours = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == nix::unistd::getuid().as_raw());
        let named = entry.file_name().to_string_lossy().starts_with(PREFIX);
        if named && ours && hold(&entry.path()).is_some() {
            remove(&entry.path());
        }
    }
}

fn remove(scratch: &Path) {
    if let Err(error) = fs::remove_dir_all(scratch) {
        eprintln!("shunt bench: cannot remove {}: {error}", scratch.display());
    }
}

/// Process groups to end with this process: a server's workers do not see our death themselves.
static GROUPS: [AtomicI32; 32] = [const { AtomicI32::new(0) }; 32];

/// Enters a group into the list that ends with this process.
pub fn remember_group(group: Pid) {
    for slot in &GROUPS {
        if slot.compare_exchange(0, group.as_raw(), Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
    }
}

/// Takes a group out of the list: its processes are gone.
pub fn forget_group(group: Pid) {
    for slot in &GROUPS {
        let _ = slot.compare_exchange(group.as_raw(), 0, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// The measuring process ends when the supervisor does, and takes the groups with it.
fn die_with(supervisor: Pid) {
    let action = SigAction::new(SigHandler::Handler(end_groups), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler calls nothing but kill(2) and _exit(2), both async-signal-safe.
    let _ = unsafe { signal::sigaction(Signal::SIGTERM, &action) };
    let _ = prctl::set_pdeathsig(Signal::SIGTERM);
    if nix::unistd::getppid() != supervisor {
        std::process::exit(1);
    }
}

extern "C" fn end_groups(_: libc::c_int) {
    for slot in &GROUPS {
        let group = slot.load(Ordering::Relaxed);
        if group > 1 {
            // SAFETY: kill(2) takes any number; these are groups that we made.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
    }
    // SAFETY: _exit(2) does not return and runs no destructor.
    unsafe { libc::_exit(128 + libc::SIGTERM) }
}
