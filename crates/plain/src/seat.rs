//! A stream for a connection: its channel and companion are made, then the connection is taken, and then the stream takes the program's number.
//! Until then nothing has happened to the connection.

use core::sync::atomic::Ordering;

use shunt_rendezvous::attach;
use shunt_segment::address::Address;
use shunt_segment::channel::taken;
use shunt_segment::reason::Reason;
use shunt_stream::progress;
use shunt_stream::socket::{flag, Socket};
use shunt_sys::{calls, clock, Errno};
use shunt_table::{private, table};
use shunt_xdp::escrow::Escrow;
use shunt_xdp::learned;
use shunt_xdp::taken::Taken;
use shunt_xdp::tcp::Tuple;

use crate::driving::PROGRESS;
use crate::line::state;
use crate::local::Local;

/// Classes of the rings: what the program sends must fit the escrow, whatever is in which ring, and what came the near one.
const SEND_CLASS: u32 = 2;
const RECEIVE_CLASS: u32 = 3;
/// Bytes of the escrow's rings.
const SENDS: u32 = 128 << 10;
const RECEIVES: u32 = 256 << 10;
const _: () = {
    let sizes = shunt_segment::area::RING_SIZE;
    assert!(sizes[0] + sizes[1] + sizes[2] <= SENDS as _ && sizes[3] >= RECEIVES as _);
};

/// A stream whose connection is taken: the near end of its companion is to take the program's number.
pub struct Seat {
    local: &'static Local,
    line: usize,
    /// That end.
    pub near: i32,
}

impl Seat {
    /// Takes the connection of `fd`, from the first of the addresses to the second. `nonblocking`: the program's calls do not wait.
    ///
    /// # Errors
    /// Why it stays the kernel's, as whole as it was.
    pub fn take(
        local: &'static Local,
        fd: i32,
        [own, peer]: [&Address; 2],
        server: &Address,
        nonblocking: bool,
    ) -> Result<Seat, Reason> {
        let (Some(ours), Some(theirs)) = (own.everywhere(), peer.everywhere()) else { return Err(Reason::InetKind) };
        let line = {
            let mut driver = local.lock().ok_or(Reason::InetKernel)?;
            driver.sweep();
            let line = driver.free().ok_or(Reason::InetFull)?;
            // Nobody else's from here on; not pumped before it has begun.
            driver.lines[line].state = state::MAKING;
            driver.lines[line].server = learned::place(&server.ip, server.port).0;
            line
        };
        local.used.fetch_add(1, Ordering::Relaxed);
        progress::fill(Some(&PROGRESS));
        let made = local.places.make_link(line).map_err(|_| Reason::NoMemory).and_then(|()| {
            let near = companion(local, line, own, peer, nonblocking).map_err(|_| Reason::NoDescriptors)?;
            local.places.show(line, if peer == server { taken::CLIENT } else { taken::SERVER });
            let begun = begin(local, line, fd, Tuple { ours, theirs }, near[1]);
            begun.inspect_err(|_| {
                local.places.show(line, taken::NOT);
                let _ = calls::close(near[0]);
            })?;
            Ok(near[0])
        });
        match made {
            Ok(near) => Ok(Seat { local, line, near }),
            Err(reason) => {
                local.lock().into_iter().for_each(|mut driver| driver.let_free(line, -1));
                Err(reason)
            }
        }
    }

    /// `socket` becomes the near side. Under the set-up lock.
    pub fn settle(&self, socket: &'static Socket, nonblocking: bool) {
        shunt_halves::seat(self.local.places.place(self.line), socket, nonblocking);
        self.local.places.set_near(self.line, socket);
    }

    /// Its channel.
    pub fn channel(&self) -> usize {
        self.local.places.place(self.line).2
    }

    /// The stream is the program's: what came with the connection is shown.
    pub fn begin(self) {
        if let Some(mut driver) = self.local.lock() {
            driver.pump(self.line, clock::monotonic_ns());
        }
    }
}

/// Takes the connection; the far end of the companion, and a number of the socket's own, are the line's.
fn begin(local: &'static Local, line: usize, fd: i32, tuple: Tuple, far: i32) -> Result<(), Reason> {
    let far = private::keep(far).map_err(|_| Reason::NoDescriptors)?;
    let taken = private::duplicate(fd).map_err(|_| Reason::NoDescriptors).and_then(|socket| {
        table::set_private(socket);
        take(local, line, tuple, [socket, far]).inspect_err(|_| private::close(socket))
    });
    taken.inspect_err(|_| private::close(far))
}

fn take(local: &'static Local, line: usize, tuple: Tuple, [socket, far]: [i32; 2]) -> Result<(), Reason> {
    let escrow = Escrow::create(SENDS, RECEIVES).map_err(|_| Reason::NoMemory)?;
    let mut driver = local.lock().ok_or(Reason::InetKernel)?;
    let now = clock::monotonic_ns();
    match Taken::take(&driver.hands, socket, tuple, escrow, now) {
        Ok(Ok(taken)) => {
            driver.begin(line, taken, [socket, far], now);
            // A give-back that this process does not begin changes the socket, and wakes a sleeper by this.
            driver.watch_socket(line);
            Ok(())
        }
        Ok(Err(decline)) => Err(Reason::of_decline(decline as u32)),
        Err(_) => {
            if driver.hands.is_over() {
                driver.part_with_agent(now);
            }
            Err(Reason::InetNoAgent)
        }
    }
}

/// The companion of a stream, near end and far end; its channel is made ready.
///
/// Errors: EMFILE and the like.
fn companion(local: &'static Local, line: usize, own: &Address, peer: &Address, nonblocking: bool) -> Result<[i32; 2], Errno> {
    let place = local.places.place(line);
    let made = shunt_halves::companion(place, [attach::class_limit().min(SEND_CLASS), RECEIVE_CLASS], own, peer, nonblocking)?;
    if let Some(driver) = local.lock() {
        let far = driver.far(line);
        far.flags.store(flag::FAR, Ordering::Relaxed);
        far.hold.reset();
        far.low_water.store(1, Ordering::Relaxed);
        let (base, index, channel) = place;
        far.attach(base, channel, 1);
        far.connected.link_index.store(index as u32, Ordering::Relaxed);
        far.generation.store(made.generation, Ordering::Relaxed);
    }
    Ok(made.ends)
}
