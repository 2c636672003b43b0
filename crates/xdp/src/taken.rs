//! Drives a connection that was taken from the kernel: frames of its queue in and out, bytes of the escrow's rings for the program.
//!
//! ```text
//! program  write ─► ring ─► engine ─► frame ─► queue          each step is published before its frame leaves
//!          read  ◄─ ring ◄─ engine ◄─ frame ◄─ queue
//!                              └──► Ended: the connection is the kernel's, with all that the escrow tells
//! ```
//!
//! What the program has to do then: ask the agent ([`Taken::give`]), hand on the frame that was the reason, if one was, and those of the
//! connection that lie in its queue still ([`crate::protocol::Connection::pass`]), and go on with the socket.

use shunt_inet::{header, Connection, Header, Law, Leave, Recovery, Seq, Settings, Verdict};
use shunt_sys::Errno;

use crate::cause::Cause;
use crate::escrow::{Escrow, Manner, Ring, Statement};
use crate::frames::Frames;
use crate::protocol;
use crate::tcp::{self, Envelope, Prepared, Tuple, Way};

/// Packets that may be under way: ten full ones, or as many small ones.
const FLIGHTS: usize = 64;
/// No more room is promised, so that all that is unread fits the kernel's socket.
const WINDOW: u32 = 64 << 10;
/// An answer that leaves within this time (ns) takes the acknowledgement along: the least delay of one.
const SOON: u64 = 40_000_000;
/// The longest frame that is sent.
const LONGEST: usize = 4096;

/// Why a connection is not driven any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// It is to be given back, for this reason.
    Leave(Leave),
    /// A router has marked congestion in a packet.
    Marked,
    /// The peer sends more than the ring holds, as the kernel had promised that it might.
    Full,
    /// Another gives it back ([`Taken::closed_by`]). The socket is of use once [`Taken::is_given`] says so.
    Given,
}

impl From<Ended> for Cause {
    fn from(ended: Ended) -> Cause {
        match ended {
            Ended::Leave(Leave::Fin | Leave::Reset) => Cause::Ended,
            Ended::Leave(Leave::Gap | Leave::Loss | Leave::Congestion) | Ended::Marked => Cause::Loss,
            Ended::Full => Cause::Bulk,
            Ended::Leave(Leave::Syn | Leave::Urgent | Leave::Odd) => Cause::Odd,
            Ended::Given => Cause::Untold,
        }
    }
}

/// One of them.
pub struct Taken {
    number: u32,
    tuple: Tuple,
    engine: Connection<FLIGHTS>,
    escrow: Escrow,
    /// How far the program is.
    written: Seq,
    unread: Seq,
    /// Something has changed since the last publication.
    changed: bool,
    /// So much room is promised at most.
    window: u32,
    manner: Manner,
    way: Prepared,
    /// When bytes came last, and whether the program has answered such bytes soon, the last time that it could. If not it may be busy with something else when
    /// the acknowledgement is due, which leaves at once then (Linux: pingpong mode, which a late acknowledgement ends).
    came: u64,
    answers: bool,
    frame: [u8; LONGEST],
}

impl Taken {
    /// Asks the agent for the connection of a socket. `now`: of CLOCK_MONOTONIC, in ns.
    ///
    /// # Errors
    /// As for [`protocol::Connection::take`].
    pub fn take(
        agent: &protocol::Connection,
        socket: i32,
        tuple: Tuple,
        mut escrow: Escrow,
        now: u64,
    ) -> Result<Result<Taken, protocol::Decline>, Errno> {
        let number = match agent.take(socket, &escrow) {
            Ok(Ok(number)) => number,
            Ok(Err(decline)) => return Ok(Err(decline)),
            Err(errno) => {
                // An agent that does it later finds that nobody waits, and gives it back.
                escrow.close();
                return Err(errno);
            }
        };
        // The agent has it, and this process its memory: a number less for each connection.
        escrow.close_file();
        Ok(Ok(Taken::new(number, tuple, escrow, now)))
    }

    fn new(number: u32, tuple: Tuple, escrow: Escrow, now: u64) -> Taken {
        let Statement { mut state, written, unread } = escrow.statement();
        state.segment = state.segment.min((LONGEST - tcp::LONGEST) as u32);
        let manner = escrow.manner();
        let window = manner.window.min(WINDOW);
        let recovery = if manner.recovers { Recovery::Exchanges(Law::Cubic) } else { Recovery::GiveBack };
        let settings = Settings { recovery, nagle: manner.nagle, ring: window, ..Settings::default() };
        // In its place: threads have small stacks.
        let mut taken = Taken {
            number,
            tuple,
            engine: Connection::new(&state, (tuple.ours.port(), tuple.theirs.port()), settings, now),
            escrow,
            written,
            unread,
            changed: false,
            window,
            manner,
            way: prepared(&tuple, &manner),
            came: 0,
            answers: false,
            frame: [0; LONGEST],
        };
        taken.make_room();
        taken
    }

    /// The connection.
    pub fn tuple(&self) -> &Tuple {
        &self.tuple
    }

