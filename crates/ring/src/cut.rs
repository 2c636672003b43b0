//! How both ends of a stream agree that it goes on by the TCP connection beside it, with no byte in the rings: by one word.
//!
//! ```text
//! tool     asks                                                       takes it back: fails if it has moved
//! side     all it has sent was received, and it sends nothing:        sends again: takes FROZEN back first,
//!          FROZEN, by the thread that has the side's sending lock      and if both are it has moved: nothing goes into the ring
//! ```
//!
//! **Why no byte is left.** A side that is frozen has had all of its bytes received, and sends none before it has taken that back, which it can only
//! as long as the other is not frozen as well. So when the second freezes, and finds the first frozen in the same step, both
//! rings are empty, and stay so. Each looks at its own ring alone, under its own lock; none waits for the other, and one that is killed leaves a word that
//! nobody waits for. A peer that writes the word loses its own connection's bytes.

use shunt_segment::channel::cut::{is_moved, why, with_why, Why, ASKED, FROZEN, HEARD, LEFT, MOVED};
use shunt_segment::channel::Head;
use shunt_segment::sync::Ordering;

/// Changes the word as long as it has not moved; gives it as it is then, or as it stays.
fn change(head: &Head, to: impl Fn(u32) -> u32) -> Result<u32, u32> {
    let unless_moved = |word: u32| (!is_moved(word)).then(|| to(word));
    head.cut.fetch_update(Ordering::SeqCst, Ordering::SeqCst, unless_moved).map(to)
}

/// A tool asks, anew if it has asked before.
///
/// # Errors
/// The word, which has moved.
pub fn ask(head: &Head) -> Result<(), u32> {
    change(head, |_| ASKED).map(|_| ())
}

/// It asks no longer. False: it has moved.
pub fn take_back(head: &Head) -> bool {
    change(head, |_| 0).is_ok()
}

/// Whether it is asked.
pub fn is_asked(head: &Head) -> bool {
    head.cut.load(Ordering::SeqCst) & ASKED != 0
}

/// Whether neither side sends in the rings any more.
pub fn has_moved(head: &Head) -> bool {
    is_moved(head.cut.load(Ordering::SeqCst))
}

/// Side `side` has heard.
pub fn heard(head: &Head, side: usize) {
    let _ = change(head, |word| if word & ASKED != 0 { word | HEARD[side & 1] } else { word });
}

/// Whether both sides have.
pub fn have_heard(head: &Head) -> bool {
    let both = HEARD[0] | HEARD[1];
    head.cut.load(Ordering::Relaxed) & both == both
}

/// Side `side`, all of whose bytes were received, sends none but behind [`thaw`]. By the thread that has its sending lock. True: it has moved.
pub fn freeze(head: &Head, side: usize) -> bool {
    let frozen = |word: u32| if word & ASKED != 0 { with_why(word, side, None) | FROZEN[side & 1] } else { word };
    is_moved(change(head, frozen).unwrap_or(MOVED))
}

/// Before side `side` sends anything, by the thread that has its sending lock. False: it has moved, and nothing may be sent.
#[must_use]
pub fn thaw(head: &Head, side: usize) -> bool {
    match head.cut.load(Ordering::SeqCst) {
        word if word & FROZEN[side & 1] == 0 => true,
        _ => change(head, |word| word & !FROZEN[side & 1]).is_ok(),
    }
}

/// Side `side`, which is not frozen, will not be. False: it has moved.
pub fn refuse(head: &Head, side: usize, why: Why) -> bool {
    change(head, |word| if word & ASKED != 0 { with_why(word & !FROZEN[side & 1], side, Some(why)) } else { word }).is_ok()
}

/// Whether a side has said that it will not be.
pub fn is_refused(head: &Head) -> bool {
    let word = head.cut.load(Ordering::SeqCst);
    (0..2).any(|side| why(word, side).is_some())
}

/// Side `side`'s descriptors are the TCP connection.
pub fn left(head: &Head, side: usize) {
    head.cut.fetch_or(LEFT[side & 1], Ordering::SeqCst);
}

/// The channel serves another connection.
pub fn clear(head: &Head) {
    head.cut.store(0, Ordering::Relaxed);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Two sides and a tool in all kinds of orders: what has moved stays so, with both rings empty, and nothing is sent behind it.
    #[test]
    fn what_has_moved_stays_and_both_rings_are_empty() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = |below: u64| {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) % below
        };
        let mut moved = 0;
        for _ in 0..20_000 {
            // SAFETY: atomics alone, for which all-zero is valid.
            let head: Box<Head> = unsafe { Box::new_zeroed().assume_init() };
            let mut under_way = [0_u32; 2];
            for _ in 0..40 {
                let side = draw(2) as usize;
                match draw(8) {
                    0 | 1 => under_way[side] += u32::from(thaw(&head, side)),
                    2 | 3 => under_way[1 - side] = 0,
                    4 | 5 if under_way[side] == 0 => drop(freeze(&head, side)),
                    6 => drop(ask(&head)),
                    7 if draw(4) == 0 => drop(take_back(&head)),
                    7 => drop(refuse(&head, side, Why::Shared)),
                    _ => {}
                }
                if has_moved(&head) {
                    assert_eq!(under_way, [0; 2]);
                    assert!(
                        !thaw(&head, 0) && !thaw(&head, 1) && !take_back(&head) && ask(&head).is_err() && freeze(&head, side)
                    );
                    moved += 1;
                    break;
                }
            }
        }
        assert!(moved > 1000, "{moved}");
    }
}
