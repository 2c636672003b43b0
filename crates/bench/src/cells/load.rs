//! Many connections, threads, processes, ways of waiting, and sizes as real systems send them.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use super::pair::{Pair, Sides};
use super::pingpong::floor_distribution;
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Settings, Turn};
use crate::measurement::{Collector, Figure, Unit};
use crate::programs::Measuring;
use crate::statistics::Distribution;

/// One load: options of `programs/load.c`, the same for every contender.
#[derive(Clone, Debug, Default)]
pub struct Spec {
    /// Row of the report, without the cell's name.
    pub row: String,
    /// What a person reads.
    pub title: String,
    /// Options of both sides.
    pub both: Vec<String>,
    /// Options of the client.
    pub client: Vec<String>,
    /// Where it runs.
    pub place: Place,
    /// A mix of sizes: its number among [`MIXES`]; then latencies by size class are told.
    pub mix: Option<usize>,
    /// Which ends are under the contender.
    pub sides: Sides,
    /// One request in flight, each side on a core of its own: a cache line to and fro is its floor, and the median is told.
    pub alone: bool,
}

/// Turns of some milliseconds in which a busy machine may give one of the two sides no processor at all. That tells nothing of
/// the contender, so it is asked again.
const ATTEMPTS: u32 = 3;

/// Where the two sides run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// Each on a core of its own.
    #[default]
    Apart,
    /// Both on one.
    OneCore,
    /// Wherever the scheduler puts them.
    Anywhere,
}

impl Spec {
    /// A load named `row`; `both` and `client` are options, separated by blanks.
    pub fn new(row: &str, title: &str, both: &str, client: &str) -> Self {
        let words = |text: &str| text.split_ascii_whitespace().map(String::from).collect();
        Spec { row: row.into(), title: title.into(), both: words(both), client: words(client), ..Spec::default() }
    }

    /// Runs it once: requests in a second, CPU nanoseconds of each, whether shared memory was seen, samples.
    pub fn run(
        &self,
        instrument: &mut Instrument,
        contender: &Contender,
        milliseconds: u64,
        look: bool,
    ) -> io::Result<(f64, f64, Option<bool>, Vec<(u32, u32)>)> {
        let samples = instrument.scratch.join("samples");
        let mut client = self.client.clone();
        client.extend(["--milliseconds".into(), milliseconds.to_string()]);
        client.extend(["--samples".into(), samples.to_string_lossy().into_owned()]);
        if let Some(mix) = self.mix {
            let path = instrument.scratch.join(format!("mix-{mix}"));
            write_sizes(&path, &MIXES[mix])?;
            client.extend(["--sizes".into(), path.to_string_lossy().into_owned()]);
        }
        let (server_core, client_core) = (instrument.machine.server_core, instrument.machine.client_core);
        let pair = Pair {
            program: Measuring::Load,
            cores: match self.place {
                Place::Apart => Some((server_core, client_core)),
                Place::OneCore => Some((server_core, server_core)),
                Place::Anywhere => None,
            },
            both: &self.both,
            client: &client,
            measured: Duration::from_millis(2 * milliseconds),
            look: look && contender.carrier == Carrier::Shunt,
            sides: self.sides,
        };
        let mut report = pair.over_tcp(instrument, contender)?;
        for _ in 1..ATTEMPTS {
            if report.client.operations == 0 {
                report = pair.over_tcp(instrument, contender)?;
            }
        }
        let rate = report.client.operations as f64 * 1e9 / report.client.elapsed_ns.max(1) as f64;
        if report.client.operations == 0 {
            return Err(io::Error::other(format!("{}: not one request was answered, {ATTEMPTS} times", self.title)));
        }
        Ok((rate, report.cpu_per_operation_ns(), report.accelerated, read_pairs(&samples)?))
    }
}

fn plural(count: u32) -> &'static str {
    if count == 1 {
        ""
    } else {
        "s"
    }
}

/// A list of loads, asked one after the other in each turn.
#[derive(Debug)]
pub struct Load {
    name: &'static str,
    about: &'static str,
    specs: Vec<Spec>,
}

