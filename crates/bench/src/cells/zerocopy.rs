//! Messages that are written before and read after, by plain send, by MSG_ZEROCOPY from a pool and from a file of memory that the peer was shown, and by plain
//! send that lends its bytes; the same, where they are in no cache when they are sent.

use std::io;
use std::time::Duration;

use super::pair::{Pair, Sides};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Figure, Unit};
use crate::programs::Measuring;

const SIZES: [usize; 4] = [32 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Of those that are in no cache; longer ones take too long to be taken out.
const COLD: [usize; 3] = [32 << 10, 64 << 10, 256 << 10];
/// How much longer these are measured: a round takes as much longer.
const COLD_TIMES: u64 = 6;

/// One connection, blocking calls, an answer of a byte to each message.
#[derive(Debug)]
pub struct ZeroCopy;

impl Cell for ZeroCopy {
    fn name(&self) -> &'static str {
        "zerocopy"
    }

    fn about(&self) -> &'static str {
        "messages of 32 KiB to 1 MiB, written before and read after: plain send, from a pool too, MSG_ZEROCOPY by reference, and plain send that lends"
    }

    fn carriers(&self) -> &'static [Carrier] {
        &[Carrier::Kernel, Carrier::Shunt]
    }

    fn repeats(&self, settings: &Settings) -> usize {
        settings.repeats.min(7)
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let milliseconds = instrument.settings.milliseconds.max(40);
        let mut turn = Turn::default();
        let cold = COLD.map(|size| (size, true)).into_iter().filter(|_| contender.carrier == Carrier::Shunt);
        for (size, is_cold) in SIZES.map(|size| (size, false)).into_iter().chain(cold) {
            let milliseconds = if is_cold { COLD_TIMES * milliseconds } else { milliseconds };
            let report = Pair {
                program: Measuring::ZeroCopy,
                cores: Some((instrument.machine.server_core, instrument.machine.client_core)),
                both: &["--size".into(), size.to_string()],
                client: &["--milliseconds".into(), milliseconds.to_string(), "--cold".into(), u8::from(is_cold).to_string()],
                measured: Duration::from_millis(milliseconds),
                look: contender.carrier == Carrier::Shunt && repeat == 0 && size == SIZES[0] && !is_cold,
                sides: Sides::Both,
            }
            .over_tcp(instrument, contender)?;
            turn.accelerated = report.accelerated.or(turn.accelerated);
            let said = report.client;
            if contender.carrier == Carrier::Shunt && said.referred == 0 {
                return Err(io::Error::other("nothing went by reference"));
            }
            let ways = [
                ("plain", "plain send", said.plain_ns),
                ("pool", "  plain send from a pool", said.pool_ns),
                ("reference", "  MSG_ZEROCOPY from a pool", said.reference_ns),
                ("file", "  MSG_ZEROCOPY from a memfd", said.file_ns),
                ("lent", "  plain send that lends, from a pool", said.lent_ns),
            ];
            let (of_cold, cold) = if is_cold { ("cold-", ", cold") } else { ("", "") };
            for (way, words, took) in ways {
                let title = format!("{words}, {}{cold}", super::bytes(size));
                turn.figures.push(Figure::new(format!("zerocopy/{of_cold}{way}/{size}B"), title, Unit::Nanoseconds, took as f64));
            }
        }
        Ok(turn)
    }
}
