//! What is done when a message comes: the station as the engine's program.

use core::sync::atomic::Ordering::Relaxed;
use shunt_am::{config::MILLISECOND, Data, Dispatch, Event, Message, Nanoseconds, Replier};

use crate::control::{handler, name, named, Open, UNCLAIMED};
use crate::memory::{flag, load2, state, Count, Entry, Shared};
use crate::table::Loan;
use crate::{expired, Pump, Refusal, STREAMS};

/// Reservations that may wait at once.
const WAITING: usize = STREAMS as usize / 2;

/// How long it is believed that no process at a server claims the reservations made there.
const PLAIN: Nanoseconds = 30_000 * MILLISECOND;

pub(crate) struct Handlers<'a> {
    pub shared: &'a Shared,
    pub pump: &'a mut dyn Pump,
    pub now: Nanoseconds,
}

impl<'a> Handlers<'a> {
    /// The stream that a message on a channel is about, if it belongs to the present use of the channel.
    fn about(&self, message: &Message<'_>) -> Option<(u32, &'a Entry)> {
        let (stream, entry) = self.shared.by_channel(message.peer, message.channel)?;
        let generation = u64::from(entry.generation.load(Relaxed));
        (message.words.first() == Some(&generation)).then_some((stream, entry))
    }

    /// OPEN: a reservation, or why not.
    fn reserve(&mut self, message: &Message<'_>, replier: &mut Replier<'_>) -> Result<u32, Refusal> {
        let shared = self.shared;
        let (Some(open), Some(peer)) = (Open::of(message.words), shared.peer(message.peer)) else {
            shared.count(Count::Dropped);
            return Err(Refusal::Device);
        };
        if message.channel == 0 || shared.by_channel(message.peer, message.channel).is_some() {
            // Both sides lent it at once, or the peer does not keep the rules.
            return Err(Refusal::Full);
        }
        if open.four.client.words() != load2(&peer.host) {
            shared.count(Count::Dropped);
            return Err(Refusal::Source);
        }
        if !shared.serves(&open.four.server) {
            return Err(Refusal::Elsewhere);
        }
        if let Some((old, entry)) = shared.reservation(&open.four) {
            if entry.peer.load(Relaxed) != message.peer {
                // Another user of that host: which one has made the connection is known when it is accepted, by which one came
                // first.
                return Err(Refusal::Source);
            }
            // The port is used again, so the connection that this one was for never came; if it comes after all, and this one is
            // refused, it is no other station's.
            shared.spend(entry, expired::CLOSED);
            shared.release(old, entry);
        }
        if let Some(refusal) = shared.is_spent(&open.four, peer.receive.load(Relaxed)) {
            return Err(refusal);
        }
        if shared.waiting.iter().count() >= WAITING {
            return Err(Refusal::Full);
        }
        let loan = Loan {
            peer: message.peer,
            channel: message.channel,
            generation: open.generation,
            four: &open.four,
            token: open.token,
            mark: open.mark,
            state: state::RESERVED,
            flags: 0,
        };
        replier.renew(message.channel, open.generation).map_err(|_| Refusal::Device)?;
        let (stream, _) = shared.lend(self.now, &loan).ok_or(Refusal::Full)?;
        shared.waiting.insert(stream);
        shared.count(Count::Reserved);
        Ok(stream)
    }

    fn open(&mut self, message: Message<'_>, mut replier: Replier<'_>) {
        let generation = message.words.first().map_or(0, |word| *word as u32);
        let about = name(message.channel, generation);
        let answered = match self.reserve(&message, &mut replier) {
            Ok(_) => replier.reply(handler::OPENED, &[about], &[]),
            Err(refusal) => {
                self.shared.count(Count::Refused);
                replier.reply(handler::REFUSED, &[about, refusal as u64], &[])
            }
        };
        debug_assert!(answered.is_ok());
    }

    fn cancel(&mut self, message: Message<'_>, replier: Replier<'_>) {
        let generation = message.words.first().map_or(0, |word| *word as u32);
        let free = match self.about(&message) {
            // Also one that expired here, whose CLOSE may be on its way: the peer forgets it by our answer.
            Some((stream, entry)) if !entry.has(flag::CLAIMED) => {
                self.shared.spend(entry, expired::NOT_MADE);
                self.shared.free(stream, entry);
                true
            }
            Some(_) => false,
            None => true,
        };
        let _ = replier.reply(handler::CANCELLED, &[name(message.channel, generation), free.into()], &[]);
    }

    /// The peer sends nothing more, and wants nothing more.
    fn closed(&mut self, message: &Message<'_>) {
        let shared = self.shared;
        let Some((stream, entry)) = self.about(message) else { return shared.count(Count::Dropped) };
        entry.put(flag::CLOSE_RECEIVED);
        if message.words.get(1) == Some(&UNCLAIMED) && entry.has(flag::OURS) && !entry.has(flag::UNMARKED) {
            shared.remember(&entry.four().server, Err(Refusal::Unclaimed), self.now + PLAIN);
        }
        match entry.state() {
            state::RESERVED => {
                shared.spend(entry, expired::CLOSED);
                shared.release(stream, entry);
            }
            state::CLOSING if entry.has(flag::CLOSE_SENT) => shared.free(stream, entry),
            state::LIVE if !entry.has(flag::FINISHED | flag::RESET) => {
                entry.put(flag::RESET);
                self.pump.reset(stream);
            }
            _ => entry.put(flag::RESET),
        }
    }
}