impl Load {
    /// One to ten thousand connections, all of them busy or one in a hundred.
    pub fn connections() -> Self {
        let mut specs = Vec::new();
        for count in [1, 50, 1000, 10_000] {
            let both = format!("--wait epoll --connections {count}");
            let title = |active| format!("{count} connections, {active} active, epoll");
            specs.push(Spec::new(&format!("{count}/all"), &title("all"), &both, ""));
            if count >= 1000 {
                for (row, word, part) in [("tenth", "10 %", 10), ("few", "1 %", 100)] {
                    let some = format!("--active {}", count / part);
                    specs.push(Spec::new(&format!("{count}/{row}"), &title(word), &both, &some));
                }
            }
        }
        Load { name: "connections", about: "8 B requests over 1 to 10,000 connections, all active, 10 % and 1 %", specs }
    }

    /// Ways of waiting, on cores of one's own and on a shared one.
    pub fn waiting() -> Self {
        let mut specs = Vec::new();
        for (place, where_) in [(Place::Apart, ""), (Place::OneCore, ", one core")] {
            for (wait, word) in [("blocking", "blocking"), ("poll", "poll"), ("epoll", "epoll"), ("edge", "edge-triggered")] {
                for count in [1, 50] {
                    let row = format!("{wait}/{count}{}", if place == Place::OneCore { "/one-core" } else { "" });
                    let title = format!("{word}, {count} connection{}{where_}", plural(count));
                    let spec = Spec::new(&row, &title, &format!("--wait {wait} --connections {count}"), "");
                    specs.push(Spec { place, alone: count == 1 && place == Place::Apart, ..spec });
                }
            }
        }
        for (row, beside, word) in [("listeners", "--listeners 3", "three listeners"), ("pipes", "--pipes 1", "a pipe")] {
            let title = format!("poll, 1 connection beside {word}");
            let both = format!("--wait poll {beside}");
            specs.push(Spec { alone: true, ..Spec::new(&format!("poll-{row}/1"), &title, &both, "") });
        }
        Load {
            name: "waiting",
            about:
                "8 B requests by blocking calls, poll (alone, beside listeners or a pipe), epoll level and edge, on one core and two; floor: a cache line to and fro",
            specs,
        }
    }

    /// Threads, processes that outnumber the cores, and processes that share a connection after fork.
    pub fn threads() -> Self {
        let mut specs = Vec::new();
        for count in [1, 2, 4] {
            let both = format!("--threads {count} --connections {count}");
            let spec = Spec::new(
                &format!("threads/{count}"),
                &format!("{count} thread{} a side, one connection each", plural(count)),
                &both,
                "",
            );
            specs.push(Spec { place: Place::Anywhere, ..spec });
        }
        for count in [1, 2, 4] {
            let both = format!("--threads {count} --common 1");
            let title = format!("{count} thread{} a side, one connection for all", plural(count));
            let spec = Spec::new(&format!("one-socket/{count}"), &title, &both, "");
            specs.push(Spec { place: Place::Anywhere, ..spec });
        }
        for count in [1, 2, 4, 8] {
            let spec = Spec::new(
                &format!("processes/{count}"),
                &format!("{count} process{} a side, unpinned", if count == 1 { "" } else { "es" }),
                &format!("--processes {count}"),
                "",
            );
            specs.push(Spec { place: Place::Anywhere, ..spec });
        }
        for count in [1, 2, 4] {
            let both = format!("--threads {count} --connections {count}");
            let title = format!("{count} thread{} looking, nothing there", plural(count));
            let spec = Spec::new(&format!("looks/{count}"), &title, &both, "--look 1");
            specs.push(Spec { place: Place::Anywhere, ..spec });
        }
        for count in [2, 4] {
            let title = format!("{count} forked processes share the server's end");
            specs.push(Spec::new(&format!("sharers/{count}"), &title, &format!("--sharers {count}"), ""));
        }
        Load {
            name: "threads",
            about: "8 B requests by 1 to 4 threads (a connection each, or one for all), 1 to 8 processes a side, forked sharers",
            specs,
        }
    }

