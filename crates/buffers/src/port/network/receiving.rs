//! What a program receives.

use super::incoming::Next;
use super::{Ends, NetworkPort, Window};
use crate::memory::Work;
use crate::port::{Awaited, Error};
use crate::semantics::{Allocation, Integrity, Semantics};
use shunt_endpoint::Endpoint;
use shunt_region::{Limit, Region};

impl<E: Endpoint> NetworkPort<'_, E> {
    /// Whether a message begins to be here, or is announced: the call that takes it waits for the rest.
    ///
    /// # Errors
    /// As [`NetworkPort::progress`].
    pub fn has_message(&mut self) -> Result<bool, Error> {
        self.progress()?;
        Ok(self.ends.incoming.state() != Next::Nothing)
    }

    /// Whether the next message is all here, for its posted input or another: the call that takes it does not wait.
    ///
    /// # Errors
    /// As [`NetworkPort::progress`].
    pub fn has_whole_message(&mut self) -> Result<bool, Error> {
        self.progress()?;
        Ok(matches!(self.ends.incoming.state(), Next::Whole(_)))
    }

    /// How long the next message is; waits for it, or for its announcement.
    ///
    /// # Errors
    /// [`Error::Gone`]: none comes any more. [`Error::Violation`]. [`Error::Waited`].
    pub fn next_length(&mut self) -> Result<usize, Error> {
        self.wait(Awaited::Message, |ends| ends.incoming.state() != Next::Nothing)?;
        match self.ends.incoming.state() {
            Next::Waits(length) | Next::Comes(length) | Next::Whole(length) => Ok(length),
            Next::Nothing => Err(Error::Gone),
        }
    }

    /// Posts an input of at most `length` bytes into a region of the program's, which the port has until the message is there
    /// ([`NetworkPort::posted`]): share or copy semantics. Inputs that are posted take the next messages, in order.
    ///
    /// # Errors
    /// The region, and what is missing. [`Limit::Loans`]: as many are posted as can be.
    pub fn post_region(&mut self, region: Region, length: usize, semantics: Semantics) -> Result<(), (Region, Limit)> {
        assert!(semantics.allocation == Allocation::Application && length <= region.size());
        let host = &mut self.ends.lenders[0].host;
        let work = host.work(region.pointer() as usize, length);
        match self.ends.incoming.post(host, semantics, work, Some(region), false) {
            Ok(()) => {
                self.tell();
                Ok(())
            }
            Err((Some(region), limit)) => Err((region, limit)),
            Err((None, _)) => unreachable!("it was given"),
        }
    }

    /// Posts an input of at most `length` bytes into a region that the system chooses: move semantics, weak or not.
    ///
    /// # Errors
    /// What is missing, as for [`NetworkPort::post_region`].
    pub fn post(&mut self, length: usize, semantics: Semantics) -> Result<(), Limit> {
        assert!(semantics.allocation == Allocation::System);
        let work = Work { length, ..Work::default() };
        self.ends.incoming.post(&mut self.ends.lenders[0].host, semantics, work, None, false).map_err(|(_, limit)| limit)?;
        self.tell();
        Ok(())
    }

    /// The peer learns at once of room that was posted.
    fn tell(&mut self) {
        if !self.ends.over {
            self.say();
        }
    }

    /// The first posted input, when its message is there: its region, and the message's length. Waits for it.
    ///
    /// # Errors
    /// [`Limit::State`]: none is posted for the next message. [`Error::Length`]: the message is longer; the input is still posted, and can be
    /// taken back: then the message is to be received, and those behind it have their inputs.
    /// [`Error::Gone`], [`Error::Violation`]. [`Error::Waited`]: it is still posted.
    pub fn posted(&mut self) -> Result<(Region, usize), Error> {
        if !self.ends.incoming.is_posted() {
            return Err(Limit::State.into());
        }
        self.wait_whole()?;
        let host = &mut self.ends.lenders[0].host;
        let pool = host.pool().clone();
        let (work, region, length) = self.ends.incoming.complete(host, None, None)?;
        match region {
            Some(region) => Ok((region, length)),
            None => Ok((Region::regain(pool, work.region.ok_or(Limit::State)?)?, length)),
        }
    }

    /// Takes the first posted input back: its region, if it is the program's.
    ///
    /// # Errors
    /// [`Limit::State`]: none is posted, or the peer was told of it, and may be filling it.
    pub fn take_back(&mut self) -> Result<Option<Region>, Limit> {
        if !self.ends.over && self.ends.incoming.is_promised() {
            return Err(Limit::State);
        }
        self.ends.incoming.unpost(&mut self.ends.lenders[0].host).ok_or(Limit::State)
    }

    /// Until the next message is whole; an error if it is too long for the first posted input.
    fn wait_whole(&mut self) -> Result<(), Error> {
        let too_long = |ends: &Ends| match ends.incoming.state() {
            Next::Waits(length) => ends.incoming.is_short(length).then_some(length),
            _ => None,
        };
        self.wait(Awaited::Message, |ends| matches!(ends.incoming.state(), Next::Whole(_)) || too_long(ends).is_some())?;
        match too_long(&self.ends) {
            Some(length) => Err(Error::Length(length)),
            None => Ok(()),
        }
    }

    fn nothing_posted(&self) -> Result<(), Error> {
        match self.ends.incoming.is_posted() {
            false => Ok(()),
            true => Err(Limit::State.into()),
        }
    }

    /// Receives the next message into `buffer`, by a semantics of application-allocated buffers; gives its length. With weak integrity
    /// and nothing here yet its bytes go straight to their places, if the call waits as long as it takes; if it fails then, some may be there.
    ///
    /// # Errors
    /// [`Error::Length`]: it is longer, and waits for another buffer. [`Limit::State`]: its input is posted.
    /// [`Error::Limit`]: something is missing for this semantics, and the message waits. [`Error::Gone`], [`Error::Violation`].
    /// [`Error::Waited`]: no byte of the buffer was written, and the message is the next call's.
    pub fn receive(&mut self, buffer: &mut [u8], semantics: Semantics) -> Result<usize, Error> {
        let work = self.ends.lenders[0].host.work(buffer.as_mut_ptr() as usize, buffer.len());
        self.input_into(work, semantics, None)
    }

    /// The same, into a window: pages of a message that came before its input are swapped, and so are those of strong integrity's buffers
    /// ([`NetworkPort::set_swap_from`]).
    ///
    /// # Errors
    /// As [`NetworkPort::receive`]. [`Limit::OtherPeer`]: the window is of another port's pool. As [`Window::keep`], which comes first where a port
    /// in shared memory has lent pages: the message waits.
    pub fn receive_into(&mut self, window: &mut Window, semantics: Semantics) -> Result<usize, Error> {
        window.is_of(self.ends.lenders[0].host.pool())?;
        if window.is_lent() {
            window.keep()?;
        }
        let bytes = window.bytes_mut();
        let work = Work { address: bytes.as_mut_ptr() as usize, length: bytes.len(), ..Work::default() };
        self.input_into(work, semantics, Some(window))
    }

    fn input_into(&mut self, work: Work, semantics: Semantics, window: Option<&mut Window>) -> Result<usize, Error> {
        assert!(semantics.allocation == Allocation::Application);
        self.nothing_posted()?;
        self.progress()?;
        let straight = semantics.integrity == Integrity::Weak && !self.ends.incoming.is_outboard() && self.patience.is_none();
        if !straight {
            // A short message is in an overlay, and a long one announced: then a buffer of the system's is as long as it is.
            let length = self.next_length()?;
            if length > work.length {
                return Err(Error::Length(length));
            }
        }
        self.input(semantics, work, straight, window).map(|(_, length)| length)
    }

    /// Receives the next message into a region of the pool, which the system chooses: any semantics of system-allocated buffers. What has
    /// come into an overlay is that region, without a copy. Gives the region and the message's length.
    ///
    /// # Errors
    /// As [`NetworkPort::receive`].
    pub fn receive_region(&mut self, semantics: Semantics) -> Result<(Region, usize), Error> {
        assert!(semantics.allocation == Allocation::System);
        self.nothing_posted()?;
        let length = self.next_length()?;
        let pool = self.ends.lenders[0].host.pool().clone();
        let (work, length) = self.input(semantics, Work { length, ..Work::default() }, false, None)?;
        Ok((Region::regain(pool, work.region.ok_or(Limit::State)?)?, length))
    }

    /// An input that is posted for the length of a call, if it is wanted.
    fn input(
        &mut self,
        semantics: Semantics,
        work: Work,
        straight: bool,
        window: Option<&mut Window>,
    ) -> Result<(Work, usize), Error> {
        let window = window.map(|window| (window, self.swap_from));
        let waits = match self.ends.incoming.state() {
            Next::Nothing => straight,
            Next::Waits(length) if length > work.length => return Err(Error::Length(length)),
            Next::Waits(_) if self.patience.is_some() => {
                // It need not end in this call: its bytes go to memory that stays.
                self.ends.incoming.take_in(&self.ends.lenders[0].host)?;
                self.tell();
                false
            }
            Next::Waits(_) => true,
            Next::Comes(_) | Next::Whole(_) => false,
        };
        if !waits {
            self.wait(Awaited::Message, |ends| matches!(ends.incoming.state(), Next::Whole(_)))?;
            let done = self.ends.incoming.complete(&mut self.ends.lenders[0].host, Some((semantics, work)), window)?;
            return Ok((done.0, done.2));
        }
        let exact = match self.ends.incoming.state() {
            // Buffers of the system's are as long as the message.
            Next::Waits(length) => Work { length, ..work },
            _ => work,
        };
        let host = &mut self.ends.lenders[0].host;
        self.ends.incoming.post(host, semantics, exact, None, true).map_err(|(_, limit)| limit)?;
        let whole = self.lending(NetworkPort::wait_whole);
        let done = whole.and_then(|()| self.ends.incoming.complete(&mut self.ends.lenders[0].host, None, window));
        let done = done.map(|(work, _, length)| (work, length));
        if done.is_err() && self.ends.incoming.is_posted() {
            // The buffer is the caller's again: where the peer could still believe in it, nothing comes any more.
            self.ends.over |= self.ends.incoming.is_promised() || self.ends.violation;
            self.ends.incoming.unpost(&mut self.ends.lenders[0].host);
        }
        done
    }

    /// What the sender of the next message promised, when the message is here.
    pub fn semantics(&self) -> Option<Semantics> {
        self.ends.incoming.semantics()
    }
}
