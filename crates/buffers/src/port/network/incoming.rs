//! The receiving half: where the bytes of each message go, and what the peer is told of room.
//!
//! ```text
//! numbers:   first ─ messages that have begun ─ next ─ those that may begin unasked ─ below
//! posted:    the inputs of `first`, `first + 1` ..., as far as there are any; none is missing but those that were taken back
//! ```
//!
//! A message whose input is posted when its first byte comes, and is long enough, goes into that (early demultiplexing); else into an
//! overlay: one of a few that are kept for any short message, or one that was set aside when it was announced (pooled). An announced
//! message for which neither is there waits at its sender, whose region is the outboard buffer then.

use super::inputs::Inputs;
use super::notice::{Notice, Place, NOBODY};
use super::window::Window;
use crate::input::Input;
use crate::linux::Host;
use crate::memory::{Memory, Work};
use crate::port::Error;
use crate::semantics::{Allocation, Semantics};
use crate::tables::{Architecture, Operation};
use shunt_region::{Access, Limit, Located, Region};
use std::collections::VecDeque;

/// Bytes of the longest message that may come unasked.
pub(super) const EACH: usize = 64 << 10;
/// Overlays that are kept for such messages.
const SPARE: usize = 8;
/// Inputs that can be posted, and messages that can be announced, at a time.
pub(super) const AHEAD: usize = 64;

struct Arriving {
    length: usize,
    arrived: usize,
    whole: bool,
    at: *mut u8,
    /// Where it is pooled; else it goes into its input.
    overlay: Option<Located>,
    semantics: Semantics,
}

// SAFETY: `at` is memory of the port's pool, or of an input that is posted here.
unsafe impl Send for Arriving {}

struct Posted {
    /// Of its message.
    number: u64,
    input: Input,
    room: usize,
    told: bool,
    /// The application's, while it is the port's.
    region: Option<Region>,
}

struct Announced {
    number: u64,
    length: usize,
    overlay: Option<Located>,
    told: bool,
}

/// What is known of the next message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Next {
    Nothing,
    /// It waits at its sender.
    Waits(usize),
    /// Its bytes come.
    Comes(usize),
    /// They are all here.
    Whole(usize),
}

pub(super) struct Incoming {
    first: u64,
    messages: VecDeque<Arriving>,
    posted: VecDeque<Posted>,
    announced: VecDeque<Announced>,
    spare: Vec<Located>,
    most_spare: usize,
    below: u64,
    outboard: bool,
    quota: usize,
    /// Bytes of all overlays.
    held: usize,
}

impl Incoming {
    pub(super) fn new(host: &Host, quota: usize) -> Incoming {
        let bytes = host.pool().shape().bytes();
        Incoming {
            first: 0,
            messages: VecDeque::new(),
            posted: VecDeque::new(),
            announced: VecDeque::new(),
            spare: Vec::new(),
            // A quarter of the pool: the rest is for longer messages, and the application.
            most_spare: (bytes / 4 / size(host, EACH)).clamp(1, SPARE),
            below: 0,
            outboard: false,
            quota,
            held: 0,
        }
    }

    pub(super) fn set_outboard(&mut self) {
        self.outboard = true;
    }

    pub(super) fn set_quota(&mut self, bytes: usize) {
        self.quota = bytes;
    }

    pub(super) fn held(&self) -> usize {
        self.held
    }

