//! What of the C preprocessor definitions use: conditions, constants, files that are included. rpcgen gives its files to cpp; here the
//! lines stay where they are, so that errors have the places of the file.
//!
//! Macros with parameters, and operators other than those of [`Condition`], are cpp's. `RPC_HDR` is defined, as for a header of rpcgen's.

use crate::parse::Error;
use std::collections::HashMap;

/// Files in files at most, and macros in macros.
const DEPTH: u32 = 16;

/// What is defined, and how included files are read.
pub(crate) struct Preprocessor<'a> {
    pub macros: HashMap<String, String>,
    /// Numbers that lines for the header define (`%#define NAME 1024`): there the names mean something where the file has no constant.
    pub passed: HashMap<String, i64>,
    pub read: &'a mut dyn FnMut(&str) -> Result<String, String>,
    pub depth: u32,
}

/// A condition that is open: whether its lines count, whether any of its branches has, whether those around it do.
struct Branch {
    counts: bool,
    chosen: bool,
    around: bool,
}

fn is_of_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || character == '_'
}

fn word(text: &str) -> (&str, &str) {
    let text = text.trim_start();
    text.split_at(text.find(|c| !is_of_word(c)).unwrap_or(text.len()))
}

impl Preprocessor<'_> {
    /// The text as the language has it: as many lines, without directives, comments and lines that rpcgen passes on.
    pub fn run(&mut self, text: &str) -> Result<String, Error> {
        let (mut made, mut branches, mut comment) = (String::new(), Vec::<Branch>::new(), false);
        let mut lines = text.lines().enumerate();
        while let Some((number, first)) = lines.next() {
            let counts = branches.last().is_none_or(|branch| branch.counts);
            let start = first.trim_start();
            let other = !comment && (start.starts_with('%') || start.starts_with('#'));
            if !other {
                let line = self.plain(first, &mut comment, counts);
                made.push_str(if counts { &line } else { "" });
                made.push('\n');
                continue;
            }
            let mut whole = start.to_string();
            let mut more = 1;
            while whole.ends_with('\\') {
                let Some((_, next)) = lines.next() else { break };
                whole.pop();
                whole.push_str(next);
                more += 1;
            }
            if let Some(passed) = whole.strip_prefix('%').filter(|_| counts) {
                self.pass(passed);
            }
            if let Some(directive) = whole.strip_prefix('#') {
                // Comments are none of it; one may go on.
                let directive = self.plain(directive, &mut comment, false);
                let said =
                    self.directive(&directive, &mut branches).map_err(|text| Error { line: number + 1, column: 1, text })?;
                made.push_str(&said);
            }
            (0..more).for_each(|_| made.push('\n'));
        }
        if branches.is_empty() {
            return Ok(made);
        }
        Err(Error { line: text.lines().count(), column: 1, text: "`#endif` is missing".into() })
    }

    fn pass(&mut self, line: &str) {
        let (directive, rest) = word(line.trim_start().strip_prefix('#').unwrap_or(""));
        let (name, value) = word(rest);
        let value = value.split("/*").next().unwrap_or("").trim();
        // Sums of numbers, and of names of such.
        let one = |part: &str| crate::parse::number(part.trim()).or_else(|| self.passed.get(part.trim()).copied());
        let sum = value.split('+').try_fold(0i64, |sum, part| sum.checked_add(one(part)?));
        if let (true, Some(number)) = (directive == "define" && !name.is_empty(), sum) {
            self.passed.insert(name.into(), number);
        }
    }

    /// A line with blanks for comments, and, if it counts, what stands for macros.
    fn plain(&self, line: &str, comment: &mut bool, counts: bool) -> String {
        let (mut made, mut rest) = (String::new(), line);
        while let Some(character) = rest.chars().next() {
            let taken = if *comment {
                let end = rest.find("*/").map(|end| end + 2);
                *comment = end.is_none();
                let end = end.unwrap_or(rest.len());
                made.extend(rest[..end].chars().map(|_| ' '));
                end
            } else if rest.starts_with("//") {
                break;
            } else if rest.starts_with("/*") {
                *comment = true;
                made.push_str("  ");
                2
            } else if character == '"' {
                let end = rest[1..].find('"').map_or(rest.len(), |end| end + 2);
                made.push_str(&rest[..end]);
                end
            } else if is_of_word(character) {
                let (name, _) = word(rest);
                match counts {
                    true => self.expand(name, 0, &mut made),
                    false => made.push_str(name),
                }
                name.len()
            } else {
                made.push(character);
                character.len_utf8()
            };
            rest = &rest[taken..];
        }
        made
    }

    fn expand(&self, name: &str, depth: u32, made: &mut String) {
        let Some(value) = self.macros.get(name).filter(|_| depth < DEPTH) else { return made.push_str(name) };
        let mut rest = value.as_str();
        while let Some(character) = rest.chars().next() {
            let (name, behind) = rest.split_at(rest.find(|c| !is_of_word(c)).unwrap_or(rest.len()));
            if name.is_empty() {
                made.push(character);
                rest = &rest[character.len_utf8()..];
            } else {
                self.expand(name, depth + 1, made);
                rest = behind;
            }
        }
    }

    /// Heeds a directive; gives what an included file has, in one line.
    fn directive(&mut self, text: &str, branches: &mut Vec<Branch>) -> Result<String, String> {
        let (name, rest) = word(text);
        let counts = branches.last().is_none_or(|branch| branch.counts);
        let mut open = |truth: bool| branches.push(Branch { counts: counts && truth, chosen: truth, around: counts });
        match name {
            "ifdef" => open(self.macros.contains_key(word(rest).0)),
            "ifndef" => open(!self.macros.contains_key(word(rest).0)),
            "if" => {
                let truth = counts && self.holds(rest)?;
                open(truth);
            }
            "elif" => {
                let truth = self.holds(rest)?;
                let branch = branches.last_mut().ok_or("`#elif` without `#if`")?;
                branch.counts = branch.around && !branch.chosen && truth;
                branch.chosen |= truth;
            }
            "else" => {
                let branch = branches.last_mut().ok_or("`#else` without `#if`")?;
                branch.counts = branch.around && !branch.chosen;
                branch.chosen = true;
            }
            "endif" => {
                branches.pop().ok_or("`#endif` without `#if`")?;
            }
            _ if !counts => {}
            "define" => {
                let (name, value) = word(rest);
                if name.is_empty() || value.starts_with('(') {
                    return Err("a macro with parameters: give the file to cpp first".into());
                }
                self.macros.insert(name.into(), value.trim().into());
            }
            "undef" => drop(self.macros.remove(word(rest).0)),
            "include" => {
                let path = rest.trim().strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
                let Some(path) = path else { return Err("a file of the language is included by `#include \"FILE.x\"`".into()) };
                if self.depth == DEPTH {
                    return Err(format!("{path}: so many files in files are a circle"));
                }
                let text = (self.read)(path).map_err(|why| format!("{path}: {why}"))?;
                self.depth += 1;
                let made = self.run(&text).map_err(|error| format!("{path}:{error}"));
                self.depth -= 1;
                return Ok(made?.replace('\n', " "));
            }
            "error" => return Err(rest.trim().into()),
            "pragma" | "ident" | "line" | "warning" | "" => {}
            // A marker of cpp's.
            number if number.starts_with(|c: char| c.is_ascii_digit()) => {}
            other => return Err(format!("`#{other}` is no directive that is known here: give the file to cpp first")),
        }
        Ok(String::new())
    }

    fn holds(&self, text: &str) -> Result<bool, String> {
        let mut condition = Condition { rest: text, macros: &self.macros, depth: 0 };
        let value = condition.either()?;
        match condition.rest.trim() {
            "" => Ok(value != 0),
            rest => Err(format!("`{rest}` of a condition is not known here: give the file to cpp first")),
        }
    }
}

