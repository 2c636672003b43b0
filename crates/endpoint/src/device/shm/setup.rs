//! How a channel comes to have its two lanes, and which of them this process has.

use super::channel::*;
use super::control::{self, Heard, Hello};
use super::lane::{self, Lane, GRAIN, RING, SLOTS};
use super::Shm;
use crate::shared::{is_safe_to_map, ChannelEntry};
use crate::{Area, Channel, Counters, Drop as Reason, Tag, INLINE};
use core::sync::atomic::Ordering::Relaxed;
use shunt_sys::{calls, libc, mapping, Errno};

impl Shm {
    #[inline(always)]
    pub(super) fn mapped(&self, index: usize) -> Option<Mapped> {
        // SAFETY: inside the table, which this handle alone uses; zero is valid.
        (index < self.memory.shape().channels as usize).then(|| unsafe { self.mapped.add(index).read() })
    }

    pub(super) fn set_mapped(&self, index: usize, mapped: Mapped) {
        if index < self.memory.shape().channels as usize {
            // SAFETY: as above.
            unsafe { self.mapped.add(index).write(mapped) };
        }
    }

    /// The numbers of open channels.
    #[inline(always)]
    pub(super) fn order(&self) -> *mut u32 {
        // SAFETY: behind the table, see `table_size`.
        unsafe { self.mapped.add(self.memory.shape().channels as usize).cast() }
    }

