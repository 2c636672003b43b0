//! Words of a stream that tools read, too: which way its bytes go. The sockets write them.

/// Which of [`crate::Station::words`]: bytes given to the engine, or to TCP.
pub const SENT: usize = 1;
/// Bytes that the peer's side has.
pub const ACKNOWLEDGED: usize = 2;
/// Bytes that came.
pub const RECEIVED: usize = 3;
/// One of the following.
pub const WAY: usize = 7;

/// A client whose acceptor was not there yet: by TCP; the token may still come.
pub const PROVISIONAL: u64 = 1;
/// A client that has the token, and waits for BEGUN.
pub const BEGINNING: u64 = 2;
/// A server that has sent the token, and waits for BEGIN: what comes by TCP until then are the stream's bytes.
pub const CLAIMED: u64 = 3;
/// By the engine.
pub const FAST: u64 = 4;
/// The path is lost: both ends tell each other by TCP what they have.
pub const RESUMING: u64 = 5;
/// By TCP, for good.
pub const TCP: u64 = 6;

/// The way as a word for people.
pub fn word(way: u64) -> &'static str {
    match way {
        PROVISIONAL => "provisional",
        BEGINNING => "beginning",
        CLAIMED => "claimed",
        FAST => "fast",
        RESUMING => "resuming",
        TCP => "tcp",
        _ => "opening",
    }
}
