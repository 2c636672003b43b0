//! The way to a server: over active messages, or by SunRPC.

use super::binding::Binding;
use super::Options;
use crate::address::Address;
use crate::error::{Error, Kind, Ran, Side};
use crate::forks;
use crate::onc::caller::{Caller, Manner};
use crate::window::{Pieces, Window};
use std::fmt;
use std::ops::RangeInclusive;

/// The way to the server.
pub(super) enum Route {
    /// Over active messages.
    Own(Box<Binding>),
    /// By SunRPC.
    Onc(Box<Caller>),
}

impl Route {
    pub(super) fn bind(
        address: &Address,
        options: &Options,
        program: u32,
        versions: &RangeInclusive<u32>,
    ) -> Result<Self, Error> {
        let Address::SunRpc(place) = address else {
            return Ok(Self::Own(Box::new(Binding::bind(address, options, program, versions)?)));
        };
        let Options { patience, deadline, claim, record, .. } = options.clone();
        let window = options.window_of(true);
        let manner = Manner { patience, window, deadline, record, claim, forks: forks::watch() };
        Ok(Self::Onc(Box::new(Caller::connect(place, program, versions, &manner)?)))
    }

    #[inline(always)]
    pub(super) fn deadline(&self) -> Option<u64> {
        match self {
            Self::Own(binding) => binding.deadline,
            Self::Onc(caller) => caller.deadline,
        }
    }

    pub(super) fn fail(&self, kind: Kind, ran: Ran, detail: impl fmt::Display) -> Error {
        match self {
            Self::Own(binding) => binding.fail(kind, Side::Caller, ran, detail),
            Self::Onc(caller) => caller.fail(kind, Side::Caller, ran, detail),
        }
    }

    /// The memory for parameters by reference, and what of it is in use.
    pub(super) fn memory(&mut self) -> Result<(&Window, &mut Pieces), Error> {
        match self {
            Self::Own(binding) => Ok((&binding.calls.window, &mut binding.calls.pieces)),
            Self::Onc(caller) => caller.memory(),
        }
    }
}
