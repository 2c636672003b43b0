//! What the output of a run says about each case. A verdict begins with `ok`, `failed` or `skipped`.

use serde::Deserialize;
use std::collections::BTreeMap;

/// Verdicts by case.
pub type Verdicts = BTreeMap<String, String>;

/// How a suite tells them.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// By the file `$VERDICTS`: lines of a verdict, a tab and a case. Of a case that has begun `running` is the first.
    Lines,
    /// By how the process ends, and nothing else.
    Exit,
    /// The Test Anything Protocol: `ok 1 - name`, `not ok 2 - name`.
    Tap,
    /// redis: `[ok]: name (3 ms)`, `[err]: name`.
    Redis,
    /// tcltest with all its verbosity: `++++ socket-2.1 PASSED`, `==== socket-2.2 name FAILED`.
    Tcltest,
    /// curl's runtests.pl: `test 0001...[name]` and `OK (1 out of 9)` or `FAILED` in one of the lines that follow.
    Curl,
    /// tinytest of libevent: `main/name: OK`, `[FAILED]`, `SKIPPED`.
    Tinytest,
    /// Ruby's runner with -v: `[ 1/72] TestSocket#test_name = 0.01 s`, and what failed under headings at the end.
    Ruby,
}

/// What a verdict amounts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It begins with `ok`.
    Passed,
    /// All others.
    Failed,
    /// It begins with `skipped`.
    Skipped,
}

/// The class of a verdict.
pub fn class(verdict: &str) -> Class {
    match verdict {
        _ if verdict.starts_with("ok") => Class::Passed,
        _ if verdict.starts_with("skipped") => Class::Skipped,
        _ => Class::Failed,
    }
}

/// Reads a run's output, or what it wrote into its file of verdicts.
pub fn read(format: Format, output: &str, told: &str) -> Verdicts {
    let mut found = Found::default();
    match format {
        Format::Exit => {}
        Format::Lines => told.lines().for_each(|line| found.told_line(line)),
        Format::Tap => output.lines().for_each(|line| found.tap_line(line)),
        Format::Redis => output.lines().for_each(|line| found.redis_line(line)),
        Format::Tcltest => output.lines().for_each(|line| found.tcltest_line(line)),
        Format::Curl => found.curl_output(output),
        Format::Tinytest => output.lines().for_each(|line| found.tinytest_line(line)),
        Format::Ruby => output.lines().for_each(|line| found.ruby_line(line)),
    }
    found.verdicts
}

#[derive(Default)]
struct Found {
    verdicts: Verdicts,
    /// What the next test named in Ruby's list of failures is told to be.
    heading: Option<&'static str>,
}

impl Found {
    /// Cases of one name are told apart by their number.
    fn add(&mut self, case: &str, verdict: &str) {
        let mut name = case.to_owned();
        let mut number = 1;
        while self.verdicts.contains_key(&name) {
            number += 1;
            name = format!("{case} #{number}");
        }
        self.verdicts.insert(name, verdict.to_owned());
    }

    fn told_line(&mut self, line: &str) {
        let Some((verdict, case)) = line.split_once('\t') else { return };
        if verdict == "running" {
            self.verdicts.insert(case.into(), "failed: did not end".into());
        } else {
            self.verdicts.insert(case.into(), verdict.into());
        }
    }

    fn tap_line(&mut self, line: &str) {
        let (passed, rest) = match (line.strip_prefix("ok "), line.strip_prefix("not ok ")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return,
        };
        let (name, directive) = rest.split_once(" # ").unwrap_or((rest, ""));
        let directive = directive.to_ascii_lowercase();
        let (number, words) = name.split_once(' ').unwrap_or((name, ""));
        let words = words.trim_start_matches("- ").trim();
        let case = if words.is_empty() { number } else { words };
        self.add(
            case,
            if directive.starts_with("skip") {
                "skipped"
            } else if passed {
                "ok"
            } else {
                "failed"
            },
        );
    }

