//! The way to a server that may start later: connecting, saying what is wanted, and hearing the answer.

use super::Options;
use crate::address::Address;
use crate::clock::later;
use crate::device::End;
use crate::error::{Error, Kind, Ran, Side};
use crate::readable::readable;
use crate::rendezvous::Socket;
use crate::user::is_known;
use crate::window::Window;
use crate::wire::{Card, Hello, Purpose, Welcome, PROTOCOL, RECORD_BYTES};
use std::fmt;
use std::io;
use std::ops::RangeInclusive;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Connects, and asks for something, until the time is over: servers may start later than their callers, and go away meanwhile.
pub(super) fn introduce(
    address: &Address,
    options: &Options,
    purpose: Purpose,
    program: u32,
    versions: &RangeInclusive<u32>,
) -> Result<(Socket, Option<(End, Window)>, Welcome), Error> {
    let until = later(options.patience);
    let fail = |kind, side, detail: &dyn fmt::Display| Error::new(kind, side, Ran::No, address, detail);
    let mut pause = Duration::from_millis(1);
    loop {
        let again = match attempt(address, options, purpose, program, versions, until) {
            Ok(found) => return Ok(found),
            Err(Attempt::Final(error)) => return Err(error),
            Err(Attempt::System(error)) => error,
        };
        use io::ErrorKind as K;
        let waits = matches!(
            again.kind(),
            K::ConnectionRefused
                | K::NotFound
                | K::UnexpectedEof
                | K::ConnectionReset
                | K::BrokenPipe
                | K::Interrupted
                | K::WouldBlock
        );
        if !waits {
            let kind = if again.kind() == K::TimedOut { Kind::Unreachable } else { Kind::System };
            return Err(fail(kind, Side::Between, &again));
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(fail(Kind::Unreachable, Side::Between, &again));
        }
        std::thread::sleep(pause.min(left));
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

enum Attempt {
    System(io::Error),
    Final(Error),
}

impl From<io::Error> for Attempt {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

fn attempt(
    address: &Address,
    options: &Options,
    purpose: Purpose,
    program: u32,
    versions: &RangeInclusive<u32>,
    until: Instant,
) -> Result<(Socket, Option<(End, Window)>, Welcome), Attempt> {
    let mut socket = Socket::connect(address, until.saturating_duration_since(Instant::now()))?;
    if let Some(process) = socket.process() {
        // SAFETY: it only asks.
        let own = unsafe { libc::geteuid() };
        let wanted = options.server_user.map_or(process.uid == own || process.uid == 0, |user| process.uid == user);
        if !wanted || !is_known(process.uid) {
            let detail = format!("the server there runs as user {}", process.uid);
            return Err(Attempt::Final(Error::new(Kind::Denied, Side::Caller, Ran::No, address, detail)));
        }
    }
    // Questions need no end, and may be asked where none can be had.
    let mut made = None;
    if purpose == Purpose::Call {
        let over = socket.over()?;
        let failed = |why| Attempt::Final(Error::new(Kind::System, Side::Caller, Ran::No, address, why));
        let end = End::new(address, over).map_err(failed)?;
        let window = options.window_of(over.is_none());
        made = Some((end, if over.is_none() { Window::create(window)? } else { Window::mirror(window as u64)? }));
    }
    let (lowest, highest) = (*versions.start(), *versions.end());
    let (window, card) = match &mut made {
        Some((end, window)) => (window.size() as u64, end.card()?),
        None => (0, Card::NONE),
    };
    let hello = Hello { purpose, program, lowest, highest, window, card };
    socket.send(&hello.emit(), made.as_ref().and_then(|(_, window)| window.descriptor()))?;
    let record = receive_record(&mut socket, until)?;
    let Some(welcome) = Welcome::parse(&record) else {
        let detail = "its first record is none of ours";
        return Err(Attempt::Final(Error::new(Kind::Protocol, Side::Server, Ran::No, address, detail)));
    };
    Ok((socket, made, welcome))
}

/// A record from a socket with a time-out.
fn receive_record(socket: &mut Socket, until: Instant) -> io::Result<[u8; RECORD_BYTES]> {
    let mut record = [0; RECORD_BYTES];
    let mut filled = 0;
    while filled < RECORD_BYTES {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || !readable(&[socket.as_fd()], left) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match socket.receive(&mut record[filled..], &mut None) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => filled += count,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(record)
}

/// What a server answered instead of binding.
pub(super) fn refusal(address: &Address, program: u32, versions: &RangeInclusive<u32>, welcome: Welcome) -> Error {
    let fail = |kind, detail: String| Error::new(kind, Side::Server, Ran::No, address, detail);
    let wanted = match (versions.start(), versions.end()) {
        (one, other) if one == other => format!("version {one}"),
        (one, other) => format!("versions {one} to {other}"),
    };
    match welcome {
        Welcome::Versions { lowest, highest } => {
            fail(Kind::Version, format!("program {program:#x}: {wanted} asked for, {lowest} to {highest} there"))
        }
        Welcome::Program => fail(Kind::Version, format!("program {program:#x} is not served there")),
        Welcome::Denied => {
            fail(Kind::Denied, "this user may not call it, or not with so large a window (ServerOptions::users, ::window)".into())
        }
        Welcome::Full => {
            fail(Kind::Busy, "it takes no more callers, or no more of their memory (ServerOptions::callers, ::memory)".into())
        }
        Welcome::NoEnd => fail(Kind::System, "it has no end of the device: xdp needs an agent on its interface, too".into()),
        Welcome::Protocol { version } => fail(Kind::Protocol, format!("it speaks version {version}, we {PROTOCOL}")),
        Welcome::Bound { .. } | Welcome::List { .. } | Welcome::Watching => {
            fail(Kind::Protocol, "an answer to another question".into())
        }
    }
}
