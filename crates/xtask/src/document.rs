//! A file of the repository, whole or between two marks, that the code writes.

use std::path::PathBuf;

/// A document and what it should hold.
pub struct Document {
    /// Path below the repository's root.
    pub path: &'static str,
    /// The name in the marks around the generated part; `None`: the whole file is generated.
    part: Option<&'static str>,
    text: String,
}

impl Document {
    /// A file that is generated from its first to its last byte.
    pub fn whole(path: &'static str, text: String) -> Document {
        Document { path, part: None, text }
    }

    /// The part of a hand-written file between `<!-- NAME -->` and `<!-- end of NAME -->`.
    pub fn part(path: &'static str, name: &'static str, text: String) -> Document {
        Document { path, part: Some(name), text }
    }

    /// Whether the file holds what it should.
    ///
    /// # Errors
    /// A sentence, if the marks are missing or the file cannot be read; a generated file that is missing is stale.
    pub fn is_fresh(&self) -> Result<bool, String> {
        let found = match std::fs::read_to_string(self.file()) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && self.part.is_none() => return Ok(false),
            found => found.map_err(|error| error.to_string())?,
        };
        Ok(self.wanted(&found)? == found)
    }

    /// Writes what it should hold.
    ///
    /// # Errors
    /// A sentence, as for [`Document::is_fresh`].
    pub fn write(&self) -> Result<(), String> {
        let found = std::fs::read_to_string(self.file()).unwrap_or_default();
        std::fs::write(self.file(), self.wanted(&found)?).map_err(|error| error.to_string())
    }

    fn file(&self) -> PathBuf {
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).join(self.path)
    }

    fn wanted(&self, found: &str) -> Result<String, String> {
        let Some(name) = self.part else { return Ok(self.text.clone()) };
        let (first, last) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
        let missing = |mark: &str| format!("the mark {} is missing", mark.trim_end());
        let (before, rest) = found.split_once(&first).ok_or_else(|| missing(&first))?;
        let (_, after) = rest.split_once(&last).ok_or_else(|| missing(&last))?;
        Ok(format!("{before}{first}{}{last}{after}", self.text))
    }
}

#[cfg(test)]
mod tests {
    use super::Document;

    #[test]
    fn a_part_leaves_the_rest_as_it_is() {
        let document = Document::part("no/such", "x", "new\n".into());
        let found = "head\n<!-- x -->\nold\n<!-- end of x -->\ntail\n";
        assert_eq!(document.wanted(found).unwrap(), "head\n<!-- x -->\nnew\n<!-- end of x -->\ntail\n");
    }

    #[test]
    fn a_missing_mark_is_named() {
        let document = Document::part("no/such", "x", String::new());
        assert!(document.wanted("<!-- x -->\n").unwrap_err().contains("<!-- end of x -->"));
        assert!(document.wanted("").unwrap_err().contains("<!-- x -->"));
        assert!(document.is_fresh().is_err());
    }

    #[test]
    fn a_generated_file_that_is_missing_is_stale() {
        assert_eq!(Document::whole("no/such", String::new()).is_fresh(), Ok(false));
    }
}
