//! How a process takes its rank: from the launcher, from another launcher by PMIx, or alone.

use super::{heap_from_environment, VARIABLE};
use crate::error::{Error, Result};
use crate::image::{self, Image};
use crate::layout::{rank_state, Header, Layout, RankBlock, MAGIC, PAGE, RANKS, VERSION};
use crate::memory::{Mapping, Memory};
use crate::pmix;
use crate::remote::hosts::{Hosts, TABLE};
use crate::trace::RECORDS;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};

/// What a process has once its rank is taken, whether or not the program has started the world yet.
pub(super) struct Joined {
    pub(super) mapping: Mapping,
    pub(super) layout: Layout,
    pub(super) me: usize,
    pub(super) image: Image,
    pub(super) crowded: bool,
    /// First rank of this host, and how many it has.
    pub(super) near: (usize, usize),
    pub(super) hosts: Option<Hosts>,
}

/// The rank that the launcher left for this process, if it did.
pub(super) fn from_environment() -> Result<Option<Joined>> {
    let text = match std::env::var(VARIABLE) {
        Ok(text) if text == pmix::ALONE => return Ok(None),
        Ok(text) => text,
        Err(_) if pmix::is_here() => return from_pmix(),
        Err(_) => return Ok(None),
    };
    let broken = |what: String| Error::Setup(format!("{VARIABLE}={text}: {what}"));
    let numbers: Option<(i32, usize)> =
        text.split_once(':').and_then(|(descriptor, rank)| Some((descriptor.parse().ok()?, rank.parse().ok()?)));
    let (descriptor, me) = numbers.ok_or_else(|| broken("is not DESCRIPTOR:RANK".into()))?;
    let memory = match Memory::inherited(descriptor) {
        Ok(memory) => memory,
        // Another launcher in between, within a rank, has closed what is not its own, and started a job of its own.
        Err(_) if pmix::is_here() => return from_pmix(),
        Err(error) => return Err(broken(format!("no job's memory: {error}"))),
    };
    let joined = from_memory(&memory, me, broken)?;
    if joined.is_some() {
        end_with_parent();
    }
    Ok(joined)
}

/// A program that a rank's shell has started ends with the shell, which ends with the launcher. The kernel means the thread that has started
/// this process: one of several may end sooner.
fn end_with_parent() {
    // SAFETY: asks for a number.
    let parent = unsafe { libc::getppid() };
    let threads = std::fs::read_dir(format!("/proc/{parent}/task")).map_or(0, Iterator::count);
    if threads == 1 {
        // SAFETY: takes numbers only.
        unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    }
}

/// The rank that another launcher has given to this process, if its library is here.
fn from_pmix() -> Result<Option<Joined>> {
    let broken = |what: String| Error::Setup(format!("PMIx: {what}"));
    let Some(started) = pmix::start().map_err(broken)? else { return Ok(None) };
    let joined = from_memory(&started.memory, started.rank, broken)?;
    if let Some(joined) = &joined {
        // Once the static data is shared, which no other thread may change meanwhile. The world keeps the mapping for good.
        let watched = started.watch(joined.mapping.address(), joined.layout);
        watched.map_err(|error| broken(format!("cannot watch the other ranks: {error}")))?;
    }
    Ok(joined)
}

/// Takes a rank of the job whose memory this is; none if another process has it.
fn from_memory(memory: &Memory, me: usize, broken: impl Fn(String) -> Error) -> Result<Option<Joined>> {
    let mapping = memory.map(0, PAGE).map_err(|error| broken(format!("cannot map the job's memory: {error}")))?;
    // SAFETY: a page was mapped; the launcher wrote the header before it started this process, and what changes is atomic.
    let header = unsafe { &*(mapping.address() as *const Header) };
    if header.magic != MAGIC || header.version != VERSION {
        return Err(broken("the launcher is of another version than this program's library".into()));
    }
    let layout = Layout { ranks: header.ranks as usize, heap_bytes: header.heap_bytes as usize, trace: header.trace as usize };
    if layout.ranks == 0 || layout.ranks > RANKS || me >= layout.ranks {
        return Err(broken("no such rank".into()));
    }
    // The heaps' end is before any static data's beginning; a page more or less would be found by a signal later.
    let fits = Layout::fitting(layout.ranks, layout.heap_bytes).is_ok_and(|fitting| fitting.heap_bytes == layout.heap_bytes);
    let length = memory.length().map_err(|error| broken(format!("cannot tell the size of the job's memory: {error}")))?;
    if !fits || layout.trace <= RECORDS && layout.data() > length {
        return Err(broken(format!("{} heaps of {} bytes do not lie in {length} bytes", layout.ranks, layout.heap_bytes)));
    }
    if layout.trace > RECORDS {
        return Err(broken("the job's rings are too long".into()));
    }
    let crowded = header.crowded != 0;
    let near = (header.first as usize, header.local as usize);
    let hosts = if near.1 == layout.ranks {
        None
    } else {
        Some(table(&mapping, layout.ranks).ok_or_else(|| broken("the table of hosts is broken".into()))?)
    };
    if near.0 > me || me >= near.0 + near.1 || near.0 + near.1 > layout.ranks {
        return Err(broken("the rank is another host's".into()));
    }
    let whole = memory.map_aligned(layout.data(), layout.heaps()).map_err(|error| {
        broken(format!("cannot map {} heaps of {} bytes: {error} (SHMEM_SYMMETRIC_SIZE)", layout.ranks, layout.heap_bytes))
    })?;
    drop(mapping);
    // SAFETY: as above; blocks follow the header.
    let (header, block) =
        unsafe { (&*(whole.address() as *const Header), &*((whole.address() + layout.block(me)) as *const RankBlock)) };
    if !take_rank(block) {
        return Ok(None);
    }
    let image = image::share(memory, header, &layout, me)?;
    Ok(Some(Joined { mapping: whole, layout, me, image, crowded, near, hosts }))
}

/// The table of hosts in the header's page.
fn table(header: &Mapping, ranks: usize) -> Option<Hosts> {
    // SAFETY: the page is mapped; the launcher wrote the table before it started this process.
    let words = unsafe { std::slice::from_raw_parts((header.address() + Layout::HOSTS) as *const u64, TABLE) };
    Hosts::from_words(words, ranks)
}

/// Writes this process's number into the block; false if the rank is another process's. After `exec` it is still ours.
fn take_rank(block: &RankBlock) -> bool {
    let own = std::process::id();
    loop {
        let holder = block.process.load(Acquire);
        // SAFETY: signal 0 asks only whether the process exists.
        let gone = || unsafe { libc::kill(holder as i32, 0) } != 0 && block.state.load(Acquire) != rank_state::JOINED;
        if holder != 0 && holder != own && !gone() {
            return false;
        }
        if block.process.compare_exchange(holder, own, AcqRel, Acquire).is_ok() {
            block.state.store(rank_state::TAKEN, Release);
            return true;
        }
    }
}

/// A job of this process alone.
pub(super) fn alone() -> Result<Joined> {
    let heap = heap_from_environment().map_err(Error::Setup)?;
    let layout = Layout::fitting(1, heap).map_err(Error::Setup)?;
    let trouble = |error: std::io::Error| Error::Setup(format!("no memory for a symmetric heap of {heap} bytes: {error}"));
    let mapping = Mapping::anonymous(layout.data(), layout.heaps()).map_err(trouble)?;
    crate::launch::write_header(mapping.address(), &layout, false);
    Ok(Joined { mapping, layout, me: 0, image: image::own(), crowded: false, near: (0, 1), hosts: None })
}
