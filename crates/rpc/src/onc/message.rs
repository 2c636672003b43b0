//! Calls and replies as RFC 5531 has them (sections 9 and 10). Sans I/O.

use crate::xdr::{Bytes, Decoder, Encoder, Error, List, Xdr};
use std::fmt;

/// The only version of the protocol.
pub const RPC_VERSION: u32 = 2;
const CALL: u32 = 0;
const REPLY: u32 = 1;
/// Bytes of a credential or a verifier at most (section 8.2).
const AUTH_MOST: u32 = 400;
const AUTH_NONE: u32 = 0;
const AUTH_SYS: u32 = 1;

/// Numbers of `auth_stat` that are used here.
pub mod auth {
    /// The credential is none of its flavour.
    pub const BAD_CREDENTIAL: u32 = 1;
    /// The credential's flavour is not taken.
    pub const REJECTED_CREDENTIAL: u32 = 2;
}

/// What a caller says of itself (AUTH_SYS, appendix A). Nothing of it is proved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The caller's host: 255 bytes at most.
    pub machine: String,
    /// Its user there.
    pub uid: u32,
    /// Its group there.
    pub gid: u32,
    /// Its other groups: 16 at most.
    pub groups: Vec<u32>,
}

impl Claim {
    /// Host name, effective user and group, and groups of this process.
    #[must_use]
    pub fn of_this_process() -> Self {
        let mut name = [0u8; 256];
        // SAFETY: room for one byte less than there is.
        unsafe { libc::gethostname(name.as_mut_ptr().cast(), 255) };
        let length = name.iter().position(|&byte| byte == 0).unwrap_or(255);
        let mut groups = vec![0u32; 65_536];
        // SAFETY: room for as many as a process can have.
        let count = unsafe { libc::getgroups(groups.len() as i32, groups.as_mut_ptr()) };
        groups.truncate(usize::try_from(count).unwrap_or(0).min(16));
        let machine = String::from_utf8_lossy(&name[..length]).into_owned();
        // SAFETY: they only ask.
        let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
        Self { machine, uid, gid, groups }
    }

    fn encode(&self, to: &mut Encoder<'_>) {
        to.unsigned(0);
        let machine = self.machine.as_bytes();
        to.variable(&machine[..machine.len().min(255)]);
        to.unsigned(self.uid);
        to.unsigned(self.gid);
        let groups = &self.groups[..self.groups.len().min(16)];
        to.unsigned(groups.len() as u32);
        groups.iter().for_each(|&group| to.unsigned(group));
    }

    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let (_stamp, machine, uid, gid, groups) = <(u32, Bytes<255>, u32, u32, List<u32, 16>)>::decode(from)?;
        from.end()?;
        Ok(Self { machine: String::from_utf8_lossy(&machine.0).into_owned(), uid, gid, groups: groups.0 })
    }
}

/// By what a call is to be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// AUTH_NONE.
    None,
    /// AUTH_SYS.
    Sys(Claim),
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<'a> {
    /// The caller's number for it: of no other of its calls.
    pub xid: u32,
    /// The program's number.
    pub program: u32,
    /// The version's.
    pub version: u32,
    /// The procedure's.
    pub procedure: u32,
    /// What the caller says of itself.
    pub credential: Credential,
    /// All bytes behind the header.
    pub arguments: &'a [u8],
}

/// Why a message is no call that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// It is no call at all, and has no answer.
    Garbage,
    /// A reply of this kind says it.
    Answer(u32, Outcome<'static>),
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// Its results.
    Success(&'a [u8]),
    /// PROG_UNAVAIL.
    NoProgram,
    /// PROG_MISMATCH.
    NoVersion {
        /// The lowest version that is there.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// PROC_UNAVAIL.
    NoProcedure,
    /// GARBAGE_ARGS.
    BadArguments,
    /// SYSTEM_ERR: all else that went wrong.
    SystemError,
    /// RPC_MISMATCH.
    RpcVersion {
        /// The lowest version of the protocol.
        low: u32,
        /// The highest.
        high: u32,
    },
    /// AUTH_ERROR, with its `auth_stat`.
    Denied(u32),
}

impl fmt::Display for Outcome<'_> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success(_) => to.write_str("SUCCESS"),
            Self::NoProgram => to.write_str("PROG_UNAVAIL"),
            Self::NoVersion { low, high } => write!(to, "PROG_MISMATCH: versions {low} to {high} are there"),
            Self::NoProcedure => to.write_str("PROC_UNAVAIL"),
            Self::BadArguments => to.write_str("GARBAGE_ARGS"),
            Self::SystemError => to.write_str("SYSTEM_ERR"),
            Self::RpcVersion { low, high } => write!(to, "RPC_MISMATCH: it speaks versions {low} to {high} of the protocol"),
            Self::Denied(status) => write!(to, "AUTH_ERROR {status}"),
        }
    }
}

