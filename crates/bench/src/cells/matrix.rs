//! Never slower: sizes, connections, threads, ways of waiting, places and sides, each combination a cell.

use std::io;

use super::load::{Place, Spec};
use crate::contenders::{Carrier, Contender};
use crate::heat::NOISE;
use crate::instrument::{Cell, Instrument, Turn};
use crate::measurement::{Figure, Row, Unit};

/// Rows of the heat map: what is carried. Columns: how, and where.
pub const SIZES: [u32; 3] = [8, 4096, 65536];
/// Connections and threads.
pub const SHAPES: [(u32, u32); 3] = [(1, 1), (50, 1), (50, 2)];
/// Ways of waiting.
pub const WAITS: [&str; 4] = ["blocking", "poll", "epoll", "edge"];
/// Places by name.
pub const PLACES: [(&str, Place); 3] = [("apart", Place::Apart), ("one core", Place::OneCore), ("crowded", Place::Anywhere)];
/// Who is under shunt.
pub const SIDES: [&str; 2] = ["both", "client"];

/// One combination. The kernel's figure serves both of its sides.
#[derive(Debug)]
struct Combination {
    name: &'static str,
    title: String,
    spec: Spec,
}

/// All combinations; of a quick run every other.
pub fn matrix(quick: bool) -> Vec<Box<dyn Cell>> {
    let mut cells: Vec<Box<dyn Cell>> = Vec::new();
    for size in SIZES {
        for (connections, threads) in SHAPES {
            for wait in WAITS {
                for (place, where_) in PLACES {
                    if quick && (size == 4096 || threads == 2 || wait == "edge") {
                        continue;
                    }
                    let title = format!("{size} B, {connections} connections, {threads} threads, {wait}, {place}");
                    // Four processes a side on two cores: more than fit, and none is pinned.
                    let crowd = if where_ == Place::Anywhere { 4 } else { 1 };
                    let connections = if connections == 1 { 1 } else { connections / crowd };
                    let both = format!("--wait {wait} --connections {connections} --threads {threads} --processes {crowd}");
                    let spec = Spec::new(&title, &title, &both, &format!("--size {size}"));
                    cells.push(Box::new(Combination { name: "matrix", title, spec: Spec { place: where_, ..spec } }));
                }
            }
        }
    }
    cells
}

impl Cell for Combination {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        "one combination of size, connections, threads, waiting and place"
    }

    /// A combination in which shunt looks slower is asked again until it is known to be, or known not to be.
    fn settled(&self, rows: &[Row], further: usize) -> bool {
        rows.iter().all(|row| {
            let (Some(kernel), Some(shunt)) = (row.series(Carrier::Kernel), row.series(Carrier::Shunt)) else { return true };
            if further == 0 {
                return row.unit.times_better(kernel, shunt).is_none_or(|ratio| ratio >= 1.0 - NOISE);
            }
            let known = row.unit.interval(kernel, shunt);
            known.is_some_and(|(least, most)| most < 1.0 - NOISE || least >= 1.0 - NOISE)
        })
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, _: usize) -> io::Result<Turn> {
        let milliseconds = instrument.settings.milliseconds;
        let mut turn = Turn::default();
        let mut figure = |side: &str, rate: f64, cpu: f64| {
            let row = format!("matrix/{}, {side}", self.title);
            turn.figures.push(Figure::new(row, format!("{}, {side}", self.title), Unit::PerSecond, rate).with_cpu(cpu));
        };
        let (rate, cpu, _, _) = self.spec.run(instrument, contender, milliseconds, false)?;
        figure(SIDES[0], rate, cpu);
        if contender.carrier == Carrier::Shunt {
            let one_side = Spec { bare_server: true, ..self.spec.clone() };
            let (rate, cpu, _, _) = one_side.run(instrument, contender, milliseconds, false)?;
            figure(SIDES[1], rate, cpu);
        } else {
            figure(SIDES[1], rate, cpu);
        }
        Ok(turn)
    }
}
