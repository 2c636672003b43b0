//! What an exec ends. The kernel closes descriptors that are closed on exec, past us.
//!
//! A stream that other processes own, too, is left just before the exec; the others can close it then. Of a stream that is
//! this process's alone the kernel would only hang up, so the next program is told, and says what a close would have said.
//! It is not left before: the exec may fail.

use super::handing::kept_over_exec;
use super::text::{Ends, Text};
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_segment::channel::{release, state};
use shunt_segment::CHANNELS;
use shunt_stream::socket;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::{libc, thread};
use shunt_table::global::SETUP;
use shunt_table::table;

/// Streams that an exec would close under each of their numbers.
fn ending() -> impl Iterator<Item = (i32, &'static Socket)> {
    table::numbers().filter_map(|fd| {
        let socket = shunt_stream::socket::stream(fd)?;
        let several = socket.references.load(Ordering::Relaxed) > 1;
        let same = |other: &i32| shunt_stream::socket::is_of(*other, socket);
        let first = !several || !(0..fd).any(|other| same(&other));
        let closed =
            first && !kept_over_exec(fd) && (!several || !(fd + 1..table::high_water()).filter(same).any(kept_over_exec));
        closed.then_some((fd, socket))
    })
}

/// Whether an exec would end a stream.
pub fn any() -> bool {
    ending().next().is_some()
}

/// This process ceases to own the streams that the exec closes and others own, too.
pub fn leave() {
    let me = thread::process();
    for (_, socket) in ending().filter(|(_, socket)| socket.has(flag::SHARED)) {
        let own = socket.own();
        let others = own.owners.fetch_update(Ordering::AcqRel, Ordering::Acquire, |count| (count > 1).then(|| count - 1));
        if others.is_ok() {
            own.part(me);
            socket.set(flag::DISOWNED);
        }
    }
}

/// The exec failed.
pub fn come_back() {
    for fd in table::numbers() {
        if let Some(socket) = shunt_stream::socket::stream(fd).filter(|socket| socket.take(flag::DISOWNED)) {
            socket.own().owners.fetch_add(1, Ordering::AcqRel);
            socket.own().join(thread::process());
        }
    }
}

/// Links whose ends are named at most.
const LINKS: usize = 32;

/// Names the others, for a next program that is known to take the library.
pub(super) fn name(text: &mut Text) {
    let mut links = [(-1, Ends { nonce: 0, sequence: 0, sides: [0; 2] }); LINKS];
    for (_, socket) in ending().filter(|(_, socket)| !socket.has(flag::DISOWNED)) {
        let descriptor =
            SETUP.lock().map_or(-1, |_setup| link::descriptor(socket.connected.link_index.load(Ordering::Relaxed) as usize));
        if descriptor < 0 {
            continue;
        }
        let Some(place) = links.iter_mut().find(|place| place.0 == descriptor || place.0 < 0) else { continue };
        let header = link::header(socket.link());
        place.0 = descriptor;
        place.1.nonce = header.nonce.load(Ordering::Relaxed);
        place.1.sequence = header.sequence.load(Ordering::Relaxed);
        place.1.sides[socket.side() & 1] |= 1 << socket.channel();
    }
    for (descriptor, ends) in links.iter().take_while(|place| place.0 >= 0) {
        if text.name_ends(ends) {
            text.name('L', *descriptor);
        }
    }
}

/// In the next program: says the ends.
pub(super) fn say(ends: &Ends) {
    let found = SETUP.lock().and_then(|_setup| link::by_name(ends.nonce, ends.sequence));
    let Some((index, link)) = found else { return };
    for side in 0..2 {
        for channel in (0..CHANNELS).filter(|channel| ends.sides[side] & 1 << channel != 0) {
            say_one(index, link.base, channel, side);
        }
    }
}

fn say_one(index: usize, base: *mut u8, channel: usize, side: usize) {
    let own = &link::page(base, channel).sides[side];
    let me = thread::process();
    let mine = own.pid.load(Ordering::Relaxed) == me || own.has(me);
    let alone = own.owners.load(Ordering::Acquire) == 1 && mine;
    if !alone || own.released.load(Ordering::Acquire) != release::NOT {
        return;
    }
    let Some(socket) = socket::allocate(libc::AF_INET) else { return };
    socket.attach(base, channel, side);
    socket.connected.link_index.store(index as u32, Ordering::Relaxed);
    if own.receive.state.load(Ordering::Acquire) & state::LINGER_RESET != 0 {
        socket.set(flag::LINGER_RESET);
    }
    let ended = shunt_stream::waiting::readiness::closed(socket);
    shunt_rendezvous::close::say_end(socket, ended);
    socket::free(socket);
}

/// A channel has a bit.
const _: () = assert!(CHANNELS <= 64);
