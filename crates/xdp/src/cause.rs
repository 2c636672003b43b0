//! Why a connection that was taken is the kernel's again.

/// Why, as its driver knows it, or the agent or its guard, which give it back behind the driver's back. Tools have a name for each number (`shunt_segment::reason`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cause {
    /// It was not said.
    Untold = 0,
    /// Nothing has moved for long.
    Idle,
    /// Much moves at a time, or more than there is room for.
    Bulk,
    /// Packets were lost, overtook each other, or tell of a jam.
    Loss,
    /// What no established connection sends, and urgent bytes.
    Odd,
    /// Either end has ended it, or its direction.
    Ended,
    /// Its process did not drive while something waited.
    Silent,
    /// What decides how frames leave is something else now.
    Changed,
    /// Others have its socket, and use it.
    Shared,
    /// The agent ends, or is gone.
    Agent,
    /// After as many turns as a test asks for.
    Drawn,
}

use Cause::*;

impl Cause {
    /// Of a number that another process wrote.
    pub fn of(number: u32) -> Cause {
        [Silent, Changed, Shared, Agent].into_iter().find(|cause| *cause as u32 == number).unwrap_or(Untold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_agent_does_not_say_is_not_told() {
        assert_eq!([0, 1, 6, 7, 8, 9, 1 << 20].map(Cause::of), [Untold, Untold, Silent, Changed, Shared, Agent, Untold]);
    }
}
