//! Null calls of libtirpc's programs, as they are, beside round trips of as many bytes over a socket of the same kind: on the kernel, under shunt, and
//! under shunt with their layers collapsed (`--rpc on`).

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::contenders::{Carrier, Contender};
use crate::instrument::Instrument;
use crate::measurement::{Collector, Figure, Unit};
use crate::output::say;
use crate::process::Launch;

use super::super::{RUN_LIMIT, START_LIMIT};

const SOURCE: &str = include_str!("../../../programs/onc.c");

/// What is under the program.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Under {
    Kernel,
    Shunt,
    Collapsed,
}

use Under::{Collapsed, Kernel, Shunt};

/// Rows: name, words, what is under it, kind of socket, what is in the server's set, whether both are on one core.
const ROWS: [(&str, &str, Under, &str, &str, bool); 11] = [
    ("tcp/kernel", "TCP, kernel", Kernel, "tcp", "set", false),
    ("tcp/shunt", "TCP, shunt", Shunt, "tcp", "set", false),
    ("tcp/shunt-alone", "TCP, shunt, the connection alone in the server's set", Shunt, "tcp", "alone", false),
    ("tcp/collapsed", "TCP, collapsed", Collapsed, "tcp", "set", false),
    ("tcp/one-core/kernel", "TCP, one core, kernel", Kernel, "tcp", "set", true),
    ("tcp/one-core/collapsed", "TCP, one core, collapsed", Collapsed, "tcp", "set", true),
    ("udp/kernel", "UDP, kernel", Kernel, "udp", "set", false),
    ("udp/shunt", "UDP, shunt", Shunt, "udp", "set", false),
    ("unix/kernel", "AF_UNIX, kernel", Kernel, "unix", "set", false),
    ("unix/shunt", "AF_UNIX, shunt", Shunt, "unix", "set", false),
    ("unix/collapsed", "AF_UNIX, collapsed", Collapsed, "unix", "set", false),
];

/// Turns of a row: a kernel's takes 20 times as long.
const TURNS: [&str; 2] = ["7", "60"];

/// One round of all rows.
pub fn round(instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
    let Some(shunt) = instrument.contenders.iter().find(|contender| contender.carrier == Carrier::Shunt).cloned() else {
        say("SunRPC is left out: no shunt command");
        return Ok(());
    };
    let program = match compiled(&instrument.scratch) {
        Ok(program) => program,
        Err(sentence) => {
            say(&format!("SunRPC is left out: {sentence}"));
            return Ok(());
        }
    };
    let mut figures = [[f64::NAN; 3]; ROWS.len()];
    let mut text = String::new();
    for (row, figure) in ROWS.iter().zip(&mut figures) {
        let (name, words, ..) = *row;
        *figure = measure(instrument, &program, &shunt, row)?;
        let [call, trip, ratio] = *figure;
        for (part, what, value) in [("call", "null call", call), ("bytes", "as many bytes", trip)] {
            let figure =
                Figure::new(format!("rpc/onc/{name}/{part}"), format!("SunRPC {words}: {what}"), Unit::Nanoseconds, value);
            collector.add_floor("libtirpc", vec![figure]);
        }
        let _ = writeln!(text, "SunRPC {words:<56}{call:>10.1} ns, bytes {trip:>8.1}, ratio {ratio:.2}");
    }
    let call = |name: &str| ROWS.iter().position(|row| row.0 == name).map_or(f64::NAN, |at| figures[at][0]);
    let _ = writeln!(
        text,
        "kernel / collapsed: TCP {:.1}, one core {:.1}, AF_UNIX {:.1}; kernel / shunt: TCP {:.1}, UDP {:.1}, AF_UNIX {:.1}; listeners / alone {:.2}",
        call("tcp/kernel") / call("tcp/collapsed"),
        call("tcp/one-core/kernel") / call("tcp/one-core/collapsed"),
        call("unix/kernel") / call("unix/collapsed"),
        call("tcp/kernel") / call("tcp/shunt"),
        call("udp/kernel") / call("udp/shunt"),
        call("unix/kernel") / call("unix/shunt"),
        call("tcp/shunt") / call("tcp/shunt-alone"),
    );
    say(&text);
    Ok(())
}

/// The program, compiled once in a run. Errors: a sentence.
fn compiled(scratch: &Path) -> Result<PathBuf, String> {
    let (source, program) = (scratch.join("onc.c"), scratch.join("onc"));
    if program.exists() {
        return Ok(program);
    }
    std::fs::write(&source, SOURCE).map_err(|error| error.to_string())?;
    let done = Command::new("cc").args(["-O2", "-I/usr/include/tirpc", "-o"]).args([&program, &source]).arg("-ltirpc").output();
    match done {
        Ok(done) if done.status.success() => Ok(program),
        _ => Err("its program cannot be compiled here (Debian packages gcc, libtirpc-dev)".into()),
    }
}

/// Nanoseconds of a call and of the bytes alone, and the ratio.
fn measure(
    instrument: &mut Instrument,
    program: &Path,
    shunt: &Contender,
    &(name, _, under, kind, set, one_core): &(&str, &str, Under, &str, &str, bool),
) -> io::Result<[f64; 3]> {
    let contender = match under {
        Kernel => Contender { carrier: Carrier::Kernel, prefix: vec![] },
        _ => asked_for(shunt, under == Collapsed),
    };
    let port = instrument.ports.take()?;
    instrument.ports.take()?; // the bytes alone
    let (server_core, client_core) = (instrument.machine.server_core, instrument.machine.client_core);
    let client_core = if one_core { server_core } else { client_core };
    let turns = TURNS[usize::from(under != Kernel)];
    let launch = |role: &str, core: usize, last: &str| {
        let words = [role, kind, &port.to_string(), &core.to_string(), last].map(String::from);
        Launch::through(&contender, program).args(words)
    };
    let mut server = launch("server", server_core, set).start(&instrument.scratch)?;
    server.wait_for_output("ready", START_LIMIT)?;
    let client = launch("client", client_core, turns).start(&instrument.scratch)?.finish(RUN_LIMIT)?;
    server.finish(RUN_LIMIT)?;
    let mut values = client.output.split_ascii_whitespace().map(|word| word.parse().unwrap_or(f64::NAN));
    let figure = [(); 3].map(|()| values.next().unwrap_or(f64::NAN));
    match figure.iter().all(|value| value.is_finite()) {
        true => Ok(figure),
        false => Err(io::Error::other(format!("{name}: cannot read {:?}", client.output))),
    }
}

/// Shunt, asked for all kinds of sockets.
fn asked_for(shunt: &Contender, collapsed: bool) -> Contender {
    let mut contender = shunt.clone();
    let end = contender.prefix.iter().position(|word| word == "--").unwrap_or(contender.prefix.len());
    let words = ["--udp", "on", "--unix", "on", "--rpc", if collapsed { "on" } else { "off" }];
    contender.prefix.splice(end..end, words.map(Into::into));
    contender
}
