//! Streams that are produced and consumed, and three processes of which the middle one passes on what it does not read.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Release};
use std::time::Instant;

use nix::unistd::{fork, ForkResult};
use shunt_buffers::port::{Error, Port};
use shunt_buffers::region::{Attached, Audience, Limit, Pages, Pool, Reference, Region, Shape};
use shunt_buffers::Semantics;

use super::{go_through, pin};

/// What a stream is carried by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum By {
    Kernel,
    Ring,
    Reference,
    /// As many bytes by nothing but two counters: what writing and reading them takes.
    Bare,
}

pub const STREAMS: [(By, &str); 4] = [
    (By::Kernel, "kernel TCP"),
    (By::Ring, "copy: through shunt's rings"),
    (By::Reference, "emulated weak move: by reference"),
    (By::Bare, "bare loop: the same memory, two counters"),
];

/// Bytes of a run: enough for some tens of milliseconds.
const BYTES: usize = 256 << 20;
/// More than the second-level caches hold, less than the third's: what was used lately is dear to write again.
const POOL: usize = 8 << 20;

fn pool(size: usize) -> Result<Pool, Limit> {
    let unit = 64 << 10;
    let pool = Pool::create(Shape { unit, units: POOL.max(4 * size) / unit }, Pages::Small, Audience::Anyone)?;
    pool.populate();
    Ok(pool)
}

/// A region of a pool whose reader gives them back in time.
fn region(pool: &Pool, port: &mut Port, size: usize) -> Result<Region, Error> {
    loop {
        match pool.allocate(size) {
            Err(Limit::PoolFull) => port.progress()?,
            other => return Ok(other?),
        }
        std::thread::yield_now();
    }
}

/// Runs `child` in a process on the second core; gives what `parent` does on the first.
fn apart<T>(core: usize, child: impl FnOnce() -> io::Result<()>, parent: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    // SAFETY: the child goes on alone, and ends here.
    if let ForkResult::Child = unsafe { fork()? } {
        pin(core);
        let done = child();
        // SAFETY: ends the child, without what the parent would do at its end.
        unsafe { libc::_exit(done.is_err().into()) };
    }
    let result = parent();
    let _ = nix::sys::wait::wait();
    result
}

fn either(error: impl std::error::Error + Send + Sync + 'static) -> io::Error {
    io::Error::other(error)
}

/// Bytes a second of messages of `size`, each written by its sender and read by its receiver.
pub fn stream(cores: (usize, usize), by: By, size: usize) -> io::Result<f64> {
    let count = (BYTES / size).min(20_000);
    let seconds = match by {
        By::Kernel => {
            let listener = TcpListener::bind("127.0.0.1:0")?;
            let address = listener.local_addr()?;
            let consume = move || {
                let mut stream = TcpStream::connect(address)?;
                let mut own = vec![0u64; size / 8];
                for _ in 0..count {
                    // SAFETY: the same memory as bytes.
                    stream.read_exact(unsafe { std::slice::from_raw_parts_mut(own.as_mut_ptr().cast(), size) })?;
                    std::hint::black_box(go_through(own.as_ptr().cast(), size));
                }
                stream.write_all(b"k")
            };
            apart(cores.1, consume, || {
                pin(cores.0);
                let mut stream = listener.accept()?.0;
                let mut own = vec![0u8; size];
                let begun = Instant::now();
                for turn in 0..count {
                    own.fill(turn as u8);
                    stream.write_all(&own)?;
                }
                stream.read_exact(&mut [0])?;
                Ok(begun.elapsed().as_secs_f64())
            })?
        }
        By::Bare => bare(cores, size, count)?,
        By::Ring | By::Reference => {
            let (mut here, mut there) = Port::pair().map_err(either)?;
            let pool = pool(size).map_err(either)?;
            here.offer(&pool).map_err(either)?;
            here.policy().share_from = 1;
            let consume = move || {
                there.inherit();
                consume(&mut there, by, size, count).map_err(either)
            };
            apart(cores.1, consume, || {
                pin(cores.0);
                produce(&mut here, &pool, by, size, count).map_err(either)
            })?
        }
    };
    Ok((count * size) as f64 / seconds)
}

/// Two counters, each in a line of its own: messages written, messages read.
#[repr(C, align(128))]
struct Counter(AtomicU64);

