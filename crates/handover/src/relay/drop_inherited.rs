//! What a relay lets go of: it must keep no other process's files, pipes, terminals or memory.

use super::connection::RelayedConnection;
use core::sync::atomic::Ordering;
use shunt_link as link;
use shunt_link::companion_cache;
use shunt_segment::link::IN_PROC;
use shunt_stream::socket::Socket;
use shunt_sys::libc::{self, O_CLOEXEC, O_RDONLY};
use shunt_sys::{calls, mapping, Result};
use shunt_table::table;
use shunt_table::table::Kind;

/// Streams of the giver's that are not carried.
pub struct Left {
    sockets: *mut &'static Socket,
    count: usize,
}

impl Left {
    /// All of them.
    pub fn all(&self) -> &[&'static Socket] {
        if self.count == 0 {
            return &[];
        }
        // SAFETY: `count` entries were written.
        unsafe { core::slice::from_raw_parts(self.sockets, self.count) }
    }
}

/// Empties the table but for the connections' streams. This process is no owner of the others, which the fork had counted.
pub fn table(connections: &[RelayedConnection]) -> Result<Left> {
    let most = table::high_water();
    let mut left = Left { sockets: mapping::reserve((most as usize + 1) * 8)?.cast(), count: 0 };
    for fd in 0..most {
        let carried = connections.iter().any(|connection| connection.stream == fd);
        let word = if carried { continue } else { table::take(fd) };
        let (Kind::Stream, Some(socket)) = (word.kind(), word.object::<Socket>()) else { continue };
        if connections.iter().any(|connection| core::ptr::eq(connection.socket, socket))
            || left.all().iter().any(|s| core::ptr::eq(*s, socket))
        {
            continue;
        }
        socket.own().owners.fetch_sub(1, Ordering::AcqRel);
        socket.own().part(super::me());
        // SAFETY: at most one entry for each descriptor.
        unsafe { left.sockets.add(left.count).write(socket) };
        left.count += 1;
    }
    Ok(left)
}

/// Closes every descriptor but those of the connections, `more`, and the sockets that hold local ports.
pub fn descriptors(connections: &[RelayedConnection], more: [i32; 3], private: &[i32]) {
    // Windows of the link are mapped when a stream grows into them.
    let of_link = |connection: &RelayedConnection| {
        link::descriptor_unlocked(connection.socket.connected.link_index.load(Ordering::Relaxed) as usize)
    };
    let needed = |fd: i32| {
        more.contains(&fd)
            || connections.iter().any(|connection| connection.holds(fd) || of_link(connection) == fd)
            || (private.contains(&fd) && holds_ports(fd))
    };
    let mut start = 0;
    let highest = connections.iter().map(|connection| connection.highest().max(of_link(connection))).max().unwrap_or(0);
    let most = highest.max(more[0]).max(more[1]).max(more[2]).max(private.iter().copied().max().unwrap_or(0)) + 1;
    for fd in 0..most {
        if needed(fd) {
            if fd > start {
                let _ = calls::close_range(start as u32, fd as u32 - 1, 0);
            }
            start = fd + 1;
        }
    }
    let _ = calls::close_range(start as u32, u32::MAX, 0);
}

/// The private descriptors of the giver, as many as fit.
pub fn private(room: &mut [i32]) -> &[i32] {
    let mut count = 0;
    for fd in table::numbers() {
        if table::get(fd).kind() == Kind::Private && count < room.len() {
            room[count] = fd;
            count += 1;
        }
    }
    &room[..count]
}

/// A private descriptor behind which reserved ports lie (see [`shunt_link::ports`]): a bound TCP socket, or the pair on which
/// such are in flight.
fn holds_ports(fd: i32) -> bool {
    let domain = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_DOMAIN);
    let kind = calls::getsockopt_int(fd, libc::SOL_SOCKET, libc::SO_TYPE);
    matches!((domain, kind), (Ok(libc::AF_INET | libc::AF_INET6), _) | (Ok(libc::AF_UNIX), Ok(libc::SOCK_DGRAM)))
}

/// Private mappings smaller than this stay, as a copy of their pages costs little; among them are those that this library
/// and the thread pointer need.
const LITTLE: usize = 256 << 10;

/// Unmaps the links that no connection needs.
pub fn links(connections: &[RelayedConnection]) {
    link::forget_all_but(|base| connections.iter().any(|connection| connection.socket.link() == base));
}

