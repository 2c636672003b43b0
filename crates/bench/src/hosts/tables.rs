//! What is measured, and how it is printed.

use std::time::Duration;

use shunt_testkit::hosts::Host;

use super::contender::{self, Contender, Pattern, Streamed};
use super::endpoints::Carrier;
use super::messages::Messages;
use super::programs::{self, Programs, Way};
use super::sharing;
use super::switch::Switched;
use super::Plan;

type Row<'a> = (&'a str, Vec<String>);

/// Each contender's turns for each size: `figures[contender][turn]` goes to `finish`, size after size.
pub fn turns<T>(
    contenders: &[Box<dyn Contender>],
    plan: &Plan<'_>,
    pattern: Pattern,
    turn: impl Fn(&dyn Contender, usize) -> Result<T, String>,
    mut finish: impl FnMut(usize, usize, Vec<T>),
) -> Result<(), String> {
    for size in &plan.sizes {
        let mut figures: Vec<Vec<T>> = contenders.iter().map(|_| Vec::new()).collect();
        for _ in 0..plan.repeats {
            for (contender, figures) in contenders.iter().zip(&mut figures) {
                if !contender.carries(*size, pattern) {
                    continue; // its cell says so
                }
                let figure = turn(contender.as_ref(), *size);
                figures.push(figure.map_err(|error| format!("{}, {size} bytes: {error}", contender.name()))?);
            }
        }
        figures.into_iter().enumerate().for_each(|(index, figures)| finish(index, *size, figures));
    }
    Ok(())
}

fn empty(contenders: &[Box<dyn Contender>]) -> Vec<Row<'_>> {
    contenders.iter().map(|contender| (contender.name(), Vec::new())).collect()
}

/// Round trips by size.
pub fn round_trips(hosts: &[Host; 2], plan: &Plan<'_>) -> Result<(), String> {
    let contenders = contender::all(&plan.sockets);
    let mut rows = empty(&contenders);
    turns(
        &contenders,
        plan,
        Pattern::RoundTrip,
        |contender, size| contender.round_trip(hosts, plan, size),
        |index, _, figures| rows[index].1.push(format!("{:.2}", median(figures) * 1e6)),
    )?;
    print_table("round trip, us", &sizes(plan), &rows);
    Ok(())
}

/// Streams by size.
pub fn streams(hosts: &[Host; 2], plan: &Plan<'_>) -> Result<(), String> {
    let contenders = contender::all(&plan.sockets);
    let (mut rates, mut bits, mut costs) = (empty(&contenders), empty(&contenders), empty(&contenders));
    let mut losses = empty(&contenders);
    turns(
        &contenders,
        plan,
        Pattern::Stream,
        |contender, size| contender.stream(hosts, plan, size),
        |index, size, figures| {
            let of = |pick: fn(&Streamed) -> f64| median(figures.iter().map(pick).collect());
            let rate = of(|figure| figure.messages / figure.seconds);
            rates[index].1.push(format!("{:.3}", rate / 1e6));
            bits[index].1.push(format!("{:.2}", rate * size as f64 * 8.0 / 1e9));
            costs[index].1.push(format!("{:.2}", of(|figure| figure.processor / figure.messages) * 1e6));
            losses[index].1.push(format!("{:.1}", of(|figure| figure.lost) * 100.0));
        },
    )?;
    print_table("one way, million messages received in a second", &sizes(plan), &rates);
    print_table("one way, Gb/s of messages", &sizes(plan), &bits);
    print_table("one way, processor time of a message, both hosts and agents, us", &sizes(plan), &costs);
    print_table("one way, lost by the receiver, %", &sizes(plan), &losses);
    Ok(())
}

/// Streams of 16 KiB messages while a switch drops packets.
pub fn loss(plan: &Plan<'_>) -> Result<(), String> {
    let site = Switched::new()?;
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Messages { name: "active messages, xdp, own queue", carrier: Carrier::Own }),
        Box::new(Messages { name: "active messages, udp", carrier: Carrier::Udp }),
        Box::new(Programs { name: "kernel TCP (reno)", way: Way::Blocking }),
    ];
    for carrier in &plan.sockets {
        contenders.push(Box::new(Programs { name: carrier.sockets(), way: Way::Shunt(*carrier) }));
    }
    let shares = [0u32, 1, 10, 50];
    let mut rows = empty(&contenders);
    for per_mille in shares {
        // Programs are attached without loss as well: they change what a veth hands on at once.
        let lossy = site.lose(per_mille).map_err(|error| format!("no program may be put at the interface: {error}"))?;
        let one = Plan { sizes: vec![16 << 10], tables: Vec::new(), sockets: Vec::new(), time: plan.time * 5, ..*plan };
        turns(
            &contenders,
            &one,
            Pattern::Stream,
            |contender, size| contender.stream(&site.hosts, &one, size),
            |index, size, figures: Vec<Streamed>| {
                let rates = figures.iter().map(|figure| figure.messages / figure.seconds * size as f64).collect();
                rows[index].1.push(format!("{:.1}", median(rates) / 1e6));
            },
        )?;
        drop(lossy);
    }
    let heads: Vec<String> = shares.iter().map(|share| format!("{:.1} %", f64::from(*share) / 10.0)).collect();
    print_table("stream through a switch that drops packets, MB/s", &heads, &rows);
    Ok(())
}

