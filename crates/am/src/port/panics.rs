//! Handlers that panic. A message counts as handled however its handler ends: what the engine, the device and the other messages of its
//! frame need is done first, and then the panic goes on to the caller of the poll, who may catch it and poll again.
//!
//! The straight way has one message in a frame, and leaves the little that comes behind its handler to values that are dropped. All
//! others go through [`Caught`], which keeps the first panic until everything is done.

use super::Port;
use crate::dispatch::{Access, Data, Dispatch, Event, Message, Replier};
use shunt_endpoint::Endpoint;
use std::any::Any;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};

/// What a handler panicked with.
pub(super) type Panic = Option<Box<dyn Any + Send>>;

/// A program whose panics are kept.
pub(super) struct Caught<'p> {
    program: &'p mut dyn Dispatch,
    first: Panic,
}

impl<'p> Caught<'p> {
    pub fn new(program: &'p mut dyn Dispatch) -> Self {
        Self { program, first: None }
    }

    /// The first panic, if there was one.
    pub fn end(self) -> Panic {
        self.first
    }

    fn run<'s, T: 's>(&'s mut self, otherwise: T, act: impl FnOnce(&'s mut dyn Dispatch) -> T) -> T {
        let Self { program, first } = self;
        match catch_unwind(AssertUnwindSafe(|| act(&mut **program))) {
            Ok(value) => value,
            Err(panic) => {
                first.get_or_insert(panic);
                otherwise
            }
        }
    }
}

impl Dispatch for Caught<'_> {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        self.run((), |program| program.request(message, replier));
    }
    fn reply(&mut self, message: Message<'_>) {
        self.run((), |program| program.reply(message));
    }
    fn returned(&mut self, message: Message<'_>) {
        self.run((), |program| program.returned(message));
    }
    fn stream(&mut self, peer: u32, channel: u16, data: Data<'_>) {
        self.run((), |program| program.stream(peer, channel, data));
    }
    fn acknowledged(&mut self, peer: u32, channel: u16, upto: u64) {
        self.run((), |program| program.acknowledged(peer, channel, upto));
    }
    fn segment(&mut self, peer: u32) -> &mut [u8] {
        self.run(&mut [], |program| program.segment(peer))
    }
    fn place(&mut self, peer: u32, access: Access, at: u64, length: u64) -> Option<&mut [u8]> {
        self.run(None, |program| program.place(peer, access, at, length))
    }
    fn vouches(&mut self, peer: u32) -> bool {
        self.run(false, |program| program.vouches(peer))
    }
    fn event(&mut self, peer: u32, event: Event) {
        self.run((), |program| program.event(peer, event));
    }
}

/// Dropped where a handler of the straight way unwinds, and forgotten where it returns: the descriptor of its frame goes back to the
/// device, and what was sent meanwhile leaves.
pub(super) struct Unwinding<'p, 'm, E: Endpoint>(pub &'p mut Port<'m, E>);

impl<E: Endpoint> Drop for Unwinding<'_, '_, E> {
    #[cold]
    fn drop(&mut self) {
        self.0.adapter.endpoint.release(&mut self.0.arrival);
        self.0.adapter.flush();
    }
}

/// The panic goes on, now that everything is done.
#[inline(always)]
pub(super) fn go_on(panic: Panic) {
    if let Some(panic) = panic {
        resume_unwind(panic);
    }
}
