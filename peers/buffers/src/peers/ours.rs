//! shunt-buffers: a port whose messages are regions, or copied.

use std::os::fd::IntoRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};

use shunt_buffers::port::{Port, Ticket, AT_ONCE};
use shunt_buffers::region::{Audience, Limit, Pages, Pool, Region, Shape};
use shunt_buffers::Semantics;

use super::{Reader, Receive, Send};
use crate::place::Place;
use crate::{hear, say, Failure, AROUND, SIZES};

const UNIT: usize = 64 << 10;

/// An AF_UNIX stream of its own, which the port keeps.
fn joined(place: &Place, told: &mut UnixStream) -> Result<Port, Failure> {
    let path = place.file(&format!("port-{}", told.peer_addr().map(|_| std::process::id())?));
    let listener = UnixListener::bind(&path)?;
    say(told, path.as_os_str().as_encoded_bytes())?;
    let port = Port::connect(listener.accept()?.0.into_raw_fd())?;
    std::fs::remove_file(path)?;
    Ok(port)
}

fn accepted(told: &mut UnixStream) -> Result<Port, Failure> {
    let path = String::from_utf8(hear(told)?)?;
    Ok(Port::accept(UnixStream::connect(path)?.into_raw_fd())?)
}

/// A port and a pool that it may send from.
fn lending(place: &Place, told: &mut UnixStream) -> Result<(Port, Pool), Failure> {
    let mut port = joined(place, told)?;
    let pool = Pool::create(Shape { unit: UNIT, units: AROUND / UNIT }, Pages::Small, Audience::Anyone)?;
    pool.populate();
    port.offer(&pool)?;
    Ok((port, pool))
}

struct Moving {
    port: Port,
    pool: Pool,
    region: Option<Region>,
}

pub fn moving(place: &Place, told: &mut UnixStream) -> Result<Box<dyn Send>, Failure> {
    let (port, pool) = lending(place, told)?;
    Ok(Box::new(Moving { port, pool, region: None }))
}

impl Send for Moving {
    fn write(&mut self, size: usize, filling: u8) -> Result<(), Failure> {
        let mut region = loop {
            match self.pool.allocate(size) {
                Err(Limit::PoolFull) => self.port.progress()?,
                other => break other?,
            }
        };
        region.bytes_mut()[..size].fill(filling);
        self.region = Some(region);
        Ok(())
    }

    fn send(&mut self, size: usize) -> Result<(), Failure> {
        let region = self.region.take().ok_or("nothing was written")?;
        self.port.send_region(region, size, Semantics::EMULATED_WEAK_MOVE)?;
        Ok(())
    }

    fn progress(&mut self) -> Result<(), Failure> {
        Ok(self.port.progress()?)
    }
}

/// Regions that stay the program's, one after the other.
struct Sharing {
    port: Port,
    pool: Pool,
    size: usize,
    regions: Vec<(Region, Ticket)>,
    next: usize,
}

pub fn sharing(place: &Place, told: &mut UnixStream) -> Result<Box<dyn Send>, Failure> {
    let (port, pool) = lending(place, told)?;
    Ok(Box::new(Sharing { port, pool, size: 0, regions: Vec::new(), next: 0 }))
}

impl Send for Sharing {
    fn write(&mut self, size: usize, filling: u8) -> Result<(), Failure> {
        if size != self.size {
            while self.port.lent().1 > 0 {
                self.port.progress()?;
            }
            self.regions.clear();
            for _ in 0..AROUND / size {
                self.regions.push((self.pool.allocate(size)?, AT_ONCE));
            }
            (self.size, self.next) = (size, 0);
        }
        self.next = (self.next + 1) % self.regions.len();
        let (region, ticket) = &mut self.regions[self.next];
        while !self.port.completed(*ticket)? {
            std::hint::spin_loop();
        }
        region.bytes_mut()[..size].fill(filling);
        Ok(())
    }

    fn send(&mut self, size: usize) -> Result<(), Failure> {
        let (region, ticket) = &mut self.regions[self.next];
        *ticket = self.port.send_shared(region, size, Semantics::EMULATED_SHARE)?;
        Ok(())
    }

    fn progress(&mut self) -> Result<(), Failure> {
        Ok(self.port.progress()?)
    }
}

struct Copying {
    port: Port,
    buffer: Vec<u8>,
}

pub fn copying(place: &Place, told: &mut UnixStream) -> Result<Box<dyn Send>, Failure> {
    Ok(Box::new(Copying { port: joined(place, told)?, buffer: vec![0; SIZES[SIZES.len() - 1]] }))
}

impl Send for Copying {
    fn write(&mut self, size: usize, filling: u8) -> Result<(), Failure> {
        self.buffer[..size].fill(filling);
        Ok(())
    }

    fn send(&mut self, size: usize) -> Result<(), Failure> {
        self.port.send(&self.buffer[..size], false)?;
        Ok(())
    }

    fn progress(&mut self) -> Result<(), Failure> {
        Ok(self.port.progress()?)
    }
}

struct Reading(Port);

pub fn reading(_: &Place, told: &mut UnixStream) -> Result<Box<dyn Receive>, Failure> {
    Ok(Box::new(Reading(accepted(told)?)))
}

impl Receive for Reading {
    fn receive(&mut self, _: usize, read: Reader<'_>) -> Result<(), Failure> {
        let message = self.0.receive_reference()?;
        let (start, length) = message.in_place().ok_or("a message was copied")?;
        // SAFETY: the region is readable as long as the message is kept, and this sender changes nothing until it is given back.
        read(unsafe { std::slice::from_raw_parts(start, length) })?;
        Ok(self.0.give_back(message)?)
    }
}

struct Taking(Port, Vec<u8>);

pub fn taking(_: &Place, told: &mut UnixStream) -> Result<Box<dyn Receive>, Failure> {
    Ok(Box::new(Taking(accepted(told)?, vec![0; SIZES[SIZES.len() - 1]])))
}

impl Receive for Taking {
    fn receive(&mut self, _: usize, read: Reader<'_>) -> Result<(), Failure> {
        let length = self.0.receive(&mut self.1)?;
        read(&self.1[..length])
    }
}
