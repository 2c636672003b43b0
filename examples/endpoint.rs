//! Two endpoints on one host: `cargo run --release -p shunt-endpoint --example endpoint`.

use shunt_endpoint::{device::shm::Shm, Arrival, Endpoint, Message, Tag, Tags};

fn main() {
    let (mut a, mut b) = (Shm::new(Default::default()).expect("memory"), Shm::new(Default::default()).expect("memory"));
    let (to_a, to_b) = (Tag::random().expect("random bits"), Tag::random().expect("random bits"));
    let there = a.open(&b.address(), Tags { receive: to_a, send: to_b }).expect("a channel");
    b.open(&a.address(), Tags { receive: to_b, send: to_a }).expect("a channel");

    while a.send(&Message::small(there, b"hello")).is_err() {}
    let mut arrival = Arrival::empty();
    while !b.receive(&mut arrival) {}
    println!("{}", String::from_utf8_lossy(arrival.head()));
    b.release(&mut arrival);
}
