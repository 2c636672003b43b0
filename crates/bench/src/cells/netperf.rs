//! netperf's streams by size of the send, as SHRIMP's figure 13 and the last rows of Fast Sockets' table 3 have them.

use std::collections::HashMap;
use std::io;

use super::bandwidth;
use super::peers::{Netserver, NETPERF, NETSERVER, STREAM_UNIT};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::programs::External;

const SIZES: [usize; 6] = [64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// One direction, from the client to the server, each on a core of its own.
#[derive(Debug)]
pub struct Netperf;

impl Cell for Netperf {
    fn name(&self) -> &'static str {
        "netperf"
    }

    fn about(&self) -> &'static str {
        "netperf TCP_STREAM: streams of 64 B to 256 KiB sends, with r-infinity and n1/2"
    }

    fn needs(&self) -> &'static [External] {
        &[NETPERF, NETSERVER]
    }

    fn repeats(&self, settings: &Settings) -> usize {
        // It measures whole seconds.
        settings.repeats.min(3)
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let (mut rates, mut cpu, mut turn) = (HashMap::new(), HashMap::new(), Turn::default());
        let server = Netserver::start(instrument, contender)?;
        for size in SIZES {
            let look = contender.carrier == Carrier::Shunt && repeat == 0 && size == SIZES[0];
            let asked = server.ask(instrument, contender, "TCP_STREAM", &["--", "-m", &size.to_string()], look)?;
            let rate = asked.rate * STREAM_UNIT;
            rates.insert(size, rate);
            // The test lasts a second.
            cpu.insert(size, asked.cpu_ns / rate * size as f64);
            turn.accelerated = asked.accelerated.or(turn.accelerated);
        }
        server.stop();
        turn.figures = bandwidth::figures("netperf", "netperf", &SIZES, &rates, Some(&cpu));
        Ok(turn)
    }
}
