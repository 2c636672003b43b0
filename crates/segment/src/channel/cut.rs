//! Coding of [`super::Head::cut`]: a stream that is to go back to the TCP connection beside it. The steps are `shunt_ring::cut`'s.

/// A tool asks for it.
pub const ASKED: u32 = 1;
/// The side of this number has nothing under way, and sends nothing without taking this back.
pub const FROZEN: [u32; 2] = [1 << 1, 1 << 2];
/// Both sides are, while it is asked: neither sends in the rings ever again.
pub const MOVED: u32 = ASKED | FROZEN[0] | FROZEN[1];
/// The side has heard that it is asked.
pub const HEARD: [u32; 2] = [1 << 3, 1 << 4];
/// The side's descriptors are the TCP connection.
pub const LEFT: [u32; 2] = [1 << 5, 1 << 6];
/// Where the side says why it does not freeze ([`Why`]).
const WHY_SHIFT: [u32; 2] = [8, 16];
const WHY: u32 = 0xff;

/// Whether both sides are on their way to TCP, or there.
pub const fn is_moved(word: u32) -> bool {
    word & MOVED == MOVED
}

/// Why side `side` does not freeze, as it says; `None`: it does not say.
pub fn why(word: u32, side: usize) -> Option<Why> {
    Why::from_code((word >> WHY_SHIFT[side & 1] & WHY) as u8)
}

/// The word in which side `side` says so; without `why`: no longer.
pub const fn with_why(word: u32, side: usize, why: Option<Why>) -> u32 {
    let shift = WHY_SHIFT[side & 1];
    let code = match why {
        Some(why) => why as u32,
        None => 0,
    };
    word & !(WHY << shift) | code << shift
}

macro_rules! whys {
    ($($name:ident = $code:literal, $word:literal, $text:literal;)*) => {
        /// Why a side keeps its stream in memory.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Why { $(#[doc = $text] $name = $code),* }

        impl Why {
            /// All of them.
            pub const ALL: &'static [Why] = &[$(Why::$name),*];

            /// Reads a code from shared memory.
            pub fn from_code(code: u8) -> Option<Why> {
                match code { $($code => Some(Why::$name),)* _ => None }
            }

            /// The short name.
            pub fn word(self) -> &'static str {
                match self { $(Why::$name => $word),* }
            }

            /// A sentence.
            pub fn text(self) -> &'static str {
                match self { $(Why::$name => $text),* }
            }
        }
    };
}

whys! {
    Shared = 1, "shared", "Several processes have, or had, this end (fork, exec, a message).";
    Ended = 2, "half-closed", "One direction has ended, or both.";
    Signalled = 3, "signals", "The program is sent signals for it (O_ASYNC, F_SETOWN).";
    Stamped = 4, "timestamps", "The program asks for the time of arrival.";
    Lent = 5, "lent", "Bytes went by reference (SO_ZEROCOPY), or are read where they lie.";
    Urgent = 6, "urgent", "An urgent byte was sent.";
    Watched = 7, "watched", "An epoll set watches it that other processes have, or by a number that is closed.";
    Filtered = 8, "seccomp", "A filter of system calls refuses what is needed.";
    NoDescriptors = 9, "no-descriptors", "The process has no descriptor left.";
    Unaccepted = 10, "unaccepted", "Its server has not accepted it.";
    Peeking = 11, "peek-offset", "SO_PEEK_OFF is set.";
    NoTcp = 12, "no-tcp", "The TCP connection beside it has ended, or something was written into it.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_sides_say_stands_beside_the_rest() {
        for why in Why::ALL.iter().copied() {
            let word = with_why(with_why(MOVED | HEARD[1], 0, Some(why)), 1, Some(Why::Shared));
            assert_eq!((self::why(word, 0), self::why(word, 1)), (Some(why), Some(Why::Shared)));
            assert!(is_moved(word) && word & HEARD[1] != 0 && word & (HEARD[0] | LEFT[0] | LEFT[1]) == 0);
            assert_eq!(with_why(with_why(word, 0, None), 1, None), MOVED | HEARD[1]);
        }
        assert!(![ASKED, ASKED | FROZEN[0], ASKED | FROZEN[1], FROZEN[0] | FROZEN[1]].into_iter().any(is_moved));
    }
}