    /// Bytes that the peer may send ahead at most.
    pub fn window(&self) -> u32 {
        self.window
    }

    fn statement(&self, now: u64) -> Statement {
        Statement { state: self.engine.give_back(now), written: self.written, unread: self.unread }
    }

    fn publish(&mut self, now: u64) -> Result<(), Ended> {
        self.changed = false;
        if self.escrow.publish(&self.statement(now)) {
            Ok(())
        } else {
            Err(Ended::Given)
        }
    }

    /// Bytes that the program can read, and those that it has written and the peer has not acknowledged.
    fn bytes(&self) -> (u32, u32) {
        let (unacknowledged, expected) = self.engine.places();
        (expected.since(self.unread), self.written.since(unacknowledged))
    }

    fn make_room(&mut self) {
        let unread = self.bytes().0;
        self.engine.set_room((self.escrow.sizes().1 - unread).min(self.window.saturating_sub(unread)));
    }

    /// Judges a frame that the envelope says is this connection's.
    ///
    /// # Errors
    /// The connection is to be given back, and the frame to be handed on: nothing of it was taken.
    pub fn frame(&mut self, envelope: &Envelope, frame: &[u8], now: u64) -> Result<(), Ended> {
        if self.escrow.is_closed() {
            return Err(Ended::Given);
        }
        let segment = &frame[envelope.at..][..envelope.length];
        if !self.way.is_intact(segment) {
            self.changed = true; // as below
            return Ok(());
        }
        if envelope.marked {
            return Err(Ended::Marked);
        }
        let Ok((header, length)) = Header::parse(segment) else { return Err(Ended::Leave(Leave::Odd)) };
        let payload = &segment[length..];
        let end = header.sequence.plus(payload.len() as u32);
        if !payload.is_empty() && end.after(self.unread.plus(self.escrow.sizes().1)) {
            return Err(Ended::Full);
        }
        let (expected, full) = (self.engine.places().1, self.engine.full());
        match self.engine.segment(&header, payload.len() as u32, now) {
            Verdict::Taken(arrival) => {
                let wanted = arrival.wanted;
                let bytes = &payload[wanted.skip as usize..][..wanted.length as usize];
                self.escrow.put(Ring::Receive, expected.plus(wanted.at), bytes);
                self.make_room();
                self.changed = true;
                if !payload.is_empty() {
                    self.came = now;
                    // Of full packets each second one is acknowledged.
                    if !self.answers && (payload.len() as u32) < full {
                        self.engine.acknowledge();
                    }
                }
                Ok(())
            }
            Verdict::Ignored => {
                // What is published tells the agent that the queue is looked after.
                self.changed = true;
                Ok(())
            }
            Verdict::Leave(reason) => Err(Ended::Leave(reason)),
        }
    }

    /// Bytes that the program can read, and room for those that it writes.
    pub fn ready(&self) -> (u32, u32) {
        let (unread, held) = self.bytes();
        (unread, self.escrow.sizes().0 - held)
    }

    /// Takes bytes for the program.
    ///
    /// # Errors
    /// [`Ended::Given`]: none was taken, the socket has them.
    pub fn read(&mut self, bytes: &mut [u8], now: u64) -> Result<usize, Ended> {
        let length = self.look(0, bytes);
        if length > 0 {
            self.consume(length as u32);
            self.publish(now)?;
        }
        Ok(length)
    }

    /// Copies bytes that the program has not read, from `skip` behind the first of them on; gives how many.
    pub fn look(&self, skip: u32, bytes: &mut [u8]) -> usize {
        let length = bytes.len().min(self.bytes().0.saturating_sub(skip) as usize);
        self.escrow.get(Ring::Receive, self.unread.plus(skip), &mut bytes[..length]);
        length
    }

    /// The program has read `count` of the bytes that [`Taken::look`] gave. That counts with the next [`Taken::put`] or [`Taken::keep`]: where another gives the
    /// connection back before, the socket has them still ([`Taken::uncounted`]).
    pub fn consume(&mut self, count: u32) {
        self.unread = self.unread.plus(count.min(self.bytes().0));
        self.changed = true;
        self.make_room();
    }

    /// The smoothed round-trip time (ns), 0 if there is none.
    pub fn round_trip(&self) -> u64 {
        self.engine.round_trip()
    }

    /// Bytes that the program has written and the peer has not acknowledged.
    pub fn held(&self) -> u32 {
        self.bytes().1
    }

    /// Of what the program has read and written, how much came behind the last step that counts: what was read is in the socket still, what
    /// was written is not there. Asked when the connection [is given](Taken::is_given) back.
    pub fn uncounted(&self) -> (u32, u32) {
        let closed = self.escrow.statement();
        (self.unread.since(closed.unread), self.written.since(closed.written))
    }

    /// What came since the last step counts, and what the program did: to be called before the connection is given back, or its peer has to send that again.
    ///
    /// # Errors
    /// [`Ended::Given`]: another gives it back, without that.
    pub fn keep(&mut self, now: u64) -> Result<(), Ended> {
        match self.changed || self.escrow.is_closed() {
            true => self.publish(now),
            false => Ok(()),
        }
    }