    fn redis_line(&mut self, line: &str) {
        let line = without_colours(line);
        let words = [
            ("[ok]: ", "ok"),
            ("[err]: ", "failed"),
            ("[exception]: ", "failed"),
            ("[ignore]: ", "skipped"),
            ("[skip]: ", "skipped"),
        ];
        for (mark, verdict) in words {
            if let Some(rest) = line.strip_prefix(mark) {
                let name =
                    rest.rsplit_once(" (").filter(|(_, time)| time.trim_end().ends_with("ms)")).map_or(rest, |(name, _)| name);
                // What went wrong follows the name: `[err]: name in tests/unit/x.tcl`.
                let name = name.split(" in tests/").next().unwrap_or(name).trim();
                self.add(&without_choices(name), verdict);
                return;
            }
        }
    }

    fn tcltest_line(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            ["++++", name, "PASSED"] => self.add(name, "ok"),
            ["++++", name, "SKIPPED:", ..] => self.add(name, "skipped"),
            ["====", name, .., "FAILED"] if !self.verdicts.contains_key(*name) => self.add(name, "failed"),
            _ => {}
        }
    }

    fn curl_output(&mut self, output: &str) {
        let mut current: Option<String> = None;
        for line in output.lines() {
            if let Some(rest) = line.strip_prefix("test ") {
                if let Some((number, verdict)) = rest.split_once(" SKIPPED") {
                    let _ = verdict;
                    self.add(number, "skipped");
                    continue;
                }
                if let Some((number, _)) = rest.split_once("...[") {
                    current = Some(number.to_owned());
                }
            }
            let Some(number) = current.as_deref() else { continue };
            let passed = line.contains(" OK ") && line.contains(" out of ");
            if passed || line.contains(" FAILED") {
                let number = number.to_owned();
                self.add(&number, if passed { "ok" } else { "failed" });
                current = None;
            }
        }
    }

    fn tinytest_line(&mut self, line: &str) {
        let Some((name, verdict)) = line.split_once(": ") else { return };
        let name = name.trim();
        if !name.contains('/') || name.contains(' ') {
            return;
        }
        if verdict.ends_with("OK") {
            self.add(name, "ok");
        } else if verdict.contains("SKIPPED") || verdict.contains("DISABLED") {
            self.add(name, "skipped");
        } else if verdict.contains("FAIL") || matches!(verdict.trim(), "" | "[forking]") {
            // What failed stands in the lines that follow.
            self.add(name, "failed");
        }
    }

    /// Each test has a line of its own; those that did not pass are told again behind all others, under a heading.
    fn ruby_line(&mut self, line: &str) {
        if let Some((name, _)) = line.split_once(" [").filter(|_| self.heading.is_some()) {
            self.verdicts.extend(self.heading.take().map(|verdict| (name.trim().to_owned(), verdict.to_owned())));
            return;
        }
        self.heading = match line.trim_start().split_once(") ") {
            Some((_, "Skipped:")) => Some("skipped"),
            Some((_, "Failure:" | "Error:")) => Some("failed"),
            _ => None,
        };
        let Some((_, case)) = line.split_once("] ").filter(|_| line.starts_with('[')) else { return };
        match case.split_once(" = ") {
            Some((name, _)) => self.add(name, "ok"),
            None => self.add(case.trim(), "failed: did not end"),
        }
    }
}

/// A line without the escape sequences that set colours (`ESC [ 0 ; 32 m`).
/// A name without what a test of redis chose at random or counted, which psync2 puts into the names of its cases: `Set #3
/// to replicate from #0`, `(x = 34632)`.
fn without_choices(name: &str) -> String {
    let mut left = String::with_capacity(name.len());
    let mut chosen = false;
    for character in name.chars() {
        chosen = character.is_ascii_digit() && (chosen || left.ends_with('#') || left.ends_with("(x = "));
        if !chosen {
            left.push(character);
        }
    }
    left
}

