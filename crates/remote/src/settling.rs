//! The station of this process is made when the first stream or listener needs it, and again when it is over.

use super::driving::PROGRESS;
use super::fork;
use super::local_station::{self, drop_links, lay, let_go, local, local_stations, making, note_newest, LocalStation};
use super::message::Message;
use super::reachability::{self, Device};
use core::sync::atomic::Ordering;
use shunt_segment::reason::Reason;
use shunt_station::Station;
use shunt_sys::libc::{self, AF_UNIX, SOCK_CLOEXEC, SOCK_SEQPACKET};
use shunt_sys::{calls, clock, sleeping, Errno, Result};
use shunt_table::{private, table};

/// How long another one's making is waited for (ns): it takes 10 ms, and a keeper's birth.
const MADE_WITHIN: u64 = 200_000_000;
/// Between two looks whether it is made (ns).
const LOOK: i64 = 200_000;

/// This process's station; it is made if there is none, for the device by which the first peer is reached. `connects`: streams of this
/// process's user will be there.
pub fn settle(device: &Device, connects: bool) -> core::result::Result<&'static LocalStation, Reason> {
    let kept = || kept().filter(|local| !connects || local.is_own());
    let mut until = 0;
    loop {
        if let Some(local) = kept() {
            return Ok(local);
        }
        let me = shunt_sys::thread::id();
        if making().begin(me, clock::monotonic_ns()) {
            // Another thread may have made it since.
            let made = kept().map_or_else(|| make(device).map_err(|_| Reason::NoStation), Ok);
            if let Ok(made) = made {
                if let Some(old) = local().filter(|old| !core::ptr::eq(*old, made) && old.station.is_over()) {
                    // Its listeners can be heard by another one. Streams that it keeps ring it by their companions.
                    for inode in old.station.listeners() {
                        let _ = Message::NoQuerySocket(inode).send(old.control.load(Ordering::Relaxed), &[]);
                    }
                }
                // If the keeper of the last one is gone, so is every stream that it kept: the next ones get another.
                local_station::be_local(core::ptr::from_ref(made).cast_mut(), Some(&PROGRESS));
                if !local_stations().any(|local| core::ptr::eq(local, made)) {
                    note_newest(made);
                }
                local_stations().filter(|local| !core::ptr::eq(*local, made)).for_each(LocalStation::leave_if_empty);
                let _ = connects && made.is_own();
            }
            making().end(me);
            return made;
        }
        let now = clock::monotonic_ns();
        until = if until == 0 { now + MADE_WITHIN } else { until };
        if now >= until {
            return Err(Reason::TooSlow);
        }
        let _ = sleeping::nap(LOOK);
    }
}

/// This process's station, if its keeper lives and its device may still bring something: an agent that was started again knows nothing of
/// the endpoints that the last one had.
fn kept() -> Option<&'static LocalStation> {
    local().filter(|local| {
        !local.station.is_over() && Message::Wake.send(local.control.load(Ordering::Relaxed), &[]).is_ok_or_full()
    })
}

/// Whether a message has reached its queue, or finds it full.
trait Reached {
    fn is_ok_or_full(&self) -> bool;
}

impl Reached for Result<()> {
    fn is_ok_or_full(&self) -> bool {
        matches!(self, Ok(()) | Err(Errno(libc::EAGAIN)))
    }
}

fn make(device: &Device) -> Result<&'static LocalStation> {
    if !device.answers() {
        return Err(Errno(libc::EAGAIN));
    }
    let mut station = Station::make(device.choice(), clock::monotonic_ns())?;
    let [control, keepers] = match out_of_the_way(&mut station).and_then(|()| control()) {
        Ok(ends) => ends,
        Err(error) => {
            let_go(station);
            return Err(error);
        }
    };
    let made = lay(station, control).and_then(|local| {
        fork::keeper(local, control, keepers).inspect_err(|_| raze(local))?;
        Ok(local)
    });
    let _ = calls::close(keepers);
    match made {
        Ok(_) => reachability::note_local(),
        Err(_) => private::close(control),
    }
    made
}

/// Moves the station's descriptors out of the program's way, as all that is ours.
fn out_of_the_way(station: &mut Station) -> Result<()> {
    for fd in station.descriptors().into_iter().filter(|fd| *fd >= 0) {
        let number = calls::fcntl(fd, libc::F_DUPFD_CLOEXEC, private::base() as usize)?;
        table::set_private(number);
        station.renumber(fd, number);
        let _ = calls::close(fd);
    }
    Ok(())
}

/// Over which a keeper is told things: our end, and its.
fn control() -> Result<[i32; 2]> {
    let mut pair = [-1; 2];
    calls::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.as_mut_ptr())?;
    match private::keep(pair[0]) {
        Ok(control) => Ok([control, pair[1]]),
        Err(error) => {
            let _ = calls::close(pair[1]);
            Err(error)
        }
    }
}

/// The end of a station that has no keeper, and that no thread has seen: where none can be forked that is tried again and again, and nothing is to
/// be left of it here, nor at the agent, whose endpoints are counted.
fn raze(local: &'static LocalStation) {
    drop_links(&local.links);
    // SAFETY: no other thread has it, and it is not used again.
    unsafe {
        let_go(core::ptr::read(&local.station));
        let _ = calls::munmap(core::ptr::from_ref(local).cast_mut().cast(), local_station::SIZE);
    }
}
