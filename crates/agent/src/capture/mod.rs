//! The capture: every frame of the agent's queues and of its clients', as a file that Wireshark and tcpdump read.
//!
//! What goes by AF_XDP passes the kernel's taps by. So who puts a frame on a ring or takes it from one notes it in memory ([`shunt_xdp::notes`]): the agent
//! for its own queues, each client for its own. A thread ([`thread`]) reads all of it some hundred times a second, puts it in order of time, and writes.
//! Nobody waits for that thread: what finds no room is counted.

mod thread;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{channel, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shunt_endpoint::shared::Memory;
use shunt_pcapng::{Opening, Output};
use shunt_sys::{calls, mapping, Errno};
use shunt_xdp::notes::{Notes, Reader, SIZE};
use shunt_xdp::state::{State, DEVICE};

use crate::client::Who;
use crate::report;

/// So long the agent's end waits for the last frames to be written.
const ENDS: Duration = Duration::from_secs(3);

/// What the thread and the agent share.
#[derive(Default)]
struct Told {
    /// The agent ends.
    ends: AtomicBool,
    /// Nothing is captured any more.
    is_over: AtomicBool,
    frames: AtomicU64,
    lost: AtomicU64,
    failure: Mutex<Option<String>>,
}

/// Memory of the agent's own in which it notes frames.
struct Pages(*mut u8);

// SAFETY: plain memory, read and written as `shunt_xdp::notes` says.
unsafe impl Send for Pages {}
// SAFETY: as above.
unsafe impl Sync for Pages {}

impl Drop for Pages {
    fn drop(&mut self) {
        let _ = calls::munmap(self.0, SIZE);
    }
}

/// A queue's frames are noted as long as this is there.
pub struct Noted {
    _life: Arc<()>,
    _pages: Option<Arc<Pages>>,
}

/// Where frames are noted.
enum Place {
    /// In a client's endpoint, mapped once more.
    Endpoint { _memory: Memory },
    /// By the agent.
    Own { _pages: Arc<Pages> },
}

/// A queue whose frames are read.
struct Source {
    reader: Reader,
    _place: Place,
    description: String,
    /// Nobody has it any more when its [`Noted`] is gone.
    life: std::sync::Weak<()>,
}

/// The agent's handle.
pub(crate) struct Capture {
    path: PathBuf,
    longest: u32,
    sources: Option<Sender<Source>>,
    /// Hangs up when the thread has ended.
    over: Receiver<()>,
    told: Arc<Told>,
}

impl Capture {
    /// Opens the file, and begins. Signals that the agent waits for are to be blocked by then.
    ///
    /// # Errors
    /// A sentence for the user.
    pub(crate) fn start(path: &Path, longest: u32, interface: &str) -> Result<Capture, String> {
        let said = |error: io::Error| format!("--capture {}: {error}", path.display());
        let output = Output::create(path, Opening::Refuses).map_err(said)?;
        let (sources, heard) = channel();
        let (ends, over) = channel::<()>();
        let told = Arc::new(Told::default());
        let mut work = thread::Work::new(output, (path, interface, longest), heard, told.clone());
        work.write().map_err(said)?;
        let run = move || {
            work.run();
            drop(ends);
        };
        std::thread::Builder::new().name("shunt-capture".to_string()).spawn(run).map_err(said)?;
        Ok(Capture { path: path.to_path_buf(), longest, sources: Some(sources), over, told })
    }

    /// Whether frames are written still.
    pub(crate) fn is_on(&self) -> bool {
        !self.told.is_over.load(Relaxed)
    }

    /// Reads what the owner of this memory notes there from now on; `None`: it has no room for that, or nothing is captured any more.
    pub(crate) fn endpoint(&self, memory: &Memory, queue: u32, who: &Who) -> Option<Noted> {
        let at = State::of(memory).notes.load(Relaxed) as usize;
        if at == 0 || !self.is_on() {
            return None;
        }
        let fd = calls::fcntl(memory.fd(), libc::F_DUPFD_CLOEXEC, 0).ok()?;
        let memory = Memory::attach(fd, DEVICE).ok()?;
        // SAFETY: the agent has made the memory so, and sealed it; the source keeps this mapping, as the reader's.
        let reader = unsafe { Reader::begin(memory.device_part().add(at), self.longest) };
        let description = format!("queue {queue}, process {}{}", who.pid, program(who.pid));
        Some(self.add(reader, Place::Endpoint { _memory: memory }, None, description))
    }

    /// Memory in which the agent notes the frames of a queue of its own.
    ///
    /// # Errors
    /// ENOMEM.
    pub(crate) fn own(&self, queue: u32) -> Result<(Notes, Noted), Errno> {
        let pages = Arc::new(Pages(mapping::reserve(SIZE)?));
        // SAFETY: as many bytes; both sides keep the pages as long as they use them.
        let (notes, reader) = unsafe { (Notes::new(pages.0), Reader::begin(pages.0, self.longest)) };
        let place = Place::Own { _pages: pages.clone() };
        let noted = self.add(reader, place, Some(pages), format!("queue {queue}, of the agent: emulated endpoints"));
        Ok((notes, noted))
    }

    fn add(&self, reader: Reader, place: Place, pages: Option<Arc<Pages>>, description: String) -> Noted {
        let life = Arc::new(());
        let source = Source { reader, _place: place, description, life: Arc::downgrade(&life) };
        // A thread that has ended takes none, and nothing is noted then.
        if let Some(sources) = &self.sources {
            if let Err(refused) = sources.send(source) {
                refused.0.reader.end();
            }
        }
        Noted { _life: life, _pages: pages }
    }

    /// For a report.
    pub(crate) fn report(&self) -> report::Capture {
        let failure = self.told.failure.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (frames, lost) = (self.told.frames.load(Relaxed), self.told.lost.load(Relaxed));
        report::Capture { file: self.path.display().to_string(), frames, lost, failure }
    }

    /// Writes what was noted, and ends the file.
    pub(crate) fn end(mut self) {
        self.told.ends.store(true, Relaxed);
        self.sources = None;
        let _ = self.over.recv_timeout(ENDS);
    }
}

/// The name of a process's program in brackets, if it is to be seen.
fn program(pid: i32) -> String {
    let name = std::fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    let name: String = String::from_utf8_lossy(&name).chars().filter(|character| !character.is_control()).collect();
    if name.is_empty() {
        name
    } else {
        format!(" ({name})")
    }
}