/// The bytes that `write` encodes.
pub(crate) fn encoded(write: &dyn Fn(&mut Encoder<'_>)) -> Vec<u8> {
    let mut sizer = Encoder::new(&mut []);
    write(&mut sizer);
    let mut bytes = vec![0; sizer.needed()];
    write(&mut Encoder::new(&mut bytes));
    bytes
}

fn opaque_auth<'a>(from: &mut Decoder<'a>) -> Result<(u32, &'a [u8]), Error> {
    Ok((from.unsigned()?, from.variable(AUTH_MOST)?))
}

impl<'a> Call<'a> {
    /// Writes its header; arguments follow.
    pub fn emit_header(&self, to: &mut Encoder<'_>) {
        for word in [self.xid, CALL, RPC_VERSION, self.program, self.version, self.procedure] {
            to.unsigned(word);
        }
        match &self.credential {
            Credential::None => {
                to.unsigned(AUTH_NONE);
                to.unsigned(0);
            }
            Credential::Sys(claim) => {
                to.unsigned(AUTH_SYS);
                to.variable(&encoded(&|to| claim.encode(to)));
            }
        }
        to.unsigned(AUTH_NONE);
        to.unsigned(0);
    }

    /// Reads a message.
    ///
    /// # Errors
    /// [`Refused`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Refused> {
        let garbage = |_: Error| Refused::Garbage;
        let mut from = Decoder::new(bytes);
        let (xid, direction, protocol) = <(u32, u32, u32)>::decode(&mut from).map_err(garbage)?;
        if direction != CALL {
            return Err(Refused::Garbage);
        }
        if protocol != RPC_VERSION {
            return Err(Refused::Answer(xid, Outcome::RpcVersion { low: RPC_VERSION, high: RPC_VERSION }));
        }
        let (program, version, procedure) = <(u32, u32, u32)>::decode(&mut from).map_err(garbage)?;
        let (flavour, body) = opaque_auth(&mut from).map_err(garbage)?;
        opaque_auth(&mut from).map_err(garbage)?;
        let credential = match flavour {
            AUTH_NONE => Credential::None,
            AUTH_SYS => match Claim::decode(&mut Decoder::new(body)) {
                Ok(claim) => Credential::Sys(claim),
                Err(_) => return Err(Refused::Answer(xid, Outcome::Denied(auth::BAD_CREDENTIAL))),
            },
            _ => return Err(Refused::Answer(xid, Outcome::Denied(auth::REJECTED_CREDENTIAL))),
        };
        Ok(Self { xid, program, version, procedure, credential, arguments: from.rest() })
    }
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'a> {
    /// Of the call that it answers.
    pub xid: u32,
    /// What became of it.
    pub outcome: Outcome<'a>,
}

impl<'a> Reply<'a> {
    /// Writes it, with its results.
    pub fn emit(&self, to: &mut Encoder<'_>) {
        let accepted = !matches!(self.outcome, Outcome::RpcVersion { .. } | Outcome::Denied(_));
        to.unsigned(self.xid);
        to.unsigned(REPLY);
        to.unsigned(u32::from(!accepted));
        if accepted {
            // The verifier.
            to.unsigned(AUTH_NONE);
            to.unsigned(0);
        }
        let (number, range, results): (u32, _, &[u8]) = match self.outcome {
            Outcome::Success(results) => (0, None, results),
            Outcome::NoProgram => (1, None, &[]),
            Outcome::NoVersion { low, high } => (2, Some((low, high)), &[]),
            Outcome::NoProcedure => (3, None, &[]),
            Outcome::BadArguments => (4, None, &[]),
            Outcome::SystemError => (5, None, &[]),
            Outcome::RpcVersion { low, high } => (0, Some((low, high)), &[]),
            Outcome::Denied(status) => {
                to.unsigned(1);
                to.unsigned(status);
                return;
            }
        };
        to.unsigned(number);
        if let Some((low, high)) = range {
            to.unsigned(low);
            to.unsigned(high);
        }
        to.fixed(results);
    }

