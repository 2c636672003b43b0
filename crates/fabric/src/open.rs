//! What is open at libfabric for one endpoint: the interface, the endpoint's memory, its registration.

use crate::interface::{Interface, Memory as Registered};
use shunt_endpoint::shared::Memory;
use shunt_endpoint::Address;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Closed in order when the last that needs it is gone.
pub struct Open {
    registered: ManuallyDrop<Registered>,
    /// The endpoint of libfabric.
    pub interface: Arc<Interface>,
    /// Registry, queues and segment.
    pub memory: Memory,
}

// SAFETY: a thread that holds one that is not its own endpoint's only keeps it.
unsafe impl Sync for Open {}

impl Open {
    /// All of `memory` was registered as `registered` with `interface`.
    pub fn new(interface: Interface, memory: Memory, registered: Registered) -> Open {
        Open { registered: ManuallyDrop::new(registered), interface: Arc::new(interface), memory }
    }

    /// The registration of the memory.
    pub fn registered(&self) -> &Registered {
        &self.registered
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        // SAFETY: neither is used again; what is under way ends before its memory goes, and threads that look at the interface
        // were joined.
        unsafe {
            self.interface.shut();
            ManuallyDrop::drop(&mut self.registered);
        }
    }
}

/// Endpoints of this process by which others of this process would fall.
static HERE: Mutex<Vec<(Address, Weak<Open>)>> = Mutex::new(Vec::new());

/// libfabric's `shm` (1.17) sends to an endpoint of the same process straight through that one's own mapping, and does not
/// notice that it is gone. So there an endpoint stays open until no endpoint of its process has a channel to it.
fn is_fragile(interface: &Interface) -> bool {
    interface.provider() == "shm"
}

/// Announces an endpoint to the others of its process.
pub fn announce(address: &Address, open: &Arc<Open>) {
    if is_fragile(&open.interface) {
        let mut here = HERE.lock().unwrap_or_else(PoisonError::into_inner);
        here.retain(|(_, open)| open.strong_count() > 0);
        here.push((*address, Arc::downgrade(open)));
    }
}

/// What keeps the endpoint at `address` open, if it is of this process and has to be kept.
pub fn kept(address: &Address) -> Option<Arc<Open>> {
    let here = HERE.lock().unwrap_or_else(PoisonError::into_inner);
    here.iter().find(|(other, _)| other == address).and_then(|(_, open)| open.upgrade())
}