    /// Why another gives the connection back, or has done so, if one does.
    pub fn closed_by(&self) -> Option<Cause> {
        self.escrow.closed_for()
    }

    /// Whether one does.
    pub fn is_closed(&self) -> bool {
        self.escrow.is_closed()
    }

    /// Whether small packets wait for acknowledgements (no TCP_NODELAY).
    pub fn set_nagle(&mut self, on: bool) {
        self.engine.set_nagle(on);
    }

    /// Puts bytes of the program's into the ring, which count at once; [`Taken::turn`] sends them.
    ///
    /// # Errors
    /// [`Ended::Given`]: none was put, they are for the socket.
    pub fn write(&mut self, bytes: &[u8], now: u64) -> Result<usize, Ended> {
        let length = self.offer(bytes);
        self.publish(now)?;
        Ok(length)
    }

    /// Puts bytes of the program's into the ring, which count with the next [`Taken::put`] or [`Taken::keep`], as in [`Taken::consume`]; gives how many had room.
    pub fn offer(&mut self, bytes: &[u8]) -> usize {
        let length = bytes.len().min(self.ready().1 as usize);
        self.escrow.put(Ring::Send, self.written, &bytes[..length]);
        self.written = self.written.plus(length as u32);
        self.changed = true;
        length
    }

    /// [`Taken::put`], and what was put leaves.
    ///
    /// # Errors
    /// As there.
    pub fn turn(&mut self, frames: &mut Frames<'_>, now: u64) -> Result<Option<u64>, Ended> {
        self.put(frames, now).inspect(|_| _ = frames.flush())
    }

    /// Puts what may be sent on the transmit ring, for a [flush](Frames::flush), does what is due, and publishes what has happened. To be called behind frames
    /// and bytes, and at the time that is returned, if there is one.
    ///
    /// # Errors
    /// The connection is to be given back.
    pub fn put(&mut self, frames: &mut Frames<'_>, now: u64) -> Result<Option<u64>, Ended> {
        if self.escrow.is_closed() {
            return Err(Ended::Given);
        }
        self.engine.offer(self.bytes().1);
        if self.engine.rests(now) {
            let mut engine = self.engine;
            debug_assert!(engine.timer(now).is_ok() && engine.outgoing(now).is_none(), "something waits to leave");
        } else {
            self.send(frames, now)?;
        }
        if self.changed {
            self.publish(now)?;
        }
        Ok(self.engine.deadline())
    }

    fn send(&mut self, frames: &mut Frames<'_>, now: u64) -> Result<(), Ended> {
        self.engine.timer(now).map_err(Ended::Leave)?;
        let mut any = false;
        while let Some(outgoing) = self.engine.outgoing(now) {
            match outgoing.length {
                0 if now >= self.came + SOON => self.answers = false,
                1.. if now < self.came + SOON => self.answers = true,
                _ => {}
            }
            if !any {
                // An interface and a neighbour may have other addresses by now.
                let manner = self.escrow.manner();
                if manner != self.manner {
                    (self.manner, self.way) = (manner, prepared(&self.tuple, &manner));
                }
                any = true;
            }
            // Before the frame, so that its numbers are never ahead of what would be given back.
            self.publish(now)?;
            let from = self.engine.places().0.plus(outgoing.from);
            let length = self.write_frame(&outgoing.header, from, outgoing.length);
            if !frames.send(&self.frame[..length]) {
                // Lost, as on a network.
                frames.flush();
            }
            if self.engine.rests(now) {
                break;
            }
        }
        Ok(())
    }

    /// Writes a frame, and returns its length.
    fn write_frame(&mut self, header: &Header, at: Seq, length: u32) -> usize {
        let begin = self.way.header();
        let payload = begin + header.emit(&mut self.frame[begin..begin + header::LONGEST]);
        let end = payload + length as usize;
        self.escrow.get(Ring::Send, at, &mut self.frame[payload..end]);
        self.way.complete(&mut self.frame[..end]);
        end
    }

    /// Whether it is being given back.
    pub fn is_begun(&self) -> bool {
        self.escrow.is_begun()
    }

    /// Whether it has been given back, and the socket is of use.
    pub fn is_given(&self) -> bool {
        self.escrow.is_restored()
    }

    /// Gives the connection back. The program goes on with its socket, once [`Taken::is_given`] says so: that is when this returns, but where no
    /// way leads to the peer now.
    ///
    /// # Errors
    /// ECONNRESET and the like: the agent is gone, and its guard gives back what it had. ENOENT: it has been given back before.
    pub fn give(&mut self, agent: &protocol::Connection) -> Result<(), Errno> {
        self.escrow.close();
        agent.give(self.number)
    }
}

fn prepared(tuple: &Tuple, manner: &Manner) -> Prepared {
    let Manner { from, to, service, hops, .. } = *manner;
    Way { tuple: *tuple, from, to, service, hops }.prepare()
}
