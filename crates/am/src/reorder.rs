//! Packets that arrived before those that their channel needs first: kept, and delivered in order.

use crate::config::Nanoseconds;
use crate::connection::Side;
use crate::dispatch::{Data, Dispatch, Link};
use crate::state::NONE;

impl Side<'_> {
    /// Keeps a packet until those before it in its channel have come. The list is in order.
    pub(crate) fn hold(&mut self, channel: u16, in_channel: u32, body: Data<'_>) -> bool {
        let index = self.peer.free_held;
        let stride = self.shared.config.stride();
        let Some(record) = self.holds.get_mut(usize::from(index)) else { return false };
        let Some(place) = self.held.get_mut(usize::from(index) * stride..).and_then(|held| held.get_mut(..body.len())) else {
            return false;
        };
        if !body.copy_to(0, place) {
            return false;
        }
        self.peer.free_held = record.next;
        record.length = body.len() as u32;
        record.in_channel = in_channel;
        let delivered = self.channels[usize::from(channel)].next_delivered;
        let distance = |other: u32| other.wrapping_sub(delivered);
        let (mut before, mut next) = (NONE, self.channels[usize::from(channel)].held);
        while let Some(other) = self.holds.get(usize::from(next)) {
            if distance(other.in_channel) > distance(in_channel) {
                break;
            }
            (before, next) = (next, other.next);
        }
        self.holds[usize::from(index)].next = next;
        match self.holds.get_mut(usize::from(before)) {
            Some(other) => other.next = index,
            None => self.channels[usize::from(channel)].held = index,
        }
        self.peer.held_count += 1;
        true
    }

    pub(crate) fn deliver_held(&mut self, now: Nanoseconds, channel: u16, link: &mut dyn Link, dispatch: &mut dyn Dispatch) {
        let lane = usize::from(channel);
        let stride = self.shared.config.stride();
        loop {
            let index = self.channels[lane].held;
            let Some(&record) = self.holds.get(usize::from(index)) else { return };
            if record.in_channel != self.channels[lane].next_delivered {
                if (record.in_channel.wrapping_sub(self.channels[lane].next_delivered) as i32) < 0 {
                    // Two packets with one number: the peer lies. The second is dropped.
                    self.peer.counters.violations += 1;
                    self.drop_held(lane, index, record.next);
                    continue;
                }
                return;
            }
            // The bytes are lent out while handlers run, so that they may use the connection.
            let held = core::mem::take(&mut self.held);
            let from = usize::from(index) * stride;
            let body = held.get(from..).and_then(|held| held.get(..record.length as usize)).unwrap_or_default();
            self.deliver(now, channel, body, None, link, dispatch);
            self.held = held;
            if !self.is_up() {
                return;
            }
            self.channels[lane].next_delivered = self.channels[lane].next_delivered.wrapping_add(1);
            self.drop_held(lane, index, record.next);
        }
    }

    fn drop_held(&mut self, lane: usize, index: u16, next: u16) {
        self.channels[lane].held = next;
        self.holds[usize::from(index)].next = core::mem::replace(&mut self.peer.free_held, index);
        self.peer.held_count = self.peer.held_count.saturating_sub(1);
    }
}
