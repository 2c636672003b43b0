//! One endpoint of libfabric with what belongs to it: domain, address vector, two completion queues.

use crate::foreign::{self, Handle, Region, Wish};
use shunt_sys::libc::{self, iovec};
use shunt_sys::Errno;
use std::ffi::CString;
use std::ptr::{null, null_mut};

pub use crate::foreign::{Completion, Facts};

/// Bytes that an address of libfabric may have here.
pub const NAME: usize = 64;
/// Completions that one look gives at most.
pub const BATCH: usize = 16;
/// The address of no peer: `FI_ADDR_NOTAVAIL`.
pub const NOBODY: u64 = u64::MAX;

/// A completion queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// Of what was sent, and written to peers.
    Sent = 0,
    /// Of what was received.
    Received = 1,
}

/// Which side may do what with registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// This endpoint, for its own operations.
    Local = 0,
    /// Peers, which read.
    Read = 1,
    /// Peers, which read and write.
    Write = 3,
}

/// How an operation was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Taken {
    /// It is under way, or done.
    Yes,
    /// Not now: `FI_EAGAIN`.
    Later,
}

/// Memory that the provider knows. It is forgotten when this is dropped.
#[derive(Debug)]
pub struct Memory {
    handle: *mut std::ffi::c_void,
    descriptor: *mut std::ffi::c_void,
    /// By which peers name it.
    pub key: u64,
}

// SAFETY: libfabric's objects may be used by any thread (FI_THREAD_SAFE).
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: registered once, and unregistered here only.
        unsafe { foreign::shunt_fabric_unregister(self.handle) };
    }
}

/// The interface. It must outlive what is registered with it.
pub struct Interface {
    handle: *mut Handle,
    facts: Facts,
}

// SAFETY: libfabric's objects may be used by any thread (FI_THREAD_SAFE is asked for).
unsafe impl Send for Interface {}
// SAFETY: as above; methods take `&self` and hand over to libfabric, which has locks of its own.
unsafe impl Sync for Interface {}

/// A code of libfabric as one of the system: those below 256 are the same (fi_errno(3)).
fn errno(code: i64) -> Errno {
    match i32::try_from(-code) {
        Ok(code @ 1..=255) => Errno(code),
        _ => Errno(libc::EIO),
    }
}

fn judge(code: impl Into<i64>) -> Result<(), Errno> {
    match code.into() {
        0.. => Ok(()),
        code => Err(errno(code)),
    }
}

fn taken(code: isize) -> Result<Taken, Errno> {
    match code {
        0.. => Ok(Taken::Yes),
        code if code == -(libc::EAGAIN as isize) => Ok(Taken::Later),
        code => Err(errno(code as i64)),
    }
}

impl Interface {
    /// Opens an endpoint of `provider`, at `node` (its own address or host name, a provider's matter) and port `service`, for
    /// so many operations under way; with progress by libfabric's own thread if `automatic`.
    ///
    /// # Errors
    /// ENODATA: no such provider here, or not with that. EINVAL: a text with a zero. What libfabric answers; EIO for those
    /// codes that are only its own.
    pub fn open(
        provider: &str,
        node: Option<&str>,
        service: Option<&str>,
        automatic: bool,
        sends: u32,
        receives: u32,
    ) -> Result<Interface, Errno> {
        let text = |text: Option<&str>| text.map(CString::new).transpose().map_err(|_| Errno(libc::EINVAL));
        let (provider, node, service) = (text(Some(provider))?, text(node)?, text(service)?);
        let pointer = |text: &Option<CString>| text.as_ref().map_or(null(), |text| text.as_ptr());
        let wish = Wish {
            provider: pointer(&provider),
            node: pointer(&node),
            service: pointer(&service),
            automatic: automatic as u32,
            sends,
            receives,
        };
        let mut handle = null_mut();
        // SAFETY: integers and bytes, for which zero is valid.
        let mut facts: Facts = unsafe { std::mem::zeroed() };
        // SAFETY: texts end with a zero and live through the call; both results are ours.
        judge(unsafe { foreign::shunt_fabric_open(&wish, &mut handle, &mut facts) })?;
        Ok(Interface { handle, facts })
    }

    /// What was got.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The provider's full name: `tcp;ofi_rxm`.
    pub fn provider(&self) -> &str {
        let name = &self.facts.provider;
        let length = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        std::str::from_utf8(&name[..length]).unwrap_or("?")
    }

    /// Where this endpoint is, in the provider's words.
    ///
    /// # Errors
    /// ENAMETOOLONG for more than [`NAME`] bytes; what libfabric answers.
    pub fn name(&self) -> Result<([u8; NAME], usize), Errno> {
        let (mut bytes, mut length) = ([0; NAME], NAME);
        // SAFETY: as many bytes as said.
        match unsafe { foreign::shunt_fabric_name(self.handle, bytes.as_mut_ptr().cast(), &mut length) } {
            // It did not fit, whatever the provider calls that.
            _ if length > NAME => Err(Errno(libc::ENAMETOOLONG)),
            0 => Ok((bytes, length)),
            code => Err(errno(code.into())),
        }
    }

    /// Makes an address known: `bytes` as [`Interface::name`] gave them there, with zeros behind.
    ///
    /// # Errors
    /// What libfabric answers.
    pub fn insert(&self, bytes: &[u8; NAME]) -> Result<u64, Errno> {
        let mut address = NOBODY;
        // SAFETY: providers read as many bytes as their addresses have; texts end within.
        judge(unsafe { foreign::shunt_fabric_insert(self.handle, bytes.as_ptr().cast(), &mut address) })?;
        Ok(address)
    }