impl Dispatch for Handlers<'_> {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        match message.handler {
            handler::OPEN => return self.open(message, replier),
            handler::CANCEL => return self.cancel(message, replier),
            handler::CLOSE => return self.closed(&message),
            handler::FIN | handler::RESET | handler::URGENT | handler::BEGIN | handler::BEGUN | handler::LEAVE => {}
            _ => return replier.refuse(),
        }
        let shared = self.shared;
        let Some((stream, entry)) = self.about(&message) else { return shared.count(Count::Dropped) };
        let live = entry.state() == state::LIVE;
        match message.handler {
            handler::FIN if !entry.has(flag::FINISHED | flag::RESET) => {
                entry.put(flag::FINISHED);
                if live {
                    self.pump.finished(stream);
                }
            }
            handler::RESET if !entry.has(flag::RESET) => {
                entry.put(flag::RESET);
                if live {
                    self.pump.reset(stream);
                }
            }
            handler::URGENT if live && !entry.has(flag::FINISHED | flag::RESET) => match *message.words {
                [_, position, byte] if byte <= 255 => self.pump.urgent(stream, position, byte as u8),
                _ => shared.count(Count::Dropped),
            },
            handler::BEGIN if !entry.has(flag::OURS) && entry.begins.load(Relaxed) == 0 => match *message.words {
                [_, position] if position < 1 << 47 => {
                    entry.begins.store(position + 1, Relaxed);
                    if live {
                        self.pump.begin(stream, position);
                    }
                }
                _ => shared.count(Count::Dropped),
            },
            handler::BEGUN if live && entry.has(flag::OURS) => self.pump.begun(stream),
            handler::LEAVE if live => self.pump.leave(stream),
            handler::URGENT | handler::BEGUN | handler::LEAVE if entry.state() == state::CLOSING => {}
            _ => shared.count(Count::Dropped),
        }
    }

    fn returned(&mut self, message: Message<'_>) {
        match self.about(&message) {
            Some((stream, entry)) if message.handler == handler::LEAVE && entry.state() == state::LIVE => self.pump.stays(stream),
            _ => self.shared.count(Count::Dropped),
        }
    }

    fn reply(&mut self, message: Message<'_>) {
        let shared = self.shared;
        let (channel, generation) = named(message.words.first().copied().unwrap_or(0));
        let found = shared
            .by_channel(message.peer, channel)
            .filter(|(_, entry)| entry.generation.load(Relaxed) == generation && entry.has(flag::OURS));
        // An answer to what was given up meanwhile.
        let Some((stream, entry)) = found else { return };
        match (message.handler, message.words) {
            (handler::OPENED, [_]) => {
                if entry.state() == state::OPENING {
                    entry.state.store(state::OPENED, Relaxed);
                }
            }
            (handler::REFUSED, [_, why]) => {
                if matches!(entry.state(), state::OPENING | state::CLOSING) {
                    let refusal = Refusal::of(*why as u32).unwrap_or(Refusal::NoStation);
                    if refusal == Refusal::Elsewhere {
                        shared.forget(&entry.four().server);
                    }
                    shared.refuse(stream, entry, refusal);
                }
            }
            (handler::CANCELLED, [_, free]) => {
                if entry.take(flag::CANCELLING) {
                    if *free == 1 {
                        shared.refuse(stream, entry, Refusal::Cancelled);
                    } else if entry.state() == state::CLOSING {
                        shared.want(stream, entry, flag::WANT_CLOSE);
                    }
                }
            }
            _ => shared.count(Count::Dropped),
        }
    }

    #[inline]
    fn stream(&mut self, peer: u32, channel: u16, data: Data<'_>) {
        let Some((stream, entry)) = self.shared.by_channel(peer, channel) else { return };
        if entry.state() == state::LIVE {
            self.pump.bytes(stream, data);
        } else if entry.state() == state::CLOSING && !entry.has(flag::RESET_SENT | flag::RESET) {
            // As TCP answers bytes for a socket that is closed.
            self.shared.want(stream, entry, flag::WANT_RESET);
        }
    }

    #[inline]
    fn acknowledged(&mut self, peer: u32, channel: u16, upto: u64) {
        if let Some((stream, entry)) = self.shared.by_channel(peer, channel) {
            if entry.state() == state::LIVE {
                self.pump.acknowledged(stream, upto);
            }
        }
    }

    fn event(&mut self, peer: u32, event: Event) {
        match event {
            Event::Up => {
                if let Some(peer) = self.shared.peer(peer) {
                    peer.was_up.store(1, Relaxed);
                }
            }
            Event::Lost(_) => {
                if let Some(peer) = self.shared.peer(peer) {
                    peer.was_up.store(crate::memory::LOST, Relaxed);
                }
                self.shared.lose(peer, Some(self.pump));
            }
        }
    }
}
