//! Connections of ends, from the moment at which one is there to that at which it has its answer: whose each is, what it waits for, and until when.

use std::collections::{HashMap, VecDeque};
use std::os::fd::OwnedFd;

use crate::reading::Connection;
use crate::table::{Limits, Side};

/// One of them.
pub struct Request {
    /// The connection.
    pub fd: OwnedFd,
    /// Its user, as the kernel tells.
    pub user: u32,
    /// Its network namespace (SO_NETNS_COOKIE), which is its own whatever it passes; 0: the kernel does not tell.
    pub network: u64,
    /// What it claims, once it has said so.
    pub claim: Option<(Side, Connection)>,
    /// Of which of those that had its place it is.
    generation: u32,
}

/// All of them. Each has a number, under which it is found until it is taken out.
pub struct Requests {
    limits: Limits,
    places: Vec<Option<Request>>,
    free: Vec<u32>,
    of_user: HashMap<u32, usize>,
    of_network: HashMap<u64, usize>,
    /// The oldest first: the last moment (ns), number and generation. Those that are gone are passed over.
    by_age: VecDeque<(u64, u32, u32)>,
    next_generation: u32,
}

impl Requests {
    /// None yet. All memory that they will need is taken here.
    pub fn new(limits: Limits) -> Requests {
        Requests {
            limits,
            places: Vec::with_capacity(limits.all),
            free: Vec::with_capacity(limits.all),
            of_user: HashMap::with_capacity(2 * limits.all),
            of_network: HashMap::with_capacity(2 * limits.all),
            by_age: VecDeque::with_capacity(2 * limits.all),
            next_generation: 0,
        }
    }

    /// Another one, at `now` (ns); its number. `None`: there is no room for it, or for another one of its user or network.
    pub fn add(&mut self, fd: OwnedFd, user: u32, network: u64, now: u64) -> Option<u32> {
        let is_full = self.free.is_empty() && self.places.len() >= self.limits.all;
        let has_share = self.of_user.get(&user).is_some_and(|count| *count >= self.limits.of_user)
            || self.of_network.get(&network).is_some_and(|count| *count >= self.limits.of_network);
        if is_full || has_share {
            return None;
        }
        self.next_generation = self.next_generation.wrapping_add(1);
        let request = Request { fd, user, network, claim: None, generation: self.next_generation };
        let number = match self.free.pop() {
            Some(number) => number,
            None => {
                self.places.push(None);
                self.places.len() as u32 - 1
            }
        };
        self.places[number as usize] = Some(request);
        *self.of_user.entry(user).or_default() += 1;
        *self.of_network.entry(network).or_default() += 1;
        self.ages(number, now);
        Some(number)
    }

    /// Its time begins anew.
    fn ages(&mut self, number: u32, now: u64) {
        if self.by_age.len() >= 2 * self.limits.all {
            let (places, by_age) = (&self.places, &mut self.by_age);
            by_age.retain(|(_, number, generation)| is_it(places, *number, *generation));
        }
        if let Some(request) = self.get(number) {
            self.by_age.push_back((now + self.limits.patience, number, request.generation));
        }
    }

    /// The one with this number.
    pub fn get(&self, number: u32) -> Option<&Request> {
        self.places.get(number as usize)?.as_ref()
    }

    /// It claims a connection.
    pub fn claims(&mut self, number: u32, side: Side, connection: Connection, now: u64) {
        if let Some(Some(request)) = self.places.get_mut(number as usize) {
            request.claim = Some((side, connection));
            self.next_generation = self.next_generation.wrapping_add(1);
            request.generation = self.next_generation;
            self.ages(number, now);
        }
    }

    /// Takes it out.
    pub fn take(&mut self, number: u32) -> Option<Request> {
        let request = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number);
        one_less(&mut self.of_user, request.user);
        one_less(&mut self.of_network, request.network);
        Some(request)
    }

    /// One whose time is over.
    pub fn too_old(&mut self, now: u64) -> Option<u32> {
        while let Some(&(last, number, generation)) = self.by_age.front() {
            let is_there = is_it(&self.places, number, generation);
            if is_there && last > now {
                return None;
            }
            self.by_age.pop_front();
            if is_there {
                return Some(number);
            }
        }
        None
    }

    /// How long nothing becomes too old (ns); `None`: there is nothing.
    pub fn next(&self, now: u64) -> Option<u64> {
        self.by_age.front().map(|(last, ..)| last.saturating_sub(now))
    }
}

fn one_less<Key: Eq + std::hash::Hash>(counts: &mut HashMap<Key, usize>, key: Key) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

fn is_it(places: &[Option<Request>], number: u32, generation: u32) -> bool {
    places.get(number as usize).and_then(Option::as_ref).is_some_and(|request| request.generation == generation)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Numbers;

    fn fd() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("it").into()
    }

    fn connection(network: u64) -> Connection {
        Connection { numbers: Numbers { sends: 1, expects: 2 }, network }
    }

    const PATIENCE: u64 = 100;
    const LIMITS: Limits = Limits { all: 6, of_user: 4, of_network: 2, patience: PATIENCE };

    #[test]
    fn a_user_and_a_network_have_their_share() {
        let mut requests = Requests::new(LIMITS);
        let own: Vec<u32> = (0..9).map_while(|network| requests.add(fd(), 1000, network, 0)).collect();
        assert_eq!(own.len(), LIMITS.of_user);
        let others: Vec<u32> = (1..9).map_while(|user| requests.add(fd(), user, 77, 0)).collect();
        assert_eq!(others.len(), LIMITS.of_network, "whichever user");
        assert!(requests.take(own[0]).is_some() && requests.take(own[0]).is_none());
        assert!(requests.take(others[0]).is_some());
        let again = [requests.add(fd(), 1000, 5, 0), requests.add(fd(), 5, 77, 0)].map(|number| number.expect("room"));
        assert_eq!(requests.add(fd(), 6, 6, 0), None, "all of them");
        for number in own.iter().skip(1).chain(&others[1..]).chain(&again) {
            assert!(requests.take(*number).is_some());
        }
        assert!(requests.of_user.is_empty() && requests.of_network.is_empty());
    }

    #[test]
    fn what_waits_too_long_is_told_once() {
        let mut requests = Requests::new(LIMITS);
        let first = requests.add(fd(), 1, 1, 0).expect("room");
        let second = requests.add(fd(), 1, 1, 10).expect("room");
        assert_eq!((requests.next(4), requests.too_old(PATIENCE - 1)), (Some(PATIENCE - 4), None));
        // Its time begins anew.
        requests.claims(first, Side::Client, connection(1), 20);
        assert_eq!(requests.too_old(PATIENCE + 10), Some(second));
        assert!(requests.take(second).is_some());
        assert_eq!(requests.too_old(PATIENCE + 19), None);
        assert_eq!(requests.too_old(PATIENCE + 20), Some(first));
        assert!(requests.take(first).is_some());
        assert_eq!((requests.too_old(u64::MAX), requests.next(0)), (None, None));
    }

    /// Connections that come and go without end leave nothing behind.
    #[test]
    fn the_list_by_age_has_a_bound() {
        let mut requests = Requests::new(LIMITS);
        let old = requests.add(fd(), 1, 1, 0).expect("room");
        for turn in 0..1000 {
            let number = requests.add(fd(), 2, 2, turn).expect("room");
            requests.claims(number, Side::Client, connection(1), turn);
            assert!(requests.take(number).is_some());
            assert!(requests.by_age.len() <= 2 * LIMITS.all && requests.places.len() <= LIMITS.all);
        }
        assert_eq!(requests.too_old(PATIENCE), Some(old));
    }
}
