//! Figure 4: the processors' time of both ends by their own clocks, of messages at a fixed rate, between which both sleep.

use std::fmt::{self, Write as _};
use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use shunt_buffers::Semantics;

use super::model::Way;
use super::rig::{Measure, Rig};
use super::{median, published, LONG, WARM};

/// One message in this time.
const EACH: Duration = Duration::from_millis(1);
const LENGTHS: [usize; 4] = [4 << 10, 16 << 10, 32 << 10, LONG];

/// Of one semantics.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Processor {
    pub semantics: String,
    /// Bytes; nanoseconds a message of the sender's processor and of the receiver's.
    pub points: Vec<(usize, f64, f64)>,
}

/// All semantics, in turns.
pub fn measure(rig: &mut Rig, rounds: usize) -> io::Result<Vec<Processor>> {
    let mut times: Vec<[Vec<f64>; 2]> = vec![Default::default(); 8 * LENGTHS.len()];
    let mut next = Instant::now();
    for round in 0..WARM + 3 * rounds {
        for (place, times) in times.iter_mut().enumerate() {
            next += EACH;
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            let case = Way::Early.case(Semantics::ALL[place % 8], LENGTHS[place / 8]);
            let sample = rig.pass(&case, Measure::Processor)?;
            if round >= WARM {
                times.iter_mut().zip(sample.processor).for_each(|(times, time)| times.push(time));
            }
        }
    }
    let of = |semantics: Semantics| {
        let point = |(number, length): (usize, &usize)| {
            let [mut ours, mut theirs] = times[number * 8 + semantics.index()].clone();
            (*length, median(&mut ours), median(&mut theirs))
        };
        Processor { semantics: semantics.name().into(), points: LENGTHS.iter().enumerate().map(point).collect() }
    };
    Ok(Semantics::ALL.map(of).into())
}

pub fn write(text: &mut String, all: &[Processor], operations: impl Fn(Semantics) -> f64) -> fmt::Result {
    writeln!(
        text,
        "\nFigure 4: the processors' time of a message with early demultiplexing, by the clocks of both ends, us; one message a millisecond, both sleep between.\n\
         sender + receiver at 4 KiB, 16 KiB and 60 KB; % of both processors at 60 KB; operations alone at 60 KB; 1996: of the receiver's processor, %"
    )?;
    for semantics in Semantics::ALL {
        write!(text, "{:<20}", semantics.name())?;
        let own = all.iter().find(|one| one.semantics == semantics.name());
        for length in [4 << 10, 16 << 10, LONG] {
            let point = own.and_then(|one| one.points.iter().find(|point| point.0 == length));
            let cell = point.map_or("-".into(), |(_, ours, theirs)| format!("{:.1} + {:.1}", ours / 1e3, theirs / 1e3));
            write!(text, "{cell:>17}")?;
        }
        let whole =
            own.and_then(|one| one.points.iter().find(|point| point.0 == LONG)).map_or(f64::NAN, |point| point.1 + point.2);
        let share = whole / (2.0 * EACH.as_nanos() as f64) * 100.0;
        writeln!(text, "{share:>8.2} %{:>10.2}{:>10.0}", operations(semantics) / 1e3, published::utilization(semantics))?;
    }
    Ok(())
}
