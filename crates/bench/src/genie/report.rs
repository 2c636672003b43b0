//! The tables as text, beside the published ones, and the document that is stored.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use shunt_buffers::tables::{self, Architecture, Operation};
use shunt_buffers::Semantics;

use super::ablations::{self, Ablation, Alone};
use super::carrier::Carrier;
use super::model::{self, Fit, Measured, Scaling, Way};
use super::primitives::{self, Tables};
use super::processor::{self, Processor};
use super::shaped::{self, Checked};
use super::{published, LONG};

/// One kind of message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kind {
    pub semantics: String,
    pub way: Way,
    /// By the breakdown model.
    pub estimated: Fit,
    /// The line through what was measured, to 60 KB.
    pub actual: Fit,
    /// Bytes, nanoseconds.
    pub points: Vec<(f64, f64)>,
    /// The processors' time in operations, of 60 KB.
    pub busy: f64,
}

/// What was found over one carrier.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Findings {
    pub carrier: String,
    pub costs: BTreeMap<String, Fit>,
    pub kinds: Vec<Kind>,
    /// Estimates against what was measured: geometric mean of the error, and the worst.
    pub error: (f64, f64),
    /// The sender's semantics, the receiver's: nanoseconds for 60 KB with early demultiplexing.
    pub halves: [[f64; 8]; 8],
    pub halves_error: (f64, f64),
    /// Emulated copy of 60 KB, with pages swapped and with copyout.
    pub swaps: [f64; 2],
    /// Network rate in bits a second; semantics; predicted throughput of 60 KB in bits a second.
    pub predictions: Vec<(f64, String, f64)>,
    #[serde(default)]
    pub ablations: Vec<Ablation>,
    #[serde(default)]
    pub processor: Vec<Processor>,
    /// Predictions against links of known rates.
    #[serde(default)]
    pub checked: Vec<Checked>,
}

/// What was measured beside the eight semantics by length.
pub struct Parts {
    pub halves: [[f64; 8]; 8],
    pub swaps: [f64; 2],
    pub ablations: Vec<Ablation>,
    pub processor: Vec<Processor>,
}

/// What is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Document {
    pub machine: String,
    pub command: String,
    #[serde(default)]
    pub primitives: Tables,
    #[serde(default)]
    pub alone: Vec<Alone>,
    pub carriers: Vec<Findings>,
}

impl Document {
    /// One that another run stored.
    pub fn read(path: &Path) -> io::Result<Document> {
        serde_json::from_slice(&std::fs::read(path)?).map_err(|error| io::Error::other(format!("{}: {error}", path.display())))
    }
}

const RATES: [f64; 5] = [0.622e9, 10e9, 25e9, 100e9, 400e9];

impl Findings {
    pub fn of(carrier: Carrier, all: &[Measured], parts: Parts) -> Option<Findings> {
        let Parts { halves, swaps, ablations, processor } = parts;
        let most = LONG as f64;
        let costs = model::costs(all, most);
        let base = model::base(all, &costs, most)?;
        let estimates: Vec<(Fit, &Measured)> = all.iter().map(|one| (model::estimate(one, &base, &costs), one)).collect();
        let kind = |(estimated, one): &(Fit, &Measured)| Kind {
            semantics: one.semantics.name().into(),
            way: one.way,
            estimated: *estimated,
            actual: one.fit(most),
            points: one.latencies.clone(),
            busy: one.busy(LONG),
        };
        let early = |semantics: Semantics| estimates.iter().find(|one| one.1.semantics == semantics && one.1.way == Way::Early);
        // A half is what a semantics adds to emulated share's message, at one end.
        let share = Semantics::EMULATED_SHARE.index();
        let mut apart = Vec::new();
        for sender in 0..8 {
            for receiver in 0..8 {
                let expected = halves[sender][share] + halves[share][receiver] - halves[share][share];
                apart.push((expected / halves[sender][receiver]).ln().abs());
            }
        }
        let mean = (apart.iter().sum::<f64>() / apart.len() as f64).exp() - 1.0;
        let predicted = RATES.into_iter().flat_map(|rate| {
            let of = move |(semantics, _): &(Semantics, f64)| (rate, *semantics);
            published::PREDICTED.iter().map(of)
        });
        let predictions = predicted
            .filter_map(|(rate, semantics)| {
                let bits = model::throughput(&early(semantics)?.0, &base, LONG, rate);
                Some((rate, semantics.name().to_owned(), bits))
            })
            .collect();
        Some(Findings {
            carrier: carrier.word().into(),
            error: model::errors(&estimates, most),
            kinds: estimates.iter().map(kind).collect(),
            costs: model::by_name(&costs, Some(base)),
            halves,
            halves_error: (mean, apart.into_iter().fold(0.0, f64::max).exp() - 1.0),
            swaps,
            predictions,
            ablations,
            processor,
            checked: Vec::new(),
        })
    }

