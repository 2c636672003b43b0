//! Ranks that another launcher has started: `mpirun`, `prterun`, `srun`, or what else speaks PMIx. The library is opened when its variables are
//! in the environment, and is no dependency.
//!
//! The lowest rank makes the job's memory as [`crate::launch`] does, and hands it to the others ([`meeting`]). The launcher ends the job when
//! a rank dies; a rank that waits learns it here, too ([`watch`]).

mod library;
mod meeting;
mod watch;

use crate::layout::{Layout, RANKS};
use crate::memory::Memory;
use crate::world::{heap_from_environment, VARIABLE};
use library::{Library, Process, WILDCARD};
use meeting::{Other, Place};
use std::ffi::CString;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::AcqRel;
use std::sync::OnceLock;

/// What programs that a rank starts find in [`VARIABLE`]: each is a job of one.
pub(crate) const ALONE: &str = "alone";
/// Under this, the lowest rank of a host tells where the others find it.
const INVITATION: &std::ffi::CStr = c"shunt.spmd.invitation";

static LIBRARY: OnceLock<Library> = OnceLock::new();
static LEFT: AtomicBool = AtomicBool::new(false);

/// A rank, and those whose end it watches.
pub(crate) struct Started {
    /// The job's memory.
    pub memory: Memory,
    /// This rank.
    pub rank: usize,
    others: Vec<Other>,
}

fn random() -> io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // SAFETY: fills bytes of ours.
    match unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } {
        16 => Ok(bytes),
        _ => Err(io::Error::last_os_error()),
    }
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
    let own =
        library.init().map_err(|why| format!("{why}: the launcher does not answer; {VARIABLE}={ALONE} starts a job of one"))?;
    // Programs that this one starts find PMIx's variables and are no ranks.
    std::env::set_var(VARIABLE, ALONE);
    let job = Process { rank: WILDCARD, ..own.clone() };
    let ranks = library.number(&job, c"pmix.job.size")? as usize;
    if ranks == 1 {
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
    if rank == local[0] {
        let place = Place::open().map_err(trouble)?;
        library.tell(INVITATION, &CString::new(place.invitation()).expect("digits and letters"))?;
        library.meet()?;
        let (others, processors) = place.gather(&local[1..]).map_err(trouble)?;
        let layout = Layout::new(ranks, heap_from_environment()?);
        let memory =
            crate::launch::create(&layout, ranks > processors).map_err(|error| format!("no memory for a job: {error}"))?;
        for other in &others {
            meeting::send(&other.stream, memory.descriptor().as_raw_fd()).map_err(trouble)?;
        }
        return Ok(Some(Started { memory, rank, others }));
    }
    library.meet()?;
    let lowest = Process { rank: local[0] as u32, ..own };
    let (memory, stream) = meeting::come(&library.text(&lowest, INVITATION)?, rank).map_err(trouble)?;
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
        match self.others.is_empty() {
            true => Ok(()),
            false => watch::start(base, layout, self.others),
        }
    }
}

/// Whether this process was made a rank here.
pub fn is_used() -> bool {
    LIBRARY.get().is_some()
}

/// This process needs the launcher's care no more.
pub fn leave() {
    if let Some(library) = LIBRARY.get().filter(|_| !LEFT.swap(true, AcqRel)) {
        library.finalize();
    }
}

/// Asks the launcher to end the job.
pub(crate) fn abort(status: i32) {
    if let Some(library) = LIBRARY.get() {
        library.abort(status);
    }
}
