//! A server on a thread of its own.

use super::stop::Stopper;
use crate::address::Address;

/// A server on a thread of its own. Dropped, it is stopped.
#[derive(Debug)]
pub struct Running {
    pub(super) address: Address,
    pub(super) stopper: Stopper,
    pub(super) thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    /// Where callers find it.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if self.stopper.is_parents() {
            return std::mem::forget(self.thread.take()); // a child has no such thread
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
