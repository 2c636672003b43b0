//! Processes that take what strangers pass, so that the loop never has it. A close(2) of that may wait for as long as its holder likes (a FUSE file, SO_LINGER), and so
//! may a question about a socket whose lock another thread has; no signal ends such a wait. The hand that does it waits; others do not.
//!
//! ```text
//! loop                                              hand
//!   HEAR, an end's connection  ──►  takes its packet, reads the socket that came along, closes it
//!                              ◄──  what it was
//!   CLOSE, the connection      ──►  takes and closes all that is left in it
//!                              ◄──  CLOSED
//! ```
//!
//! A hand has one thing to do at a time, and strangers of one user and network one hand.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use shunt_segment::meeting::{Refusal, Request, REQUEST};
use shunt_sys::{calls, Errno};

use crate::confinement::{self, HAND};
use crate::packets;
use crate::reading::{Connection, Networks, Reader};
use crate::table::{Numbers, Side};

/// How many there are: so many users and networks at a time can keep one each.
pub const HANDS: usize = 8;

/// What has become of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// No packet is there.
    Nothing,
    /// It makes no sense, or is the end.
    Senseless,
    /// The end waits no longer.
    Gone,
    /// It asks for the counts.
    Counts,
    /// It holds an end of this connection.
    Claim(Side, Connection),
    /// What it holds is none, or none that is read.
    Refused(Refusal),
    /// All that was left in it is closed.
    Closed,
}

/// Bytes of that: its place among [`Found::all`], the connection's numbers, its network.
const FOUND: usize = 3 * 8;

impl Found {
    fn all(connection: Connection) -> [Found; 9] {
        use Found::{Claim, Closed, Counts, Gone, Nothing, Refused, Senseless};
        let claims = [Claim(Side::Client, connection), Claim(Side::Server, connection)];
        let refused = [Refused(Refusal::NoConnection), Refused(Refusal::Forbidden)];
        [Nothing, Senseless, Gone, Counts, claims[0], claims[1], refused[0], refused[1], Closed]
    }

    fn encode(self) -> [u8; FOUND] {
        let none = Connection { numbers: Numbers { sends: 0, expects: 0 }, network: 0 };
        let connection = if let Found::Claim(_, connection) = self { connection } else { none };
        let place = Found::all(connection).iter().position(|found| *found == self).unwrap_or(1);
        let Numbers { sends, expects } = connection.numbers;
        let words = [place as u64, u64::from(sends) << 32 | u64::from(expects), connection.network];
        let mut bytes = [0; FOUND];
        bytes.chunks_exact_mut(8).zip(words).for_each(|(to, word)| to.copy_from_slice(&word.to_ne_bytes()));
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Found> {
        let bytes: &[u8; FOUND] = bytes.try_into().ok()?;
        let word = |at: usize| u64::from_ne_bytes(bytes.as_chunks().0[at]);
        let numbers = Numbers { sends: (word(1) >> 32) as u32, expects: word(1) as u32 };
        Found::all(Connection { numbers, network: word(2) }).get(word(0) as usize).copied()
    }
}

/// A user and its network.
pub type Holder = (u32, u64);

/// In the place of a number behind another: the last one, and one that is not there.
const LAST: u32 = u32::MAX;
const OUT: u32 = u32::MAX - 1;

/// Which requests wait for a hand, and which have one. No descriptor, no clock; its memory is taken when it is made.
pub struct Tasks {
    at: [Option<(u32, Holder)>; HANDS],
    /// By number: what waits behind it.
    behind: Vec<u32>,
    /// First and last that wait, of holders of which one waits or has a hand.
    of: HashMap<Holder, (u32, u32)>,
    /// Holders that have no hand, and wait for one.
    ready: VecDeque<Holder>,
}

impl Tasks {
    /// None yet, of requests with so many numbers.
    pub fn new(all: usize) -> Tasks {
        let (of, ready) = (HashMap::with_capacity(2 * all), VecDeque::with_capacity(all));
        Tasks { at: [None; HANDS], behind: vec![OUT; all], of, ready }
    }

    /// A request waits for a hand, unless it does or has one.
    pub fn add(&mut self, number: u32, holder: Holder) {
        if self.behind.get(number as usize) != Some(&OUT) {
            return;
        }
        self.behind[number as usize] = LAST;
        let Some((first, last)) = self.of.get_mut(&holder) else {
            self.of.insert(holder, (number, number));
            return self.ready.push_back(holder);
        };
        match *first {
            LAST => *first = number,
            _ => self.behind[*last as usize] = number,
        }
        *last = number;
    }

