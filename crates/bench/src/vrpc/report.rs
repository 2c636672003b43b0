//! The tables as text.

use std::fmt::{self, Write as _};

use super::model::{Document, Question, Series, SECTIONS};
use super::published::{self, claims};
use crate::cells::bytes;
use crate::papers::fit_rate;

/// Everything.
pub fn text(run: &Document) -> String {
    let mut text = format!("RPC of SHRIMP (1997) and SOVIA (2003), reproduced on {}\n", run.machine);
    for remark in &run.remarks {
        let _ = writeln!(text, "{remark}");
    }
    for missing in &run.missing {
        let _ = writeln!(text, "Not measured: {missing}.");
    }
    text.push_str(
        "Times are medians over rounds in which all took turns; ratios are medians of the rounds' own. The papers' figures 4, 5, 6 and 10 are drawings:\n\
         what stands for them are the numbers of their texts.\n",
    );
    let parts = [null, latencies, sections, bandwidth, references, sovia, conclusions];
    parts.into_iter().for_each(|part| part(&mut text, run).unwrap_or_default());
    text
}

/// A time in microseconds, or a dash.
fn micro(time: Option<f64>) -> String {
    time.map_or("-".into(), |time| format!("{:.2}", time / 1e3))
}

fn ratio(value: Option<f64>) -> String {
    value.map_or("-".into(), |value| format!("{value:.2}"))
}

fn null(text: &mut String, run: &Document) -> fmt::Result {
    writeln!(text, "\nSHRIMP 4.2 and 4.3: a null call\n{:<38}{:>10}{:>14}{:>14}", "", "us", "/ endpoint", "/ cache line")?;
    let mut rows: Vec<(String, Series, Question, usize)> = [Series::Line, Series::Endpoint]
        .map(|floor| (format!("{}, there and back", floor.title()), floor, Question::Trip, 0))
        .into();
    rows.extend(Series::CALLED.map(|series| (series.title().to_owned(), series, Question::Echo, 0)));
    rows.push(("shunt's RPC, one word each way".into(), Series::Own, Question::Word, 8));
    for (title, series, question, length) in rows {
        let over = |floor| ratio(run.over(floor, series, question, length));
        let (time, endpoint, line) = (micro(run.at(series, question, length)), over(Series::Endpoint), over(Series::Line));
        writeln!(text, "{title:<38}{time:>10}{endpoint:>14}{line:>14}")?;
    }
    for (title, time) in [
        ("1997, the hardware's round trip", published::SHRIMP_HARDWARE),
        ("1997, vRPC (compatible)", published::VRPC),
        ("1997, ShrimpRPC (specialised)", published::SHRIMP_RPC),
    ] {
        writeln!(text, "{title:<38}{time:>10.1}{:>14.2}", time / published::SHRIMP_HARDWARE)?;
    }
    Ok(())
}

/// Times and ratios to the endpoint by length, of all contenders.
fn by_length(text: &mut String, run: &Document, (question, beneath): (Question, Question), most: usize) -> fmt::Result {
    writeln!(text, "{:>9} |{:^43}|{:^43}| over its bytes by sockets", "", "us", "/ bare endpoint")?;
    write!(text, "{:>9} |", "bytes")?;
    let heads = ["kernel", "stream", "collapsed", "shunt's"];
    for head in heads.into_iter().chain(heads) {
        write!(text, "{head:>10} ")?;
    }
    writeln!(text, "{:>10}{:>11}{:>11}", "kernel", "stream", "collapsed")?;
    for length in run.lengths(question).into_iter().filter(|length| *length <= most) {
        write!(text, "{:>9} |", bytes(length))?;
        for series in Series::CALLED {
            write!(text, "{:>10} ", micro(run.at(series, question, length)))?;
        }
        for series in Series::CALLED {
            write!(text, "{:>10} ", ratio(run.over(Series::Endpoint, series, question, length)))?;
        }
        for series in [Series::Kernel, Series::Stream, Series::Collapsed] {
            write!(text, "{:>10} ", ratio(run.ratio((series, question, length), (series, beneath, length))))?;
        }
        writeln!(text)?;
    }
    Ok(())
}

