//! Peers' pools, and files, that this process reads: each once, for all of its streams.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::shown::View;

/// One of them.
#[derive(Clone, Copy)]
struct Mapped {
    secret: [u64; 2],
    view: View,
    /// Streams that read it.
    users: u32,
}

/// All of them. A stream has the place of what it reads, counted from one, in a word of its own; 0: none.
pub struct Viewed {
    all: [Option<Mapped>; Viewed::ROOM],
    close: fn(View),
}

impl Viewed {
    /// At a time.
    pub const ROOM: usize = 64;

    /// None yet. Those that are not read any more go to `close`.
    pub const fn new(close: fn(View)) -> Viewed {
        Viewed { all: [None; Viewed::ROOM], close }
    }

    /// The stream that keeps its view in `place` has one of this secret, or gets that of another stream.
    pub fn known(&mut self, place: &AtomicU32, secret: [u64; 2]) -> Option<View> {
        let is_it = |mapped: &Option<Mapped>| mapped.is_some_and(|mapped| mapped.secret == secret);
        let before = place.load(Ordering::Relaxed) as usize;
        if let Some(own) = before.checked_sub(1).map(|index| self.all[index]).filter(is_it) {
            return own.map(|mapped| mapped.view);
        }
        let found = self.all.iter().position(is_it)?;
        self.leave(before as u32);
        let mapped = self.all[found].as_mut()?;
        mapped.users += 1;
        place.store(found as u32 + 1, Ordering::Relaxed);
        Some(mapped.view)
    }

    /// Enters one that was opened just now, in the place of one that no stream reads. False: there is no room.
    pub fn enter(&mut self, secret: [u64; 2], view: View) -> bool {
        self.close_idle(|_| true);
        let free = self.all.iter_mut().find(|place| place.is_none());
        free.map(|place| *place = Some(Mapped { secret, view, users: 0 })).is_some()
    }

    fn at(&mut self, place: u32) -> Option<&mut Mapped> {
        (place as usize).checked_sub(1).and_then(|index| self.all[index].as_mut())
    }

    /// One reader more, besides the streams, of what has this place.
    pub fn retain(&mut self, place: u32) {
        self.at(place).into_iter().for_each(|mapped| mapped.users += 1);
    }

    /// One less.
    pub fn leave(&mut self, place: u32) {
        self.at(place).into_iter().for_each(|mapped| mapped.users = mapped.users.saturating_sub(1));
    }

    /// Closes files that no stream reads: their memory is to be free when the program gives it up.
    pub fn close_files(&mut self) {
        self.close_idle(|mapped| mapped.view.file >= 0);
    }

    fn close_idle(&mut self, which: impl Fn(&Mapped) -> bool) {
        for idle in self.all.iter_mut().filter(|view| view.as_ref().is_some_and(|mapped| mapped.users == 0 && which(mapped))) {
            idle.take().into_iter().for_each(|mapped| (self.close)(mapped.view));
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.all.iter().all(Option::is_none)
    }

    /// The descriptors of files.
    pub fn files(&mut self) -> impl Iterator<Item = &mut i32> {
        self.all.iter_mut().flatten().map(|mapped| &mut mapped.view.file).filter(|file| **file >= 0)
    }
}
