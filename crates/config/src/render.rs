//! The table as documentation: both writers are [`core::fmt::Display`], so they need no heap.
use core::fmt;

use crate::table::TABLE;

/// A Markdown table of every option, for the README and the manual.
pub struct Markdown;

impl fmt::Display for Markdown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("| flag | variable | default | range | meaning |\n|---|---|---|---|---|\n")?;
        for entry in &TABLE {
            // A bar would end the cell, even inside a code span.
            write!(f, "| `{} ", entry.flag)?;
            for part in entry.value_name.split_inclusive('|') {
                match part.strip_suffix('|') {
                    Some(word) => write!(f, "{word}\\|")?,
                    None => f.write_str(part)?,
                }
            }
            writeln!(f, "` | `{}` | {} | {} | {} |", entry.variable, entry.default, entry.range, entry.help)?;
        }
        Ok(())
    }
}

/// The OPTIONS entries of a man page, in the man(7) macros.
pub struct Roff;

impl fmt::Display for Roff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for entry in &TABLE {
            f.write_str(".TP\n")?;
            f.write_str("\\fB")?;
            roff_text(f, entry.flag)?;
            f.write_str("\\fR \\fI")?;
            roff_text(f, entry.value_name)?;
            f.write_str("\\fR, \\fB")?;
            roff_text(f, entry.variable)?;
            f.write_str("\\fR\n")?;
            roff_text(f, entry.help)?;
            f.write_str("\n.br\nDefault: ")?;
            roff_text(f, entry.default)?;
            f.write_str(". Allowed: ")?;
            roff_text(f, entry.range)?;
            if !entry.unit.is_empty() {
                write!(f, "; a bare number is in {}", entry.unit)?;
            }
            f.write_str(". Example: ")?;
            roff_text(f, entry.example)?;
            f.write_str(".\n")?;
        }
        Ok(())
    }
}

/// Dashes must be escaped to be searched and copied as dashes, and backslashes to be shown; backquotes mark bold.
fn roff_text(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut bold = false;
    for character in text.chars() {
        match character {
            '-' => f.write_str("\\-")?,
            '\\' => f.write_str("\\e")?,
            '`' => {
                bold = !bold;
                f.write_str(if bold { "\\fB" } else { "\\fR" })?;
            }
            _ => write!(f, "{character}")?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_option_is_in_both() {
        let (markdown, roff) = (Markdown.to_string(), Roff.to_string());
        for entry in &TABLE {
            assert!(markdown.contains(entry.variable) && roff.contains(entry.variable), "{}", entry.name);
        }
        assert_eq!(markdown.lines().count(), TABLE.len() + 2);
        assert_eq!(roff.matches(".TP\n").count(), TABLE.len());
    }

    #[test]
    fn markdown_rows_have_five_cells() {
        for line in Markdown.to_string().lines() {
            let bars = line.matches('|').count() - line.matches("\\|").count();
            assert_eq!(bars, 6, "{line}");
        }
    }

    #[test]
    fn no_roff_line_is_taken_for_a_request() {
        for line in Roff.to_string().lines().filter(|line| line.starts_with('.')) {
            assert!([".TP", ".br"].contains(&line), "{line}");
        }
    }
}
