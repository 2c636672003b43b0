//! Ranks that another launcher has started: `mpirun`, `prterun`, `srun`, or what else speaks PMIx. The library is opened when its variables are
//! in the environment, and is no dependency. It is asked which rank this is and which are here, and told the end; it brings no ranks together.
//!
//! The lowest rank makes the job's memory as [`crate::launch`] does, and hands it to the others ([`meeting`]). The launcher ends the job when
//! a rank dies; a rank that waits learns it here, too, and any rank the end of the launcher ([`watch`]).

mod library;
mod meeting;
mod server;
mod watch;

use crate::layout::{Layout, RANKS};
use crate::memory::Memory;
use crate::world::{heap_from_environment, VARIABLE};
use library::{Library, Process, WILDCARD};
use meeting::{Key, Other, Place};
use server::Server;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Acquire};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// What programs that a rank starts find in [`VARIABLE`]: each is a job of one.
pub(crate) const ALONE: &str = "alone";

static LIBRARY: OnceLock<Library> = OnceLock::new();
static SERVER: OnceLock<Mutex<Server>> = OnceLock::new();
static LEFT: AtomicBool = AtomicBool::new(false);

/// A rank, and those whose end it watches.
pub(crate) struct Started {
    /// The job's memory.
    pub memory: Memory,
    /// This rank.
    pub rank: usize,
    others: Vec<Other>,
}

fn server() -> Option<MutexGuard<'static, Server>> {
    SERVER.get().map(|server| server.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
}

/// What tells this job from all others, as its ranks of one host know alike: its name, and where its launcher's server listens.
fn key() -> Key {
    let server = |name: &str| name == "PMIX_NAMESPACE" || name.starts_with("PMIX_SERVER_");
    let mut variables: Vec<_> = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(server)).collect();
    variables.sort();
    let parts: Vec<Vec<u8>> =
        variables.into_iter().flat_map(|(name, value)| [name, value]).map(|text| text.into_encoded_bytes()).collect();
    Key::of(&parts)
}

/// Whether such a launcher has started this process.
pub fn is_here() -> bool {
    let has = |name: &str| std::env::var_os(name).is_some();
    has("PMIX_NAMESPACE")
        && has("PMIX_RANK")
        && std::env::vars_os().any(|(name, _)| name.as_encoded_bytes().starts_with(b"PMIX_SERVER_"))
}

/// Becomes the rank that the launcher says; none if there is no library, or if the job has one rank.
///
/// # Errors
/// If the launcher does not answer, the ranks are on several hosts, or they do not find each other.
pub(crate) fn start() -> Result<Option<Started>, String> {
    let library = match Library::open() {
        Ok(library) => LIBRARY.get_or_init(|| library),
        Err(why) => {
            // Once for the job.
            if std::env::var("PMIX_RANK").is_ok_and(|rank| rank == "0") {
                eprintln!("shunt: started by PMIx, but {why}: each process is a job of one; install libpmix2, or use shunt spmd");
            }
            std::env::set_var(VARIABLE, ALONE);
            return Ok(None);
        }
    };
    let before = server::open_now();
    let own =
        library.init().map_err(|why| format!("{why}: the launcher does not answer; {VARIABLE}={ALONE} starts a job of one"))?;
    let server = SERVER.get_or_init(|| Mutex::new(Server::since(&before)));
    let key = key();
    // Programs that this one starts find PMIx's variables and are no ranks.
    std::env::set_var(VARIABLE, ALONE);
    let job = Process { rank: WILDCARD, ..own.clone() };
    let ranks = library.number(&job, c"pmix.job.size")? as usize;
    if ranks == 1 {
        watch::start(None, Vec::new()).map_err(|error| format!("cannot watch the launcher: {error}"))?;
        return Ok(None);
    }
    if ranks > RANKS {
        return Err(format!("a job has 1 to {RANKS} ranks, not {ranks}"));
    }
    let mut local: Vec<usize> = library.text(&job, c"pmix.lpeers")?.split(',').filter_map(|rank| rank.parse().ok()).collect();
    local.sort_unstable();
    if local.len() < ranks {
        return Err(format!(
            "started by PMIx on several hosts ({} of {ranks} ranks are here): use shunt spmd --hosts",
            local.len()
        ));
    }
    let rank = own.rank as usize;
    let trouble = |error: io::Error| format!("ranks of this host do not meet: {error}");
    let server = server.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    if rank == local[0] {
        let place = Place::open(key, &server).map_err(trouble)?;
        let (others, processors) = place.gather(&local[1..], &server).map_err(trouble)?;
        let layout = Layout::fitting(ranks, heap_from_environment()?)?;
        let memory =
            crate::launch::create(&layout, ranks > processors).map_err(|error| format!("no memory for a job: {error}"))?;
        for other in &others {
            meeting::send(&other.stream, memory.descriptor().as_raw_fd()).map_err(trouble)?;
        }
        return Ok(Some(Started { memory, rank, others }));
    }
    let (memory, stream) = meeting::come(key, rank, local[0], &server).map_err(trouble)?;
    let mut others = vec![Other { rank: local[0], stream }];
    if rank != local[1] {
        // Open as long as this process, for the lowest rank to see.
        others.drain(..).for_each(|other| std::mem::forget(other.stream));
    }
    Ok(Some(Started { memory, rank, others }))
}

impl Started {
    /// From now on the end of others is noticed.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn watch(self, base: usize, layout: Layout) -> io::Result<()> {
        // Its descriptor stays, for those who look from outside.
        std::mem::forget(self.memory);
        watch::start(Some((base, layout)), self.others)
    }
}

/// Whether this process was made a rank here.
pub fn is_used() -> bool {
    LIBRARY.get().is_some()
}

/// This process needs the launcher's care no more.
pub fn leave() {
    let Some(library) = LIBRARY.get().filter(|_| !LEFT.swap(true, AcqRel)) else { return };
    // Of a program that has closed all that it does not know, the library waits in vain for an answer, and would write into what has those
    // numbers now. The launcher has seen the connection's end.
    let mut server = server();
    let is_whole = server.as_ref().is_none_or(|server| server.is_whole());
    if let Some(server) = &mut server {
        server.release();
    }
    drop(server);
    if is_whole {
        library.finalize();
    }
}

/// Whether it has said so.
fn has_left() -> bool {
    LEFT.load(Acquire)
}

/// Asks the launcher to end the job.
pub(crate) fn abort(status: i32) {
    if let (Some(library), true) = (LIBRARY.get(), server().is_none_or(|server| server.is_whole())) {
        library.abort(status);
    }
}
