//! Barriers of groups whose members live on several hosts: the last member to arrive on a host speaks for it to the others.
//!
//! Hosts exchange their arrivals in rounds, as members of one host do: in round r one tells the one 2^r places further. What it tells
//! is answered by that host's keeper, so that the member that spoke may compute afterwards without having to send anything again.

use crate::error::Result;
use crate::layout::GroupHead;
use crate::remote::wire::Request;
use crate::wait::{self, Span, Waits};
use crate::world::World;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

/// The hosts of these ranks in order; none if they are all of this one.
pub(super) fn hosts(world: &World, ranks: impl Iterator<Item = usize>) -> Vec<usize> {
    let Some(way) = world.other_hosts() else { return Vec::new() };
    let mut hosts: Vec<usize> = ranks.map(|rank| way.hosts().of(rank)).collect();
    hosts.sort_unstable();
    hosts.dedup();
    if hosts == [way.own()] {
        hosts.clear();
    }
    hosts
}

/// All members of all hosts have arrived when this returns; those of this one had before.
pub(super) fn cross(world: &World, key: u64, hosts: &[usize], head: &GroupHead, slot: usize) -> Result<()> {
    let Some(way) = world.other_hosts() else { return Ok(()) };
    let Some(own) = hosts.iter().position(|host| *host == way.own()) else { return Ok(()) };
    // In the job's memory: another member speaks next time.
    let number = head.crossings.load(Relaxed).wrapping_add(1);
    head.crossings.store(number, Relaxed);
    for round in 0..usize::BITS {
        let distance = 1 << round;
        if distance >= hosts.len() {
            break;
        }
        let partner = hosts[(own + distance) % hosts.len()];
        way.ask(world, partner, |token| Request::Arrive { key, round: u64::from(round), number: u64::from(number), token })?;
        let flag = &head.arrived[round as usize];
        // A fast host may be in the next barrier already.
        let is_here = || flag.load(Acquire).wrapping_sub(number) as i32 >= 0;
        let has_gone = || world.has_gone(key, hosts, round as usize);
        wait::until(world, Waits::Barrier, Span::flag(slot as u64), || is_here() || has_gone())?;
        // What a host has told at its end it told after all its other arrivals.
        if !is_here() {
            let host = hosts[(own + hosts.len() - distance) % hosts.len()];
            let rank = (0..world.ranks()).find(|rank| way.hosts().of(*rank) == host);
            return Err(world.finalized_early(rank.unwrap_or_default()));
        }
    }
    Ok(())
}

/// A word of a member becomes known to the keepers of the other hosts: for certain after `complete`.
pub(super) fn tell(world: &World, hosts: &[usize], (key, index, at, word): (u64, usize, usize, u64)) -> Result<()> {
    let Some(way) = world.other_hosts() else { return Ok(()) };
    for host in hosts.iter().filter(|host| **host != way.own()) {
        way.tell(world, *host, &Request::Tell { key, index: index as u64, at: at as u64, word })?;
    }
    Ok(())
}
