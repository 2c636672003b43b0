//! A connection that a program without the library has at its other end: a relay moves the bytes between shared memory and a pipe of the
//! kernel's. socat accepts and becomes a statically linked busybox, as inetd's services and Go programs are; bash connects, dd moves.

use std::io;

use super::{RUN_LIMIT, START_LIMIT};
use crate::contenders::Contender;
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Figure, Unit};
use crate::network::is_listening;
use crate::process::Launch;
use crate::programs::External;

const SERVER: External = External { name: "socat", package: "socat" };
const STATIC: External = External { name: "busybox", package: "busybox-static" };
const SHELL: External = External { name: "bash", package: "bash" };

/// Row, title, what the program without the library does, what its peer does: 256 MiB. A reader takes pieces as they come.
const ROWS: [(&str, &str, &str, &str); 2] = [
    ("relay/reads", "a program without the library reads, 64 KiB", "bs=64k of=/dev/null", "bs=64k count=4096 if=/dev/zero >&3"),
    ("relay/writes", "a program without the library writes, 64 KiB", "bs=64k count=4096 if=/dev/zero", "bs=64k of=/dev/null <&3"),
];

/// One direction, 256 MiB, nothing pinned: relays are a third program on two cores.
#[derive(Debug)]
pub struct Relay;

impl Cell for Relay {
    fn name(&self) -> &'static str {
        "relay"
    }

    fn about(&self) -> &'static str {
        "a connection handed to a program without the library (busybox, static): it reads, it writes, 64 KiB"
    }

    fn needs(&self) -> &'static [External] {
        &[SERVER, STATIC, SHELL]
    }

    fn repeats(&self, settings: &Settings) -> usize {
        settings.repeats.min(5)
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, _repeat: usize) -> io::Result<Turn> {
        let [server, child, shell] = [SERVER, STATIC, SHELL].map(|program| program.find().map_err(io::Error::other));
        let (server, child, shell) = (server?, child?, shell?);
        let mut turn = Turn::default();
        for (row, title, there, here) in ROWS {
            let port = instrument.ports.take()?;
            let becomes = format!("EXEC:{} dd {there},nofork", child.display());
            let mut listening = Launch::through(contender, &server)
                .args([format!("TCP-LISTEN:{port},bind=127.0.0.1"), becomes])
                .start(&instrument.scratch)?;
            listening.wait_until("listening", START_LIMIT, |_| is_listening(port))?;
            let script = format!("exec 3<>/dev/tcp/127.0.0.1/{port}; exec dd 2>&1 {here}");
            let finished = Launch::through(contender, &shell).args(["-c", &script]).run(&instrument.scratch, RUN_LIMIT)?;
            listening.wait_end(RUN_LIMIT)?;
            turn.figures.push(Figure::new(row, title, Unit::BytesPerSecond, rate(&finished.output)?));
        }
        Ok(turn)
    }
}

/// Bytes in a second of `268435456 bytes (268 MB, 256 MiB) copied, 0.0598 s, 4.5 GB/s`.
fn rate(output: &str) -> io::Result<f64> {
    let line = output.lines().find(|line| line.contains(" copied, "));
    let read = |line: &str| {
        let bytes: f64 = line.split_once(' ')?.0.parse().ok()?;
        let seconds: f64 = line.split_once(" copied, ")?.1.split_once(" s")?.0.parse().ok()?;
        (bytes > 0.0 && seconds > 0.0).then_some(bytes / seconds)
    };
    line.and_then(read).ok_or_else(|| io::Error::other(format!("dd printed no rate: {output:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_read() {
        let said = "4096+0 records in\n4096+0 records out\n268435456 bytes (268 MB, 256 MiB) copied, 0.5 s, 537 MB/s\n";
        assert_eq!(rate(said).unwrap(), 536_870_912.0);
        assert!(rate("dd: error reading '/dev/stdin': Connection reset by peer\n").is_err());
    }
}
