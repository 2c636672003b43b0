//! Before and after sleeping on the descriptor. The protocol is `shunt_ring::bell`, for every lane at once.

use super::channel::*;
use super::lane::Lane;
use super::{Shm, LARGEST_BODY};
use crate::shared::ChannelEntry;
use crate::Channel;
use core::sync::atomic::{fence, Ordering::Relaxed, Ordering::SeqCst};
use shunt_ring::bell;
use shunt_segment::channel::arm::IN;
use shunt_sys::barrier;

impl Shm {
    /// Arms every lane, and looks at each once more.
    pub(super) fn arm_all(&mut self) -> bool {
        self.listen();
        let mut due = false;
        for (channel, entry) in self.each() {
            let lane = self.lane_in(channel.index());
            due |= bell::arm(&lane.header().wait.0, IN) && lane.header().barrier.0.load(Relaxed) != 0;
            if has(entry, BLOCKED) {
                if let Some(out) = self.mapped(channel.index()).map(|mapped| mapped.out).filter(|out| !out.is_null()) {
                    // SAFETY: mapped until the channel is closed.
                    unsafe { Lane::at(out) }.header().blocked.0.store(1, SeqCst);
                }
            }
        }
        fence(SeqCst);
        if due {
            barrier::everywhere();
        }
        let mut quiet = true;
        for (channel, entry) in self.each() {
            let (slot, _) = pair(&entry.device[word::NEXT]);
            let waits = !has(entry, DEAD) && self.lane_in(channel.index()).announced(slot).is_some();
            quiet &= !(waits || has(entry, BLOCKED) && self.may_go_on(channel, entry));
        }
        if !quiet {
            self.unarm();
        }
        quiet
    }

    /// Whether a sender that found no room would find some now: half of everything, or a peer that is gone.
    pub(super) fn may_go_on(&self, channel: Channel, entry: &ChannelEntry) -> bool {
        let out = self.mapped(channel.index()).map_or(core::ptr::null_mut(), |mapped| mapped.out);
        if out.is_null() {
            return false;
        }
        // SAFETY: mapped until the channel is closed.
        let room = Shm::has_room(entry, unsafe { Lane::at(out) }, 2, LARGEST_BODY) != Some(false);
        if room {
            flag(entry, BLOCKED, false);
        }
        room
    }

    pub(super) fn unarm(&mut self) {
        for (channel, entry) in self.each() {
            bell::disarm(&self.lane_in(channel.index()).header().wait.0, IN);
            if has(entry, BLOCKED) {
                if let Some(out) = self.mapped(channel.index()).map(|mapped| mapped.out).filter(|out| !out.is_null()) {
                    // SAFETY: mapped until the channel is closed.
                    unsafe { Lane::at(out) }.header().blocked.0.store(0, Relaxed);
                }
            }
        }
    }
}