/// `defined`, numbers, names, `!`, `==`, `!=`, `&&`, `||` and parentheses.
struct Condition<'a> {
    rest: &'a str,
    macros: &'a HashMap<String, String>,
    depth: u32,
}

impl Condition<'_> {
    fn is(&mut self, mark: &str) -> bool {
        let rest = self.rest.trim_start().strip_prefix(mark);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn either(&mut self) -> Result<i64, String> {
        let mut value = self.both()?;
        while self.is("||") {
            value = i64::from((self.both()? != 0) | (value != 0));
        }
        Ok(value)
    }

    fn both(&mut self) -> Result<i64, String> {
        let mut value = self.equal()?;
        while self.is("&&") {
            value = i64::from((self.equal()? != 0) & (value != 0));
        }
        Ok(value)
    }

    fn equal(&mut self) -> Result<i64, String> {
        let value = self.one()?;
        Ok(match () {
            () if self.is("==") => i64::from(value == self.one()?),
            () if self.is("!=") => i64::from(value != self.one()?),
            () => value,
        })
    }

    fn one(&mut self) -> Result<i64, String> {
        self.depth += 1;
        if self.depth > 200 {
            return Err("a condition in so many conditions".into());
        }
        if self.is("!") {
            return Ok(i64::from(self.one()? == 0));
        }
        if self.is("(") {
            let value = self.either()?;
            return if self.is(")") { Ok(value) } else { Err("`)` is missing in a condition".into()) };
        }
        let (name, rest) = word(self.rest);
        self.rest = rest;
        if name == "defined" {
            let inside = self.is("(");
            let (name, rest) = word(self.rest);
            self.rest = rest;
            if inside && !self.is(")") {
                return Err("`)` is missing behind `defined`".into());
            }
            return Ok(i64::from(self.macros.contains_key(name)));
        }
        if let Some(number) = crate::parse::number(name) {
            return Ok(number);
        }
        if name.is_empty() {
            return Err("a condition is missing".into());
        }
        // A name that stands for nothing is 0, as in C.
        let value = self.macros.get(name).map_or("0", |value| if value.is_empty() { "0" } else { value });
        crate::parse::number(value.trim()).ok_or_else(|| format!("`{name}` is no number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(text: &str) -> Result<String, Error> {
        let mut read = |path: &str| match path {
            "other.x" => Ok("%skipped\nconst OTHER = N; /* of two\nlines */ // and one\n".to_string()),
            "circle.x" => Ok("#include \"circle.x\"".to_string()),
            _ => Err("it is not there".to_string()),
        };
        Preprocessor {
            macros: HashMap::from([("RPC_HDR".into(), "1".into())]),
            passed: HashMap::new(),
            read: &mut read,
            depth: 0,
        }
        .run(text)
    }

    fn plain(text: &str) -> String {
        run(text).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn conditions_choose_lines_and_lines_stay_where_they_are() {
        assert_eq!(plain("#ifdef RPC_HDR\na\n#else\nb\n#endif\n#ifndef RPC_HDR\nc\n#endif\n"), "a");
        assert_eq!(plain("#if 0\na\n#elif RPC_HDR\nb\n#elif 1\nc\n#else\nd\n#endif"), "b");
        assert_eq!(plain("#if 0\n#if 1\na\n#else\nb\n#endif\n#else\nc\n#endif /* of it */"), "c");
        let conditions = ["defined(RPC_HDR) && !defined X", "RPC_HDR == 1", "(X || RPC_HDR) != 0", "!(X && 1)", "0x10 == 16"];
        for condition in conditions {
            assert_eq!(plain(&format!("#if {condition}\nyes\n#endif")), "yes", "{condition}");
            assert_eq!(plain(&format!("#if !({condition})\nyes\n#endif")), "", "{condition}");
        }
        assert_eq!(run("a\n#if 1\nb\n#endif\nc").unwrap(), "a\n\nb\n\nc\n");
        assert_eq!(run("%a \\\n b\nc").unwrap(), "\n\nc\n");
    }

    #[test]
    fn names_stand_for_what_they_were_given() {
        assert_eq!(plain("#define N 1024\n#define M N\nstring s<M>; Mx N1 \"N\" /* N */"), "string s<1024>; Mx N1 \"N\"");
        assert_eq!(plain("#define A B\n#define B A\nx").len(), 1);
        assert_eq!(plain("#define N 2\n#include \"other.x\"\nrest"), "const OTHER = 2; rest");
        assert_eq!(plain("#define N 2\n#undef N\nN"), "N");
        assert_eq!(plain("/*\n#if\n% no\n*/ a // #if"), "a");
    }

    #[test]
    fn numbers_of_the_header_are_kept() {
        let mut read = |_: &str| Err(String::new());
        let mut all = Preprocessor { macros: HashMap::new(), passed: HashMap::new(), read: &mut read, depth: 0 };
        all.run(
            "%#define A 1024 /* bytes */\n%# define B 0x10\n%#define C A+1\n%#define D(x) 1\n#if 0\n%#define E 1\n#endif\n% F",
        )
        .unwrap();
        assert_eq!(all.passed, HashMap::from([("A".into(), 1024), ("B".into(), 16), ("C".into(), 1025)]));
    }

    #[test]
    fn errors_have_lines() {
        let wrong = |text: &str| run(text).unwrap_err().to_string();
        assert_eq!(wrong("\n#include \"none.x\""), "2:1: none.x: it is not there");
        assert!(wrong("#include \"circle.x\"").contains("a circle"));
        assert_eq!(wrong("#if 1\n"), "1:1: `#endif` is missing");
        assert_eq!(wrong("#endif"), "1:1: `#endif` without `#if`");
        assert_eq!(wrong("#define F(x) x"), "1:1: a macro with parameters: give the file to cpp first");
        assert!(wrong("#if 1 + 1\n#endif").contains("cpp first") && wrong("#if\n#endif").contains("missing"));
        assert!(wrong(&format!("#if {}\n#endif", "(".repeat(100_000))).contains("so many"));
    }

    proptest::proptest! {
        /// Any text is a text or has an error in it, and no line is lost.
        #[test]
        fn any_text_is_judged(words in proptest::collection::vec(proptest::sample::select(&[
            "#", "if", "ifdef", "else", "elif", "endif", "define", "include", "\"other.x\"", "A", "(", ")", "!", "&&", "||", "defined", "1",
            "\n", "\n", "\n#if", "\n#endif", "%", "\\", "/*", "*/", "//", "\"", "é",
        ][..]), 0..60)) {
            let text = words.join(" ");
            if let Ok(made) = run(&text) {
                proptest::prop_assert_eq!(made.lines().count(), text.lines().count());
            }
        }
    }
}