/// Unmaps what the giver shared with others, and its large private memory: the relay may live longer than all of it. What it may
/// have to say of those that are `left` goes when it has ([`links`]).
pub fn memory(connections: &[RelayedConnection], left: &Left) {
    companion_cache::none_any_more();
    let sockets = || connections.iter().map(|connection| connection.socket).chain(left.all().iter().copied());
    link::forget_all_but(|base| sockets().any(|socket| socket.link() == base));
    let Ok(maps) = calls::openat(libc::AT_FDCWD, c"/proc/self/maps".as_ptr().cast(), O_RDONLY | O_CLOEXEC, 0) else { return };
    let needed = needed_addresses(connections, left);
    let mut regions = [(0usize, 0usize); 256];
    let mut count = 0;
    let mut text = [0u8; 4096];
    let mut filled = 0;
    loop {
        let got = calls::read(maps, text[filled..].as_mut_ptr().cast(), text.len() - filled).unwrap_or(0);
        filled += got;
        let mut used = 0;
        while let Some(end) = text[used..filled].iter().position(|byte| *byte == b'\n') {
            if let Some((start, stop)) = dispensable(&text[used..used + end]) {
                let free = !needed.iter().any(|address| (start..stop).contains(address))
                    && !sockets().any(|socket| {
                        let addresses = [socket.link() as usize, socket as *const Socket as usize];
                        addresses.iter().any(|address| (start..stop).contains(address))
                    });
                if free && count < regions.len() {
                    regions[count] = (start, stop);
                    count += 1;
                }
            }
            used += end + 1;
        }
        text.copy_within(used..filled, 0);
        filled -= used;
        if got == 0 {
            break;
        }
    }
    let _ = calls::close(maps);
    for (start, stop) in &regions[..count] {
        let _ = calls::munmap(*start as *mut u8, stop - start);
    }
}

/// The range of a mapping that a relay can do without, as a line of /proc/PID/maps tells it (proc(5)).
fn dispensable(line: &[u8]) -> Option<(usize, usize)> {
    let text = core::str::from_utf8(line).ok()?;
    let mut fields = text.split_ascii_whitespace();
    let (start, stop) = fields.next()?.split_once('-')?;
    let (start, stop) = (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(stop, 16).ok()?);
    let rights = fields.next()?;
    let name = fields.nth(3).unwrap_or("");
    if name.starts_with("[v") || name.starts_with("[stack") {
        return None; // vdso, vvar, vsyscall
    }
    // Links that are not needed have been unmapped; windows belong to links.
    let shared = rights.ends_with('s') && !name.starts_with(IN_PROC);
    let anonymous = (name.is_empty() || name == "[heap]") && rights.starts_with("rw");
    (shared || (anonymous && stop - start >= LITTLE)).then_some((start, stop))
}

fn needed_addresses(connections: &[RelayedConnection], left: &Left) -> [usize; 9] {
    let here = 0u8;
    [
        &raw const here as usize,
        shunt_sys::thread::block() as usize,
        table::address(),
        connections.as_ptr() as usize,
        left.sockets as usize,
        shunt_table::process::status_page::address(),
        connections.first().map_or(0, RelayedConnection::memory),
        link::entries_address(),
        shunt_link::window::rows_address(),
    ]
}

#[cfg(test)]
mod tests {
    use super::dispensable;

    #[test]
    fn mappings_that_go_and_stay() {
        let goes = |line: &str| dispensable(line.as_bytes()).is_some();
        assert!(goes("7f0000000000-7f0000100000 rw-p 00000000 00:00 0 "));
        assert!(goes("55d000000000-55d000100000 rw-p 00000000 00:00 0                          [heap]"));
        assert!(goes("7f0000000000-7f0000001000 rw-s 00000000 00:01 1029 /memfd:other (deleted)"));
        assert!(!goes("7f0000000000-7f0000001000 rw-p 00000000 00:00 0 "));
        assert!(!goes("7ffc00000000-7ffc00100000 rw-p 00000000 00:00 0                          [stack]"));
        assert!(!goes("7f0000000000-7f0000100000 r-xp 00000000 08:01 77 /usr/lib/libc.so.6"));
        assert!(!goes("7f0000000000-7f0000001000 rw-s 00000000 00:01 1029 /memfd:shunt-link (deleted)"));
        assert!(!goes("nonsense"));
    }
}
