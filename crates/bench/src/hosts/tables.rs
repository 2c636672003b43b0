//! What is measured between hosts, table by table.

use std::time::Duration;

use shunt_testkit::hosts::Host;

use super::contender::{self, Contender, Pattern, Streamed};
use super::endpoints::{Carrier, Endpoints};
use super::messages::Messages;
use super::programs::{self, Programs, Way};
use super::record::{Record, Sheet};
use super::sharing::{self, Ends};
use super::switch::Switched;
use super::Plan;

pub const ROUND_TRIPS: &str = "round trip, us";
/// A ratio of contenders that take turns right after each other: each sets up anew in each turn, and both move with it.
pub const BESIDE: &str = "sockets, xdp, beside the bare endpoint, turn by turn";
pub const THERE_AND_BACK: &str = "round trip of 8 B";
pub const LARGE_SENDS: &str = "stream of 64 KiB sends";
pub const MIDDLE: &str = "median";
pub const BULK: &str = "stream of 64 KiB sends (bare endpoint: of packets)";
pub const LOSS: &str = "stream through a switch that drops packets, MB/s";
pub const REDIS: &str = "redis-benchmark, GET in a second";
pub const SHARE: &str = "share of a link beside a TCP connection (reno), %";
/// Rows that ratios are made of.
pub const MESSAGES: &str = "active messages, xdp, own queue";
pub const TCP: &str = "kernel TCP";
pub const UNAIDED: &str = "kernel TCP, no offload";

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

/// Round trips by size.
pub fn round_trips(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    round_trips_of(&contender::all(&plan.sockets), ROUND_TRIPS, hosts, plan, record)
}

fn round_trips_of(
    contenders: &[Box<dyn Contender>],
    title: &str,
    hosts: &[Host; 2],
    plan: &Plan<'_>,
    record: &mut Record,
) -> Result<(), String> {
    let mut sheet = Sheet::new(title, &sizes(plan), &[2]);
    turns(
        contenders,
        plan,
        Pattern::RoundTrip,
        |contender, size| contender.round_trip(hosts, plan, size),
        |index, _, figures| sheet.put(contenders[index].name(), &[median(figures) * 1e6]),
    )?;
    record.add(sheet);
    Ok(())
}

/// What streams of sockets over xdp take beside the bare endpoint: the ratio of each turn.
///
/// Either figure moves by 40 % from one set-up to the next while it hardly does within one (pages and lines fall elsewhere, and the host moves the
/// processors), so medians of few turns, taken each for itself, give ratios of 1.2 to 1.9 in runs of the same programs.
pub fn beside_the_endpoint(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    const TURNS: usize = 15;
    let bare = Endpoints { name: "endpoint xdp, own queue", carrier: Carrier::Own };
    let Some(carrier) = plan.sockets.iter().find(|carrier| matches!(carrier, Carrier::Own)) else { return Ok(()) };
    let sockets = Programs { name: carrier.sockets(), way: Way::Shunt(*carrier) };
    let rate = |contender: &dyn Contender, size: usize| {
        contender.stream(hosts, plan, size).map(|one| one.messages / one.seconds * size as f64)
    };
    let mut sheet = Sheet::new(BESIDE, &["least", "quarter", MIDDLE, "quarter", "most"], &[2]);
    let mut ratios = [Vec::new(), Vec::new()];
    for _ in 0..TURNS {
        ratios[0].push(sockets.round_trip(hosts, plan, 8)? / bare.round_trip(hosts, plan, 8)?);
        ratios[1].push(rate(&sockets, 64 << 10)? / rate(&bare, 1400)?);
    }
    for (row, mut ratios) in [THERE_AND_BACK, LARGE_SENDS].into_iter().zip(ratios) {
        ratios.sort_by(f64::total_cmp);
        sheet.put(row, &[0, 1, 2, 3, 4].map(|quarter| ratios[quarter * (TURNS - 1) / 4]));
    }
    record.add(sheet);
    Ok(())
}

/// Streams by size.
pub fn streams(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let contenders = contender::all(&plan.sockets);
    let sheet = |title, places| Sheet::new(title, &sizes(plan), &[places]);
    let mut rates = sheet("one way, million messages received in a second", 3);
    let mut bits = sheet("one way, Gb/s of messages", 2);
    let mut costs = sheet("one way, processor time of a message, both hosts and agents, us", 2);
    let mut losses = sheet("one way, lost by the receiver, %", 1);
    turns(
        &contenders,
        plan,
        Pattern::Stream,
        |contender, size| contender.stream(hosts, plan, size),
        |index, size, figures| {
            let (name, of) = (contenders[index].name(), |pick: fn(&Streamed) -> f64| of_all(&figures, pick));
            let rate = of(|figure| figure.messages / figure.seconds);
            rates.put(name, &[rate / 1e6]);
            bits.put(name, &[rate * size as f64 * 8.0 / 1e9]);
            costs.put(name, &[of(|figure| figure.processor / figure.messages) * 1e6]);
            losses.put(name, &[of(|figure| figure.lost) * 100.0]);
        },
    )?;
    [rates, bits, costs, losses].into_iter().for_each(|sheet| record.add(sheet));
    Ok(())
}