    /// Holds the predictions against links of known rates.
    pub fn check(&mut self, cores: (usize, usize), rounds: usize) -> io::Result<()> {
        let Some(base) = self.costs.get("Base") else { return Ok(()) };
        let early = |semantics| Some((semantics, self.kind(semantics, Way::Early)?.estimated));
        let estimates: Vec<(Semantics, Fit)> = Semantics::ALL.into_iter().filter_map(early).collect();
        self.checked = shaped::check(cores, rounds, &estimates, base)?;
        Ok(())
    }

    fn kind(&self, semantics: Semantics, way: Way) -> Option<&Kind> {
        self.kinds.iter().find(|kind| kind.semantics == semantics.name() && kind.way == way)
    }

    fn at(&self, semantics: Semantics, way: Way, length: usize) -> f64 {
        let points = self.kind(semantics, way).map(|kind| &kind.points[..]).unwrap_or_default();
        points.iter().find(|point| point.0 == length as f64).map_or(f64::NAN, |point| point.1)
    }
}

/// Everything, for all carriers.
pub fn text(document: &Document, others: &[Document]) -> String {
    let mut text =
        format!("\"Effects of Buffering Semantics on I/O Performance\" (OSDI '96), reproduced on {}\n", document.machine);
    let _ = operations(&mut text);
    let _ = primitives::write(&mut text, &document.primitives);
    let _ = ablations::write_alone(&mut text, &document.alone);
    for found in &document.carriers {
        let _ = over(&mut text, found, others);
    }
    text
}

fn words(row: &[Operation]) -> String {
    let words: Vec<&str> = row.iter().map(|operation| operation.words().trim_end_matches('.')).collect();
    if words.is_empty() {
        "-".into()
    } else {
        words.join("; ")
    }
}

/// Tables 2, 3 and 4, from the data that ran.
fn operations(text: &mut String) -> fmt::Result {
    writeln!(text, "\nTables 2 to 4, as they were walked (wire: mlock; read-only, invalidate, reinstate: mprotect; swap: mmap over; DMA: a copy past them)")?;
    for semantics in Semantics::ALL {
        let row = tables::output(semantics);
        writeln!(text, "{}\n    output     {} | {}", semantics.name(), words(row.prepare), words(row.dispose))?;
        for (architecture, name) in Architecture::ALL.into_iter().zip(["early", "pooled", "outboard"]) {
            let row = architecture.row(semantics);
            writeln!(text, "    {name:<10} {} | {} | {}", words(row.prepare), words(row.ready), words(row.dispose))?;
        }
    }
    Ok(())
}

fn line(fit: &Fit) -> String {
    format!("{:>9.5} B {:>+8.2}", fit.each / 1e3, fit.fixed / 1e3)
}

