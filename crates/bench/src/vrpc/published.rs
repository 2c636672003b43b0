//! What the papers' texts say in numbers, and what of it holds here. Their figures 4 to 6 and 10 are drawings without numbers.
//!
//! SHRIMP: Damianakis, Bilas, Dubnicki, Felten, "Client-Server Computing on the SHRIMP Multicomputer", 1997, sections 4.2 and 4.3. SOVIA: Kim, Kim,
//! Jung, "Sockets over VIA", 2003, section 5.4 and figure 9.

use super::model::{Document, Question, Series, MOVES};

/// SHRIMP, microseconds of a null call by vRPC, and by ShrimpRPC, which is about one above the hardware's round trip.
pub const VRPC: f64 = 33.0;
pub const SHRIMP_RPC: f64 = 9.5;
pub const SHRIMP_HARDWARE: f64 = 8.5;
/// SOVIA, microseconds of a null call: over TCP on Fast Ethernet and on cLAN, and over SOVIA; its one way of 4 bytes.
pub const FAST_ETHERNET: f64 = 200.0;
pub const TCP: f64 = 149.0;
pub const SOVIA: f64 = 35.0;
pub const SOVIA_ONE_WAY: f64 = 10.5;

/// The longest argument in figure 6's comparison that is made here.
pub const LONG: usize = 64 << 10;

/// A statement of a paper, and its number here.
pub struct Claim {
    pub words: &'static str,
    pub then: f64,
    pub now: Option<f64>,
    /// Whether today's is on the paper's side of what it says.
    pub holds: fn(now: f64, then: f64) -> bool,
    /// Why it does not, where it does not.
    pub reason: &'static str,
}

/// A ratio that is to be small, and one that is to be large; a tenth is the machine's noise.
const AT_MOST: fn(f64, f64) -> bool = |now, then| now <= then * 1.1;
const AT_LEAST: fn(f64, f64) -> bool = |now, then| now >= then / 1.1;

/// All of them, with today's numbers.
pub fn claims(run: &Document) -> Vec<Claim> {
    use Question::{Changed, Echo, Reference, Section, Sections, Text, TextBytes};
    let over = |series, question| run.over(Series::Endpoint, series, question, 0);
    let moved: Option<f64> = MOVES.iter().map(|part| run.at(Series::Collapsed, Section(*part), 0)).sum();
    let of = |above: (Series, Question, usize), below| run.ratio(above, below);
    vec![
        Claim {
            words: "SHRIMP 4.3: specialised null call / the layer beneath",
            then: SHRIMP_RPC / SHRIMP_HARDWARE,
            now: over(Series::Own, Echo),
            holds: AT_MOST,
            reason: "a call has some 550 instructions above the endpoint's (decision 77), 60 to 100 ns: more than an eighth of a trip of 150 to 500 ns, as \
                     one microsecond was of 8.5.",
        },
        Claim {
            words: "SHRIMP 4.2: compatible null call / the layer beneath",
            then: VRPC / SHRIMP_HARDWARE,
            now: over(Series::Collapsed, Echo),
            holds: AT_MOST,
            reason: "what libtirpc still does for a call (its handle's lock, credentials, XDR by pointers, a look for the next call) costs hundreds of \
                     nanoseconds, and the layer beneath costs fewer.",
        },
        Claim {
            words: "SHRIMP 4.3: compatible / specialised, null",
            then: VRPC / SHRIMP_RPC,
            now: of((Series::Collapsed, Echo, 0), (Series::Own, Echo, 0)),
            holds: AT_LEAST,
            reason: "there, the standard's header was what the specialised call did not send. 44 and 28 bytes are a line of cache each here, which moves as \
                     one, as the specialised call's does: the difference left is the work of encoding.",
        },
        Claim {
            words: "SHRIMP 4.3: compatible / specialised by reference, 64 KiB, left as it is by the server",
            then: 2.0,
            now: of((Series::Collapsed, Echo, LONG), (Series::Own, Reference, LONG)),
            holds: AT_LEAST,
            reason: "filling the memory is most of such a call, and costs as much as moving it does by value.",
        },
        Claim {
            words: "SHRIMP 4.3: compatible / specialised by reference, 64 KiB, changed by the server",
            then: 2.0,
            now: of((Series::Collapsed, Echo, LONG), (Series::Own, Changed, LONG)),
            holds: AT_LEAST,
            reason: "results by reference come back in the background only where a network interface writes them. Here the server's changed lines are fetched \
                     when the caller touches them, in its next call.",
        },
        Claim {
            words: "SHRIMP 4.2.1: part of a null call in which bytes are sent (\"almost negligible\": 0.1 here)",
            then: 0.1,
            now: moved.zip(run.at(Series::Collapsed, Sections, 0)).map(|(moved, all)| moved / all),
            holds: AT_MOST,
            reason: "automatic update sent while the program went on, and what the call waited for is told in the paper under other names. Here a line moves \
                     when the other side reads it: sending, moving and looking are one section, and with the work collapsed they are most of a call.",
        },
        Claim {
            words: "SOVIA 5.4: null call by TCP / by user-level sockets",
            then: TCP / SOVIA,
            now: of((Series::Kernel, Text, 0), (Series::Stream, Text, 0)),
            holds: AT_LEAST,
            reason: "this machine's kernel wakes a sleeper for less than the layer costs, which it does where both share a processor.",
        },
        Claim {
            words: "SOVIA 5.4: null call / round trip of sockets beneath, layers as they are",
            then: SOVIA / (2.0 * SOVIA_ONE_WAY),
            now: of((Series::Stream, Text, 0), (Series::Stream, TextBytes, 0)),
            holds: AT_MOST,
            reason: "libtirpc's own work (0.7 us), and the server's poll of all its descriptors, cost the same over any network; sockets took 21 us there, and \
                     take some hundred nanoseconds here.",
        },
        Claim {
            words: "SOVIA 5.4: the same, layers collapsed",
            then: SOVIA / (2.0 * SOVIA_ONE_WAY),
            now: of((Series::Collapsed, Text, 0), (Series::Collapsed, TextBytes, 0)),
            holds: AT_MOST,
            reason: "collapsed layers leave some two hundred nanoseconds of work above sockets that take as long.",
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::document;
    use super::*;

    #[test]
    fn each_claim_is_judged_by_the_run() {
        let claims = claims(&document());
        let judged: Vec<_> = claims.iter().map(|claim| claim.now.map(|now| (claim.holds)(now, claim.then))).collect();
        // 220 / 200; 500 / 200; 500 / 220; 13,607 / 3,497 twice; 20 / 90; 40,000 / 1600; 2; 2.
        let expected = [true, true, false, true, true, false, true, false, false].map(Some);
        assert_eq!(judged, expected, "{:?}", claims.iter().map(|claim| claim.now).collect::<Vec<_>>());
    }

    #[test]
    fn nothing_is_judged_of_a_run_without_figures() {
        let empty = Document::new(String::new(), String::new());
        assert!(claims(&empty).iter().all(|claim| claim.now.is_none()));
    }
}
