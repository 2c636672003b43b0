//! One connection, as the driver's lock guards it.

use core::sync::atomic::AtomicI32;

use shunt_segment::reason::Reason;
use shunt_xdp::cause::Cause;
use shunt_xdp::course::Course;
use shunt_xdp::taken::Taken;

/// What becomes of a line.
pub mod state {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// Driven by this process.
    pub const TAKEN: u32 = 1;
    /// On its way back: the socket is of no use yet.
    pub const GIVING: u32 = 2;
    /// The kernel's, of which the channel shows what comes.
    pub const KERNEL: u32 = 3;
    /// The near side has closed, and lets go of the channel.
    pub const OVER: u32 = 4;
    /// In the making.
    pub const MAKING: u32 = 5;
}

/// One of them; zeros are one that is nobody's.
#[derive(Default)]
pub struct Line {
    /// See [`state`].
    pub state: u32,
    /// Of the near ring, how much is in the escrow and not acknowledged.
    pub copied: u32,
    /// Of what came, how much stands in the near ring.
    pub shown: u32,
    /// The program's end of its direction was told to the kernel.
    pub end_told: bool,
    /// The peer's was told to the program.
    pub end_shown: bool,
    /// The kernel has told of an error, and the program was told of a reset.
    pub broken: bool,
    /// Its program's end, however it comes, is to be a reset (SO_LINGER of no time).
    pub lingers_not: bool,
    /// The kernel's socket, and the companion's far end.
    pub socket: AtomicI32,
    /// See above.
    pub far: AtomicI32,
    /// When something is due (ns), and since when it is on its way back.
    pub due: u64,
    /// See above.
    pub since: u64,
    /// What has moved, and the place of the server ([`shunt_xdp::learned`]).
    pub course: Course,
    /// See above.
    pub server: usize,
    /// Why it is the kernel's again, or on its way back.
    pub reason: Reason,
    /// While it is taken.
    pub taken: Option<&'static mut Taken>,
}

impl Line {
    /// Whether its descriptors are some: zeros are none of ours.
    pub fn has_numbers(&self) -> bool {
        !matches!(self.state, state::FREE | state::MAKING)
    }
}

/// What tools say of that.
pub fn returned(cause: impl Into<Cause>) -> Reason {
    Reason::of_return(cause.into() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use shunt_xdp::taken::Ended;

    #[test]
    fn each_cause_has_its_name() {
        use Reason::*;
        let causes = [
            (Cause::Untold, GivenBack),
            (Cause::Idle, GivenBackIdle),
            (Cause::Bulk, GivenBackBulk),
            (Cause::Loss, GivenBackLoss),
            (Cause::Odd, GivenBackOdd),
            (Cause::Ended, GivenBackEnded),
            (Cause::Silent, GivenBackSilent),
            (Cause::Changed, GivenBackChanged),
            (Cause::Shared, GivenBackShared),
            (Cause::Agent, GivenBackAgent),
            (Cause::Drawn, GivenBack),
        ];
        causes.into_iter().for_each(|(cause, reason)| assert_eq!(returned(cause), reason));
        assert_eq!([Ended::Given, Ended::Full, Ended::Marked].map(returned), [GivenBack, GivenBackBulk, GivenBackLoss]);
    }
}