    /// The next one that gets a hand, and which.
    pub fn next(&mut self) -> Option<(usize, u32)> {
        let hand = self.at.iter().position(Option::is_none)?;
        let holder = self.ready.pop_front()?;
        let (first, _) = self.of.get_mut(&holder)?;
        let number = *first;
        *first = std::mem::replace(&mut self.behind[number as usize], LAST);
        self.at[hand] = Some((number, holder));
        Some((hand, number))
    }

    /// The hand has done what it had: for whom.
    pub fn done(&mut self, hand: usize) -> Option<u32> {
        let (number, holder) = self.at.get_mut(hand)?.take()?;
        self.behind[number as usize] = OUT;
        match self.of.get(&holder) {
            Some((LAST, _)) | None => drop(self.of.remove(&holder)),
            Some(_) => self.ready.push_back(holder),
        }
        Some(number)
    }
}

/// The hands' channels, and what they have to do.
pub struct Hands {
    channels: Vec<OwnedFd>,
    is_in_one: bool,
}

impl Hands {
    /// Makes the processes. They have nothing of this one's that is not there yet.
    ///
    /// Errors: sentences.
    pub fn start(networks: Networks) -> Result<Hands, String> {
        let mut hands = Hands { channels: Vec::with_capacity(HANDS), is_in_one: true };
        for _ in 0..HANDS {
            let mut pair = [-1; 2];
            let told = |error: Errno| format!("a process that holds sockets: {}", std::io::Error::from_raw_os_error(error.0));
            calls::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()).map_err(told)?;
            // SAFETY: both are new.
            let [own, its] = pair.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
            // SAFETY: the process has one thread, so its child is whole.
            match unsafe { libc::fork() } {
                -1 => return Err(told(Errno(libc::EAGAIN))),
                0 => {
                    drop((own, hands));
                    serve(its.as_fd(), networks);
                    // SAFETY: ends the child; nothing of it is to be undone.
                    unsafe { libc::_exit(1) }
                }
                _ => drop(its),
            }
            let mut is_in_one = [0; 2];
            match packets::receive_when_there(own.as_fd(), &mut is_in_one) {
                Ok((1, None)) => hands.is_in_one &= is_in_one[0] != 0,
                _ => return Err("a process that holds sockets ended at once: is /proc mounted?".into()),
            }
            hands.channels.push(own);
        }
        Ok(hands)
    }

    /// Whether a kill cannot leave a socket under repair.
    pub fn is_in_one(&self) -> bool {
        self.is_in_one
    }

    /// Where each of them answers.
    pub fn channels(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.channels.iter().map(AsFd::as_fd)
    }

    /// Gives one a connection to hear, or one that `is_over` to close. False: it has ended.
    pub fn give(&self, hand: usize, is_over: bool, connection: BorrowedFd) -> bool {
        packets::send(self.channels[hand].as_fd(), &[is_over.into()], Some(connection))
    }

    /// What one has found. `None`: it has ended.
    pub fn answer(&self, hand: usize) -> Option<Found> {
        let mut room = [0; FOUND + 1];
        let (got, _) = packets::receive_when_there(self.channels[hand].as_fd(), &mut room).ok()?;
        Found::decode(room.get(..got)?)
    }
}

/// A hand's life: until the loop has ended.
fn serve(channel: BorrowedFd, networks: Networks) {
    let Ok(mut reader) = Reader::new(networks) else { return };
    let is_confined = confinement::become_nobody(true).and_then(|()| confinement::filter(&HAND)).is_ok();
    if !is_confined || !packets::send(channel, &[reader.is_in_one().into()], None) {
        return;
    }
    let mut task = [0; 2];
    while let Ok((1, Some(connection))) = packets::receive_when_there(channel, &mut task) {
        let found = match task[0] {
            0 => hear(&mut reader, connection.as_fd()),
            _ => {
                packets::drain(connection.as_fd());
                Found::Closed
            }
        };
        drop(connection);
        if !packets::send(channel, &found.encode(), None) {
            return;
        }
    }
}