    fn next(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    /// How an input that is posted before its message comes gets it. The outboard buffer is the sender's memory here, and a transfer from
    /// it can end half-way: with strong integrity it goes into a buffer of the system's, by emulated copy, too.
    fn architecture(&self, semantics: Semantics) -> Architecture {
        match self.outboard && semantics != Semantics::EMULATED_COPY {
            true => Architecture::Outboard,
            false => Architecture::Early,
        }
    }

    // What the peer does.

    /// Where `count` bytes that the peer stores at `address` go; `None`: nowhere.
    pub(super) fn place(&mut self, host: &Host, address: u64, count: u64) -> Option<&mut [u8]> {
        let place = Place::of(address)?;
        let count = usize::try_from(count).ok().filter(|count| *count <= place.length - place.offset)?;
        if self.messages.back().is_none_or(|message| message.whole) {
            if place.offset != 0 {
                return None;
            }
            let message = self.begin(host, place.length)?;
            self.messages.push_back(message);
        }
        let message = self.messages.back_mut().filter(|message| message.length == place.length)?;
        if place.offset == message.arrived {
            message.arrived += count;
        } else if place.offset != 0 || count != message.length || message.arrived != count {
            // Only the whole is asked for a second time, at its end.
            return None;
        }
        // SAFETY: the message's memory has its length, and the part lies inside; no other thread uses it before it is complete.
        Some(unsafe { core::slice::from_raw_parts_mut(message.at.add(place.offset), count) })
    }

    fn begin(&mut self, host: &Host, length: usize) -> Option<Arriving> {
        let number = self.next();
        let (at, overlay) = match self.input_for(number, length) {
            Some(posted) => (target(&posted.input.work, host), None),
            None => {
                let overlay = self.overlay_for(number, length)?;
                (host.pool().pointer(&overlay), Some(overlay))
            }
        };
        Some(Arriving { length, arrived: 0, whole: false, at, overlay, semantics: Semantics::COPY })
    }

    fn input_for(&self, number: u64, length: usize) -> Option<&Posted> {
        self.posted.iter().find(|posted| posted.number == number && posted.room >= length)
    }

    fn overlay_for(&mut self, number: u64, length: usize) -> Option<Located> {
        let announced = self.announced.front_mut().filter(|announced| announced.number == number && announced.length >= length);
        match announced.and_then(|announced| announced.overlay.take()) {
            Some(overlay) => Some(overlay),
            None if number < self.below && length <= EACH => self.spare.pop(),
            None => None,
        }
    }

    /// All bytes of a message have come, its sender says. False: no honest sender would.
    #[must_use]
    pub(super) fn whole(&mut self, host: &mut Host, number: u64, semantics: Semantics, (address, count): (u64, u64)) -> bool {
        let last = self.next().wrapping_sub(1);
        let Some(message) = self.messages.back_mut().filter(|message| !message.whole) else { return false };
        let all = Place { length: message.length, offset: 0 }.address() == address && message.length as u64 == count;
        if number != last || !all || message.arrived != message.length {
            return false;
        }
        (message.whole, message.semantics) = (true, semantics);
        while self.announced.front().is_some_and(|announced| announced.number <= number) {
            // It may have gone elsewhere than was meant for it.
            let overlay = self.announced.pop_front().and_then(|announced| announced.overlay);
            overlay.into_iter().for_each(|overlay| self.release(host, overlay));
        }
        true
    }

    /// A message waits for room. False: no honest sender would say so.
    #[must_use]
    pub(super) fn announce(&mut self, number: u64, length: usize) -> bool {
        let after = self.announced.back().map_or(self.next(), |last| last.number + 1);
        if number < self.next() {
            // It was told of room meanwhile, and its message overtook this.
            return true;
        }
        if number < after || number - self.next() >= 4 * AHEAD as u64 {
            return false;
        }
        self.announced.push_back(Announced { number, length, overlay: None, told: false });
        true
    }

    /// The next that the peer is to be told, if there is anything.
    pub(super) fn notice(&mut self, host: &mut Host) -> Option<Notice> {
        self.stock(host);
        let next = self.next();
        let below = if self.outboard { 0 } else { next + self.spare.len() as u64 };
        if let Some((number, bytes)) = self.room(host) {
            self.below = below.max(self.below);
            return Some(Notice::Room { below: self.below, each: EACH, number, bytes });
        }
        let news = below.saturating_sub(self.below);
        if news > self.most_spare as u64 / 2 || (news > 0 && self.below <= next) {
            self.below = below;
            return Some(Notice::Room { below, each: EACH, number: NOBODY, bytes: 0 });
        }
        None
    }

    /// Room for one message in particular.
    fn room(&mut self, host: &mut Host) -> Option<(u64, usize)> {
        for place in 0..self.announced.len() {
            let Announced { number, length, told, .. } = self.announced[place];
            if told {
                continue;
            }
            if self.announced[place].overlay.is_none() && self.input_for(number, length).is_none() {
                if self.outboard {
                    break;
                }
                // In order: one that finds no room is not overtaken by shorter ones.
                let Ok(overlay) = self.overlay(host, length) else { break };
                self.announced[place].overlay = Some(overlay);
            }
            self.announced[place].told = true;
            return Some((number, length));
        }
        let (next, below) = (self.next(), self.below);
        for posted in self.posted.iter_mut().filter(|posted| posted.number >= next) {
            // What may come unasked needs no word.
            let unasked = posted.room <= EACH && posted.number < below;
            // Nor does what was announced, and told of room already.
            let spoken = self.announced.iter().any(|announced| announced.number == posted.number && announced.told);
            if !core::mem::replace(&mut posted.told, true) && !unasked && !spoken {
                return Some((posted.number, posted.room));
            }
        }
        None
    }

    fn stock(&mut self, host: &mut Host) {
        while !self.outboard && self.spare.len() < self.most_spare {
            let Ok(overlay) = self.overlay(host, EACH) else { return };
            self.spare.push(overlay);
        }
    }

    fn overlay(&mut self, host: &mut Host, length: usize) -> Result<Located, Limit> {
        let size = size(host, length);
        // Half of the pool is for the program, and for what it sends, whatever peers announce.
        let quota = self.quota.min(host.pool().shape().bytes() / 2);
        if size > quota.saturating_sub(self.held) {
            return Err(Limit::Quota);
        }
        let (_, at) = host.pool().allocate(length)?.leave();
        self.held += size;
        Ok(at)
    }

    fn release(&mut self, host: &mut Host, overlay: Located) {
        self.held -= overlay.count * host.pool().shape().unit;
        let mut work = Work { system: Some(overlay), ..Work::default() };
        let _ = host.perform(Operation::DeallocateOverlay, &mut work);
    }

    // What the program does.

    pub(super) fn state(&self) -> Next {
        match (self.messages.front(), self.announced.front()) {
            (Some(message), _) if message.whole => Next::Whole(message.length),
            (Some(message), _) => Next::Comes(message.length),
            (None, Some(announced)) if announced.number == self.first => match announced.overlay {
                Some(_) => Next::Comes(announced.length),
                None => Next::Waits(announced.length),
            },
            _ => Next::Nothing,
        }
    }

    /// The semantics that the sender of the next message chose, when it is whole.
    pub(super) fn semantics(&self) -> Option<Semantics> {
        self.messages.front().filter(|message| message.whole).map(|message| message.semantics)
    }

    pub(super) fn is_outboard(&self) -> bool {
        self.outboard
    }

    /// Whether the first posted input is too short for so many bytes.
    pub(super) fn is_short(&self, length: usize) -> bool {
        self.posted_first().is_some_and(|posted| posted.room < length)
    }

    /// The input of the next message, if one is posted.
    fn posted_first(&self) -> Option<&Posted> {
        self.posted.front().filter(|posted| posted.number == self.first)
    }

    pub(super) fn is_posted(&self) -> bool {
        self.posted_first().is_some()
    }

    /// Posts an input behind the last that is posted; or for the next message, which has none (`at_once`). `region` is the application's, which
    /// keeps it.
    pub(super) fn post(
        &mut self,
        host: &mut Host,
        semantics: Semantics,
        work: Work,
        region: Option<Region>,
        at_once: bool,
    ) -> Result<(), (Option<Region>, Limit)> {
        if self.posted.len() == AHEAD {
            return Err((region, Limit::Loans));
        }
        let room = work.length;
        let behind = self.posted.back().filter(|_| !at_once).map_or(self.first, |posted| self.first.max(posted.number + 1));
        let pooled = behind < self.next();
        let architecture = self.architecture(semantics);
        let posted = Input::post(semantics, work, &mut Inputs::of(host)).and_then(|mut input| {
            if !pooled {
                let ready = input.ready(architecture, &mut Inputs::of(host)).and_then(|()| reach(&input.work, semantics, host));
                if let Err(limit) = ready {
                    input.fail(&mut Inputs::of(host));
                    return Err(limit);
                }
            }
            Ok(input)
        });
        match posted {
            Ok(input) => {
                let posted = Posted { number: behind, input, room, told: pooled, region };
                match at_once {
                    true => self.posted.push_front(posted),
                    false => self.posted.push_back(posted),
                }
                Ok(())
            }
            Err(limit) => Err((region, limit)),
        }
    }

    /// Takes the first posted input back, into which no byte comes any more. A message that it has is gone with it.
    pub(super) fn unpost(&mut self, host: &mut Host) -> Option<Option<Region>> {
        let posted = self.posted.pop_front()?;
        if posted.number == self.first && self.messages.front().is_some_and(|message| message.overlay.is_none()) {
            self.messages.pop_front();
            self.first += 1;
        }
        posted.input.fail(&mut Inputs::of(host));
        Some(posted.region)
    }

    /// Whether the peer may have begun to fill the first posted input, or may at any time.
    pub(super) fn is_promised(&self) -> bool {
        let Some(posted) = self.posted.front() else { return false };
        if posted.number < self.next() {
            let message = self.messages.get((posted.number - self.first) as usize);
            return message.is_some_and(|message| message.overlay.is_none());
        }
        match self.announced.iter().find(|announced| announced.number == posted.number) {
            // Its room is this input, or an overlay.
            Some(announced) if announced.told => announced.overlay.is_none() && announced.length <= posted.room,
            Some(announced) => posted.told && announced.length <= posted.room,
            None => posted.told,
        }
    }

    /// Sets an overlay aside for the next message, which waits at its sender, whatever the quota is.
    pub(super) fn take_in(&mut self, host: &Host) -> Result<(), Limit> {
        let first = self.first;
        if let Some(announced) = self.announced.front_mut().filter(|announced| announced.number == first) {
            if announced.overlay.is_none() {
                announced.overlay = Some(host.pool().allocate(announced.length)?.leave().1);
                self.held += size(host, announced.length);
            }
        }
        Ok(())
    }

    /// Ends the input of the first message, which is whole: one that was posted, or `semantics` and `work` for it. Gives its buffers, the
    /// application's region, and its length. If it fails the message waits.
    ///
    /// What is in a buffer of the system's, and is to be in a region that the system chooses, is in it already: steps of the tables that
    /// would prepare another are left out, as there may be no memory for it any more.
    pub(super) fn complete(
        &mut self,
        host: &mut Host,
        unposted: Option<(Semantics, Work)>,
        window: Option<(&mut Window, usize)>,
    ) -> Result<(Work, Option<Region>, usize), Error> {
        let message = self.messages.front().filter(|message| message.whole).ok_or(Limit::State)?;
        let (length, overlay) = (message.length, message.overlay);
        let (semantics, room) = match unposted {
            Some((semantics, work)) if overlay.is_some() => (semantics, work.length),
            Some(_) => return Err(Limit::State.into()),
            None => self.posted_first().map(|posted| (posted.input.semantics(), posted.room)).ok_or(Limit::State)?,
        };
        if length > room {
            return Err(Error::Length(length));
        }
        let taken = overlay.filter(|_| semantics.allocation == Allocation::System);
        let (input, region) = match unposted {
            Some(_) if taken.is_some() => (None, None),
            Some((semantics, work)) => (Some(Input::post(semantics, Work { length, ..work }, &mut Inputs::of(host))?), None),
            None => {
                let posted = self.posted.pop_front().ok_or(Limit::State)?;
                (Some(posted.input), posted.region)
            }
        };
        // From here on nothing is missing.
        self.messages.pop_front();
        self.first += 1;
        self.held -= overlay.map_or(0, |overlay| overlay.count * host.pool().shape().unit);
        let work = match (taken, input) {
            (Some(taken), input) => {
                input.into_iter().for_each(|input| input.fail(&mut Inputs::of(host)));
                Work { region: Some(taken), ..Work::default() }
            }
            (None, Some(input)) => finish(host, input, length, overlay, window)?,
            (None, None) => return Err(Limit::State.into()),
        };
        if let Some(at) = work.region.filter(|_| semantics.allocation == Allocation::System) {
            zero_behind(host, &at, length);
        }
        Ok((work, region, length))
    }

    /// Gives all overlays back, and all inputs up.
    pub(super) fn end(&mut self, host: &mut Host) {
        let messages = core::mem::take(&mut self.messages);
        let announced = core::mem::take(&mut self.announced);
        let overlays = messages.into_iter().filter_map(|message| message.overlay);
        let overlays = overlays.chain(announced.into_iter().filter_map(|announced| announced.overlay));
        for overlay in overlays.chain(core::mem::take(&mut self.spare)) {
            self.release(host, overlay);
        }
        while self.unpost(host).is_some() {}
    }
}

fn size(host: &Host, length: usize) -> usize {
    length.max(1).next_multiple_of(host.pool().shape().unit)
}

/// Disposes of an input whose bytes are there: in `overlay`, or where it was ready for them.
fn finish(
    host: &mut Host,
    mut input: Input,
    length: usize,
    overlay: Option<Located>,
    window: Option<(&mut Window, usize)>,
) -> Result<Work, Limit> {
    input.work.length = length;
    if overlay.is_some() {
        input.work.system = overlay;
        if let Err(limit) = input.ready(Architecture::Pooled, &mut Inputs::of(host)) {
            input.fail(&mut Inputs::of(host));
            return Err(limit);
        }
    }
    if input.semantics().allocation == Allocation::System {
        // Basic move's system buffer: it is the region.
        if let Some(taken) = input.work.system.take() {
            input.fail(&mut Inputs::of(host));
            return Ok(Work { region: Some(taken), ..Work::default() });
        }
    }
    input.complete(&mut Inputs { host, window })
}

/// What a message's region had before may be another connection's: none of it is seen behind the message (zero-complete).
fn zero_behind(host: &Host, at: &Located, length: usize) {
    let size = at.count * host.pool().shape().unit;
    // SAFETY: inside a region that no program has yet, which begins where its units do.
    unsafe { host.pool().pointer(at).add(length).write_bytes(0, size - length) };
}

/// Where the device of an input puts its bytes.
fn target(work: &Work, host: &Host) -> *mut u8 {
    match (work.system, work.region) {
        // SAFETY: inside the region.
        (Some(system), _) => unsafe { host.pool().pointer(&system).add(work.offset) },
        (None, Some(at)) if work.address == 0 => host.pool().pointer(&at),
        _ => work.address as *mut u8,
    }
}

/// The device is this process, which writes by its own page tables: a region that was hidden when it was moved out is in sight again
/// from here on, before table 3 reinstates it. Nobody has a handle of it, so nothing of it is seen.
fn reach(work: &Work, semantics: Semantics, host: &Host) -> Result<(), Limit> {
    if work.system.is_some() {
        return Ok(());
    }
    if semantics.allocation == Allocation::Application {
        shunt_region::before_kernel_writes(work.address, work.length);
        return Ok(());
    }
    work.region.map_or(Ok(()), |at| host.pool().access(&at, Access::Write))
}

#[cfg(test)]
mod tests;
