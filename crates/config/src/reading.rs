//! Options from flags and variables.

use crate::error::{OptionError, Source};
use crate::options::Options;
use crate::table::{Entry, Reader, TABLE};

impl Options {
    /// The defaults, changed by the variables that `lookup` finds. An empty variable counts as unset, as in shells.
    ///
    /// # Errors
    /// The first variable, in the order of [`TABLE`], whose value cannot be used.
    pub fn from_environment<'a>(lookup: impl Fn(&str) -> Option<&'a [u8]>) -> Result<Options, OptionError<'a>> {
        let seed = lookup("SHUNT_INET_SEED").and_then(|seed| crate::values::decimal(seed).ok());
        let mut options = Options { inet_seed: seed.unwrap_or(0) as u32, ..Options::default_const() };
        for entry in TABLE.iter().filter(|entry| entry.reader == Reader::Library) {
            if let Some(value) = lookup(entry.variable).filter(|value| !value.is_empty()) {
                options.set(entry, Source::Variable, value)?;
            }
        }
        Ok(options)
    }

    /// Checks `value` and stores it in the field that belongs to `entry`. On an error nothing is changed.
    ///
    /// # Errors
    /// What is wrong with `value`, which was found in `source`.
    pub fn set<'a>(&mut self, entry: &'static Entry, source: Source, value: &'a [u8]) -> Result<(), OptionError<'a>> {
        (entry.set)(self, value).map_err(|problem| OptionError { entry, source, value, problem })
    }
}

#[cfg(test)]
mod tests;