/// Streams of large sends, against the bare endpoint and against kernel TCP with segmentation offload and without.
pub fn bulk(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    const PACKET: usize = 1400;
    const SEND: usize = 64 << 10;
    let mut contenders: Vec<(Box<dyn Contender>, usize)> = vec![
        (Box::new(Endpoints { name: "endpoint xdp, own queue", carrier: Carrier::Own }), PACKET),
        (Box::new(Messages { name: MESSAGES, carrier: Carrier::Own }), SEND),
    ];
    for carrier in &plan.sockets {
        contenders.push((Box::new(Programs { name: carrier.sockets(), way: Way::Shunt(*carrier) }), SEND));
    }
    contenders.push((Box::new(Programs { name: "sockets, by default", way: Way::Default }), SEND));
    contenders.push((Box::new(Programs { name: UNAIDED, way: Way::WithoutOffload }), SEND));
    contenders.push((Box::new(Programs { name: TCP, way: Way::Blocking }), SEND));
    let mut found: Vec<Vec<Streamed>> = contenders.iter().map(|_| Vec::new()).collect();
    for _ in 0..plan.repeats {
        for ((contender, size), found) in contenders.iter().zip(&mut found) {
            let one = contender.stream(hosts, plan, *size);
            found.push(one.map_err(|error| format!("{}, {size} bytes: {error}", contender.name()))?);
        }
    }
    let rate = |at: usize| of_all(&found[at], |figure| figure.messages / figure.seconds) * contenders[at].1 as f64;
    let last = contenders.len() - 1;
    let mut sheet = Sheet::new(BULK, &["Gb/s", "us/64 KiB", "lost, %", "/ bare", "/ no off.", "/ TCP"], &[2, 1, 1, 2]);
    for (at, (contender, size)) in contenders.iter().enumerate() {
        let processor = of_all(&found[at], |figure| figure.processor / figure.messages) * (SEND / size) as f64 * 1e6;
        let lost = of_all(&found[at], |figure| figure.lost) * 100.0;
        let ratios = [0, last - 1, last].map(|below| rate(at) / rate(below));
        sheet.put(contender.name(), &[rate(at) * 8.0 / 1e9, processor, lost]);
        sheet.put(contender.name(), &ratios);
    }
    record.add(sheet);
    record.say(
        "us/64 KiB: processor time of both hosts and agents. With segmentation offload TCP hands 64 KiB over at once, and a veth, which
         has no wire, never cuts them: both kernels have one packet's work where all others have 45. Without offload TCP cuts them itself.
",
    );
    Ok(())
}

/// Streams of 16 KiB messages while a switch drops packets.
pub fn loss(plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let site = Switched::new()?;
    let few = fewer(plan);
    let mut contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Messages { name: MESSAGES, carrier: Carrier::Own }),
        Box::new(Messages { name: "active messages, udp", carrier: Carrier::Udp }),
        Box::new(Programs { name: TCP, way: Way::Blocking }),
    ];
    for carrier in &plan.sockets {
        contenders.push(Box::new(Programs { name: carrier.sockets(), way: Way::Shunt(*carrier) }));
    }
    let shares = [0u32, 1, 10, 50];
    let heads = shares.map(|share| format!("{:.1} %", f64::from(share) / 10.0));
    let mut sheet = Sheet::new(LOSS, &heads, &[1]);
    for per_mille in shares {
        // Programs are attached without loss as well: they change what a veth hands on at once.
        let lossy = site.lose(per_mille).map_err(|error| format!("no program may be put at the interface: {error}"))?;
        let one = Plan { sizes: vec![16 << 10], tables: Vec::new(), sockets: Vec::new(), time: plan.time * 3, ..few };
        turns(
            &contenders,
            &one,
            Pattern::Stream,
            |contender, size| contender.stream(&site.hosts, &one, size),
            |index, size, figures: Vec<Streamed>| {
                let rate = of_all(&figures, |figure| figure.messages / figure.seconds) * size as f64;
                sheet.put(contenders[index].name(), &[rate / 1e6]);
            },
        )?;
        drop(lossy);
    }
    record.add(sheet);
    Ok(())
}

