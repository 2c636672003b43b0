//! libtirpc's client and server, as they are, on the kernel and under shunt: one round of all their calls.

use std::io;
use std::path::{Path, PathBuf};

use super::model::{Question, Series, Value, SECTIONS};
use crate::cells::{RUN_LIMIT, START_LIMIT};
use crate::contenders::{Carrier, Contender};
use crate::instrument::Instrument;
use crate::process::Launch;

const SOURCE: &str = include_str!("../../programs/vrpc.c");

/// What is under both programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    Kernel,
    Stream,
    Collapsed,
}

impl Under {
    pub const ALL: [Under; 3] = [Under::Kernel, Under::Stream, Under::Collapsed];

    pub fn word(self) -> &'static str {
        self.series().title()
    }

    fn series(self) -> Series {
        match self {
            Under::Kernel => Series::Kernel,
            Under::Stream => Series::Stream,
            Under::Collapsed => Series::Collapsed,
        }
    }

    /// What stands before the programs; `None` where that needs shunt and there is none.
    pub fn contender(self, shunt: Option<&Contender>) -> Option<Contender> {
        let collapsed = match self {
            Under::Kernel => return Some(Contender { carrier: Carrier::Kernel, prefix: vec![] }),
            Under::Stream => "off",
            Under::Collapsed => "on",
        };
        let mut contender = shunt?.clone();
        let end = contender.prefix.iter().position(|word| word == "--").unwrap_or(contender.prefix.len());
        contender.prefix.splice(end..end, ["--rpc", collapsed].map(Into::into));
        Some(contender)
    }

    /// Calls of each kind in a turn: the kernel's take 50 times as long.
    fn count(self) -> usize {
        match self {
            Under::Kernel => 150,
            _ => 1000,
        }
    }
}

/// The program.
///
/// # Errors
/// A sentence.
pub fn compiled(scratch: &Path) -> Result<PathBuf, String> {
    crate::sunrpc::compiled(scratch, "vrpc", SOURCE)
}

/// One round of a contender.
///
/// # Errors
/// A program fails, or says what is not understood.
pub fn round(instrument: &mut Instrument, program: &Path, contender: &Contender, under: Under) -> io::Result<Vec<Value>> {
    let port = instrument.ports.take()?.to_string();
    instrument.ports.take()?; // the bytes alone
    let (server_core, client_core) = (instrument.machine.server_core, instrument.machine.client_core);
    let launch = |role: &str, core: usize| {
        Launch::through(contender, program).args([role, &port, &core.to_string(), &format!("stamps.{port}")].map(String::from))
    };
    let mut server = launch("server", server_core).start(&instrument.scratch)?;
    server.wait_for_output("ready", START_LIMIT)?;
    let client = launch("client", client_core).args([under.count().to_string()]);
    let output = client.start(&instrument.scratch)?.finish(RUN_LIMIT)?.output;
    server.finish(RUN_LIMIT)?;
    values(&output, under.series())
        .ok_or_else(|| io::Error::other(format!("{}: its client's words are not understood: {output:?}", under.word())))
}

/// What a client said.
fn values(output: &str, series: Series) -> Option<Vec<Value>> {
    let mut values = vec![];
    for line in output.lines() {
        let mut words = line.split_ascii_whitespace();
        let what = words.next()?;
        let length = words.next()?.parse().ok()?;
        let numbers: Vec<f64> = words.map(|word| word.parse().ok()).collect::<Option<_>>()?;
        match (what, &numbers[..]) {
            ("echo", [call, bytes]) => {
                values.extend([(series, Question::Echo, length, *call), (series, Question::EchoBytes, length, *bytes)]);
            }
            ("text", [call, bytes]) => {
                values.extend([(series, Question::Text, length, *call), (series, Question::TextBytes, length, *bytes)]);
            }
            ("parts", [sections @ .., whole]) if sections.len() == SECTIONS.len() => {
                let each = sections.iter().enumerate();
                values.extend(each.map(|(part, time)| (series, Question::Section(part), length, *time)));
                values.push((series, Question::Sections, length, *whole));
            }
            _ => return None,
        }
    }
    (!values.is_empty()).then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_is_understood_or_refused() {
        let said = "echo 8 41.5 20.1\ntext 0 40.0 20.0\nparts 8 1 2 3 4 5 6 7 8 9 45\n";
        let found = values(said, Series::Stream).unwrap();
        assert_eq!(found.len(), 4 + SECTIONS.len() + 1);
        assert_eq!(found[0], (Series::Stream, Question::Echo, 8, 41.5));
        assert!(found.contains(&(Series::Stream, Question::Section(8), 8, 9.0)));
        assert!(found.contains(&(Series::Stream, Question::Sections, 8, 45.0)));
        for wrong in ["", "echo 8 41.5\n", "parts 8 1 2 45\n", "a call: RPC: Timed out\n"] {
            assert_eq!(values(wrong, Series::Stream), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_under_the_programs_is_asked_for_by_name() {
        let shunt = Contender { carrier: Carrier::Shunt, prefix: ["/usr/bin/shunt", "run", "--"].map(Into::into).into() };
        let words = |under: Under| under.contender(Some(&shunt)).map(|contender| contender.prefix);
        assert_eq!(words(Under::Kernel), Some(vec![]));
        assert_eq!(words(Under::Stream).unwrap()[2..4], ["--rpc", "off"]);
        assert_eq!(words(Under::Collapsed).unwrap()[2..], ["--rpc", "on", "--"]);
        assert!(Under::Collapsed.contender(None).is_none());
    }
}
