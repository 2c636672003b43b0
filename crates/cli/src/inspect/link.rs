//! A link segment as a tool sees it: the processes that share it, and its channels that are in use.
use std::fs::File;
use std::mem::{offset_of, size_of};

use shunt_segment::address::Address;
use shunt_segment::area::{CHANNEL_PAGES, CLASSES, PAGE, RING_SIZE};
use shunt_segment::channel::{cut, life, state, style, taken, word, ChannelPage, Head, Post, Receive, Side, Transmit, Wait};
use shunt_segment::link::{LinkHeader, Party, MAGIC, PLAIN_PEERS};
use shunt_segment::reason::Reason;
use shunt_segment::{CHANNELS, VERSION};

use super::processes::printable;
use super::words::Words;

/// The memfd's name, without the terminating zero.
pub const NAME: &str = "shunt-link";

/// A copy of a link.
#[derive(Debug)]
pub struct Link {
    /// Names the link, with `sequence`.
    pub nonce: u64,
    /// Number of the link within its client process.
    pub sequence: u32,
    /// Program names as the link tells them: client, server.
    pub programs: [String; 2],
    /// What carries the connections.
    pub carrier: &'static str,
    /// Channels that are in use.
    pub channels: Vec<Channel>,
}

/// A connection.
#[derive(Clone, Debug, PartialEq)]
pub struct Channel {
    /// Its number in the link.
    pub number: u16,
    /// Counts the companions that this channel had; their names tell it.
    pub generation: u32,
    /// Counts the connections that used it.
    pub uses: u32,
    /// Whether the server has accepted it.
    pub accepted: bool,
    /// The client's address.
    pub client: Address,
    /// The server's address.
    pub server: Address,
    /// CLOCK_MONOTONIC seconds when the client connected.
    pub since: u32,
    /// The ends: client, server.
    pub ends: [End; 2],
    /// Where the peer has only a kernel, which of them is the program's: side 0, whichever end it is.
    pub own: Option<usize>,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct End {
    /// The process that opened it, 0 if it is not known yet.
    pub pid: u32,
    /// Bytes that it sent.
    pub sent: u64,
    /// Bytes that it received.
    pub received: u64,
    /// Size in bytes of the ring it sends into; None if the segment holds nonsense.
    pub ring: Option<u32>,
    /// It will send no more.
    pub fin: bool,
    /// Its last owner closed it.
    pub closed: bool,
    /// It was closed in a way that TCP answers by RST, or was reset.
    pub reset: bool,
    /// It reset the connection for this reason, which TCP does not know.
    pub broken: Option<Reason>,
    /// It noticed that the other end vanished.
    pub peer_gone: bool,
    /// How it last waited.
    pub waits: &'static str,
    /// How often it rang the other end's bell, over all connections that used the channel.
    pub rung: u32,
}

impl Link {
    /// Reads the link in `file`; None if it is not one of this version.
    pub fn read(file: &File) -> Option<Link> {
        Link::from_words(&Words::copy(file, CHANNEL_PAGES + CHANNELS * PAGE).ok()?)
    }

