//! The two bytes of `syscall`.

/// The instruction.
pub const SYSCALL: [u8; 2] = [0x0f, 0x05];

/// Bytes that are looked at in one go: the loop over them has no branch, so that it becomes vector instructions.
const STRIDE: usize = 256;

/// Where the bytes first lie in `text` from `from` on.
pub fn syscall(text: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(stride) = text.get(at..at + STRIDE + 1) {
        if any(stride) {
            break;
        }
        at += STRIDE;
    }
    let rest = text.get(at..)?;
    let near = rest.windows(2).position(|pair| pair == SYSCALL)?;
    Some(at + near)
}

fn any(stride: &[u8]) -> bool {
    let pairs = stride.iter().zip(&stride[1..]);
    pairs.fold(0u8, |found, (first, second)| found | u8::from((*first == SYSCALL[0]) & (*second == SYSCALL[1]))) != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn finds_what_a_plain_search_finds(text in proptest::collection::vec(prop_oneof![Just(0x0f), Just(0x05), Just(1u8)], 0..2000), from in 0usize..2100) {
            let plain = (from..text.len().saturating_sub(1)).find(|at| text[*at..*at + 2] == SYSCALL);
            prop_assert_eq!(syscall(&text, from), plain);
        }

        #[test]
        fn finds_one_anywhere(length in 2usize..1500, at in 0usize..1500) {
            let mut text = std::vec![0x90u8; length];
            let at = at % (length - 1);
            text[at..at + 2].copy_from_slice(&SYSCALL);
            prop_assert_eq!(syscall(&text, 0), Some(at));
            prop_assert_eq!(syscall(&text, at + 1), None);
        }
    }
}