/// Seconds of `count` messages that are written into as many bytes as a pool of references has, in turns, and read there.
fn bare(cores: (usize, usize), size: usize, count: usize) -> io::Result<f64> {
    let pool = pool(size).map_err(either)?;
    let own = pool.shape().bytes();
    let region = pool.allocate(own).map_err(either)?;
    let (start, places) = (region.pointer() as usize, own / size);
    let seen = Attached::map(pool.descriptor(), Audience::Anyone).map_err(either)?;
    let whole = Reference { offset: 0, length: own as u64, generation: region.located().generation, pool: 0, ticket: 0 };
    let theirs = seen.check(&whole).map_err(|violation| either(Limit::from(violation)))?.pointer() as usize;
    // SAFETY: fresh memory; zeros are valid; it stays mapped.
    let counters: &'static [Counter; 2] = unsafe {
        let flags = libc::MAP_SHARED | libc::MAP_ANONYMOUS;
        let at = libc::mmap(std::ptr::null_mut(), 4096, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        &*at.cast()
    };
    let until = |counter: &Counter, least: u64| {
        while counter.0.load(Acquire) < least {
            std::hint::spin_loop();
        }
    };
    let consume = || {
        for turn in 0..count {
            until(&counters[0], turn as u64 + 1);
            std::hint::black_box(go_through((theirs + turn % places * size) as *const u8, size));
            counters[1].0.store(turn as u64 + 1, Release);
        }
        Ok(())
    };
    let seconds = apart(cores.1, consume, || {
        pin(cores.0);
        let begun = Instant::now();
        for turn in 0..count {
            until(&counters[1], (turn + 1).saturating_sub(places) as u64);
            // SAFETY: a place of the region's, which its reader has left.
            unsafe { std::ptr::write_bytes((start + turn % places * size) as *mut u8, turn as u8, size) };
            counters[0].0.store(turn as u64 + 1, Release);
        }
        until(&counters[1], count as u64);
        Ok(begun.elapsed().as_secs_f64())
    });
    // SAFETY: both processes have finished with them.
    unsafe { libc::munmap(std::ptr::from_ref(counters).cast_mut().cast(), 4096) };
    seconds
}

fn consume(port: &mut Port, by: By, size: usize, count: usize) -> Result<(), Error> {
    let mut own = vec![0u64; size / 8];
    for _ in 0..count {
        if by == By::Ring {
            // SAFETY: the same memory as bytes.
            port.receive(unsafe { std::slice::from_raw_parts_mut(own.as_mut_ptr().cast(), size) })?;
            std::hint::black_box(go_through(own.as_ptr().cast(), size));
        } else {
            let message = port.receive_reference()?;
            std::hint::black_box(go_through(message.start(), message.length()));
            port.give_back(message)?;
        }
    }
    port.send(b"k", false).map(drop)
}

fn produce(port: &mut Port, pool: &Pool, by: By, size: usize, count: usize) -> Result<f64, Error> {
    let mut own = vec![0u8; size];
    let begun = Instant::now();
    for turn in 0..count {
        if by == By::Ring {
            own.fill(turn as u8);
            port.send(&own, false)?;
        } else {
            let mut region = region(pool, port, size)?;
            region.bytes_mut()[..size].fill(turn as u8);
            port.send_region(region, size, Semantics::EMULATED_WEAK_MOVE)?;
        }
    }
    port.receive(&mut [0])?;
    Ok(begun.elapsed().as_secs_f64())
}

/// Nanoseconds a message of `size` that goes from one process through a second to a third, which is at the first one's core. It is not read:
/// `by` copies it four times, or not at all.
pub fn stages(cores: (usize, usize), by: By, size: usize) -> io::Result<f64> {
    let count = (BYTES / 4 / size).min(1_000);
    let (mut first, mut inward) = Port::pair().map_err(either)?;
    let (mut outward, mut last) = Port::pair().map_err(either)?;
    let pool = pool(size).map_err(either)?;
    first.offer(&pool).map_err(either)?;
    first.policy().share_from = 1;
    let mut pass = move || -> Result<(), Error> {
        inward.inherit();
        outward.inherit();
        let mut own = vec![0u8; size];
        for _ in 0..count {
            if by == By::Ring {
                inward.receive(&mut own)?;
                outward.send(&own, false)?;
            } else {
                // The first one may have no region left until it hears what came back.
                while !inward.has_message() {
                    outward.settle(&mut inward)?;
                    std::thread::yield_now();
                }
                outward.forward(inward.receive_reference()?, &mut inward)?;
                outward.settle(&mut inward)?;
            }
        }
        // Until the last one has finished with all of them.
        while outward.settle(&mut inward)? > 0 {
            std::thread::yield_now();
        }
        outward.receive(&mut [0])?;
        inward.send(b"k", false).map(drop)
    };
    let mut end = move || -> Result<(), Error> {
        last.inherit();
        let mut own = vec![0u8; size];
        for _ in 0..count {
            if by == By::Ring {
                last.receive(&mut own)?;
            } else {
                let message = last.receive_reference()?;
                last.give_back(message)?;
            }
        }
        last.send(b"k", false).map(drop)
    };
    let seconds = apart(
        cores.1,
        || pass().map_err(either),
        || {
            apart(
                cores.0,
                || end().map_err(either),
                || {
                    pin(cores.0);
                    let own = vec![1u8; size];
                    let mut send = || -> Result<f64, Error> {
                        let begun = Instant::now();
                        for _ in 0..count {
                            if by == By::Ring {
                                first.send(&own, false)?;
                            } else {
                                let region = region(&pool, &mut first, size)?;
                                first.send_region(region, size, Semantics::EMULATED_WEAK_MOVE)?;
                            }
                        }
                        first.receive(&mut [0])?;
                        Ok(begun.elapsed().as_secs_f64())
                    };
                    send().map_err(either)
                },
            )
        },
    )?;
    Ok(seconds * 1e9 / count as f64)
}
