//! The manual page: prose from `manual.1`, options from the table.
use shunt_config::{Markdown, Roff};

use crate::failure::Failure;
use crate::output;

/// The page in the man(7) macros, with `@VERSION@` and `@OPTIONS@` where the rest goes.
const PAGE: &str = include_str!("manual.1");

/// The complete page.
pub fn page() -> String {
    PAGE.replace("@VERSION@", env!("CARGO_PKG_VERSION")).replace("@OPTIONS@\n", &Roff.to_string())
}

/// Prints the page, or with `options` the table of options in Markdown.
pub fn print(options: bool) -> Result<u8, Failure> {
    output::print(&if options { Markdown.to_string() } else { page() })?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_in_docs_is_the_page_of_this_build() {
        let kept = include_str!("../../../docs/man/shunt.1");
        assert!(kept == super::page(), "docs/man/shunt.1 is stale; run: shunt man > docs/man/shunt.1");
    }
}
