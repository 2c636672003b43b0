//! Which questions a gate answers: those of hosts of the area. Any host may send it datagrams under any address, and it is served by the keeper, which has
//! streams to pump; so what the kernel says of one asker is believed of its subnet for a moment, and of strangers it is asked so often.

use super::reachability;
use shunt_config::Subnet;
use shunt_segment::address::Address;
use shunt_table::global::SETUP;
use shunt_table::route;

/// How long a subnet is believed to be in the area (ns), and how long when it is not found there any more: an agent that is started
/// again is away for a moment, and hosts that asked in vain meanwhile would not ask again for half a minute.
const BELIEVE: u64 = 1_000_000_000;
const MISSED: u64 = 5_000_000_000;
/// Looks for askers of no known subnet that have not proved to be there, in a second: 50 us each.
const LOOKS: u32 = 100;

/// A subnet of the area: when it was last looked for, and found.
#[derive(Clone, Copy)]
struct Known {
    subnet: Subnet,
    looked: u64,
    found: u64,
}

/// What a gate knows of the hosts that ask.
pub struct Askers {
    known: [Option<Known>; 8],
    /// Looks since then.
    looks: u32,
    since: u64,
}

impl Askers {
    pub const NONE: Askers = Askers { known: [None; 8], looks: 0, since: 0 };

    /// Whether `asker` is answered; `proved`: it is there.
    pub fn knows(&mut self, asker: &Address, proved: bool, now: u64) -> bool {
        self.judge(&asker.ip, proved, now, &mut || {
            reachability::device(asker).ok()?;
            let _setup = SETUP.lock()?;
            Some(route::prefix_of(asker).unwrap_or(128))
        })
    }

    /// `look`: the bits of its subnet, if it is in the area.
    fn judge(&mut self, ip: &[u8; 16], proved: bool, now: u64, look: &mut dyn FnMut() -> Option<u8>) -> bool {
        let is_of = |known: &&mut Known| known.subnet.contains(ip) && now < known.found + MISSED;
        // Subnets may lie within others: the one that was looked for last says most.
        let known = self.known.iter_mut().flatten().filter(is_of).max_by_key(|known| known.looked);
        let is_known = known.is_some();
        if let Some(known) = known {
            if !proved && now < known.looked + BELIEVE {
                return true;
            }
            known.looked = now;
        } else if !proved {
            if now >= self.since + BELIEVE {
                (self.since, self.looks) = (now, 0);
            }
            if self.looks == LOOKS {
                return false;
            }
            self.looks += 1;
        }
        let Some(bits) = look() else { return is_known && !proved };
        self.note(Known { subnet: Subnet::around(ip, bits), looked: now, found: now });
        true
    }

    fn note(&mut self, new: Known) {
        let at = |known: &Option<Known>| known.is_some_and(|known| known.subnet == new.subnet);
        let place = self.known.iter().position(at);
        let oldest = || (0..self.known.len()).min_by_key(|place| self.known[*place].map_or(0, |known| known.found));
        if let Some(place) = place.or_else(oldest) {
            self.known[place] = Some(new);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    /// An asker of 10.0.0.0/8, the `number`th.
    fn asker(number: u32) -> [u8; 16] {
        let [_, b, c, d] = number.to_be_bytes();
        Address::v4([10, b, c, d], 0).ip
    }

    #[test]
    fn a_subnet_is_looked_for_once_a_second() {
        let (mut askers, mut looks) = (Askers::NONE, 0);
        for number in 0..1000 {
            let now = 100 * SECOND + u64::from(number) * SECOND / 250;
            assert!(askers.judge(&asker(number), false, now, &mut || {
                looks += 1;
                Some(96 + 8)
            }));
        }
        assert_eq!(looks, 4);
        // An asker that has proved to be there is looked for by its own address.
        assert!(!askers.judge(&asker(5), true, 104 * SECOND, &mut || None));
    }

    #[test]
    fn strangers_have_so_many_looks() {
        let (mut askers, mut looks) = (Askers::NONE, 0);
        let mut flood = |now| {
            for number in 0..1000 {
                assert!(!askers.judge(&asker(number), false, now, &mut || {
                    looks += 1;
                    None
                }));
            }
            let proved = askers.judge(&asker(7), true, now, &mut || Some(96 + 24));
            (looks, proved)
        };
        assert_eq!(flood(100 * SECOND), (LOOKS, true));
        let mut again = |number, now| askers.judge(&asker(number), false, now, &mut || None);
        assert!(again(9, 101 * SECOND - 1), "of a known subnet");
        assert!(!again(1 << 8, 101 * SECOND - 1));
    }

    /// An agent is away for a moment.
    #[test]
    fn a_subnet_may_be_missed_for_a_while() {
        let mut askers = Askers::NONE;
        let mut ask = |now, bits: Option<u8>| askers.judge(&asker(1), false, now, &mut || bits);
        assert!(ask(100 * SECOND, Some(96 + 8)));
        assert!(ask(104 * SECOND, None));
        assert!(!ask(105 * SECOND, None));
        assert!(ask(106 * SECOND, Some(96 + 8)));
    }

    #[test]
    fn many_subnets_find_room() {
        let mut askers = Askers::NONE;
        for number in 1..100u32 {
            let mut ask = |of: u32, bits| askers.judge(&asker(of << 16), false, (100 + u64::from(number)) * SECOND, &mut || bits);
            assert!(ask(number, Some(96 + 16)));
            assert!(ask(number, None));
        }
    }
}
