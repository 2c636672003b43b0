//! A request that adds, a reply that brings the sum; both ends here: `cargo run --release -p shunt-am --example messages`.

use shunt_am::port::{config_for, memory, Port, Table};
use shunt_endpoint::{device::shm::Shm, Endpoint, Tag, Tags};

fn main() {
    let (a, b) = (Shm::new(Default::default()).expect("memory"), Shm::new(Default::default()).expect("memory"));
    let (at_a, to_a, at_b, to_b) = (a.address(), Tag::random().expect("bits"), b.address(), Tag::random().expect("bits"));
    let config = config_for(&a, 1);
    let (mut for_a, mut for_b) = (memory(&config), memory(&config));
    let mut client = Port::new(a, &mut for_a, &config).expect("a port");
    let mut server = Port::new(b, &mut for_b, &config).expect("a port");
    let there = client.open(&at_b, Tags { receive: to_a, send: to_b }).expect("a channel");
    server.open(&at_a, Tags { receive: to_b, send: to_a }).expect("a channel");

    let (mut adding, mut asking) = (Table::new(()), Table::new(None));
    adding.on_request(1, |_, message, replier| replier.reply(2, &[message.words.iter().sum()], &[]).expect("one word"));
    asking.on_reply(2, |sum, message| *sum = Some(message.words[0]));
    client.with(|engine, now, link| engine.connect(now, there, link)).expect("a connection");
    let mut asked = false;
    while asking.context.is_none() {
        asked = asked || client.request(there, 1, &[20, 22], &[], &mut asking).is_ok();
        server.poll(&mut adding);
        client.poll(&mut asking);
    }
    println!("20 + 22 = {}", asking.context.unwrap_or(0));
}