    /// Message sizes of real systems, a request and its echo, 1 to 64 in flight.
    pub fn mixes() -> Self {
        let mut specs = Vec::new();
        for (number, mix) in MIXES.iter().enumerate() {
            for outstanding in [1, 16, 64] {
                let row = format!("{}/{outstanding}", mix.name);
                let title = format!("{}, {outstanding} in flight", mix.title);
                let spec = Spec::new(&row, &title, "--wait epoll", &format!("--outstanding {outstanding}"));
                specs.push(Spec { mix: Some(number), ..spec });
            }
        }
        Load {
            name: "mixes",
            about: "requests of the sizes that memcached, search, RPC, Hadoop and web search clusters were seen to send",
            specs,
        }
    }
}

impl Cell for Load {
    fn name(&self) -> &'static str {
        self.name
    }

    fn about(&self) -> &'static str {
        self.about
    }

    fn repeats(&self, settings: &Settings) -> usize {
        settings.repeats.min(5)
    }

    fn floors(&mut self, instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
        let alone: Vec<&Spec> = self.specs.iter().filter(|spec| spec.alone).collect();
        if !alone.is_empty() {
            let floor = floor_distribution(instrument)?;
            for spec in alone {
                collector.add_floor("cache line", alone_latencies(&format!("{}/{}", self.name, spec.row), spec, &floor));
            }
        }
        Ok(())
    }

    fn turn(&mut self, instrument: &mut Instrument, contender: &Contender, repeat: usize) -> io::Result<Turn> {
        let milliseconds = (instrument.settings.milliseconds / 3).max(10);
        let mut turn = Turn::default();
        for spec in &self.specs {
            let (rate, cpu, accelerated, samples) = spec.run(instrument, contender, milliseconds, repeat == 0)?;
            let name = format!("{}/{}", self.name, spec.row);
            turn.figures.push(Figure::new(name.clone(), spec.title.clone(), Unit::PerSecond, rate).with_cpu(cpu));
            turn.figures.extend(latencies(&name, spec, &samples));
            turn.accelerated = accelerated.or(turn.accelerated);
        }
        Ok(turn)
    }
}

/// The 99th percentile, and the median of a request that is alone; for a mix the 50th, 99th and 99.9th of each class of sizes.
fn latencies(name: &str, spec: &Spec, samples: &[(u32, u32)]) -> Vec<Figure> {
    let times = |above: u32, most: u32| -> Vec<u32> {
        samples.iter().filter(|(size, _)| *size > above && *size <= most).map(|(_, nanoseconds)| *nanoseconds).collect()
    };
    if spec.mix.is_none() {
        let times = times(0, u32::MAX);
        return match Distribution::of(&times) {
            _ if times.is_empty() => Vec::new(),
            distribution if spec.alone => alone_latencies(name, spec, &distribution),
            distribution => percentiles(name, "  ", "", &[99.0], &distribution),
        };
    }
    let mut figures = Vec::new();
    let mut above = 0;
    for (class, most) in [(", to 64 B", 64), (", to 1 KiB", 1 << 10), (", to 16 KiB", 16 << 10), (", larger", u32::MAX)] {
        let times = times(above, most);
        above = most;
        if !times.is_empty() {
            figures.extend(percentiles(&format!("{name}/{most}"), "  ", class, &[50.0, 99.0, 99.9], &Distribution::of(&times)));
        }
    }
    figures
}

/// Rows that begin with their floor, so each says whose it is.
fn alone_latencies(name: &str, spec: &Spec, distribution: &Distribution) -> Vec<Figure> {
    percentiles(name, &format!("{}, ", spec.title), "", &[50.0, 99.0], distribution)
}

fn percentiles(name: &str, before: &str, behind: &str, asked: &[f64], distribution: &Distribution) -> Vec<Figure> {
    let figure = |percentile: &f64| {
        Figure::percentile(format!("{name}/p{percentile}"), format!("{before}p{percentile}{behind}"), *percentile, distribution)
    };
    asked.iter().map(figure).collect()
}

/// A distribution of message sizes, by the sizes at some of its quantiles.
#[derive(Debug)]
pub struct Mix {
    name: &'static str,
    title: &'static str,
    /// Sizes at [`QUANTILES`].
    sizes: [u32; 14],
}

