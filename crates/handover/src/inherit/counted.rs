//! Streams whose owners were counted up for a process that may not come about after all.

use core::sync::atomic::Ordering;
use shunt_stream::socket::{flag, Socket};

/// How many are remembered; the counts of others stand.
const MOST: usize = 128;

/// Such streams.
pub struct Counted {
    /// Each with its object's generation.
    streams: [Option<(&'static Socket, u32)>; MOST],
    count: usize,
}

impl Counted {
    /// None.
    pub const fn new() -> Counted {
        Counted { streams: [None; MOST], count: 0 }
    }

    /// Whether another one would be remembered.
    pub fn has_room(&self) -> bool {
        self.count < MOST
    }

    /// Another process is about to own the stream, too. The process has shared it.
    pub fn count(&mut self, socket: &'static Socket) {
        socket.own().owners.fetch_add(1, Ordering::AcqRel);
        if let Some(place) = self.streams.get_mut(self.count) {
            *place = Some((socket, socket.generation.load(Ordering::Acquire)));
            self.count += 1;
        }
    }

    /// That process did not come about. What was closed meanwhile is left to the kernel's hang-up.
    pub fn take_back(&mut self) {
        for (socket, generation) in self.streams.iter_mut().filter_map(Option::take) {
            if socket.generation.load(Ordering::Acquire) == generation && socket.has(flag::SHARED) {
                socket.own().owners.fetch_sub(1, Ordering::AcqRel);
            }
        }
        self.count = 0;
    }
}

impl Default for Counted {
    fn default() -> Self {
        Counted::new()
    }
}
