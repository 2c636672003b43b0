//! Stops of docs/TOUR.md and links of all documents lead somewhere.

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::{Path, PathBuf};

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
    }

    /// What stands between backquotes.
    fn quoted(text: &str) -> impl Iterator<Item = &str> {
        text.split('`').skip(1).step_by(2)
    }

    #[test]
    fn each_stop_of_the_tour_is_a_function_of_that_file() {
        let text = fs::read_to_string(root().join("docs/TOUR.md")).unwrap();
        let mut stops = 0;
        for stop in quoted(&text).filter(|word| word.contains(".rs")) {
            let (file, function) = stop.split_once("::").map_or((stop, None), |(file, function)| (file, Some(function)));
            let code = fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{stop}: {error}"));
            if let Some(function) = function {
                let named = [format!("fn {function}("), format!("fn {function}<")];
                assert!(named.iter().any(|name| code.contains(name)), "{stop}: no such function");
                stops += 1;
            }
        }
        assert!(stops > 40, "only {stops} stops");
    }

    /// The documents that a reader may open: those of the root and of docs/, and the crates' own.
    fn documents() -> Vec<PathBuf> {
        let mut found = Vec::new();
        for directory in ["", "docs", "docs/decisions", "docs/tried"] {
            let Ok(entries) = fs::read_dir(root().join(directory)) else { continue };
            found.extend(
                entries
                    .filter_map(Result::ok)
                    .map(|entry| entry.path())
                    .filter(|path| path.extension().is_some_and(|e| e == "md")),
            );
        }
        found.push(root().join("preload/README.md"));
        let crates = fs::read_dir(root().join("crates")).unwrap().filter_map(Result::ok);
        found.extend(crates.map(|entry| entry.path().join("README.md")).filter(|path| path.exists()));
        found
    }

    /// The anchor that a heading gets: lower case, words joined by hyphens, punctuation left out.
    fn anchor(heading: &str) -> String {
        let kept = heading.trim().to_lowercase().replace('`', "");
        kept.chars().filter(|c| c.is_alphanumeric() || " -_".contains(*c)).map(|c| if c == ' ' { '-' } else { c }).collect()
    }

    #[test]
    fn links_between_documents_lead_somewhere() {
        let mut broken = Vec::new();
        for document in documents() {
            let text = fs::read_to_string(&document).unwrap();
            for (at, _) in text.match_indices("](") {
                let target = text[at + 2..].split([')', ' ']).next().unwrap_or("");
                if target.contains("://") || target.is_empty() || target.starts_with("mailto:") {
                    continue;
                }
                let (file, part) = target.split_once('#').map_or((target, None), |(file, part)| (file, Some(part)));
                let path = if file.is_empty() { document.clone() } else { document.parent().unwrap().join(file) };
                let there = match part {
                    _ if !path.exists() => false,
                    Some(part) if path.extension().is_some_and(|e| e == "md") => {
                        let of = fs::read_to_string(&path).unwrap();
                        of.lines().filter(|line| line.starts_with('#')).any(|line| anchor(line.trim_start_matches('#')) == part)
                    }
                    _ => true,
                };
                if !there {
                    broken.push(format!("{}: {target}", document.strip_prefix(root()).unwrap().display()));
                }
            }
        }
        assert!(broken.is_empty(), "{}", broken.join("\n"));
    }
}
