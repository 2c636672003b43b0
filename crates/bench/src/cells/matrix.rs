//! Never slower: sizes, connections, threads, ways of waiting, places and sides, each combination a cell.

use std::io;

use super::load::{Place, Spec};
use super::pair::Sides;
use crate::contenders::{Carrier, Contender};
use crate::heat::Verdict;
use crate::instrument::{Cell, Instrument, Turn};
use crate::measurement::{Figure, Row, Unit};

/// Rows of the heat map: what is carried. Columns: how, and where.
pub const SIZES: [u32; 3] = [8, 4096, 65536];
/// Connections and threads.
pub const SHAPES: [(u32, u32); 3] = [(1, 1), (50, 1), (50, 2)];
/// Ways of waiting.
pub const WAITS: [&str; 4] = ["blocking", "poll", "epoll", "edge"];
/// Places by name. Crowded: four processes a side on all cores, more than fit, none of them pinned.
pub const PLACES: [(&str, Place); 3] = [("apart", Place::Apart), ("one core", Place::OneCore), ("crowded", Place::Anywhere)];
/// The sides that are under shunt.
pub const SIDES: [(&str, Sides); 3] = [("both", Sides::Both), ("client", Sides::Client), ("server", Sides::Server)];
/// In which order the sides run, turn by turn: each comes after each other one, and after the kernel, as often. What spins leaves
/// processors that do not sleep at once, and the side that runs next is a few percent faster or slower for it.
const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0], [0, 2, 1], [1, 0, 2]];
/// The fewest turns of which an interval can be told.
pub const TURNS: u64 = 6;

/// The title of a field, by which it is found again.
pub fn title(size: u32, (connections, threads): (u32, u32), wait: &str, place: &str, side: &str) -> String {
    let many = |count: u32, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    format!("{size} B, {}, {}, {wait}, {place}, {side}", many(connections, "connection"), many(threads, "thread"))
}

/// One combination. The kernel's figure serves all of its sides.
#[derive(Debug)]
struct Combination {
    spec: Spec,
    sides: Vec<(String, Sides)>,
}

/// All combinations; of a quick run a third: one thread, the smallest and the largest size, not edge-triggered. Of these the
/// fields whose titles contain `only`.
pub fn matrix(quick: bool, only: &str) -> Vec<Box<dyn Cell>> {
    let mut cells: Vec<Box<dyn Cell>> = Vec::new();
    for size in SIZES {
        for shape @ (connections, threads) in SHAPES {
            for wait in WAITS {
                for (place, where_) in PLACES {
                    if quick && (size == 4096 || threads == 2 || wait == "edge") {
                        continue;
                    }
                    let sides = SIDES.map(|(side, sides)| (title(size, shape, wait, place, side), sides));
                    let sides: Vec<_> = sides.into_iter().filter(|(title, _)| title.contains(only)).collect();
                    if sides.is_empty() {
                        continue;
                    }
                    let crowd = if where_ == Place::Anywhere { 4 } else { 1 };
                    let each = (connections / crowd).max(1);
                    let both = format!("--wait {wait} --connections {each} --threads {threads} --processes {crowd}");
                    let whole = title(size, shape, wait, place, "");
                    let name = whole.trim_end_matches(", ");
                    let spec = Spec { place: where_, ..Spec::new(name, name, &both, &format!("--size {size}")) };
                    cells.push(Box::new(Combination { spec, sides }));
                }
            }
        }
    }
    cells
}

impl Cell for Combination {
    fn name(&self) -> &'static str {
        "matrix"
    }

    fn about(&self) -> &'static str {
        "one combination of size, connections, threads, waiting and place"
    }

    /// A combination is asked until it is known, of each of its sides, to be slower or not to be.
    fn settled(&self, rows: &[Row]) -> bool {
        let series = |row: &Row| Some((row.series(Carrier::Kernel)?.clone(), row.series(Carrier::Shunt)?.clone()));
        rows.iter().filter_map(|row| Some((row.unit, series(row)?))).all(|(unit, (kernel, shunt))| {
            unit.times_better(&kernel, &shunt).is_none() || Verdict::of(unit.interval(&kernel, &shunt)) != Verdict::Open
        })
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let milliseconds = instrument.settings.milliseconds;
        let mut turn = Turn::default();
        let figure =
            |title: &str, (rate, cpu)| Figure::new(format!("matrix/{title}"), title, Unit::PerSecond, rate).with_cpu(cpu);
        let mut run = |sides: Sides| {
            let spec = Spec { sides, ..self.spec.clone() };
            spec.run(instrument, contender, milliseconds, false).map(|(rate, cpu, _, _)| (rate, cpu))
        };
        if contender.carrier == Carrier::Shunt {
            for place in ORDERS[repeat % ORDERS.len()] {
                if let Some((title, sides)) = self.sides.get(place) {
                    turn.figures.push(figure(title, run(*sides)?));
                }
            }
        } else {
            let measured = run(Sides::Both)?;
            turn.figures.extend(self.sides.iter().map(|(title, _)| figure(title, measured)));
        }
        Ok(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_follows_each_other_as_often() {
        for side in 0..SIDES.len() {
            for before in [None, Some(0), Some(1), Some(2)].into_iter().filter(|before| *before != Some(side)) {
                let follows = |order: &&[usize; 3]| {
                    let place = order.iter().position(|other| *other == side).unwrap();
                    place.checked_sub(1).map(|place| order[place]) == before
                };
                assert_eq!(ORDERS.iter().filter(follows).count(), 2, "{side} after {before:?}");
            }
        }
    }

    #[test]
    fn a_quick_run_is_a_third_and_a_text_names_fields() {
        assert_eq!(matrix(true, "").len() * 3, matrix(false, "").len());
        assert_eq!(matrix(false, "").len(), 108);
        assert_eq!(matrix(false, "8 B, 1 connection, 1 thread, blocking, apart, server").len(), 1);
    }
}
