//! What the documents promise of themselves: rows of docs/SEMANTICS.md name tests that exist, paragraphs and pages have bounds, the
//! subject of a sentence, in comments of the sources too, is a thing of the design, and links lead somewhere.

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::fs;
    use std::path::{Path, PathBuf};

    /// Rows of docs/SEMANTICS.md that name no test: at most so many.
    const WITHOUT_TEST: usize = 81;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
    }

    fn read(path: &str) -> String {
        fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// All files below `directory` that end in `extension`.
    fn files(directory: PathBuf, extension: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![directory];
        while let Some(path) = open.pop() {
            if path.is_dir() {
                open.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
            } else if path.extension().is_some_and(|e| e == extension) {
                found.push(path);
            }
        }
        found
    }

    /// The texts of all files below `directory` that end in `extension`.
    fn sources(directory: &str, extension: &str) -> Vec<String> {
        files(root().join(directory), extension).into_iter().map(|path| fs::read_to_string(path).unwrap()).collect()
    }

    fn word(text: &str) -> &str {
        text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or("")
    }

    /// Scenarios of the laboratory, by their declarations: a macro in capitals whose first argument is the name.
    fn scenarios() -> HashSet<String> {
        let mut names = HashSet::new();
        for text in sources("crates/differential/scenarios", "c") {
            for line in text.lines() {
                let Some((declaration, rest)) = line.split_once('(') else { continue };
                if !declaration.is_empty() && declaration.chars().all(|c| c.is_ascii_uppercase() || c == '_') {
                    names.insert(word(rest).to_owned());
                }
            }
        }
        names
    }

    /// Tests beside the code and of the test kit: functions behind `#[test]`, and those that a table runs on a host or on two.
    fn tests() -> HashSet<String> {
        let mut names = HashSet::new();
        for text in sources("crates", "rs") {
            let mut marked = false;
            for line in text.lines() {
                if let Some(rest) = line.trim_start().strip_prefix("fn ") {
                    if marked || ["site: Site)", "host: &Host)"].iter().any(|arguments| rest.contains(arguments)) {
                        names.insert(word(rest).to_owned());
                    }
                }
                marked = line.trim() == "#[test]";
            }
        }
        names
    }

    #[test]
    fn each_row_of_the_semantics_is_short_and_names_tests_that_exist() {
        let (scenarios, tests) = (scenarios(), tests());
        assert!(scenarios.len() > 1000 && tests.len() > 30, "{} scenarios, {} tests", scenarios.len(), tests.len());
        let text = read("docs/SEMANTICS.md");
        let (mut faults, mut rows, mut without, mut inside) = (Vec::new(), 0, 0, false);
        for line in text.lines() {
            if !line.starts_with('|') || line == "|---|---|---|---|" {
                inside &= line.starts_with('|');
                continue;
            }
            if line == "| call | what differs | program, and why | test |" {
                inside = true;
                continue;
            }
            if !inside {
                continue;
            }
            rows += 1;
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let words = line.replace('|', " ").split_whitespace().count();
            if cells.len() != 4 || words > 60 {
                faults.push(format!("{} cells, {words} words: {}", cells.len(), cells[0]));
                continue;
            }
            if cells[3] == "-" {
                without += 1;
                continue;
            }
            let missing = cells[3].split(", ").filter(|name| !scenarios.contains(*name) && !tests.contains(*name));
            faults.extend(missing.map(|name| format!("no such test: {name}")));
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
        assert!(rows > 200, "only {rows} rows");
        assert!(without <= WITHOUT_TEST, "{without} rows name no test, {WITHOUT_TEST} may");
    }

    /// The documents that are written by hand.
    fn documents() -> Vec<PathBuf> {
        let mut found = vec![root().join("preload/README.md"), root().join("docs/reference/README.md")];
        for directory in ["", "docs", "docs/decisions"] {
            let entries = fs::read_dir(root().join(directory)).unwrap().map(|entry| entry.unwrap().path());
            found.extend(entries.filter(|path| path.extension().is_some_and(|e| e == "md")));
        }
        let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path().join("README.md"));
        found.extend(crates.filter(|path| path.exists()));
        found
    }

    /// Paragraphs and items of lists; no tables, headings and code.
    fn paragraphs(text: &str) -> Vec<String> {
        let (mut all, mut now, mut code) = (Vec::new(), String::new(), false);
        for line in text.lines().chain([""]) {
            let line = line.trim();
            let fence = line.starts_with("```");
            code ^= fence;
            let item = line
                .strip_prefix("- ")
                .or_else(|| line.split_once(". ").filter(|(n, _)| n.parse::<u8>().is_ok()).map(|(_, rest)| rest));
            let ends = fence || code || line.is_empty() || item.is_some() || line.starts_with(['|', '#', '<']);
            if ends && !now.is_empty() {
                all.push(std::mem::take(&mut now));
            }
            if !(fence || code || line.is_empty() || line.starts_with(['|', '#', '<'])) {
                now.push_str(item.unwrap_or(line));
                now.push(' ');
            }
        }
        all
    }

    #[test]
    fn no_paragraph_is_longer_than_120_words() {
        let mut long = Vec::new();
        for document in documents() {
            for paragraph in paragraphs(&fs::read_to_string(&document).unwrap()) {
                let words = paragraph.split_whitespace().count();
                if words > 120 {
                    let start: String = paragraph.chars().take(60).collect();
                    long.push(format!("{}: {words} words: {start}", document.strip_prefix(root()).unwrap().display()));
                }
            }
        }
        assert!(long.is_empty(), "{}", long.join("\n"));
    }

    /// Words that stand for a thing of the design without naming it.
    const NAMELESS: [&str; 7] = ["he", "she", "somebody", "someone", "whoever", "his", "him"];

    /// The places of `paragraph` at which the subject, or another noun, has no name.
    fn nameless(paragraph: &str) -> Vec<String> {
        // What stands in code type is a name.
        let plain: String = paragraph.split('`').step_by(2).collect::<Vec<_>>().join("code");
        let words: Vec<&str> = plain.split_whitespace().collect();
        let is_nameless = |at: &usize| {
            let bare = words[*at].trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
            let begins = *at == 0 || words[at - 1].ends_with(['.', ':', ';', '?']);
            NAMELESS.contains(&bare.as_str()) || (begins && bare == "who")
        };
        let near = |at: usize| words[at.saturating_sub(4)..words.len().min(at + 7)].join(" ");
        (0..words.len()).filter(is_nameless).map(near).collect()
    }

    #[test]
    fn the_subject_of_a_sentence_is_a_thing_of_the_design() {
        let mut found = Vec::new();
        for document in documents() {
            for paragraph in paragraphs(&fs::read_to_string(&document).unwrap()) {
                let name = document.strip_prefix(root()).unwrap().display();
                found.extend(nameless(&paragraph).into_iter().map(|near| format!("{name}: {near}")));
            }
        }
        assert!(found.is_empty(), "{} sentences:\n{}", found.len(), found.join("\n"));
    }

    /// The comments of a source, line by line; a line without one is empty.
    fn comments(source: &str) -> String {
        let comment = |line: &str| {
            let text = line.trim_start();
            let whole = ["///", "//!", "//"].into_iter().find_map(|mark| text.strip_prefix(mark));
            whole.or_else(|| text.split_once(" // ").map(|(_, behind)| behind)).unwrap_or("").to_owned()
        };
        source.lines().map(comment).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_subject_of_a_comment_is_a_thing_of_the_design() {
        let crates = fs::read_dir(root().join("crates")).unwrap().map(|entry| entry.unwrap().path());
        let directories = crates.flat_map(|path| [path.join("src"), path.join("examples")]).chain([root().join("preload/src")]);
        let (mut found, mut seen) = (Vec::new(), 0);
        for path in directories.filter(|path| path.exists()).flat_map(|path| files(path, "rs")) {
            let name = path.strip_prefix(root()).unwrap().display().to_string();
            for paragraph in paragraphs(&comments(&fs::read_to_string(&path).unwrap())) {
                found.extend(nameless(&paragraph).into_iter().map(|near| format!("{name}: {near}")));
                seen += 1;
            }
        }
        assert!(seen > 10_000, "only {seen} comments");
        assert!(found.is_empty(), "{} comments:\n{}", found.len(), found.join("\n"));
    }

    #[test]
    fn comments_are_taken_out_of_their_source() {
        // Its marks are put in here, so that it is no comment of this file.
        let source = "MM! One.\nlet a = 1; MM who waits\n\n    MM/ He\n    MM/ `who` waits.\n".replace("MM", "//");
        assert_eq!(comments(&source), " One.\nwho waits\n\n He\n `who` waits.");
        let found: Vec<String> = paragraphs(&comments(&source)).iter().flat_map(|paragraph| nameless(paragraph)).collect();
        assert_eq!(found, ["One. who waits", "He code waits."]);
    }

    #[test]
    fn pages_have_bounds() {
        let words = |path| read(path).split_whitespace().count();
        assert!(read("README.md").lines().count() <= 150, "README.md");
        assert!(words("docs/ARCHITECTURE.md") <= 10_000, "docs/ARCHITECTURE.md");
        let rows = read("docs/GLOSSARY.md").lines().filter(|line| line.starts_with('|')).count();
        assert!(rows <= 30 + 2, "docs/GLOSSARY.md has {rows} rows with its head");
    }

    /// All documents of the repository, those that a command writes among them.
    fn all_documents() -> Vec<PathBuf> {
        let (mut found, mut open) = (Vec::new(), vec![root()]);
        while let Some(directory) = open.pop() {
            for path in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
                let name = path.file_name().unwrap().to_string_lossy();
                if path.is_symlink() || ["target", ".git"].contains(&&*name) {
                    continue;
                }
                if path.is_dir() {
                    open.push(path);
                } else if name.ends_with(".md") && !name.starts_with("preface") {
                    found.push(path); // a preface's links are those of the page that it begins
                }
            }
        }
        found.sort();
        found
    }

    /// The anchor that a heading gets: lower case, words joined by hyphens, punctuation left out.
    fn anchor(heading: &str) -> String {
        let kept = heading.trim().to_lowercase().replace('`', "");
        kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
    }

    /// Whether `target`, as a link of `document` has it, is no file or no heading.
    fn leads_nowhere(document: &Path, target: &str) -> bool {
        let (file, part) = target.split_once('#').map_or((target, None), |(file, part)| (file, Some(part)));
        let path = if file.is_empty() { document.to_owned() } else { document.parent().unwrap().join(file) };
        match part {
            _ if !path.exists() => true,
            Some(part) if path.extension().is_some_and(|e| e == "md") => {
                let of = fs::read_to_string(&path).unwrap();
                !of.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line.trim_start_matches('#')) == part)
            }
            _ => false,
        }
    }

    #[test]
    fn every_link_between_documents_leads_somewhere() {
        let (mut links, mut broken) = (0, Vec::new());
        for document in all_documents() {
            let text = fs::read_to_string(&document).unwrap();
            for (at, _) in text.match_indices("](") {
                let target = text[at + 2..].split([')', ' ']).next().unwrap_or("");
                if target.contains("://") || target.is_empty() || target.starts_with("mailto:") {
                    continue;
                }
                links += 1;
                if leads_nowhere(&document, target) {
                    broken.push(format!("{}: {target}", document.strip_prefix(root()).unwrap().display()));
                }
            }
        }
        assert!(links > 100, "only {links} links");
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }
}
