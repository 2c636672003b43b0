//! Options of a stream that several processes own: each has its copy, and a version in shared memory says whether it is the latest.

use crate::options::effects::{apply, integer};
use crate::socket::{flag, Socket};
use crate::{control, corked};
use core::sync::atomic::Ordering;
use shunt_segment::settings::Setting;
use shunt_sys::libc::{self, IPPROTO_TCP};

/// What the program set on a stream is the open file's, so other owners of the side are told: forked children, the next program
/// image, a process that gets the socket in a message.
pub fn publish(socket: &Socket) {
    if let Ok(_held) = socket.lock_send() {
        write_down(socket);
    }
}

/// As [`publish`]; no other thread can write now.
pub fn write_down(socket: &Socket) {
    let list = &socket.stored;
    let settings =
        list.all().map(|entry| Setting { level: entry.level, name: entry.name, length: entry.length as usize, data: entry.data });
    socket.connected.settings_seen.store(socket.settings().publish(settings), Ordering::Relaxed);
}

/// Before a call on a stream that other processes may own as well: what they set holds for this one.
#[inline(always)]
pub fn catch_up(socket: &Socket) {
    if socket.has(flag::SHARED)
        && socket.settings().version.load(Ordering::Relaxed) != socket.connected.settings_seen.load(Ordering::Relaxed)
    {
        take_over(socket);
    }
}

#[cold]
#[inline(never)]
fn take_over(socket: &Socket) {
    let before = socket.connected.settings_seen.load(Ordering::Relaxed);
    let Some((version, copied)) = socket.settings().copy() else { return };
    // One thread does it; the others go on.
    if socket.connected.settings_seen.compare_exchange(before, version, Ordering::AcqRel, Ordering::Relaxed).is_err() {
        return;
    }
    let list = &socket.stored;
    for Setting { level, name, length, data } in copied.iter() {
        let bytes = &data[..length];
        if list.find(level, name).is_some_and(|entry| entry.bytes() == bytes) {
            continue;
        }
        list.store(level, name, bytes);
        apply(socket, level, name, bytes);
        let on = integer(bytes) != 0;
        if (level, name) == (IPPROTO_TCP, libc::TCP_CORK) {
            corked::set(socket, on);
        }
    }
    control::follow(socket);
}
