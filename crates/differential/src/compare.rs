//! Comparing two transcripts, and showing how they differ.

/// A unified difference with two lines of context; `None` if the transcripts are equal.
///
/// `-` is what was expected (the kernel, after accepted deviations), `+` what shunt gave.
pub fn difference(expected: &[String], got: &[String]) -> Option<String> {
    if expected == got {
        return None;
    }
    let steps = align(expected, got);
    let mut text = String::new();
    let changed: Vec<usize> =
        steps.iter().enumerate().filter(|(_, step)| !matches!(step, Step::Same(_))).map(|(at, _)| at).collect();
    let mut skipped = false;
    for (at, step) in steps.iter().enumerate() {
        if !changed.iter().any(|&change| change.abs_diff(at) <= 2) {
            skipped = true;
            continue;
        }
        if std::mem::take(&mut skipped) {
            text.push_str("  ...\n");
        }
        let (sign, line) = match step {
            Step::Same(line) => (' ', line),
            Step::Lost(line) => ('-', line),
            Step::Added(line) => ('+', line),
        };
        text.push_str(&format!("{sign} {line}\n"));
    }
    Some(text)
}

enum Step<'a> {
    Same(&'a str),
    Lost(&'a str),
    Added(&'a str),
}

/// The longest common subsequence, by the quadratic table: transcripts have a few hundred lines.
fn align<'a>(expected: &'a [String], got: &'a [String]) -> Vec<Step<'a>> {
    let width = got.len() + 1;
    let mut common = vec![0u32; (expected.len() + 1) * width];
    for i in (0..expected.len()).rev() {
        for j in (0..got.len()).rev() {
            common[i * width + j] = if expected[i] == got[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    let mut steps = Vec::new();
    while i < expected.len() || j < got.len() {
        if i < expected.len() && j < got.len() && expected[i] == got[j] {
            steps.push(Step::Same(&expected[i]));
            i += 1;
            j += 1;
        } else if j == got.len() || (i < expected.len() && common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            steps.push(Step::Lost(&expected[i]));
            i += 1;
        } else {
            steps.push(Step::Added(&got[j]));
            j += 1;
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn equal_transcripts_have_no_difference() {
        assert_eq!(difference(&lines("a b c"), &lines("a b c")), None);
    }

    #[test]
    fn a_changed_line_is_shown_with_both_values() {
        let shown = difference(&lines("a b c"), &lines("a x c")).expect("differs");
        assert_eq!(shown, "  a\n- b\n+ x\n  c\n");
    }

    #[test]
    fn far_context_is_left_out() {
        let shown = difference(&lines("1 2 3 4 5 6"), &lines("1 2 3 4 5 7")).expect("differs");
        assert_eq!(shown, "  ...\n  4\n  5\n- 6\n+ 7\n");
    }

    #[test]
    fn a_transcript_cut_short_shows_what_is_missing() {
        let shown = difference(&lines("a b"), &lines("a")).expect("differs");
        assert_eq!(shown, "  a\n- b\n");
    }
}
