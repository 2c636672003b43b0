//! Null calls of libtirpc's programs, as they are, beside round trips of as many bytes over a socket of the same kind: on the kernel, under shunt, and
//! under shunt with their layers collapsed (`--rpc on`).

use std::fmt::Write as _;
use std::io;
use std::path::Path;

use crate::contenders::{Carrier, Contender};
use crate::instrument::Instrument;
use crate::measurement::{Collector, Figure, Unit};
use crate::output::say;
use crate::process::Launch;
use crate::sunrpc::compiled;

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

/// A row: its name and words, what is under server and client, the kind of socket, what is in the server's set, whether both are on one core, and
/// opaque bytes of a call.
struct Row {
    name: &'static str,
    words: &'static str,
    under: [Under; 2],
    kind: &'static str,
    set: &'static str,
    one_core: bool,
    opaque: u32,
}

const fn row(name: &'static str, words: &'static str, under: [Under; 2], kind: &'static str) -> Row {
    Row { name, words, under, kind, set: "set", one_core: false, opaque: 0 }
}

const ROWS: [Row; 23] = [
    row("tcp/kernel", "TCP, kernel", [Kernel, Kernel], "tcp"),
    row("tcp/shunt", "TCP, shunt", [Shunt, Shunt], "tcp"),
    Row { set: "alone", ..row("tcp/shunt-alone", "TCP, shunt, the connection alone in the server's set", [Shunt, Shunt], "tcp") },
    row("tcp/collapsed", "TCP, collapsed", [Collapsed, Collapsed], "tcp"),
    row("tcp/server-collapsed", "TCP, shunt, the server alone collapsed", [Collapsed, Shunt], "tcp"),
    row("tcp/client-collapsed", "TCP, shunt, the client alone collapsed", [Shunt, Collapsed], "tcp"),
    row("tcp/server-kernel", "TCP, server without shunt, client collapsed", [Kernel, Collapsed], "tcp"),
    row("tcp/client-kernel", "TCP, client without shunt, server collapsed", [Collapsed, Kernel], "tcp"),
    Row { one_core: true, ..row("tcp/one-core/kernel", "TCP, one core, kernel", [Kernel, Kernel], "tcp") },
    Row { one_core: true, ..row("tcp/one-core/collapsed", "TCP, one core, collapsed", [Collapsed, Collapsed], "tcp") },
    row("udp/kernel", "UDP, kernel", [Kernel, Kernel], "udp"),
    row("udp/shunt", "UDP, shunt", [Shunt, Shunt], "udp"),
    row("udp/collapsed", "UDP, collapsed", [Collapsed, Collapsed], "udp"),
    row("unix/kernel", "AF_UNIX, kernel", [Kernel, Kernel], "unix"),
    row("unix/shunt", "AF_UNIX, shunt", [Shunt, Shunt], "unix"),
    row("unix/collapsed", "AF_UNIX, collapsed", [Collapsed, Collapsed], "unix"),
    row("unix/client-collapsed", "AF_UNIX, shunt, the client alone collapsed", [Shunt, Collapsed], "unix"),
    Row { opaque: 4 << 10, ..row("tcp/4k/shunt", "TCP, 4 KiB opaque, shunt", [Shunt, Shunt], "tcp") },
    Row { opaque: 4 << 10, ..row("tcp/4k/collapsed", "TCP, 4 KiB opaque, collapsed", [Collapsed, Collapsed], "tcp") },
    Row { opaque: 64 << 10, ..row("tcp/64k/shunt", "TCP, 64 KiB opaque, shunt", [Shunt, Shunt], "tcp") },
    Row { opaque: 64 << 10, ..row("tcp/64k/collapsed", "TCP, 64 KiB opaque, collapsed", [Collapsed, Collapsed], "tcp") },
    Row { opaque: 1 << 20, ..row("tcp/1m/shunt", "TCP, 1 MiB opaque, shunt", [Shunt, Shunt], "tcp") },
    Row { opaque: 1 << 20, ..row("tcp/1m/collapsed", "TCP, 1 MiB opaque, collapsed", [Collapsed, Collapsed], "tcp") },
];

/// Turns of a row with an end without shunt, and of others.
const TURNS: [&str; 2] = ["7", "60"];

