//! What tools ask of a server: what it has, by which definition, and who calls.

use super::introduction::{introduce, refusal};
use super::Options;
use crate::address::Address;
use crate::clock::later;
use crate::error::{Error, Kind, Ran, Side};
use crate::readable::readable;
use crate::rendezvous::Process;
use crate::wire::{Purpose, Welcome};
use std::fmt;
use std::os::fd::AsFd;
use std::time::Instant;

/// A server, as tools see it.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its process and user, on one host.
    pub process: Option<Process>,
    /// What it has.
    pub interfaces: Vec<crate::service::Listed>,
}

/// What a server has: the interfaces, as it tells them.
///
/// # Errors
/// As [`Client::connect`](crate::Client::connect).
pub fn list(address: &Address, options: &Options) -> Result<Vec<crate::service::Listed>, Error> {
    look(address, options).map(|seen| seen.interfaces)
}

/// The same, and who it is.
///
/// # Errors
/// As [`Client::connect`](crate::Client::connect).
pub fn look(address: &Address, options: &Options) -> Result<Seen, Error> {
    let (process, list) = ask(address, options, Purpose::List, 0, 0)?;
    let interfaces = crate::xdr::from_bytes::<crate::xdr::List<crate::service::Listed, 4096>>(&list)
        .map_err(|error| Error::new(Kind::Protocol, Side::Server, Ran::No, address, error))?;
    Ok(Seen { process, interfaces: interfaces.0 })
}

/// The definition of a version of a program that a server has, in the language: what its stubs were made of. Empty where it was made
/// by hand.
///
/// # Errors
/// As [`Client::connect`](crate::Client::connect).
pub fn describe(address: &Address, options: &Options, program: u32, version: u32) -> Result<String, Error> {
    let (_, text) = ask(address, options, Purpose::Describe, program, version)?;
    String::from_utf8(text).map_err(|error| Error::new(Kind::Protocol, Side::Server, Ran::No, address, error))
}

/// Watches the calls of a server of this host: [`crate::trace::CALLS`], [`crate::trace::SUMS`], or both.
///
/// # Errors
/// As [`Client::connect`](crate::Client::connect); `Denied` where the server is another user's.
pub fn watch(address: &Address, options: &Options, what: u32) -> Result<crate::trace::Watch, Error> {
    let (socket, _, welcome) = introduce(address, options, Purpose::Watch, 0, &(what..=what))?;
    match welcome {
        Welcome::Watching => Ok(crate::trace::Watch::new(socket)),
        other => Err(refusal(address, 0, &(0..=0), other)),
    }
}

/// Asks for something that is told in one piece.
fn ask(
    address: &Address,
    options: &Options,
    purpose: Purpose,
    program: u32,
    version: u32,
) -> Result<(Option<Process>, Vec<u8>), Error> {
    let versions = version..=version;
    let (mut socket, _, welcome) = introduce(address, options, purpose, program, &versions)?;
    // All of it has as long as looking for the server had: one that sends a byte now and then is given up.
    let until = later(options.patience);
    let fail = |detail: &dyn fmt::Display| Error::new(Kind::Protocol, Side::Server, Ran::No, address, detail);
    let Welcome::List { bytes } = welcome else { return Err(refusal(address, program, &versions, welcome)) };
    if bytes > 1 << 20 {
        return Err(fail(&"what it tells is too long"));
    }
    let mut list = vec![0; bytes as usize];
    let mut filled = 0;
    while filled < list.len() {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || !readable(&[socket.as_fd()], left) {
            return Err(fail(&"what it tells does not come"));
        }
        match socket.receive(&mut list[filled..], &mut None) {
            Ok(0) => return Err(fail(&"what it tells ends too early")),
            Ok(count) => filled += count,
            Err(error) => return Err(fail(&error)),
        }
    }
    Ok((socket.process(), list))
}
