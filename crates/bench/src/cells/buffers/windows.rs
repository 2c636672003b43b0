//! Messages that their sender moves, received into the application's own buffer: copied out of the sender's region, or its pages swapped in.

use std::fmt::Write as _;
use std::io;
use std::time::Instant;

use nix::unistd::{fork, ForkResult};
use shunt_buffers::port::{Error, Port, Window};
use shunt_buffers::region::{Audience, Pages, Pool, Shape};
use shunt_buffers::Semantics;

use super::{go_through, median, pin, words_of, CACHES, ROUNDS};
use crate::contenders::{Carrier, Contender};
use crate::instrument::{Cell, Instrument, Turn};
use crate::measurement::{Collector, Figure, Unit};
use crate::output::say;

const SIZES: [usize; 6] = [16 << 10, 64 << 10, 256 << 10, 1 << 20, 2 << 20, 4 << 20];
const KINDS: [(Pages, &str); 2] = [(Pages::Small, "4 KiB pages"), (Pages::Huge, "2 MiB pages")];
/// Rounds that do not count: pages are touched, and every window has had a message.
const FIRST: usize = 4;

fn pool(pages: Pages) -> Option<Pool> {
    // Whole huge pages, in which a message begins where one does.
    let (unit, units) = if pages == Pages::Huge { (2 << 20, 16) } else { (64 << 10, 512) };
    let pool = Pool::create(Shape { unit, units }, pages, Audience::Trusted).ok()?;
    pool.populate();
    Some(pool)
}

/// In front of each message: which window, whether pages are swapped, whether it is read.
fn receive(port: &mut Port, read: bool) -> Result<(), Error> {
    let pools = KINDS.map(|(pages, _)| pool(pages));
    let mut windows: Vec<Option<Window>> =
        pools.iter().map(|pool| pool.as_ref().and_then(|pool| Window::new(pool, 4 << 20).ok())).collect();
    loop {
        let mut how = [0; 2];
        if port.receive(&mut how)? == 0 {
            return Ok(());
        }
        port.set_swap_from(if how[1] == 1 { 1 } else { usize::MAX });
        port.send(b"k", false)?;
        let Some(window) = &mut windows[how[0] as usize] else { return Ok(()) };
        let length = port.receive_into(window)?;
        if read {
            std::hint::black_box(go_through(window.bytes().as_ptr(), length));
        }
        port.send(b"k", false)?;
    }
}

/// Nanoseconds copied and swapped, by kind of pages, round by round.
type Times = [[Vec<f64>; 2]; KINDS.len()];

fn send(port: &mut Port, pools: &[Option<Pool>], size: usize, cold: bool) -> Result<Times, Error> {
    let mut others = vec![0u8; if cold { CACHES } else { 0 }];
    let mut times = Times::default();
    for round in 0..FIRST + ROUNDS {
        for (kind, pool) in pools.iter().enumerate() {
            let Some(pool) = pool else { continue };
            for turn in 0..2 {
                let swapped = (round + turn) % 2;
                let mut region = pool.allocate(size)?;
                region.bytes_mut()[..size].fill(round as u8);
                for byte in others.iter_mut().step_by(64) {
                    *byte = round as u8;
                }
                port.send(&[kind as u8, swapped as u8], false)?;
                port.receive(&mut [0])?;
                let begun = Instant::now();
                port.send_region(region, size, Semantics::EMULATED_WEAK_MOVE)?;
                port.receive(&mut [0])?;
                let taken = begun.elapsed();
                port.progress()?;
                if round >= FIRST {
                    times[kind][swapped].push(taken.as_nanos() as f64);
                }
            }
        }
    }
    Ok(times)
}

fn measure(cores: (usize, usize), size: usize, cold: bool, read: bool) -> io::Result<Times> {
    let (mut here, mut there) = Port::pair().map_err(io::Error::other)?;
    // Both ends are this command's.
    here.trust();
    there.trust();
    let pools = KINDS.map(|(pages, _)| pool(pages));
    for pool in pools.iter().flatten() {
        here.offer(pool).map_err(io::Error::other)?;
    }
    here.policy().learns = false;
    here.policy().share_from = 1;
    // SAFETY: the child uses its port, and ends.
    if let ForkResult::Child = unsafe { fork()? } {
        pin(cores.1);
        there.inherit();
        let _ = receive(&mut there, read);
        std::process::exit(0);
    }
    drop(there);
    pin(cores.0);
    let times = send(&mut here, &pools, size, cold);
    let _ = here.send(&[], false);
    let _ = nix::sys::wait::wait();
    times.map_err(io::Error::other)
}

/// The cell.
#[derive(Debug)]
pub struct Windows;

impl Cell for Windows {
    fn name(&self) -> &'static str {
        "windows"
    }

    fn about(&self) -> &'static str {
        "messages that are moved, received into the application's own buffer: copied, and by swapping pages, between two pinned processes"
    }

    fn carriers(&self) -> &'static [Carrier] {
        &[]
    }

    fn floors(&mut self, instrument: &mut Instrument, collector: &mut Collector) -> io::Result<()> {
        let cores = (instrument.machine.client_core, instrument.machine.server_core);
        let mut text = String::from("us copied, swapped; in brackets the median of the turns' swapped over copied:\n");
        for size in SIZES {
            for (cold, read) in [(false, true), (false, false), (true, true), (true, false)] {
                let words = words_of(size, (if cold { "cold" } else { "hot" }, if read { "read" } else { "unread" }));
                let _ = write!(text, "{words:<26}");
                for ((_, pages), [copied, swapped]) in KINDS.iter().zip(measure(cores, size, cold, read)?) {
                    if copied.is_empty() {
                        continue;
                    }
                    let ratio = median(copied.iter().zip(&swapped).map(|(copied, swapped)| swapped / copied).collect());
                    let (copied, swapped) = (median(copied), median(swapped));
                    let _ = write!(text, "{pages:>16}{:>9.1}{:>9.1} ({ratio:.2})", copied / 1e3, swapped / 1e3);
                    for (way, time) in [("copied", copied), ("swapped", swapped)] {
                        let name = format!("windows/{size}B/{way}");
                        let figure = Figure::new(name, format!("{words}, {pages}"), Unit::Nanoseconds, time);
                        collector.add_floor(&format!("into a window, {way}"), vec![figure]);
                    }
                }
                let _ = writeln!(text);
            }
        }
        say(&text);
        Ok(())
    }

    fn turn(&mut self, _: &mut Instrument, _: &Contender, _: usize) -> io::Result<Turn> {
        Ok(Turn::default())
    }
}
