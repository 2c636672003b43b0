//! ttcp, the measuring program of SHRIMP's figure 12 and of Fast Sockets' table 3, as nuttcp keeps it alive: streams by size
//! of the buffer that it sends from.

use std::collections::HashMap;
use std::io;

use super::bandwidth;
use super::pair::finish_watching;
use super::{RUN_LIMIT, START_LIMIT};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::network::is_listening;
use crate::process::Launch;
use crate::programs::External;

const NUTTCP: External = External { name: "nuttcp", package: "nuttcp" };
const SIZES: [usize; 6] = [64, 512, 4 << 10, 16 << 10, 64 << 10, 256 << 10];

/// One direction, from the client to the server, each on a core of its own.
#[derive(Debug)]
pub struct Ttcp;

impl Cell for Ttcp {
    fn name(&self) -> &'static str {
        "ttcp"
    }

    fn about(&self) -> &'static str {
        "nuttcp, the heir of ttcp: streams of 64 B to 256 KiB buffers, with r-infinity and n1/2"
    }

    fn needs(&self) -> &'static [External] {
        &[NUTTCP]
    }

    fn repeats(&self, settings: &Settings) -> usize {
        // It measures whole seconds.
        settings.repeats.min(3)
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let (mut rates, mut cpu, mut turn) = (HashMap::new(), HashMap::new(), Turn::default());
        let program = NUTTCP.find().map_err(io::Error::other)?;
        for size in SIZES {
            let (port, data) = (instrument.ports.take()?, instrument.ports.take()?.to_string());
            // One transfer, then it ends.
            let mut server = Launch::through(contender, &program)
                .args(["-1", "--nofork", "-P", &port.to_string()])
                .core(instrument.machine.server_core)
                .start(&instrument.scratch)?;
            server.wait_until("listening", START_LIMIT, |_| is_listening(port))?;
            let client = Launch::through(contender, &program)
                .args(["-t", &format!("-l{size}"), "-T1", "-fparse", "-P", &port.to_string(), "-p", &data, "127.0.0.1"])
                .core(instrument.machine.client_core)
                .start(&instrument.scratch)?;
            let look = contender.carrier == Carrier::Shunt && repeat == 0 && size == SIZES[0];
            let (finished, accelerated) = finish_watching(client, &server, RUN_LIMIT, look)?;
            let rate = rate(&finished.output)?;
            rates.insert(size, rate);
            // It sends for a second.
            cpu.insert(size, (server.finish(RUN_LIMIT)?.cpu + finished.cpu).as_nanos() as f64 / rate * size as f64);
            turn.accelerated = accelerated.or(turn.accelerated);
        }
        turn.figures = bandwidth::figures("ttcp", "nuttcp", &SIZES, &rates, Some(&cpu));
        Ok(turn)
    }
}

/// Bytes in a second of `megabytes=... real_seconds=... rate_Mbps=88.5405 ...`.
fn rate(output: &str) -> io::Result<f64> {
    let word = output.split_ascii_whitespace().find_map(|word| word.strip_prefix("rate_Mbps="));
    word.and_then(|word| word.parse::<f64>().ok())
        .filter(|rate| *rate > 0.0)
        .map(|rate| rate * 125e3)
        .ok_or_else(|| io::Error::other(format!("nuttcp printed no rate: {output:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read() {
        assert_eq!(rate("megabytes=10.5 real_seconds=1.00 rate_Mbps=88.0 tx_cpu=34 rx_cpu=29\n").unwrap(), 11e6);
        assert!(rate("nuttcp-t: Error: server not ACKing data\n").is_err());
    }
}