    /// Forgets an address. Nothing may be under way to it.
    pub fn remove(&self, address: u64) {
        // SAFETY: an address that `insert` gave; libfabric judges others.
        unsafe { foreign::shunt_fabric_remove(self.handle, address) };
    }

    /// Makes `length` bytes at `base` known to the provider. `key`: what peers shall call it, where they may choose.
    ///
    /// # Safety
    /// They stay mapped until what this gives is dropped; peers write there, if `access` says so.
    ///
    /// # Errors
    /// ENOKEY: the key is taken. What libfabric answers.
    pub unsafe fn register(&self, base: *mut u8, length: usize, access: Access, key: u64) -> Result<Memory, Errno> {
        let mut region = Region { handle: null_mut(), descriptor: null_mut(), key: 0 };
        // SAFETY: the caller's.
        judge(unsafe { foreign::shunt_fabric_register(self.handle, base.cast(), length, access as i32, key, &mut region) })?;
        Ok(Memory { handle: region.handle, descriptor: region.descriptor, key: region.key })
    }

    /// Sends at most [`Facts::inject`] bytes, which are the caller's again at once.
    ///
    /// # Errors
    /// What libfabric answers.
    #[inline]
    pub fn inject(&self, bytes: &[u8], to: u64) -> Result<Taken, Errno> {
        // SAFETY: a slice, read during the call.
        taken(unsafe { foreign::shunt_fabric_inject(self.handle, bytes.as_ptr().cast(), bytes.len(), to) })
    }

    /// Sends the bytes of `parts` ([`Facts::parts`] at most), in `memory`, as operation `slot`.
    ///
    /// # Safety
    /// They are mapped, and unchanged until the completion of that slot. The slot is free, and below [`Facts::sends`].
    ///
    /// # Errors
    /// What libfabric answers.
    pub unsafe fn send(&self, parts: &[iovec], memory: &Memory, to: u64, slot: u32) -> Result<Taken, Errno> {
        // SAFETY: the caller's.
        taken(unsafe { foreign::shunt_fabric_send(self.handle, parts.as_ptr(), parts.len(), memory.descriptor, to, slot) })
    }

    /// Writes `part` of `memory` to the peer's memory `key` at `address`, as operation `slot`.
    ///
    /// # Safety
    /// As for [`Interface::send`].
    ///
    /// # Errors
    /// What libfabric answers.
    pub unsafe fn write(
        &self,
        part: iovec,
        memory: &Memory,
        to: u64,
        (key, address): (u64, u64),
        slot: u32,
    ) -> Result<Taken, Errno> {
        // SAFETY: the caller's.
        taken(unsafe { foreign::shunt_fabric_write(self.handle, &part, memory.descriptor, to, address, key, slot) })
    }

    /// Gives the provider `length` bytes at `base`, in `memory`, for one message, as operation `slot`.
    ///
    /// # Safety
    /// They are mapped, and no other operation's until the completion of that slot. The slot is free, and below
    /// [`Facts::receives`].
    ///
    /// # Errors
    /// What libfabric answers.
    pub unsafe fn receive(&self, base: *mut u8, length: usize, memory: &Memory, slot: u32) -> Result<Taken, Errno> {
        // SAFETY: the caller's.
        taken(unsafe { foreign::shunt_fabric_receive(self.handle, base.cast(), length, memory.descriptor, slot) })
    }

    /// Takes what is over, and moves what the provider has to move; gives the number.
    ///
    /// # Errors
    /// What libfabric answers: the queue is broken.
    #[inline]
    pub fn completions(&self, queue: Queue, completions: &mut [Completion; BATCH]) -> Result<usize, Errno> {
        // SAFETY: as many as said.
        match unsafe { foreign::shunt_fabric_completions(self.handle, queue as i32, completions.as_mut_ptr(), BATCH) } {
            count @ 0.. => Ok((count as usize).min(BATCH)),
            code => Err(errno(code as i64)),
        }
    }

    /// Ends all operations: the memory that they use is the caller's. To be followed by dropping what was registered, and this.
    ///
    /// # Safety
    /// Nothing but dropping comes after it.
    pub unsafe fn shut(&self) {
        // SAFETY: the caller's.
        unsafe { foreign::shunt_fabric_shut(self.handle) };
    }

    /// Whether something is over, and not taken. Moves what the provider has to move.
    pub fn waits(&self, queue: Queue) -> bool {
        // SAFETY: nothing is written.
        unsafe { foreign::shunt_fabric_waits(self.handle, queue as i32) != 0 }
    }

    /// Whether one may sleep on the queues' descriptors ([`Facts::waits`]): fi_trywait(3). Only where there are any.
    pub fn may_sleep(&self) -> bool {
        // SAFETY: no arguments but the interface.
        unsafe { foreign::shunt_fabric_try_wait(self.handle) == 0 }
    }
}

impl Drop for Interface {
    fn drop(&mut self) {
        // SAFETY: opened once, closed here only.
        unsafe { foreign::shunt_fabric_close(self.handle) };
    }
}

/// Names of libfabric's providers that can carry endpoints on this machine.
pub fn providers() -> Vec<String> {
    let mut text = vec![0u8; 4096];
    // SAFETY: as many bytes as said.
    let length = unsafe { foreign::shunt_fabric_providers(text.as_mut_ptr().cast(), text.len()) };
    String::from_utf8_lossy(&text[..length]).lines().map(str::to_owned).collect()
}