fn over(text: &mut String, found: &Findings, others: &[Document]) -> fmt::Result {
    writeln!(text, "\n==== over {} ====", found.carrier)?;
    writeln!(
        text,
        "\nTable 6: primitive operations, us; B is the length in bytes (4 KiB to 60 KB, least squares, timed in place)"
    )?;
    writeln!(text, "{:<42}{:>20}{:>8}   {:>20}", "", "today", "r2", "1996")?;
    for (name, fit) in &found.costs {
        let known = published::COSTS.iter().find(|known| known.0 == name);
        let then = known.map_or("-".into(), |(_, each, fixed)| format!("{each:>9.5} B {fixed:>+8.2}"));
        writeln!(text, "{name:<42}{:>20}{:>8.3}   {then:>20}", line(fit), fit.r2)?;
    }

    writeln!(text, "\nTable 7: latency, us: estimated (E) by base and operations, and actual (A)")?;
    writeln!(text, "{:<20}   {:>20} {:>20} {:>20} {:>20}", "", "early", "pooled, aligned", "pooled, unaligned", "outboard")?;
    for semantics in Semantics::ALL {
        for (mark, which) in [("E", 0), ("A", 1)] {
            write!(text, "{:<20} {mark}", if which == 0 { semantics.name() } else { "" })?;
            for way in Way::ALL {
                let fit = found.kind(semantics, way).map(|kind| if which == 0 { kind.estimated } else { kind.actual });
                write!(text, " {:>20}", fit.map_or("-".into(), |fit| line(&fit)))?;
            }
            writeln!(text)?;
        }
        write!(text, "{:<20} 1996", "")?;
        for (each, fixed) in published::LATENCIES[semantics.index()] {
            write!(text, " {:>20}", format!("{each:.5} B {fixed:+.0}"))?;
        }
        writeln!(text)?;
    }
    let percent = |value: f64| value * 100.0;
    writeln!(
        text,
        "breakdown model against what was measured, every length of whole pages: geometric mean {:.1} %, worst {:.1} %",
        percent(found.error.0),
        percent(found.error.1)
    )?;
    writeln!(
        text,
        "sender's half and receiver's half chosen apart, 64 pairs at 60 KB: base and two halves, geometric mean {:.1} %, worst {:.1} %",
        percent(found.halves_error.0),
        percent(found.halves_error.1)
    )?;

    figures(text, found)?;
    writeln!(text, "\nTable 8: how costs scale: another machine's parameter over this one's")?;
    let mut rows: Vec<(String, Vec<Scaling>)> = Vec::new();
    let then: BTreeMap<String, Fit> = published::COSTS
        .iter()
        .map(|(name, each, fixed)| ((*name).to_owned(), Fit { fixed: fixed * 1e3, each: each * 1e3, r2: 1.0 }))
        .collect();
    rows.push(("Micron P166, 1996".into(), model::scaling(&found.costs, &then)));
    for other in others {
        for theirs in other.carriers.iter().filter(|theirs| theirs.carrier == found.carrier) {
            rows.push((other.machine.clone(), model::scaling(&found.costs, &theirs.costs)));
        }
    }
    for (machine, kinds) in rows {
        writeln!(text, "{machine}\n    {:<34}{:>8}{:>9}{:>9}{:>7}", "", "GM", "Min", "Max", "of")?;
        for one in kinds {
            writeln!(text, "    {:<34}{:>8.2}{:>9.2}{:>9.2}{:>7}", one.kind, one.mean, one.least, one.most, one.count)?;
        }
    }
    writeln!(text, "1996, Gateway P5-90 over Micron P166:")?;
    for (kind, estimated, mean, least, most) in published::SCALING {
        writeln!(text, "    {kind:<34}{mean:>8.2}{least:>9.2}{most:>9.2}         estimated {estimated}")?;
    }

    writeln!(
        text,
        "\nThe scaling model at networks' rates: 60 KB, early demultiplexing, Gb/s (1996 at 0.622: 0.140, 0.404, 0.463, 0.380)"
    )?;
    write!(text, "{:<14}", "Gb/s")?;
    for (semantics, _) in published::PREDICTED {
        write!(text, "{:>18}", semantics.name())?;
    }
    writeln!(text, "{:>26}", "emulated copy / copy")?;
    for rate in RATES {
        let of = |semantics: Semantics| {
            found
                .predictions
                .iter()
                .find(|known| known.0 == rate && known.1 == semantics.name())
                .map_or(f64::NAN, |known| known.2)
        };
        write!(text, "{:<14}", rate / 1e9)?;
        for (semantics, _) in published::PREDICTED {
            write!(text, "{:>18.3}", of(semantics) / 1e9)?;
        }
        writeln!(text, "{:>26.2}", of(Semantics::EMULATED_COPY) / of(Semantics::COPY))?;
    }
    shaped::write(text, &found.checked)?;
    ablations::write(text, &found.ablations)?;
    conclusions(text, found)
}

