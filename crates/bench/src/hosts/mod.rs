//! `shunt bench hosts`: two hosts (network namespaces joined by a veth), and what carries messages between them.
//!
//! Contenders take turns, so that a busy moment hits all of them; each figure is the median of its turns. Both ends spin,
//! each on a processor of its own.

mod contender;
mod endpoints;
mod kernel;

use std::path::Path;
use std::time::Duration;

use shunt_testkit::hosts::{pair, Host, Joint};

use contender::{Contender, Streamed};

/// How to measure.
pub struct Plan<'a> {
    /// The shunt command, which is the agent.
    pub shunt: &'a Path,
    /// Turns of each contender.
    pub repeats: usize,
    /// Measured time of one turn.
    pub time: Duration,
    /// Bytes of messages.
    pub sizes: Vec<usize>,
}

/// Measures and prints.
///
/// # Errors
/// A sentence: no privilege, an agent that does not start.
pub fn run(plan: &Plan<'_>) -> Result<(), String> {
    let hosts = pair(Joint::default()).map_err(|error| format!("two hosts cannot be made: {error}"))?;
    println!("two network namespaces, one veth of one queue, MTU 1500; both ends spin; median of {} turns\n", plan.repeats);
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    let contenders = contender::all();
    for contender in &contenders {
        rows.push((contender.name(), Vec::new()));
    }
    for size in &plan.sizes {
        let mut figures = vec![Vec::new(); contenders.len()];
        for _ in 0..plan.repeats {
            for (contender, figures) in contenders.iter().zip(&mut figures) {
                figures.push(round_trip(contender.as_ref(), &hosts, plan, *size)?);
            }
        }
        for ((_, row), figures) in rows.iter_mut().zip(figures) {
            row.push(format!("{:.2}", median(figures) * 1e6));
        }
    }
    print_table("round trip, us", plan, &rows);

    for (_, row) in &mut rows {
        row.clear();
    }
    let mut costs = rows.clone();
    let mut losses = rows.clone();
    let mut bits = rows.clone();
    for size in &plan.sizes {
        let mut figures = vec![Vec::new(); contenders.len()];
        for _ in 0..plan.repeats {
            for (contender, figures) in contenders.iter().zip(&mut figures) {
                figures.push(stream(contender.as_ref(), &hosts, plan, *size)?);
            }
        }
        for (index, figures) in figures.into_iter().enumerate() {
            let of = |pick: fn(&Streamed) -> f64| median(figures.iter().map(pick).collect());
            rows[index].1.push(format!("{:.3}", of(|figure| figure.messages / figure.seconds) / 1e6));
            bits[index].1.push(format!("{:.2}", of(|figure| figure.messages / figure.seconds) * *size as f64 * 8.0 / 1e9));
            costs[index].1.push(format!("{:.2}", of(|figure| figure.processor / figure.messages) * 1e6));
            losses[index].1.push(format!("{:.1}", of(|figure| figure.lost) * 100.0));
        }
    }
    print_table("one way, million messages received in a second", plan, &rows);
    print_table("one way, Gb/s of messages", plan, &bits);
    print_table("one way, processor time of a message, both hosts and agents, us", plan, &costs);
    print_table("one way, lost by the receiver, %", plan, &losses);
    Ok(())
}

fn round_trip(contender: &dyn Contender, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<f64, String> {
    contender.round_trip(hosts, plan, size).map_err(|error| format!("{}, {size} bytes: {error}", contender.name()))
}

fn stream(contender: &dyn Contender, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<Streamed, String> {
    contender.stream(hosts, plan, size).map_err(|error| format!("{}, {size} bytes: {error}", contender.name()))
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print_table(title: &str, plan: &Plan<'_>, rows: &[(&str, Vec<String>)]) {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(title.len());
    print!("{title:width$}");
    plan.sizes.iter().for_each(|size| print!(" {:>9}", format!("{size} B")));
    println!();
    for (name, cells) in rows {
        print!("{name:width$}");
        cells.iter().for_each(|cell| print!(" {cell:>9}"));
        println!();
    }
    println!();
}