    fn from_words(words: &Words) -> Option<Link> {
        let known =
            words.word64(offset_of!(LinkHeader, magic)) == MAGIC && words.word32(offset_of!(LinkHeader, version)) == VERSION;
        known.then(|| Link {
            nonce: words.word64(offset_of!(LinkHeader, nonce)),
            sequence: words.word32(offset_of!(LinkHeader, sequence)),
            programs: [offset_of!(LinkHeader, client), offset_of!(LinkHeader, server)]
                .map(|party| program(words.array(party + offset_of!(Party, program)))),
            carrier: if has_plain_peers(words) { "user-level" } else { "shared-memory" },
            channels: (0..CHANNELS as u16).filter_map(|number| channel(words, number)).collect(),
        })
    }
}

fn has_plain_peers(words: &Words) -> bool {
    words.word32(offset_of!(LinkHeader, lent)) == PLAIN_PEERS
}

fn program(name: [u8; 16]) -> String {
    printable(name.split(|byte| *byte == 0).next().unwrap_or_default())
}

fn channel(words: &Words, number: u16) -> Option<Channel> {
    let page = CHANNEL_PAGES + number as usize * PAGE;
    let head = page + offset_of!(ChannelPage, head);
    let accepted = match words.word32(head + offset_of!(Head, state)) {
        life::OFFERED => false,
        life::ACCEPTED => true,
        _ => return None,
    };
    // Its ends have it as the kernel's.
    if cut::is_moved(words.word32(head + offset_of!(Head, cut))) {
        return None;
    }
    let own = match (has_plain_peers(words), words.word32(head + offset_of!(Head, taken))) {
        (false, _) => None,
        (true, taken::CLIENT) => Some(0),
        (true, taken::SERVER) => Some(1),
        // The kernel's again.
        (true, _) => return None,
    };
    let ports = words.word32(head + offset_of!(Head, ports));
    let scope = words.word32(head + offset_of!(Head, scope));
    let address = |offset: usize, port: u32| {
        let halves = [words.word64(head + offset), words.word64(head + offset + 8)];
        Address::from_words(halves, port as u16, scope)
    };
    let side = |index: usize| end(words, page + offset_of!(ChannelPage, sides) + index * size_of::<Side>());
    let sides = [(address(offset_of!(Head, client), ports), side(0)), (address(offset_of!(Head, server), ports >> 16), side(1))];
    let [(client, first), (server, second)] = if own == Some(1) {
        let [ours, theirs] = sides;
        [theirs, ours]
    } else {
        sides
    };
    Some(Channel {
        number,
        generation: words.word32(head + offset_of!(Head, pair)),
        uses: words.word32(head + offset_of!(Head, generation)),
        accepted,
        client,
        server,
        since: words.word32(head + offset_of!(Head, since)),
        ends: [first, second],
        own,
    })
}

fn end(words: &Words, side: usize) -> End {
    let post = words.word64(side + offset_of!(Side, post) + offset_of!(Post, word));
    let receive = side + offset_of!(Side, receive);
    let flags = words.word32(receive + offset_of!(Receive, state));
    let class = (post >> word::CLASS_SHIFT & 7) as usize;
    End {
        pid: words.word32(side + offset_of!(Side, pid)),
        sent: post & word::POSITION,
        received: words.word64(receive + offset_of!(Receive, position)) & word::POSITION,
        ring: (class < CLASSES).then(|| RING_SIZE[class]),
        fin: post & word::FIN != 0,
        closed: post & word::CLOSED != 0,
        reset: post & word::RST != 0 || flags & state::RESET_DUE != 0,
        broken: match words.word32(side + offset_of!(Side, transmit) + offset_of!(Transmit, broken)) {
            0 => None,
            code => Reason::from_code(code as u8),
        },
        peer_gone: flags & state::PEER_GONE != 0,
        rung: words.word32(side + offset_of!(Side, transmit) + offset_of!(Transmit, rung)),
        waits: match words.word32(side + offset_of!(Side, wait) + offset_of!(Wait, style)) {
            style::NONE => "not-yet",
            style::SPIN => "spins",
            style::SLEEP => "sleeps",
            style::POLL => "polls",
            _ => "unknown",
        },
    }
}

impl Channel {
    /// Bytes in flight from end `from` to the other one; None if the segment holds nonsense.
    pub fn in_flight(&self, from: usize) -> Option<u64> {
        let distance = self.ends[from].sent.wrapping_sub(self.ends[1 - from].received) & word::POSITION;
        match distance {
            // While bytes flow, the copy may hold an older word of the sender than of the receiver.
            _ if distance > word::POSITION / 2 => Some(0),
            _ if distance > RING_SIZE.iter().map(|size| u64::from(*size)).sum() => None,
            _ => Some(distance),
        }
    }

    /// The side of the channel that an end has: a program's is 0 where its peer has only a kernel.
    pub fn side(&self, end: usize) -> usize {
        if self.own == Some(1) {
            1 - end
        } else {
            end
        }
    }

    /// Whether both ends are closed, or gone with their processes: the channel waits to be used again.
    pub fn has_ended(&self) -> bool {
        if let Some(own) = self.own {
            return self.ends[own].closed;
        }
        let [client, server] = &self.ends;
        (client.closed || server.peer_gone) && (server.closed || client.peer_gone)
    }