fn without_colours(line: &str) -> String {
    let mut pieces = line.split("\x1b[");
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| text + piece.split_once('m').map_or(piece, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::{read, Format};

    fn told(format: Format, text: &str) -> Vec<(String, String)> {
        let (output, file) = if format == Format::Lines { ("", text) } else { (text, "") };
        read(format, output, file).into_iter().collect()
    }

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(case, verdict)| (case.to_string(), verdict.to_string())).collect()
    }

    #[test]
    fn lines() {
        assert_eq!(told(Format::Lines, "running\ta\nok\ta\nrunning\tb\n"), pairs(&[("a", "ok"), ("b", "failed: did not end")]));
    }

    #[test]
    fn tap() {
        let text = "1..4\nok 1 - tcp_open\nnot ok 2 - tcp_close\nok 3 - tty # SKIP none\nok 4\n# a remark";
        assert_eq!(
            told(Format::Tap, text),
            pairs(&[("4", "ok"), ("tcp_close", "failed"), ("tcp_open", "ok"), ("tty", "skipped")])
        );
    }

    #[test]
    fn redis() {
        let text = "[\x1b[0;32;49mok\x1b[0m]: PING (0 ms)\n[err]: SET in tests/unit/x.tcl\nExpected 1\n[ok]: PING (3 ms)\n[skip]: slow: nothing\n";
        let wanted = pairs(&[("PING", "ok"), ("PING #2", "ok"), ("SET", "failed"), ("slow: nothing", "skipped")]);
        assert_eq!(told(Format::Redis, text), wanted);
        let text = "[ok]: PSYNC2: Set #41 to replicate from #0 (1 ms)\n[ok]: PSYNC2: cluster is consistent after load (x = 34632) (1 ms)\n";
        let wanted =
            pairs(&[("PSYNC2: Set # to replicate from #", "ok"), ("PSYNC2: cluster is consistent after load (x = )", "ok")]);
        assert_eq!(told(Format::Redis, text), wanted);
    }

    #[test]
    fn tcltest() {
        let text =
            "++++ socket-1.1 PASSED\n++++ socket-1.2 SKIPPED: win\n==== socket-1.3 does things FAILED\n==== socket-1.3 FAILED\n";
        assert_eq!(
            told(Format::Tcltest, text),
            pairs(&[("socket-1.1", "ok"), ("socket-1.2", "skipped"), ("socket-1.3", "failed")])
        );
    }

    #[test]
    fn curl() {
        let text = "test 0001...[HTTP GET]\n--pd---e-v- OK (1   out of 3, remaining: 00:02)\n\
                    test 0002...[HTTP]\n\n 2: data FAILED:\n--- a\ntest 0003 SKIPPED: no ipv6\n";
        assert_eq!(told(Format::Curl, text), pairs(&[("0001", "ok"), ("0002", "failed"), ("0003", "skipped")]));
    }

    #[test]
    fn tinytest() {
        let text = "http/base: [forking] OK\nmain/x: [forking] \n  [base FAILED]\nmain/y: SKIPPED\n";
        assert_eq!(told(Format::Tinytest, text), pairs(&[("http/base", "ok"), ("main/x", "failed"), ("main/y", "skipped")]));
    }

    #[test]
    fn ruby() {
        let text = "[ 1/4] TestSocket#test_a = 0.01 s\n[ 2/4] TestSocket#test_b = 0.00 s\n[ 3/4] TestSocket#test_c = 0.00 s\n\
                    [ 4/4] TestSocket#test_d\n\n  1) Failure:\nTestSocket#test_b [/x/test_socket.rb:73]:\n\n  2) Skipped:\n\
                    TestSocket#test_c [/x/test_socket.rb:9]:\n";
        let wanted = [("a", "ok"), ("b", "failed"), ("c", "skipped"), ("d", "failed: did not end")];
        let wanted: Vec<_> =
            wanted.iter().map(|(name, verdict)| (format!("TestSocket#test_{name}"), verdict.to_string())).collect();
        assert_eq!(told(Format::Ruby, text), wanted);
    }
}
