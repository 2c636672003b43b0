//! The table of fall-backs, docs/reference/REASONS.md.

use shunt_region::Limit;
use shunt_segment::reason::Reason;
use shunt_tirpc::reason::{Reason as SunRpc, OFF};
use std::fmt::Write;

/// States of a socket that is not, or not yet, carried by the kernel instead of by shunt.
const NO_FALL_BACK: [Reason; 4] = [Reason::Unknown, Reason::Accelerated, Reason::Unconnected, Reason::Listening];

/// One row for each reason why a connection goes through the kernel.
pub fn render() -> String {
    let mut text = String::from("| reason | meaning |\n|---|---|\n");
    for reason in Reason::ALL.iter().filter(|reason| !NO_FALL_BACK.contains(reason)) {
        let _ = writeln!(text, "| `{}` | {} |", reason.word(), reason.text());
    }
    text
}

/// One row for each limit that makes a message of a region a copy.
pub fn limits() -> String {
    let mut text = String::from("| limit | meaning |\n|---|---|\n");
    for limit in Limit::ALL {
        let _ = writeln!(text, "| `{}` | {} |", limit.word(), limit.text());
    }
    text
}

/// One row for each reason why a handle, transport or call of SunRPC goes by libtirpc's own functions.
pub fn sunrpc() -> String {
    let mut text = String::from("| reason | meaning |\n|---|---|\n");
    let fallen = SunRpc::ALL.iter().filter(|reason| **reason != SunRpc::Collapsed);
    for (word, sentence) in [OFF].into_iter().chain(fallen.map(|reason| (reason.word(), reason.text()))) {
        let _ = writeln!(text, "| `{word}` | {sentence} |");
    }
    text
}