    /// Counts of changes of the registry, for handles of other processes.
    pub(super) fn changed(&self) {
        let changes = &self.memory.header().device_words[1];
        changes.store(changes.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Lists the open channels whose lanes this process has.
    #[cold]
    pub(super) fn list(&mut self) {
        self.changes = self.memory.header().device_words[1].load(Relaxed);
        (self.open, self.current, self.opening) = (0, 0, false);
        for (channel, entry) in self.memory.registry().iter() {
            let Some(mapped) = self.mapped(channel.index()).filter(|mapped| mapped.channel == channel.0) else { continue };
            let state = entry.device[word::STATE].load(Relaxed);
            self.opening |= state & DEAD == 0 && (state & PEER_HAS == 0 || mapped.out.is_null());
            // SAFETY: there are as many places as channels.
            unsafe { self.order().add(self.open as usize).write(channel.0) };
            self.open += 1;
            self.only =
                Only { channel: channel.0, entry: &raw const *entry, lane_in: self.lane_in(channel.index()), out: mapped.out };
        }
        if self.open != 1 {
            self.only = Only::NONE;
        }
    }

    /// The lane by which a channel is received: it is mapped behind the segment, at the channel's place.
    #[inline(always)]
    pub(super) fn lane_in(&self, index: usize) -> Lane {
        let area = Area::new(self.window(index), lane::SIZE as u32);
        let base = self.memory.segment_with_extra().pointer(area).unwrap_or_default();
        // SAFETY: channels in the list have their lane there.
        unsafe { Lane::at(base) }
    }

    /// Where that place begins in the segment.
    #[inline(always)]
    pub(super) fn window(&self, index: usize) -> u32 {
        self.memory.shape().segment + (index * lane::SIZE) as u32
    }

    pub(super) fn map_in(&self, channel: Channel, fd: i32) -> Result<(), Errno> {
        let place = Area::new(self.window(channel.index()), lane::SIZE as u32);
        let base = self.memory.segment_with_extra().pointer(place).ok_or(Errno(libc::EINVAL))?;
        if !is_safe_to_map(fd, lane::SIZE) {
            return Err(Errno(libc::EINVAL));
        }
        // SAFETY: the channel's own place; arrivals of an older channel there were closed with it.
        unsafe { mapping::shared_over(base, fd, lane::SIZE)? };
        self.set_mapped(channel.index(), Mapped { channel: channel.0, lane_in: fd, lane_out: -1, out: core::ptr::null_mut() });
        Ok(())
    }

    /// Takes a lane of the peer's; the descriptor is ours to close.
    pub(super) fn map_out(&self, channel: Channel, fd: i32) -> bool {
        let Some(mapped) = self.mapped(channel.index()).filter(|mapped| mapped.channel == channel.0 && mapped.out.is_null())
        else {
            let _ = calls::close(fd);
            return false;
        };
        let base = match is_safe_to_map(fd, lane::SIZE) {
            true => mapping::shared(fd, lane::SIZE).ok(),
            false => None,
        };
        // SAFETY: just mapped, in full size.
        let lane = base.map(|base| (base, unsafe { Lane::at(base) }));
        let Some((base, lane)) = lane.filter(|(_, lane)| lane.is_ours()) else {
            if let Some(base) = base {
                let _ = calls::munmap(base, lane::SIZE);
            }
            let _ = calls::close(fd);
            return false;
        };
        lane.header().barrier.0.store(!self.fences as u32, Relaxed);
        self.set_mapped(channel.index(), Mapped { lane_out: fd, out: base, ..mapped });
        true
    }

    /// Says hello to the peer of a channel, with our lane.
    pub(super) fn greet(&self, channel: Channel, entry: &ChannelEntry) {
        let (Some(mapped), Some(peer)) = (self.mapped(channel.index()), control::number(&entry.address())) else { return };
        let flags = if mapped.out.is_null() { 0 } else { control::HAVE };
        let hello = Hello::new(self.number, entry.tags().send.0, flags);
        // If it fails, the peer will ask by its own hello, or this side when it next looks.
        let _ = control::greet(self.socket, peer, &hello, mapped.lane_in);
    }

    /// Takes what lies in the socket: bells, and hellos.
    #[cold]
    pub(super) fn listen(&mut self) {
        self.empty_looks = 0;
        for _ in 0..64 {
            match control::hear(self.socket) {
                None => break,
                Some(Heard::Bell) => Counters::add(&self.memory.counters().woken, 1),
                Some(Heard::Nonsense) => self.memory.counters().drop(Reason::Magic),
                Some(Heard::Hello(hello, fd)) if hello.flags & control::OFFER != 0 => self.offered(hello, fd),
                Some(Heard::Hello(hello, fd)) => self.welcome(hello, fd),
            }
        }
        self.list();
    }

    pub(super) fn welcome(&mut self, hello: Hello, fd: i32) {
        let refused = |reason: Reason| {
            let _ = calls::close(fd);
            self.memory.counters().drop(reason);
        };
        let Some((channel, entry)) = self.memory.registry().by_tag(Tag(hello.tag)) else { return refused(Reason::Tag) };
        if entry.address() != control::address(hello.from) {
            return refused(Reason::Source);
        }
        if self.mapped(channel.index()).is_none_or(|mapped| mapped.channel != channel.0) {
            // Opened by another process of this owner, which has not handed the lanes over.
            return refused(Reason::NoBuffer);
        }
        if hello.flags & control::HAVE != 0 {
            flag(entry, PEER_HAS, true);
        }
        let known = has(entry, HAVE_OUT);
        if known {
            let _ = calls::close(fd);
        } else if self.map_out(channel, fd) {
            flag(entry, HAVE_OUT, true);
        } else {
            self.memory.counters().drop(Reason::Violation);
            return;
        }
        // An end that learns something says so: the exchange ends when both know that both have.
        if hello.flags & control::HAVE == 0 || !known {
            self.greet(channel, entry);
        }
    }

    /// After the lock was taken from an owner that died: goes on behind what it has announced and not yet noted, so that no
    /// slot is announced twice.
    pub fn recover(&mut self) {
        for (channel, entry) in self.memory.registry().iter() {
            let mapped = self.mapped(channel.index()).filter(|mapped| mapped.channel == channel.0 && !mapped.out.is_null());
            let Some(mapped) = mapped else { continue };
            // SAFETY: mapped until the channel is closed.
            let lane = unsafe { Lane::at(mapped.out) };
            for _ in 0..SLOTS {
                let (slot, byte) = pair(&entry.device[word::TAIL]);
                let Some(word) = lane.announced(slot) else { break };
                let span = word.length().saturating_sub(INLINE as u32).min(RING).next_multiple_of(GRAIN);
                set_pair(&entry.device[word::TAIL], slot.wrapping_add(word.lines()), byte.wrapping_add(span));
            }
        }
    }

    /// Stops a channel whose peer broke the rules or is gone.
    #[cold]
    pub(super) fn give_up(&self, entry: &ChannelEntry, violation: bool) {
        flag(entry, DEAD, true);
        if violation {
            self.memory.counters().drop(Reason::Violation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Arrival, Body, Endpoint, Message};

    #[test]
    fn what_a_dead_owner_announced_is_not_announced_again() {
        let make = || Shm::new(Default::default()).expect("memory");
        let (mut a, mut b) = (make(), make());
        let (to_b, _) = crate::conformance::connect(&mut a, &mut b);
        assert_eq!((a.flush(), b.flush()), (Ok(true), Ok(true)));
        let body = [7u8; 300];
        let message = |number: &'static [u8]| Message { channel: to_b, head: number, body: Body::Bytes(body[..].into()) };
        a.send(&message(b"0")).expect("room");
        let entry = |shm: &Shm| shm.memory.registry().get(to_b).expect("open").device[word::TAIL].load(Relaxed);
        let before = entry(&a);
        a.send(&message(b"1")).expect("room");
        // As if its sender had died between the announcement and its note.
        let after = entry(&a);
        a.memory.registry().get(to_b).expect("open").device[word::TAIL].store(before, Relaxed);
        a.recover();
        assert_eq!(entry(&a), after);
        a.send(&message(b"2")).expect("room");
        let mut arrival = Arrival::empty();
        for number in [b'0', b'1', b'2'] {
            assert!(b.receive(&mut arrival));
            assert_eq!((arrival.head()[0], arrival.len()), (number, 301));
            b.release(&mut arrival);
        }
        assert!(!b.receive(&mut arrival));
    }
}