/// Takes a packet. The socket is closed before anything is said of it.
fn hear(reader: &mut Reader, connection: BorrowedFd) -> Found {
    let mut room = [0; REQUEST + 1];
    let (request, socket) = match packets::receive(connection, &mut room) {
        Err(Errno(libc::EAGAIN | libc::EINTR)) => return Found::Nothing,
        Err(_) => return Found::Senseless,
        Ok((got, socket)) => (room.get(..got).and_then(Request::decode), socket),
    };
    let (side, socket) = match (request, socket) {
        (Some(Request::Client), Some(socket)) => (Side::Client, socket),
        (Some(Request::Server), Some(socket)) => (Side::Server, socket),
        (Some(Request::Counts), None) => return Found::Counts,
        _ => return Found::Senseless,
    };
    // One that waits no longer goes on to use its socket, which a program may not while it is read.
    if packets::has_gone(connection) {
        return Found::Gone;
    }
    match reader.read(socket.as_fd()) {
        Ok(read) => Found::Claim(side, read),
        Err(refusal) => Found::Refused(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_found_survives_the_trip() {
        let connection = Connection { numbers: Numbers { sends: 1, expects: u32::MAX }, network: u64::MAX - 1 };
        for found in Found::all(connection) {
            let bytes = found.encode();
            assert_eq!(Found::decode(&bytes), Some(found));
            assert!((0..FOUND).all(|cut| Found::decode(&bytes[..cut]).is_none()));
        }
        assert!(Found::decode(&[9; FOUND]).is_none() && Found::decode(&[0; FOUND + 1]).is_none());
    }

    /// A holder whose hand waits keeps none but that one.
    #[test]
    fn a_holder_has_one_hand() {
        let mut tasks = Tasks::new(200);
        (0..20).for_each(|number| tasks.add(number, (1, 7)));
        (20..23).for_each(|number| tasks.add(number, (2, 7)));
        assert_eq!(tasks.next(), Some((0, 0)));
        assert_eq!(tasks.next(), Some((1, 20)));
        assert_eq!(tasks.next(), None);
        // The second holder's go on while the first one's hand waits.
        for number in 20..23 {
            assert_eq!(tasks.done(1), Some(number));
            assert_eq!(tasks.next(), (number < 22).then_some((1, number + 1)));
        }
        // One that has a hand, or waits for one, does not wait twice.
        [0, 1, 19].into_iter().for_each(|number| tasks.add(number, (1, 7)));
        for number in 0..20 {
            assert_eq!((tasks.done(0), tasks.next()), (Some(number), (number < 19).then_some((0, number + 1))));
        }
        assert!(tasks.of.is_empty() && tasks.ready.is_empty() && tasks.done(0).is_none());
        (100..120).for_each(|number| tasks.add(number, (number, 7)));
        assert_eq!((0..20).filter(|_| tasks.next().is_some()).count(), HANDS);
        tasks.add(100, (100, 7));
        assert_eq!((tasks.done(0), tasks.next(), tasks.done(1)), (Some(100), Some((0, 108)), Some(101)));
        tasks.add(100, (100, 7));
        assert_eq!(tasks.next(), Some((1, 109)), "in their order");
    }

    /// Random requests of some holders: each gets a hand once for each time that it was added, and never two of one holder.
    #[test]
    fn none_is_forgotten() {
        let (mut tasks, mut at, mut waiting) = (Tasks::new(64), [None; HANDS], std::collections::HashSet::new());
        let mut random = 7u32;
        let mut draw = |below: u32| {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (random >> 16) % below
        };
        let holder = |number: u32| (number % 11, 0);
        for _ in 0..100_000 {
            match draw(3) {
                0 => {
                    let number = draw(64);
                    tasks.add(number, holder(number));
                    if !at.contains(&Some(number)) {
                        waiting.insert(number);
                    }
                }
                1 => match tasks.next() {
                    Some((hand, number)) => {
                        assert!(waiting.remove(&number) && at[hand].is_none());
                        assert!(!at.iter().flatten().any(|other| holder(*other) == holder(number)));
                        at[hand] = Some(number);
                    }
                    None => {
                        assert!(waiting.iter().all(|number| at.iter().flatten().any(|other| holder(*other) == holder(*number))
                            || at.iter().all(Option::is_some)))
                    }
                },
                _ => {
                    let hand = draw(HANDS as u32) as usize;
                    assert_eq!(tasks.done(hand), at[hand].take());
                }
            }
        }
    }
}
