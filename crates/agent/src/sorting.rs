//! The program that sorts frames, attached to the interface for as long as anybody needs it: it costs each packet that comes something, and takes
//! from what the interface offloads.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::configuration::Configuration;
use crate::ebpf::kernel::{Attachment, Link, Program};
use crate::ebpf::program::{self, Maps};
use crate::interface::Interface;

/// So long it stays behind its last use: attaching it again costs more than a few packets.
pub const LINGERS: Duration = Duration::from_secs(5);

/// The program of one interface.
pub struct Sorting {
    port: u16,
    only: Option<Attachment>,
    interface: u32,
    /// What it reads.
    pub maps: Arc<Maps>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    holds: usize,
    sorter: Option<Sorter>,
}

/// As it is attached.
struct Sorter {
    _link: Link,
    attachment: Attachment,
    native_error: Option<String>,
    /// A card's driver may stop the interface for each change: there it stays.
    stays: bool,
}

/// As long as this is kept the program is attached, and for as long as the agent works in the driver of a card.
pub struct Hold {
    sorting: Arc<Sorting>,
    /// Where.
    pub attachment: Attachment,
}

impl Sorting {
    /// Of an agent's interface; attached nowhere yet.
    pub fn new(configuration: &Configuration, interface: &Interface, maps: Arc<Maps>) -> Arc<Sorting> {
        let (port, only) = (configuration.port, configuration.attachment);
        Arc::new(Sorting { port, only, interface: interface.index, maps, state: Mutex::default() })
    }

    /// The value, also if a thread panicked with it: each change of it is one statement.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The program for where it is tried first: what the kernel says of it.
    ///
    /// # Errors
    /// What bpf(2) answers.
    pub fn load(&self, interface: &Interface) -> io::Result<Program> {
        let place = self.only.unwrap_or(interface.first_attachment(self.port));
        self.maps.load(self.port, interface.has_pieces(place))
    }

    /// Has the program sort frames for as long as the answer is kept.
    ///
    /// # Errors
    /// As for [`program::attach`]; ENODEV if the interface is gone.
    pub fn hold(self: &Arc<Self>) -> io::Result<Hold> {
        let mut state = self.state();
        let attachment = match &state.sorter {
            Some(sorter) => sorter.attachment,
            None => {
                let sorter = self.attach()?;
                state.sorter.insert(sorter).attachment
            }
        };
        state.holds += 1;
        Ok(Hold { sorting: self.clone(), attachment })
    }

    fn attach(&self) -> io::Result<Sorter> {
        // Packets may have another size by now.
        let gone = || io::Error::from_raw_os_error(libc::ENODEV);
        let name = Interface::named(self.interface).ok_or_else(gone)?;
        let interface = Interface::find(&name).map_err(|_| gone())?;
        let first = interface.first_attachment(self.port);
        let load = |place| self.maps.load(self.port, interface.has_pieces(place));
        let loaded = self.load(&interface)?;
        let (link, attachment, native_error) = program::attach(&loaded, load, self.interface, self.only, first)?;
        let stays = attachment == Attachment::Native && !interface.is_veth;
        Ok(Sorter { _link: link, attachment, native_error: native_error.map(|error| error.to_string()), stays })
    }

    /// For a report: where it is attached, and what the driver said that did not take it.
    pub fn told(&self) -> Option<(Attachment, Option<String>)> {
        self.state().sorter.as_ref().map(|sorter| (sorter.attachment, sorter.native_error.clone()))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.sorting.state();
        state.holds -= 1;
        if state.holds == 0 && state.sorter.as_ref().is_some_and(|sorter| !sorter.stays) {
            state.sorter = None;
        }
    }
}

/// One that is kept a while behind the last use.
#[derive(Default)]
pub struct Lingering(Option<(Hold, Instant)>);

impl Lingering {
    /// It is of use now; where the program is attached.
    ///
    /// # Errors
    /// As [`Sorting::hold`].
    pub fn hold(&mut self, sorting: &Arc<Sorting>) -> io::Result<Attachment> {
        match &mut self.0 {
            Some((hold, used)) => {
                *used = Instant::now();
                Ok(hold.attachment)
            }
            None => {
                let hold = sorting.hold()?;
                Ok(self.0.insert((hold, Instant::now())).0.attachment)
            }
        }
    }

    /// Looks whether it goes on being of use.
    pub fn look(&mut self, is_used: bool) {
        match &mut self.0 {
            Some((_, used)) if is_used => *used = Instant::now(),
            Some((_, used)) if used.elapsed() >= LINGERS => self.0 = None,
            _ => {}
        }
    }
}