fn figures(text: &mut String, found: &Findings) -> fmt::Result {
    for (figure, way) in
        [("Figure 3", Way::Early), ("Figure 6", Way::Aligned), ("Figure 7", Way::Unaligned), ("Not in the paper", Way::Outboard)]
    {
        if found.kind(Semantics::COPY, way).is_none() {
            continue;
        }
        let column = Way::ALL.iter().position(|known| *known == way).unwrap_or(0);
        writeln!(text, "\n{figure}: latency with {}, us (1996: by table 7's lines)", way.title())?;
        writeln!(
            text,
            "{:<20}{:>9}{:>9}{:>9}{:>9}{:>9}{:>14}{:>12}",
            "", "4 KiB", "16 KiB", "60 KB", "128 KiB", "256 KiB", "1996, 60 KB", "1996, Mb/s"
        )?;
        for semantics in Semantics::ALL {
            write!(text, "{:<20}", semantics.name())?;
            for length in [4 << 10, 16 << 10, LONG, 128 << 10, 256 << 10] {
                let time = found.at(semantics, way, length) / 1e3;
                let cell = if time.is_nan() { "-".into() } else { format!("{time:.2}") };
                write!(text, "{cell:>9}")?;
            }
            match published::LATENCIES[semantics.index()].get(column) {
                Some((each, fixed)) => {
                    let time = each * LONG as f64 + fixed;
                    writeln!(text, "{time:>14.0}{:>12.0}", LONG as f64 * 8.0 / time)?;
                }
                None => writeln!(text)?,
            }
        }
    }
    let operations = |semantics| found.kind(semantics, Way::Early).map_or(f64::NAN, |kind| kind.busy);
    processor::write(text, &found.processor, operations)?;
    writeln!(
        text,
        "\nFigure 5: short messages with early demultiplexing, us (1996: copy least, 145 for the shortest; move by far most)"
    )?;
    writeln!(text, "{:<20}{:>9}{:>9}{:>9}{:>9}{:>9}", "", "64 B", "1 KiB", "2 KiB", "2176 B", "3.5 KiB")?;
    for semantics in Semantics::ALL {
        write!(text, "{:<20}", semantics.name())?;
        for length in [64, 1024, 2048, 2176, 3584] {
            write!(text, "{:>9.2}", found.at(semantics, Way::Early, length) / 1e3)?;
        }
        writeln!(text)?;
    }
    Ok(())
}

