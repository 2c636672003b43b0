//! Why a handle, a transport or a call goes by libtirpc's own functions: every case has a name. What carries its bytes is another question.

macro_rules! reasons {
    ($($name:ident = $word:literal, $text:literal;)*) => {
        /// What became of a handle, a transport or a call.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(u8)]
        pub enum Reason { $(#[doc = $text] $name),* }

        impl Reason {
            /// All of them, in the order of their codes.
            pub const ALL: &'static [Reason] = &[$(Reason::$name),*];

            /// Its short name, as tools and counters print it.
            pub fn word(self) -> &'static str {
                match self { $(Reason::$name => $word),* }
            }

            /// It as a sentence.
            pub fn text(self) -> &'static str {
                match self { $(Reason::$name => $text),* }
            }
        }
    };
}

reasons! {
    Collapsed = "rpc-collapsed", "A handle or transport whose layers are collapsed.";
    NotStream = "rpc-not-stream", "A client's handle of connections over a descriptor that is no connected stream socket.";
    NotDatagrams = "rpc-not-datagrams", "A client's handle of datagrams over a descriptor that is no datagram socket.";
    Untold = "rpc-untold", "A client's handle does not tell its number, program or address: a libtirpc of another version.";
    Foreign = "rpc-foreign", "A server's transport has functions of the program's or of another library than libtirpc.";
    Missing = "rpc-missing", "libtirpc has not all of the functions that collapsed layers call: another version.";
    Limited = "rpc-limited", "A server's connection with a limit of a record's length (SVCSET_CONNMAXREC), where other rules hold.";
    Asynchronous = "rpc-asynchronous", "A client's handle of datagrams was told not to wait for answers (CLSET_ASYNC).";
    Connected = "rpc-connected", "A client's handle of datagrams was told to connect its socket (CLSET_CONNECT).";
    SignedCall = "rpc-signed-call", "A call by datagrams whose authentication signs or wraps (RPCSEC_GSS).";
    NoWaitCall = "rpc-no-wait-call", "A call by datagrams that waits for no answer, or has no function for its arguments.";
    LongCall = "rpc-long-call", "A call by datagrams whose arguments do not fit its buffer, of 8 KiB at most, or cannot be encoded.";
}

/// The word of a program with libtirpc whose layers nothing collapses, since the library is not loaded: no process counts it.
pub const OFF: (&str, &str) = ("rpc-off", "The program has libtirpc, and was started without --rpc on.");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_a_name_of_its_own_and_a_sentence() {
        let words: Vec<&str> = Reason::ALL.iter().map(|reason| reason.word()).chain([OFF.0]).collect();
        for (number, word) in words.iter().enumerate() {
            assert!(word.starts_with("rpc-") && !words[..number].contains(word), "{word}");
        }
        assert!(Reason::ALL.iter().all(|reason| reason.text().ends_with('.')));
        assert!(Reason::ALL.iter().enumerate().all(|(code, reason)| *reason as usize == code));
    }
}
