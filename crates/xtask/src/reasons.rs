//! The table of fall-backs, docs/reference/REASONS.md.

use shunt_region::Limit;
use shunt_segment::reason::Reason;
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