/// Requests in a second, of one client, of many, and of many with several requests under way; and what each costs.
pub fn redis(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let mut ways = vec![(TCP, Way::Blocking)];
    ways.extend(plan.sockets.iter().map(|carrier| (carrier.sockets(), Way::Shunt(*carrier))));
    let loads = [(1, 1, 20_000), (50, 1, 40_000), (50, 16, 200_000)];
    let heads = loads.map(|(connections, pipeline, _)| match pipeline {
        1 => format!("-c {connections}"),
        _ => format!("-c {connections} -P {pipeline}"),
    });
    let mut rates = Sheet::new(REDIS, &heads, &[0]);
    let mut costs = Sheet::new("redis-benchmark, processor time of a request, both programs, us", &heads, &[1]);
    for (connections, pipeline, requests) in loads {
        let mut figures = vec![Vec::new(); ways.len()];
        for _ in 0..plan.repeats {
            for ((name, way), figures) in ways.iter().zip(&mut figures) {
                let found = programs::redis(*way, hosts, plan, (connections, pipeline), requests);
                figures.push(found.map_err(|error| format!("redis, {name}, -c {connections} -P {pipeline}: {error}"))?);
            }
        }
        for ((name, _), figures) in ways.iter().zip(figures) {
            rates.put(name, &[of_all(&figures, |found| found.0)]);
            costs.put(name, &[of_all(&figures, |found| found.1)]);
        }
    }
    record.add(rates);
    record.add(costs);
    Ok(())
}

/// A slow link shared with a TCP connection.
pub fn share(plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let (site, few) = (Switched::new()?, fewer(plan));
    let ways = [
        (TCP, None, Ends::First),
        ("active messages, udp", Some(Carrier::Udp), Ends::First),
        ("active messages, xdp", Some(Carrier::Own), Ends::First),
        ("active messages, udp, ends that spin among others", Some(Carrier::Udp), Ends::AmongOthers),
        ("active messages, xdp, ends that spin among others", Some(Carrier::Own), Ends::AmongOthers),
    ];
    let time = Duration::from_secs(2);
    let links = [(100, 64 << 10), (400, 256 << 10)];
    let heads = links.map(|(rate, queue)| format!("{rate}M/{}K", queue >> 10));
    let mut sheet = Sheet::new(SHARE, &heads, &[0]);
    for (megabits, queue) in links {
        site.shape(megabits, queue)?;
        let mut shares = vec![Vec::new(); ways.len()];
        for _ in 0..few.repeats {
            for ((name, carrier, ends), shares) in ways.iter().zip(&mut shares) {
                let found = sharing::share(&site, plan, *carrier, *ends, time).map_err(|error| format!("{name}: {error}"))?;
                shares.push(found.first / (found.first + found.tcp));
            }
        }
        for ((name, ..), shares) in ways.iter().zip(shares) {
            sheet.put(name, &[median(shares) * 100.0]);
        }
    }
    record.add(sheet);
    Ok(())
}

/// Bare endpoints over libfabric's providers for one host and for TCP, beside `shm`.
#[cfg(feature = "libfabric")]
pub fn fabric(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let plan = &Plan { sizes: vec![8, 112, 1024], tables: Vec::new(), sockets: Vec::new(), ..*plan };
    let contenders: Vec<Box<dyn Contender>> = vec![
        Box::new(Endpoints { name: "endpoint shm", carrier: Carrier::Shm }),
        Box::new(Endpoints { name: "endpoint fabric, libfabric's shm", carrier: Carrier::Fabric("shm") }),
        Box::new(Endpoints { name: "endpoint fabric, libfabric's tcp, loopback", carrier: Carrier::Fabric("tcp") }),
    ];
    round_trips_of(&contenders, "endpoints over libfabric: round trip, us", hosts, plan, record)
}

#[cfg(not(feature = "libfabric"))]
pub fn fabric(_: &[Host; 2], _: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    record.say("endpoints over libfabric are left out: this was built without the feature libfabric of shunt-bench\n");
    Ok(())
}

/// Several pairs of emulated endpoints on the queue of an agent.
pub fn multiplexed(hosts: &[Host; 2], plan: &Plan<'_>, record: &mut Record) -> Result<(), String> {
    let counts = [1usize, 2, 4, 8];
    let heads = counts.map(|count| format!("{count} pairs"));
    let mut sheet = Sheet::new("emulated endpoints on one queue of each host", &heads, &[1]);
    for pairs in counts {
        let mut found = Vec::new();
        for _ in 0..plan.repeats {
            found.push(sharing::multiplexed(hosts, plan, pairs)?);
        }
        sheet.put("round trip, us", &[of_all(&found, |found| found.0) * 1e6]);
        sheet.put("its 99th percentile, us", &[of_all(&found, |found| found.1) * 1e6]);
        sheet.put("round trips of all, thousands in a second", &[of_all(&found, |found| found.2) / 1e3]);
    }
    record.add(sheet);
    Ok(())
}

fn sizes(plan: &Plan<'_>) -> Vec<String> {
    plan.sizes.iter().map(|size| format!("{size} B")).collect()
}

pub fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A plan of at most three turns: where one is long, or there are many.
pub fn fewer<'a>(plan: &Plan<'a>) -> Plan<'a> {
    Plan { sizes: Vec::new(), tables: Vec::new(), sockets: plan.sockets.clone(), repeats: plan.repeats.min(3), ..*plan }
}

/// The median of what `pick` takes from each.
fn of_all<T>(all: &[T], pick: impl Fn(&T) -> f64) -> f64 {
    median(all.iter().map(pick).collect())
}