    /// The message's bytes.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        encoded(&|to| self.emit(to))
    }

    /// Reads a message; `None`: it is no reply.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let mut from = Decoder::new(bytes);
        let (xid, direction, denied) = <(u32, u32, u32)>::decode(&mut from).ok()?;
        if direction != REPLY {
            return None;
        }
        let mut word = || from.unsigned().ok();
        let outcome = match denied {
            0 => {
                opaque_auth(&mut from).ok()?;
                let mut word = || from.unsigned().ok();
                match word()? {
                    0 => Outcome::Success(from.rest()),
                    1 => Outcome::NoProgram,
                    2 => Outcome::NoVersion { low: word()?, high: word()? },
                    3 => Outcome::NoProcedure,
                    4 => Outcome::BadArguments,
                    5 => Outcome::SystemError,
                    _ => return None,
                }
            }
            1 => match word()? {
                0 => Outcome::RpcVersion { low: word()?, high: word()? },
                1 => Outcome::Denied(word()?),
                _ => return None,
            },
            _ => return None,
        };
        Some(Self { xid, outcome })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claims() -> impl Strategy<Value = Claim> {
        ("[a-z0-9.-]{0,255}", any::<u32>(), any::<u32>(), proptest::collection::vec(any::<u32>(), 0..=16))
            .prop_map(|(machine, uid, gid, groups)| Claim { machine, uid, gid, groups })
    }

    /// RFC 5531, section 8.2: 400 bytes at most.
    #[test]
    fn credentials_and_verifiers_are_bounded() {
        let call = |credential: usize, verifier: usize| {
            let auth = |to: &mut Encoder<'_>, length: usize| {
                to.unsigned(AUTH_NONE);
                to.variable(&vec![7; length]);
            };
            let bytes = encoded(&|to| {
                [1, CALL, RPC_VERSION, 2, 3, 4].into_iter().for_each(|word| to.unsigned(word));
                auth(to, credential);
                auth(to, verifier);
            });
            Call::parse(&bytes).is_ok()
        };
        assert!(call(400, 400));
        assert!(!call(401, 0) && !call(0, 401));
    }

    fn units() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(any::<[u8; 4]>(), 0..9).prop_map(|units| units.concat())
    }

    #[test]
    fn a_call_has_the_bytes_of_the_standard() {
        let call = Call { xid: 7, program: 100_000, version: 2, procedure: 3, credential: Credential::None, arguments: &[] };
        let words = [7u32, 0, 2, 100_000, 2, 3, 0, 0, 0, 0];
        assert_eq!(encoded(&|to| call.emit_header(to)), words.map(u32::to_be_bytes).concat());
        let reply = Reply { xid: 7, outcome: Outcome::NoVersion { low: 2, high: 4 } };
        assert_eq!(reply.to_bytes(), [7u32, 1, 0, 0, 0, 2, 2, 4].map(u32::to_be_bytes).concat());
    }

    #[test]
    fn what_is_refused_is_told_how() {
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<_>>();
        let parse = |bytes: &[u8]| Call::parse(bytes).map(|call| call.xid);
        assert_eq!(parse(&words(&[7, 0, 3])), Err(Refused::Answer(7, Outcome::RpcVersion { low: 2, high: 2 })));
        assert_eq!(parse(&words(&[7, 0, 2, 1, 1, 1, 9, 0, 0, 0])), Err(Refused::Answer(7, Outcome::Denied(2))));
        assert_eq!(parse(&words(&[7, 0, 2, 1, 1, 1, 1, 4, 0, 0, 0])), Err(Refused::Answer(7, Outcome::Denied(1))));
        for garbage in [&[7, 1, 2][..], &[7], &[], &[7, 0, 2, 1, 1, 1, 0, 401, 0, 0]] {
            assert_eq!(parse(&words(garbage)), Err(Refused::Garbage));
        }
    }

    proptest! {
        #[test]
        fn calls_return_as_they_went(words in any::<[u32; 4]>(), claim in proptest::option::of(claims()), arguments in units()) {
            let credential = claim.map_or(Credential::None, Credential::Sys);
            let [xid, program, version, procedure] = words;
            let call = Call { xid, program, version, procedure, credential, arguments: &arguments };
            let mut bytes = encoded(&|to| call.emit_header(to));
            bytes.extend_from_slice(&arguments);
            prop_assert_eq!(Call::parse(&bytes), Ok(call));
            prop_assert_eq!(Reply::parse(&bytes), None);
        }

        #[test]
        fn replies_return_as_they_went(xid in any::<u32>(), kind in 0..8, low in any::<u32>(), high in any::<u32>(), results in units()) {
            let outcome = match kind {
                0 => Outcome::Success(&results),
                1 => Outcome::NoProgram,
                2 => Outcome::NoVersion { low, high },
                3 => Outcome::NoProcedure,
                4 => Outcome::BadArguments,
                5 => Outcome::SystemError,
                6 => Outcome::RpcVersion { low, high },
                _ => Outcome::Denied(low),
            };
            let reply = Reply { xid, outcome };
            let bytes = reply.to_bytes();
            prop_assert_eq!(Reply::parse(&bytes), Some(reply));
        }

        #[test]
        fn any_bytes_are_messages_or_none(bytes in proptest::collection::vec(0u8..4, 0..120)) {
            if let Ok(call) = Call::parse(&bytes) {
                let mut again = encoded(&|to| call.emit_header(to));
                again.extend_from_slice(call.arguments);
                prop_assert_eq!(Call::parse(&again), Ok(call));
            }
            if let Some(reply) = Reply::parse(&bytes) {
                prop_assert!(matches!(reply.outcome, Outcome::Success(_)) || Reply::parse(&reply.to_bytes()) == Some(reply));
            }
        }
    }
}
