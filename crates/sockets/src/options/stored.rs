//! What a program set on one socket.

use crate::judge::LONGEST;
use crate::socket::Socket;
use shunt_sys::libc::c_int;

const MOST: usize = 64;

#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub level: c_int,
    pub name: c_int,
    pub length: u8,
    pub data: [u8; LONGEST],
}

impl Entry {
    pub fn bytes(&self) -> &[u8] {
        &self.data[..self.length as usize]
    }
}

/// Options that a program set on a socket, in the order of setting.
#[derive(Clone, Copy)]
pub struct Stored {
    count: usize,
    entries: [Entry; MOST],
}

impl Stored {
    /// None set.
    pub const fn new() -> Stored {
        Stored { count: 0, entries: [Entry { level: 0, name: 0, length: 0, data: [0; LONGEST] }; MOST] }
    }

    /// Forgets them all. What is not looked at is not touched: most sockets have few.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    pub(super) fn all(&self) -> &[Entry] {
        &self.entries[..self.count]
    }

    pub(super) fn all_mut(&mut self) -> &mut [Entry] {
        &mut self.entries[..self.count]
    }

    /// Becomes the same as `other`.
    pub(super) fn follow(&mut self, other: &Stored) {
        self.entries[..other.count].copy_from_slice(other.all());
        self.count = other.count;
    }

    pub(super) fn find(&self, level: c_int, name: c_int) -> Option<&Entry> {
        self.all().iter().find(|e| e.level == level && e.name == name)
    }

    pub(super) fn store(&mut self, level: c_int, name: c_int, bytes: &[u8]) {
        let length = bytes.len().min(LONGEST);
        let index = match self.all().iter().position(|e| e.level == level && e.name == name) {
            Some(index) => index,
            None => {
                let index = self.count;
                self.count = (index + 1).min(MOST);
                index
            }
        };
        // More different options than any program sets are not kept.
        let Some(entry) = self.entries.get_mut(index) else { return };
        (entry.level, entry.name, entry.length) = (level, name, length as u8);
        entry.data[..length].copy_from_slice(&bytes[..length]);
    }
}

impl Default for Stored {
    fn default() -> Self {
        Stored::new()
    }
}

#[allow(clippy::mut_from_ref)]
pub(super) fn stored(socket: &Socket) -> &mut Stored {
    // SAFETY: plain bytes of this process; threads that set options of one socket at the same time can only mix up
    // their own values.
    unsafe { &mut *socket.stored.get() }
}
