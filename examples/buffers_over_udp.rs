//! Large messages over UDP between two ends of a TCP connection: how many bytes go in a second, by what sender and receiver ask for.
//!
//! `cargo run --release -p shunt-buffers --features std --example buffers_over_udp [BYTES [MESSAGES]]`

use shunt_buffers::port::network::UdpPort;
use shunt_buffers::port::Error;
use shunt_buffers::region::{Audience, Pages, Pool, Shape};
use shunt_buffers::{Allocation, Integrity, Semantics};
use std::net::{TcpListener, TcpStream};
use std::os::fd::IntoRawFd;
use std::time::Instant;

const ALL: [Semantics; 8] = Semantics::ALL;

fn pool() -> Result<Pool, Error> {
    let pool = Pool::create(Shape { unit: 64 << 10, units: 1024 }, Pages::Small, Audience::Anyone)?;
    pool.populate();
    Ok(pool)
}

fn sender(stream: TcpStream, bytes: usize, messages: usize) -> Result<(), Error> {
    let pool = pool()?;
    let mut port = UdpPort::over(stream.into_raw_fd(), &pool)?;
    // More than that is not under way: a call waits, and regions come back to the pool meanwhile.
    port.set_quota(8 << 20);
    for semantics in ALL {
        // The receiver is ready.
        port.receive(&mut [0], Semantics::COPY)?;
        let (began, mut kept) = (Instant::now(), None);
        for number in 0..messages {
            let mut region = kept.take().map_or_else(|| pool.allocate(bytes), Ok)?;
            region.bytes_mut()[..bytes].fill(number as u8);
            match (semantics.allocation, semantics.integrity) {
                (Allocation::Application, Integrity::Strong) => {
                    port.send(&region.bytes()[..bytes], semantics)?;
                }
                (Allocation::Application, Integrity::Weak) => {
                    let ticket = port.send_shared(&region, bytes, semantics)?;
                    // It is not to be written before.
                    while !port.completed(ticket)? {}
                }
                (Allocation::System, _) => {
                    port.send_region(region, bytes, semantics)?;
                    continue;
                }
            }
            kept = Some(region);
        }
        port.drain()?;
        let rate = (bytes * messages) as f64 / began.elapsed().as_secs_f64() / 1e6;
        println!("{:<18} {rate:6.0} MB/s", semantics.name());
    }
    Ok(())
}

fn receiver(stream: TcpStream, bytes: usize, messages: usize) -> Result<(), Error> {
    let pool = pool()?;
    let mut port = UdpPort::over(stream.into_raw_fd(), &pool)?;
    let mut own = vec![0; bytes];
    for semantics in ALL {
        port.send(b"r", Semantics::COPY)?;
        for number in 0..messages {
            let last = match semantics.allocation {
                Allocation::System => port.receive_region(semantics)?.0.bytes()[bytes - 1],
                Allocation::Application => {
                    port.receive(&mut own, semantics)?;
                    own[bytes - 1]
                }
            };
            assert_eq!(last, number as u8);
        }
    }
    port.drain()
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut numbers = std::env::args().skip(1).map(|argument| argument.parse::<usize>());
    let bytes = numbers.next().transpose()?.unwrap_or(1 << 20).max(1);
    let messages = numbers.next().transpose()?.unwrap_or(100);
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let here = TcpStream::connect(listener.local_addr()?)?;
    let there = listener.accept()?.0;
    let other = std::thread::spawn(move || receiver(there, bytes, messages));
    sender(here, bytes, messages)?;
    Ok(other.join().expect("the receiver ends")?)
}
