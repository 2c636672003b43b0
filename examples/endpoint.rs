//! Two endpoints on one host: `cargo run --release -p shunt-endpoint --example endpoint`.

use shunt_endpoint::{device::shm::Shm, join, Arrival, Endpoint, Message};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut a, mut b) = (Shm::new(Default::default())?, Shm::new(Default::default())?);
    let (there, _back) = join(&mut a, &mut b)?;
    a.send(&Message::small(there, b"hello"))?;
    let mut arrival = Arrival::empty();
    while !b.receive(&mut arrival) {}
    println!("{}", String::from_utf8_lossy(arrival.head()));
    b.release(&mut arrival);
    Ok(())
}