/// Requests in a second, of one client, of many, and of many with several requests under way; and what each costs.
pub fn redis(hosts: &[Host; 2], plan: &Plan<'_>) -> Result<(), String> {
    let mut ways = vec![("kernel TCP", Way::Blocking)];
    ways.extend(plan.sockets.iter().map(|carrier| (carrier.sockets(), Way::Shunt(*carrier))));
    let loads = [(1, 1, 20_000), (50, 1, 40_000), (50, 16, 200_000)];
    let empty = || ways.iter().map(|(name, _)| (*name, Vec::new())).collect::<Vec<Row<'_>>>();
    let (mut rates, mut costs) = (empty(), empty());
    for (connections, pipeline, requests) in loads {
        let mut figures = vec![Vec::new(); ways.len()];
        for _ in 0..plan.repeats {
            for ((name, way), figures) in ways.iter().zip(&mut figures) {
                let found = programs::redis(*way, hosts, plan, (connections, pipeline), requests);
                figures.push(found.map_err(|error| format!("redis, {name}, -c {connections} -P {pipeline}: {error}"))?);
            }
        }
        for ((rate, cost), figures) in rates.iter_mut().zip(&mut costs).zip(figures) {
            rate.1.push(format!("{:.0}", median(figures.iter().map(|found| found.0).collect())));
            cost.1.push(format!("{:.1}", median(figures.iter().map(|found| found.1).collect())));
        }
    }
    let heads = loads.map(|(connections, pipeline, _)| match pipeline {
        1 => format!("-c {connections}"),
        _ => format!("-c {connections} -P {pipeline}"),
    });
    print_table("redis-benchmark, GET in a second", &heads, &rates);
    print_table("redis-benchmark, processor time of a request, both programs, us", &heads, &costs);
    Ok(())
}

/// A slow link shared with a TCP connection.
pub fn share(plan: &Plan<'_>) -> Result<(), String> {
    let site = Switched::new()?;
    let ways = [("kernel TCP", None), ("active messages, udp", Some(Carrier::Udp)), ("active messages, xdp", Some(Carrier::Own))];
    let time = Duration::from_secs(3);
    let mut rows: Vec<Row<'_>> = Vec::new();
    let heads = [(100, 64 << 10), (100, 256 << 10), (400, 256 << 10)];
    for (name, carrier) in ways {
        let mut row = Vec::new();
        for (megabits, queue) in heads {
            site.shape(megabits, queue)?;
            let mut shares = Vec::new();
            for _ in 0..plan.repeats.div_ceil(2) {
                let found = sharing::share(&site, plan, carrier, time).map_err(|error| format!("{name}: {error}"))?;
                shares.push(found.first / (found.first + found.tcp));
            }
            row.push(format!("{:.0} %", median(shares) * 100.0));
        }
        rows.push((name, row));
    }
    let heads: Vec<String> = heads.iter().map(|(rate, queue)| format!("{rate}M/{}K", queue >> 10)).collect();
    print_table("share of a link beside a TCP connection (reno)", &heads, &rows);
    Ok(())
}

/// Several pairs of emulated endpoints on the queue of an agent.
pub fn multiplexed(hosts: &[Host; 2], plan: &Plan<'_>) -> Result<(), String> {
    let counts = [1usize, 2, 4, 8];
    let (mut middle, mut tail, mut rates) = (Vec::new(), Vec::new(), Vec::new());
    for pairs in counts {
        let mut found = Vec::new();
        for _ in 0..plan.repeats {
            found.push(sharing::multiplexed(hosts, plan, pairs)?);
        }
        middle.push(format!("{:.1}", median(found.iter().map(|found| found.0).collect()) * 1e6));
        tail.push(format!("{:.1}", median(found.iter().map(|found| found.1).collect()) * 1e6));
        rates.push(format!("{:.0}", median(found.iter().map(|found| found.2).collect()) / 1e3));
    }
    let heads: Vec<String> = counts.iter().map(|count| format!("{count} pairs")).collect();
    let rows =
        [("round trip, us", middle), ("its 99th percentile, us", tail), ("round trips of all, thousands in a second", rates)];
    print_table("emulated endpoints on one queue of each host", &heads, &rows);
    Ok(())
}

fn sizes(plan: &Plan<'_>) -> Vec<String> {
    plan.sizes.iter().map(|size| format!("{size} B")).collect()
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

fn print_table(title: &str, heads: &[String], rows: &[Row<'_>]) {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0).max(title.len());
    print!("{title:width$}");
    heads.iter().for_each(|head| print!(" {head:>9}"));
    println!();
    for (name, cells) in rows {
        print!("{name:width$}");
        cells.iter().for_each(|cell| print!(" {:>9}", if cell == "NaN" { "too large" } else { cell }));
        println!();
    }
    println!();
}