    /// The state of the connection in a word.
    pub fn state(&self) -> &'static str {
        let [client, server] = &self.ends;
        if let Some(reason) = client.broken.or(server.broken) {
            reason.word()
        } else if client.reset || server.reset {
            "reset"
        } else if client.peer_gone || server.peer_gone {
            "peer-gone"
        } else if !self.accepted {
            "waiting-for-accept"
        } else if client.closed || server.closed || (client.fin && server.fin) {
            "closing"
        } else if client.fin {
            "client-finished"
        } else if server.fin {
            "server-finished"
        } else {
            "established"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a connection that a program has accepted from a plain peer, side 0 is the server.
    #[test]
    fn a_plain_peer_is_the_end_that_the_program_is_not() {
        let mut bytes = segment();
        let mut put = |offset: usize, value: u32| bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        let head = CHANNEL_PAGES + 3 * PAGE;
        put(offset_of!(LinkHeader, lent), PLAIN_PEERS);
        put(head + offset_of!(Head, taken), taken::SERVER);
        let link = Link::from_words(&Words::from_bytes(bytes.clone())).unwrap();
        let [channel] = &link.channels[..] else { panic!("{link:?}") };
        assert_eq!((link.carrier, channel.own, channel.side(1)), ("user-level", Some(1), 0));
        assert_eq!((channel.client.port, channel.server.port), (6379, 40000));
        assert_eq!((channel.ends[1].sent, channel.ends[0].pid, channel.in_flight(1)), (1000, 77, Some(100)));
        assert!(!channel.has_ended());
        let mut put = |offset: usize, value: u32| bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        put(head + offset_of!(Head, taken), taken::CLIENT);
        let channel = Link::from_words(&Words::from_bytes(bytes.clone())).unwrap().channels.remove(0);
        assert_eq!((channel.own, channel.client.port, channel.ends[0].sent), (Some(0), 40000, 1000));
        let mut put = |offset: usize, value: u32| bytes[offset..offset + 4].copy_from_slice(&value.to_ne_bytes());
        put(head + offset_of!(Head, taken), taken::NOT);
        assert!(Link::from_words(&Words::from_bytes(bytes)).unwrap().channels.is_empty(), "it was given back");
    }

    /// A link segment in which channel 3 is in use.
    fn segment() -> Vec<u8> {
        let mut bytes = vec![0; CHANNEL_PAGES + CHANNELS * PAGE];
        let mut put = |offset: usize, value: &[u8]| bytes[offset..offset + value.len()].copy_from_slice(value);
        put(offset_of!(LinkHeader, magic), &MAGIC.to_ne_bytes());
        put(offset_of!(LinkHeader, version), &VERSION.to_ne_bytes());
        put(offset_of!(LinkHeader, nonce), &42u64.to_ne_bytes());
        put(offset_of!(LinkHeader, server) + offset_of!(Party, program), b"redis-server\x1b\0xx");
        let page = CHANNEL_PAGES + 3 * PAGE;
        let client = Address::v4([127, 0, 0, 1], 40000);
        put(page + offset_of!(Head, state), &life::ACCEPTED.to_ne_bytes());
        put(page + offset_of!(Head, client), &client.words()[0].to_ne_bytes());
        put(page + offset_of!(Head, client) + 8, &client.words()[1].to_ne_bytes());
        put(page + offset_of!(Head, ports), &(40000u32 | 6379 << 16).to_ne_bytes());
        let sides = page + offset_of!(ChannelPage, sides);
        put(sides, &(1000u64 | 1 << word::CLASS_SHIFT).to_ne_bytes());
        let server = sides + size_of::<Side>();
        put(server + offset_of!(Side, receive), &900u64.to_ne_bytes());
        put(server + offset_of!(Side, pid), &77u32.to_ne_bytes());
        put(server + offset_of!(Side, wait) + offset_of!(Wait, style), &style::POLL.to_ne_bytes());
        bytes
    }

    #[test]
    fn a_connection_is_read_as_it_was_written() {
        let link = Link::from_words(&Words::from_bytes(segment())).unwrap();
        assert_eq!((link.nonce, link.programs[1].as_str()), (42, "redis-server?"));
        let [channel] = &link.channels[..] else { panic!("{link:?}") };
        assert_eq!((channel.number, channel.state()), (3, "established"));
        assert_eq!(channel.client, Address::v4([127, 0, 0, 1], 40000));
        assert_eq!(channel.server.port, 6379);
        assert_eq!((channel.ends[0].sent, channel.ends[1].received), (1000, 900));
        assert_eq!((channel.in_flight(0), channel.in_flight(1)), (Some(100), Some(0)));
        assert_eq!(channel.ends[0].ring, Some(16 << 10));
        assert_eq!((channel.ends[1].pid, channel.ends[1].waits), (77, "polls"));
    }

    #[test]
    fn the_state_tells_why_a_connection_was_reset() {
        let mut bytes = segment();
        let server = CHANNEL_PAGES + 3 * PAGE + offset_of!(ChannelPage, sides) + size_of::<Side>();
        bytes[server + offset_of!(Side, transmit) + offset_of!(Transmit, broken)] = Reason::ForeignBytes as u8;
        assert_eq!(Link::from_words(&Words::from_bytes(bytes)).unwrap().channels[0].state(), "foreign-bytes");
    }

    #[test]
    fn other_files_are_no_links() {
        assert!(Link::from_words(&Words::from_bytes(vec![0; 100])).is_none());
        let mut other_version = segment();
        other_version[offset_of!(LinkHeader, version)] ^= 1;
        assert!(Link::from_words(&Words::from_bytes(other_version)).is_none());
        assert!(Link::read(&tempfile::tempfile().unwrap()).is_none());
    }

    #[test]
    fn garbage_gives_odd_numbers_and_nothing_worse() {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        for _ in 0..200 {
            let mut bytes = segment();
            for _ in 0..2000 {
                seed ^= seed << 13;
                seed ^= seed >> 7;
                seed ^= seed << 17;
                let at = (seed % bytes.len() as u64) as usize & !7;
                if at >= 16 {
                    bytes[at..at + 8].copy_from_slice(&seed.to_ne_bytes());
                }
                bytes[CHANNEL_PAGES + (seed as usize >> 8) % CHANNELS * PAGE] = (seed % 4) as u8;
            }
            for channel in Link::from_words(&Words::from_bytes(bytes)).unwrap().channels {
                let most = RING_SIZE.iter().map(|size| u64::from(*size)).sum::<u64>();
                assert!([0, 1].iter().all(|from| channel.in_flight(*from).is_none_or(|bytes| bytes <= most)));
                assert!(!channel.state().is_empty());
            }
        }
    }
}