/// In per mille, and for how many of a thousand messages the size at it stands.
const QUANTILES: [(u32, usize); 14] = [
    (50, 100),
    (150, 100),
    (250, 100),
    (350, 100),
    (450, 100),
    (550, 100),
    (650, 100),
    (750, 100),
    (850, 100),
    (920, 50),
    (960, 25),
    (980, 12),
    (990, 8),
    (995, 5),
];

/// Quantiles of the workloads W1 to W5 of Homa (Montazeri and others, SIGCOMM 2018), whose messages were seen in
/// Facebook's memcached, Google's search application, all of a Google data centre's RPCs, Facebook's Hadoop, and a web search
/// cluster (DCTCP). Sizes end at 1 MiB: of W4 25 messages in a thousand are cut to that, to 10 MB in truth, and of W5 350, to 29
/// MB.
pub const MIXES: [Mix; 5] = [
    Mix { name: "w1", title: "W1, memcached", sizes: [8, 8, 8, 11, 15, 51, 113, 203, 365, 600, 930, 1360, 1876, 2588] },
    Mix { name: "w2", title: "W2, search", sizes: [8, 8, 43, 135, 233, 284, 341, 394, 465, 602, 1078, 2048, 3151, 4096] },
    Mix { name: "w3", title: "W3, all RPCs", sizes: [8, 64, 85, 128, 205, 282, 352, 469, 896, 2657, 7256, 13435, 31013, 84867] },
    Mix {
        name: "w4",
        title: "W4, Hadoop",
        sizes: [297, 335, 463, 537, 600, 737, 1559, 42493, 77041, 167112, 406302, 1 << 20, 1 << 20, 1 << 20],
    },
    Mix {
        name: "w5",
        title: "W5, web search",
        sizes: [2860, 8580, 23520, 38220, 60270, 111720, 588000, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20],
    },
];

/// A thousand sizes in an order that is the same in each run and shows no pattern.
fn write_sizes(path: &Path, mix: &Mix) -> io::Result<()> {
    let mut sizes: Vec<u32> =
        mix.sizes.iter().zip(QUANTILES).flat_map(|(size, (_, count))| std::iter::repeat_n(*size, count)).collect();
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    for at in (1..sizes.len()).rev() {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        sizes.swap(at, (state % (at as u64 + 1)) as usize);
    }
    fs::write(path, sizes.iter().flat_map(|size| size.to_ne_bytes()).collect::<Vec<u8>>())
}

/// Samples of `load.c`: size and nanoseconds.
fn read_pairs(path: &Path) -> io::Result<Vec<(u32, u32)>> {
    let bytes = fs::read(path)?;
    fs::remove_file(path)?;
    let word = |four: &[u8]| u32::from_ne_bytes(four.try_into().expect("four bytes"));
    Ok(bytes.chunks_exact(8).map(|eight| (word(&eight[..4]), word(&eight[4..]))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_stand_for_a_thousand_messages() {
        assert_eq!(QUANTILES.iter().map(|(_, count)| count).sum::<usize>(), 1000);
        assert!(MIXES.iter().all(|mix| mix.sizes.is_sorted()));
    }

    #[test]
    fn a_request_alone_has_its_median() {
        let samples = [(8, 100), (8, 100), (8, 100)];
        let rows = |alone| {
            let figures = latencies("waiting/poll/1", &Spec { alone, ..Spec::default() }, &samples);
            figures.into_iter().map(|figure| figure.row).collect::<Vec<_>>()
        };
        assert_eq!(rows(true), ["waiting/poll/1/p50", "waiting/poll/1/p99"]);
        assert_eq!(rows(false), ["waiting/poll/1/p99"]);
    }

    #[test]
    fn a_mix_is_told_by_size_class() {
        let spec = Spec { mix: Some(0), ..Spec::new("w1", "W1", "", "") };
        let samples = [(8, 100), (8, 100), (2000, 900)];
        let figures = latencies("mixes/w1", &spec, &samples);
        assert_eq!(figures.len(), 6);
        assert_eq!((figures[0].value, figures[3].value), (100.0, 900.0));
    }
}