/// What holds today, and what does not.
fn conclusions(text: &mut String, found: &Findings) -> fmt::Result {
    writeln!(text, "\nWhat reproduces over {}, at 60 KB:", found.carrier)?;
    let at = |semantics| found.at(semantics, Way::Early, LONG);
    let others = Semantics::ALL.into_iter().filter(|semantics| *semantics != Semantics::COPY).map(at);
    let (least, most) = others.fold((f64::MAX, 0.0), |(least, most), time| (f64::min(least, time), f64::max(most, time)));
    writeln!(
        text,
        "  all but copy lie within {:.0} % of each other (1996: 7 %); emulated copy saves {:.0} % of copy's latency (1996: 37 %)",
        (most / least - 1.0) * 100.0,
        (1.0 - at(Semantics::EMULATED_COPY) / at(Semantics::COPY)) * 100.0
    )?;
    let mut order: Vec<(f64, &str)> = Semantics::ALL.map(|semantics| (at(semantics), semantics.name())).into();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    let names: Vec<&str> = order.iter().map(|one| one.1).collect();
    writeln!(text, "  from the fastest: {}", names.join(", "))?;
    writeln!(
        text,
        "  1996:             emulated share, emulated weak move, emulated move, emulated copy, share and weak move, move, copy"
    )?;
    writeln!(
        text,
        "  input alignment: emulated copy {:.2} us with pages swapped, {:.2} us with copyout in their place",
        found.swaps[0] / 1e3,
        found.swaps[1] / 1e3
    )?;
    let best = least.min(at(Semantics::COPY));
    writeln!(
        text,
        "  over the best of the eight: emulated copy with pages swapped {:.2}, with copyout in their place {:.2}, copy {:.2}",
        found.swaps[0] / best,
        found.swaps[1] / best,
        at(Semantics::COPY) / best
    )?;
    let base = found.costs.get("Base").copied().unwrap_or_default();
    let copy = found.costs.get("Copyout input data.").copied().unwrap_or_default();
    let ratio = base.each / copy.each;
    writeln!(
        text,
        "  a byte over the base costs {ratio:.1} times what copying it out does (1996: {:.1}), a page's protection {:.1} copies of a page (1996: {:.2})",
        0.0598 / 0.0220,
        found.costs.get("Read-only application pages.").map_or(f64::NAN, |cost| cost.at(4096)) / copy.at(4096).max(1.0),
        (0.000_367 * 4096.0 + 2.0) / (0.0220 * 4096.0 + 15.0)
    )?;
    match found.carrier.as_str() {
        "shm" => writeln!(
            text,
            "  Not reproduced: that avoiding a copy always pays. The network is one copy between two caches, and what changes a page table is a system\n  \
             call, and a shootdown where another thread runs: swapping, wiring and hiding cost more than the copy that they avoid at these lengths.\n  \
             References alone (emulated share, emulated weak move) win at every length, as then. shunt copies out where Genie swaps.\n  \
             Figure 5: move and share are far behind for short messages, as then; but copy is not in front: a reference costs next to nothing."
        ),
        carrier => {
            let network = match carrier {
                "xdp" => "The copies into frames, between them and out of them, and the calls",
                _ => "The kernel's own two copies and its calls",
            };
            writeln!(
                text,
                "  Not reproduced: that swapping and protecting pages is cheap beside the network. {network}\n  \
                 are the network here: both copies that references avoid are worth {:.0} % of emulated share's message, {:.0} % of copy's, and changing\n  \
                 page tables costs more.\n  \
                 References alone (emulated share, emulated weak move) win at every length, as then.",
                (at(Semantics::COPY) / at(Semantics::EMULATED_SHARE) - 1.0) * 100.0,
                (1.0 - at(Semantics::EMULATED_SHARE) / at(Semantics::COPY)) * 100.0
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(semantics: Semantics, way: Way) -> Measured {
        let slope = if semantics == Semantics::COPY { 0.04 } else { 0.02 };
        let latencies = [4096.0, 16384.0, 61440.0].map(|length| (length, 1000.0 + slope * length)).to_vec();
        Measured { semantics, way, latencies, operations: BTreeMap::new(), times: BTreeMap::new() }
    }

    #[test]
    fn a_document_is_read_again_and_says_what_it_has() {
        let all: Vec<Measured> =
            Way::ALL.into_iter().flat_map(|way| Semantics::ALL.map(|semantics| flat(semantics, way))).collect();
        let found = {
            let (halves, swaps) = ([[2000.0; 8]; 8], [1.0, 2.0]);
            let ablations = vec![Ablation {
                technique: "region hiding".into(),
                without: "unmapping".into(),
                published: "4".into(),
                points: vec![(LONG, 1000.0, 1500.0, 1.5)],
            }];
            let points = vec![(LONG, 4000.0, 6000.0)];
            let processor = vec![Processor { semantics: Semantics::COPY.name().into(), points }];
            Findings::of(Carrier::Shm, &all, Parts { halves, swaps, ablations, processor }).unwrap()
        };
        assert!(found.halves_error.1 < 1e-9);
        let document = Document {
            machine: "a machine".into(),
            command: "shunt bench".into(),
            primitives: Tables::new(),
            alone: Vec::new(),
            carriers: vec![found],
        };
        let again: Document = serde_json::from_str(&serde_json::to_string(&document).unwrap()).unwrap();
        assert_eq!((again.carriers[0].kinds.len(), again.carriers[0].kinds[1].way), (32, Way::Early));
        let text = text(&document, &[again]);
        for part in
            ["Table 6", "Table 7", "Table 8", "Figure 3", "Figure 4", "Figure 5", "Figure 6", "Figure 7", "a machine\n    "]
        {
            assert!(text.contains(part), "{part}");
        }
        assert!(text.contains("emulated copy saves"), "{text}");
        assert!(text.contains("60 KB      1.00      1.50     1.50 x"), "{text}");
        assert!(text.contains("4.0 + 6.0    0.50 %"), "{text}");
        assert!(text.contains("with copyout in their place 0.00, copy 1.55"), "{text}");
        assert!(text.contains("all but copy lie within 0 % of each other (1996: 7 %)"), "{text}");
    }
}
