//! The head of an answer (RFC 5531, section 9), with the verdicts that libtirpc makes of it.

use crate::record::{Ended, Input, Source};

/// Bytes of the longest verifier.
pub const LONGEST: usize = 400;

/// What an answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Results follow.
    Success,
    /// Accepted, and not done: `accept_stat`, and versions where there are some.
    Accepted(u32, [u32; 2]),
    /// Rejected for its version of RPC: those that are known.
    Version([u32; 2]),
    /// Rejected for its credentials: `auth_stat`.
    Authentication(u32),
}

impl Verdict {
    /// `enum clnt_stat`, and the words of `struct rpc_err`, where there are some.
    pub fn error(self) -> (i32, Option<[u32; 2]>) {
        match self {
            Verdict::Success => (0, None),
            Verdict::Accepted(1, _) => (8, None),
            Verdict::Accepted(2, versions) => (9, Some(versions)),
            Verdict::Accepted(3, _) => (10, None),
            Verdict::Accepted(4, _) => (11, None),
            Verdict::Accepted(5, _) => (12, None),
            Verdict::Accepted(stat, _) => (16, Some([0, stat])),
            Verdict::Version(versions) => (6, Some(versions)),
            Verdict::Authentication(why) => (7, Some([why, 0])),
        }
    }

    /// Whether the call was accepted, with which status, and what else is said.
    pub fn parts(self) -> (bool, i32, [u32; 2]) {
        match self {
            Verdict::Success => (true, 0, [0; 2]),
            Verdict::Accepted(stat, words) => (true, stat as i32, words),
            Verdict::Version(versions) => (false, 0, versions),
            Verdict::Authentication(why) => (false, 1, [why, 0]),
        }
    }
}

/// The head of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The call that is answered.
    pub xid: u32,
    /// The verifier's flavour.
    pub flavor: u32,
    /// The verifier.
    pub verifier: Vec<u8>,
    /// What is said.
    pub verdict: Verdict,
}

impl Reply {
    /// Reads the head of the current record; results follow.
    ///
    /// # Errors
    /// [`Ended`] if the stream has ended, or if this is no answer: the next record may be one.
    pub fn read(input: &mut Input, source: &mut impl Source) -> Result<Reply, Ended> {
        if let Some(xid) = usual(input, source)? {
            return Ok(Reply { xid, flavor: 0, verifier: vec![], verdict: Verdict::Success });
        }
        let (xid, direction, stat) = (input.word(source)?, input.word(source)?, input.word(source)?);
        let mut reply = Reply { xid, flavor: 0, verifier: vec![], verdict: Verdict::Success };
        match (direction, stat) {
            (1, 0) => {
                reply.flavor = input.word(source)?;
                let length = input.word(source)? as usize;
                if length > LONGEST {
                    return Err(Ended);
                }
                reply.verifier.resize(length, 0);
                input.bytes(&mut reply.verifier, source)?;
                input.bytes(&mut [0; 4][..length.next_multiple_of(4) - length], source)?;
                reply.verdict = match input.word(source)? {
                    0 => Verdict::Success,
                    2 => Verdict::Accepted(2, [input.word(source)?, input.word(source)?]),
                    stat => Verdict::Accepted(stat, [0; 2]),
                };
            }
            (1, 1) => {
                reply.verdict = match input.word(source)? {
                    0 => Verdict::Version([input.word(source)?, input.word(source)?]),
                    1 => Verdict::Authentication(input.word(source)?),
                    _ => return Err(Ended),
                };
            }
            _ => return Err(Ended),
        }
        Ok(reply)
    }
}

/// The call that is answered, if this is success without a verifier, in one piece. Else nothing is taken.
#[inline]
fn usual(input: &mut Input, source: &mut impl Source) -> Result<Option<u32>, Ended> {
    /// REPLY, MSG_ACCEPTED, AUTH_NONE and nothing of it, SUCCESS.
    const REST: [u8; HEAD - 4] = [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const HEAD: usize = 24;
    input.begin(source)?;
    let Some(head) = input.ahead(HEAD) else { return Ok(None) };
    if head[4..] == REST {
        let xid = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        input.take(HEAD);
        return Ok(Some(xid));
    }
    Ok(None)
}
