//! A host's part of a job: starts the ranks that the launcher names on standard input, and tells on standard output what
//! becomes of them.

use super::frames::{Frame, Start, OUTPUT, VERSION};
use super::labels::Sink;
use super::signals::{ignore_broken_pipes, Signals};
use super::{fitting, run_with, trace, Job, Outcome, Part};
use crate::layout::RANKS;
use crate::remote::hosts::Hosts;
use crate::remote::{device, keeper};
use crate::trace::{clock, RECORDS};
use std::ffi::OsString;
use std::io;
use std::net::TcpListener;
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

/// Serves one launcher, until the ranks have ended. A launcher that is gone (standard input ends) ends them.
///
/// # Errors
/// If standard input does not begin with what a launcher of this version sends, or if the launcher is gone.
pub fn serve() -> io::Result<()> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_string());
    // Threads that start after this leave signals to the one that takes them.
    let signals = Signals::hold()?;
    ignore_broken_pipes();
    let Some(Frame::Start(start)) = Frame::read(&mut io::stdin())? else {
        return Err(invalid("no job is named on standard input"));
    };
    let last = start.first.checked_add(start.ranks).filter(|last| *last <= start.total);
    if start.version != VERSION || start.ranks == 0 || last.is_none() || start.total as usize > RANKS || start.program.is_empty()
    {
        return Err(invalid("the launcher is of another version"));
    }
    let shift = if start.trace { shift()? } else { 0 };
    let apart = if start.total > start.ranks { Some(meet(&start)?) } else { None };
    let linger = apart.is_some();
    let obeys = std::thread::Builder::new().spawn(obey)?;
    let sink: Sink = Arc::new(|error, bytes| {
        let send = |bytes: &[u8]| Frame::Output { error, bytes: bytes.to_vec() }.write(&mut io::stdout().lock());
        bytes.chunks(OUTPUT).try_for_each(send)
    });
    let last = match start_and_wait(start, signals, sink, apart, shift) {
        Ok(outcome) => {
            let cause = outcome.cause.map(|(why, process)| {
                let (kind, rank, code) = why.words();
                [kind, rank, code as u32, process]
            });
            Frame::Done { status: outcome.status, cause }
        }
        Err(error) => Frame::Failed { code: error.raw_os_error().unwrap_or(0), why: error.to_string().into_bytes() },
    };
    last.write(&mut io::stdout().lock())?;
    if linger {
        // Ranks of other hosts may still have to hear from the keeper; the launcher says when all is over.
        let _ = obeys.join();
    }
    Ok(())
}

/// How far the launcher's clock is before this host's, as far as a question and its answer can tell.
fn shift() -> io::Result<i64> {
    let asked = clock();
    Frame::Clock(asked).write(&mut io::stdout().lock())?;
    let Some(Frame::Clock(theirs)) = Frame::read(&mut io::stdin())? else {
        return Err(io::Error::other("the launcher has ended the job before its start"));
    };
    Ok(theirs.wrapping_sub(asked.midpoint(clock())) as i64)
}

/// Tells the launcher where this host's keeper can be reached, and hears where the others' can.
fn meet(start: &Start) -> io::Result<(Hosts, TcpListener)> {
    let listener = keeper::listen()?;
    let addresses = device::addresses()?.iter().map(|(at, bits)| format!("{at}/{bits}").into_bytes()).collect();
    let port = u32::from(listener.local_addr()?.port());
    Frame::Here { port, addresses }.write(&mut io::stdout().lock())?;
    let Some(Frame::Hosts(table)) = Frame::read(&mut io::stdin())? else {
        return Err(io::Error::other("the launcher has ended the job before its start"));
    };
    let words: Vec<u64> = table.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight"))).collect();
    let hosts = Hosts::from_words(&words, start.total as usize)
        .filter(|hosts| hosts.list[hosts.of(start.first as usize)].ranks == start.ranks as usize);
    let hosts = hosts.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the launcher's table of hosts is broken"))?;
    Ok((hosts, listener))
}

/// Runs the ranks, and tells what they did if they are traced; times of that are to be `shift` later.
fn start_and_wait(
    start: Start,
    signals: Signals,
    sink: Sink,
    apart: Option<(Hosts, TcpListener)>,
    shift: i64,
) -> io::Result<Outcome> {
    let text = OsString::from_vec;
    let directory = text(start.directory);
    std::env::set_current_dir(&directory)
        .map_err(|error| io::Error::other(format!("cannot enter {}: {error}", directory.to_string_lossy())))?;
    let environment = start.environment.into_iter().filter_map(|entry| {
        let at = entry.iter().position(|byte| *byte == b'=').filter(|at| *at > 0)?;
        Some((text(entry[..at].to_vec()), text(entry[at + 1..].to_vec())))
    });
    let part = Part {
        first: start.first as usize,
        total: start.total as usize,
        environment: environment.collect(),
        sink: Some(sink),
        apart,
    };
    let heap = usize::try_from(start.heap).map_err(io::Error::other)?;
    let program = start.program.into_iter().map(text).collect();
    let job = Job { ranks: start.ranks as usize, heap, program, label: start.label, bind: start.bind };
    let layout = fitting(part.total, job.heap)?;
    let layout = if start.trace { layout.traced(RECORDS) } else { layout };
    let (outcome, control) = run_with(&job, &part, signals, layout)?;
    for rank in (part.first..part.first + job.ranks).filter(|_| start.trace) {
        // SAFETY: the control mapping has all that lies before the heaps.
        let (records, lost) = unsafe { trace::records(control.address(), &layout, rank) };
        Frame::Trace { rank: rank as u32, lost, records: trace::to_bytes(&records, shift) }.write(&mut io::stdout().lock())?;
    }
    Ok(outcome)
}

/// Passes the launcher's signals to the thread that takes this process's.
fn obey() {
    loop {
        let signal = match Frame::read(&mut io::stdin()) {
            Ok(Some(Frame::Signal(signal))) if Signals::ends(signal) => signal,
            // The launcher, or the way to it, is gone, or speaks another language.
            _ => libc::SIGHUP,
        };
        // SAFETY: a signal to this process, which holds it back.
        unsafe { libc::kill(libc::getpid(), signal) };
        if signal == libc::SIGHUP {
            return;
        }
    }
}