fn latencies(text: &mut String, run: &Document) -> fmt::Result {
    writeln!(text, "\nSHRIMP, figure 4: a call with so many bytes of arguments and as many of results (1997: null by vRPC 33 us, 3.88 x the hardware's)")?;
    by_length(text, run, (Question::Echo, Question::EchoBytes), usize::MAX)
}

fn sections(text: &mut String, run: &Document) -> fmt::Result {
    let lengths = run.lengths(Question::Sections);
    if lengths.is_empty() {
        return Ok(());
    }
    for series in [Series::Collapsed, Series::Stream, Series::Kernel] {
        if run.at(series, Question::Sections, 0).is_none() {
            continue;
        }
        writeln!(text, "\nSHRIMP, figure 5: the sections of a call, {}: % of their sum, and the sum in us", series.title())?;
        write!(text, "{:<46}", "")?;
        lengths.iter().try_for_each(|length| write!(text, "{:>10}", bytes(*length)))?;
        writeln!(text)?;
        for (part, name) in SECTIONS.iter().enumerate() {
            write!(text, "{name:<46}")?;
            for length in &lengths {
                let share = run.ratio((series, Question::Section(part), *length), (series, Question::Sections, *length));
                write!(text, "{:>10}", share.map_or("-".into(), |share| format!("{:.1}", share * 100.0)))?;
            }
            writeln!(text)?;
        }
        write!(text, "{:<46}", "sum")?;
        lengths.iter().try_for_each(|length| write!(text, "{:>10}", micro(run.at(series, Question::Sections, *length))))?;
        writeln!(text)?;
    }
    writeln!(text, "Clocks are read ten times in such a call, so it takes longer than in figure 4. Sections are medians of their own: they add up to 100 % nearly.")
}

fn bandwidth(text: &mut String, run: &Document) -> fmt::Result {
    writeln!(text, "\nBandwidth of calls, MB/s of arguments, while as many come back as results (the papers' texts have none)")?;
    writeln!(
        text,
        "{:>9}{:>12}{:>12}{:>12}{:>12}{:>24}",
        "bytes", "kernel", "stream", "collapsed", "shunt's", "shunt's by reference"
    )?;
    let rate = |series, question, length: usize| run.at(series, question, length).map(|time| length as f64 / time * 1e3);
    let cell = |rate: Option<f64>| rate.map_or("-".into(), |rate| format!("{rate:.0}"));
    let lengths: Vec<usize> = run.lengths(Question::Echo).into_iter().filter(|length| *length > 0).collect();
    for length in &lengths {
        write!(text, "{:>9}", bytes(*length))?;
        Series::CALLED.iter().try_for_each(|series| write!(text, "{:>12}", cell(rate(*series, Question::Echo, *length))))?;
        writeln!(text, "{:>24}", cell(rate(Series::Own, Question::Changed, *length)))?;
    }
    for series in Series::CALLED {
        let points: Vec<(f64, f64)> =
            lengths.iter().filter_map(|length| Some((*length as f64, rate(series, Question::Echo, *length)?))).collect();
        if let Some((most, half)) = fit_rate(&points) {
            writeln!(text, "{:<18} r-infinity {most:>7.0} MB/s, n1/2 {half:>7.0} B", series.title())?;
        }
    }
    Ok(())
}

fn references(text: &mut String, run: &Document) -> fmt::Result {
    writeln!(text, "\nSHRIMP, figure 6: one in-out argument of so many bytes (1997: compatible / specialised 3.5 for small ones, \"roughly\" 2 for large)")?;
    writeln!(
        text,
        "{:>9} |{:>12}{:>12}{:>14}{:>14} |{:>12}{:>14}{:>14}",
        "bytes", "collapsed", "by value", "by reference", "and changed", "/ by value", "/ reference", "/ changed"
    )?;
    for length in run.lengths(Question::Echo) {
        let collapsed = (Series::Collapsed, Question::Echo, length);
        write!(text, "{:>9} |{:>12}", bytes(length), micro(run.at(collapsed.0, collapsed.1, length)))?;
        let ways = [(Question::Echo, 12), (Question::Reference, 14), (Question::Changed, 14)];
        for (question, width) in ways {
            write!(text, "{:>width$}", micro(run.at(Series::Own, question, length)))?;
        }
        write!(text, " |")?;
        for (question, width) in ways {
            write!(text, "{:>width$}", ratio(run.ratio(collapsed, (Series::Own, question, length))))?;
        }
        writeln!(text)?;
    }
    writeln!(text, "us. By value, results have a bound of 256 KiB, so each call sets room for them aside. By reference, the caller fills the memory before each call;\n\
         a server that leaves it as it is touches nothing of it, so nothing moves.")
}