/// One round of all rows.
pub fn round(instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
    let Some(shunt) = instrument.contenders.iter().find(|contender| contender.carrier == Carrier::Shunt).cloned() else {
        say("SunRPC is left out: no shunt command");
        return Ok(());
    };
    let program = match compiled(&instrument.scratch, "onc", SOURCE) {
        Ok(program) => program,
        Err(sentence) => {
            say(&format!("SunRPC is left out: {sentence}"));
            return Ok(());
        }
    };
    let mut figures = [[f64::NAN; 3]; ROWS.len()];
    for (row, figure) in ROWS.iter().zip(&mut figures) {
        *figure = measure(instrument, &program, &shunt, row)?;
    }
    let mut text = String::new();
    for (Row { name, words, .. }, [call, trip, ratio]) in ROWS.iter().zip(&figures) {
        for (part, what, value) in [("call", "null call", *call), ("bytes", "as many bytes", *trip)] {
            let figure =
                Figure::new(format!("rpc/onc/{name}/{part}"), format!("SunRPC {words}: {what}"), Unit::Nanoseconds, value);
            collector.add_floor("libtirpc", vec![figure]);
        }
        let _ = writeln!(text, "SunRPC {words:<56}{call:>10.1} ns, bytes {trip:>8.1}, ratio {ratio:.2}");
    }
    let call = |name: &str| ROWS.iter().position(|row| row.name == name).map_or(f64::NAN, |at| figures[at][0]);
    let _ = writeln!(
        text,
        "kernel / collapsed: TCP {:.1}, one core {:.1}, UDP {:.1}, AF_UNIX {:.1}; kernel / shunt: TCP {:.1}, UDP {:.1}, AF_UNIX {:.1}; listeners / alone {:.2}",
        call("tcp/kernel") / call("tcp/collapsed"),
        call("tcp/one-core/kernel") / call("tcp/one-core/collapsed"),
        call("udp/kernel") / call("udp/collapsed"),
        call("unix/kernel") / call("unix/collapsed"),
        call("tcp/kernel") / call("tcp/shunt"),
        call("udp/kernel") / call("udp/shunt"),
        call("unix/kernel") / call("unix/shunt"),
        call("tcp/shunt") / call("tcp/shunt-alone"),
    );
    let _ = writeln!(
        text,
        "one side collapsed / none: server {:.2}, client {:.2}, AF_UNIX client {:.2}; one side without shunt / both: server {:.2}, client {:.2}",
        call("tcp/server-collapsed") / call("tcp/shunt"),
        call("tcp/client-collapsed") / call("tcp/shunt"),
        call("unix/client-collapsed") / call("unix/shunt"),
        call("tcp/server-kernel") / call("tcp/kernel"),
        call("tcp/client-kernel") / call("tcp/kernel"),
    );
    say(&text);
    Ok(())
}

/// Nanoseconds of a call and of the bytes alone, and the ratio.
fn measure(
    instrument: &mut Instrument,
    program: &Path,
    shunt: &Contender,
    Row { name, under, kind, set, one_core, opaque, .. }: &Row,
) -> io::Result<[f64; 3]> {
    let contender = |under: Under| match under {
        Kernel => Contender { carrier: Carrier::Kernel, prefix: vec![] },
        _ => asked_for(shunt, under == Collapsed),
    };
    let [server_contender, client_contender] = under.map(contender);
    let port = instrument.ports.take()?;
    instrument.ports.take()?; // the bytes alone
    let (server_core, client_core) = (instrument.machine.server_core, instrument.machine.client_core);
    let client_core = if *one_core { server_core } else { client_core };
    // The kernel's calls take 20 times as long, and so do long ones.
    let turns = TURNS[usize::from(!under.contains(&Kernel) && *opaque == 0)];
    let launch = |contender: &Contender, role: &str, core: usize, last: &str| {
        let words = [role, kind, &port.to_string(), &core.to_string(), last, &opaque.to_string()].map(String::from);
        Launch::through(contender, program).args(words)
    };
    let mut server = launch(&server_contender, "server", server_core, set).start(&instrument.scratch)?;
    server.wait_for_output("ready", START_LIMIT)?;
    let client = launch(&client_contender, "client", client_core, turns).start(&instrument.scratch)?.finish(RUN_LIMIT)?;
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
