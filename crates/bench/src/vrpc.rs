//! The figures that papers have of RPC, with this machine's beside them: SHRIMP's vRPC (SunRPC's interface over mapped memory) and ShrimpRPC, and
//! SOVIA's RPC, as ratios to floors of the same run.
//!
//! Four contenders answer the same calls: libtirpc's programs on the kernel, over the accelerated stream, with their layers collapsed
//! (`--rpc on`), and shunt's own RPC. The floors are a cache line that goes and comes, and the bare endpoint. All take turns in each round.

mod model;
mod pictures;
mod programs;
mod published;
mod report;
mod rig;

use std::io;
use std::path::Path;

use crate::contenders::{contenders, Carrier};
use crate::instrument::{Instrument, Settings};
use crate::machine::Machine;
use crate::network::{Network, Ports};
use crate::output::say;
use crate::progress::Progress;
use model::Document;

/// Rounds that are measured unless the user says how many, and with `--quick`.
const ROUNDS: [usize; 2] = [7, 3];

/// What to measure.
#[derive(Clone, Copy)]
pub struct Plan<'a> {
    /// Three rounds.
    pub quick: bool,
    /// As many rounds, in place of [`ROUNDS`].
    pub rounds: Option<usize>,
    /// The shunt command.
    pub shunt: Option<&'a Path>,
    /// Where files of the run go.
    pub scratch: &'a Path,
}

/// Measures, prints, and stores `rpc.txt`, `rpc.json` and a picture for each figure. Moves the process into a network namespace: it must have one
/// thread.
///
/// # Errors
/// A contender fails, or the directory cannot be written. A contender that this machine does not have is named in the report.
pub fn reproduce(plan: &Plan<'_>, output: Option<&Path>) -> io::Result<()> {
    let network = Network::enter();
    let machine = Machine::here();
    let rounds = plan.rounds.unwrap_or(ROUNDS[usize::from(plan.quick)]);
    let mut document = Document::new(machine.describe(), std::env::args().collect::<Vec<_>>().join(" "));
    document.remarks.push(format!("load average {} when the run began; {}", machine.load_average, network.describe()));
    document.remarks.extend(network.warning);
    let cores = (machine.client_core, machine.server_core);
    let mut instrument = Instrument {
        machine,
        contenders: contenders(plan.shunt)?,
        scratch: plan.scratch.to_path_buf(),
        ports: Ports::default(),
        settings: Settings::default(),
        progress: Progress::new(1),
    };
    let program = programs::compiled(plan.scratch);
    if let Err(sentence) = &program {
        document.missing.push(format!("SunRPC: {sentence}"));
    }
    let shunt = instrument.contenders.iter().find(|contender| contender.carrier == Carrier::Shunt).cloned();
    if shunt.is_none() {
        document.missing.push("SunRPC under shunt: no shunt command beside this one, and no --shunt PATH".into());
    }
    for round in 0..rounds {
        instrument.progress.turn(round + 1, rounds, "floors and shunt's own RPC");
        document.add(rig::round(cores, round)?);
        let Ok(program) = &program else { continue };
        for under in programs::Under::ALL {
            let Some(contender) = under.contender(shunt.as_ref()) else { continue };
            instrument.progress.turn(round + 1, rounds, under.word());
            document.add(programs::round(&mut instrument, program, &contender, under)?);
        }
    }
    document.seconds = instrument.progress.elapsed().as_secs_f64();
    let text = report::text(&document);
    say(&text);
    let Some(directory) = output else { return Ok(()) };
    std::fs::create_dir_all(directory)?;
    std::fs::write(directory.join("rpc.txt"), &text)?;
    std::fs::write(directory.join("rpc.json"), serde_json::to_string_pretty(&document)? + "\n")?;
    for (stem, svg) in pictures::all(&document).map_err(io::Error::other)? {
        std::fs::write(directory.join(format!("{stem}.png")), crate::drawing::png(&svg).map_err(io::Error::other)?)?;
        std::fs::write(directory.join(format!("{stem}.svg")), svg)?;
    }
    Ok(())
}