fn sovia(text: &mut String, run: &Document) -> fmt::Result {
    writeln!(
        text,
        "\nSOVIA, figure 10: a call with a string, which gives an int (2003, null: TCP on Fast Ethernet {} us, on cLAN {}, SOVIA {})",
        published::FAST_ETHERNET,
        published::TCP,
        published::SOVIA
    )?;
    by_length(text, run, (Question::Text, Question::TextBytes), 4096)?;
    writeln!(
        text,
        "{:>9} |{:>18}{:>20}{:>16}    kernel TCP over it (2003: {:.1} for a null call)",
        "bytes",
        "stream",
        "collapsed",
        "shunt's",
        published::TCP / published::SOVIA
    )?;
    for length in run.lengths(Question::Text) {
        let times = |series| ratio(run.ratio((Series::Kernel, Question::Text, length), (series, Question::Text, length)));
        let (stream, collapsed, own) = (times(Series::Stream), times(Series::Collapsed), times(Series::Own));
        writeln!(text, "{:>9} |{stream:>18}{collapsed:>20}{own:>16}", bytes(length))?;
    }
    Ok(())
}

/// What holds today, and what does not.
fn conclusions(text: &mut String, run: &Document) -> fmt::Result {
    writeln!(text, "\nWhat reproduces\n{:<88}{:>8}{:>8}", "", "then", "today")?;
    let claims = claims(run);
    for claim in &claims {
        let verdict = match claim.now.map(|now| (claim.holds)(now, claim.then)) {
            None => "not measured",
            Some(true) => "yes",
            Some(false) => "no",
        };
        writeln!(text, "{:<88}{:>8.2}{:>8}   {verdict}", claim.words, claim.then, ratio(claim.now))?;
    }
    for claim in claims.iter().filter(|claim| claim.now.is_some_and(|now| !(claim.holds)(now, claim.then))) {
        writeln!(text, "Not reproduced: {}: {}", claim.words, claim.reason)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::model::tests::document;
    use super::*;

    #[test]
    fn every_table_stands_with_the_published_numbers() {
        let text = text(&document());
        for part in ["figure 4", "figure 5", "figure 6", "figure 10", "Bandwidth", "a machine\n", "1997, vRPC (compatible)"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains("SunRPC, collapsed                           0.75          2.50          5.00"), "{text}");
        assert!(text.contains("1997, ShrimpRPC (specialised)                9.5          1.12"), "{text}");
        assert!(text.contains("compatible / specialised, null"), "{text}");
        // Of 13,607 ns collapsed, 3497 by reference.
        assert!(text.contains("   64 KiB |       20.41"), "{text}");
        assert!(text.contains("          3.89"), "{text}");
    }

    #[test]
    fn what_does_not_hold_is_said_with_its_reason_and_what_holds_without() {
        let text = text(&document());
        assert!(
            text.contains("Not reproduced: SHRIMP 4.3: compatible / specialised, null: there, the standard's header"),
            "{text}"
        );
        assert!(!text.contains("Not reproduced: SOVIA 5.4: null call by TCP"), "{text}");
    }

    #[test]
    fn what_was_not_measured_is_named_and_has_dashes() {
        let mut run = Document::new("a machine".into(), String::new());
        run.missing.push("SunRPC: its program cannot be compiled here".into());
        run.add(vec![(Series::Endpoint, Question::Trip, 0, 200.0), (Series::Own, Question::Echo, 0, 230.0)]);
        let text = text(&run);
        assert!(text.contains("Not measured: SunRPC: its program cannot be compiled here."), "{text}");
        assert!(text.contains("SunRPC, kernel                                 -             -             -"), "{text}");
        assert!(text.contains("not measured\n"), "{text}");
    }
}
