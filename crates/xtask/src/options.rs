//! `docs/reference/OPTIONS.md`: the table of options.

use shunt_config::Markdown;

const HEAD: &str = "\
# Options

Generated from the table in `crates/config/src/table.rs` by `cargo run -p shunt-xtask`; do not edit.

Each option is a flag of `shunt run` and an environment variable; the flag is stronger. An invalid value ends `shunt run`
with status 2 and a sentence that names the place, the mistake and an example. A child inherits its parent's variables,
and so its options.

";

/// The document.
pub fn render() -> String {
    format!("{HEAD}{Markdown}")
}
