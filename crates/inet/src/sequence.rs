//! Sequence numbers: modulo 2^32 (RFC 9293, section 3.4).

/// A place in one direction of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Seq(pub u32);

impl Seq {
    /// The place `bytes` behind this one.
    #[inline]
    pub fn plus(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_add(bytes))
    }

    /// Bytes from `earlier` to this place; nonsense if that lies behind it.
    #[inline]
    pub fn since(self, earlier: Seq) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Whether this place comes before `other`: the difference is less than half of all numbers.
    #[inline]
    pub fn before(self, other: Seq) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// Whether this place comes after `other`.
    #[inline]
    pub fn after(self, other: Seq) -> bool {
        other.before(self)
    }

    /// The later of both.
    #[inline]
    pub fn latest(self, other: Seq) -> Seq {
        if self.before(other) {
            other
        } else {
            self
        }
    }

    /// The earlier of both.
    #[inline]
    pub fn earliest(self, other: Seq) -> Seq {
        if self.before(other) {
            self
        } else {
            other
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_goes_round() {
        let (high, low) = (Seq(u32::MAX - 1), Seq(3));
        assert!(high.before(low) && low.after(high) && !high.before(high));
        assert_eq!((low.since(high), high.plus(5)), (5, low));
        assert_eq!((high.latest(low), low.earliest(high)), (low, high));
    }
}
