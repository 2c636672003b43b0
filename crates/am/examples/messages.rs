//! Ten lines of active messages: a request that adds, a reply that brings the sum. `cargo run -p shunt-am --example messages`

use shunt_am::port::{config_for, memory, Port, Table};
use shunt_endpoint::{device::shm::Shm, Address, Endpoint, Tag, Tags};
use std::time::Duration;

/// What two programs tell each other beforehand: the address, and the tag by which to send there.
type Card = (Address, Tag);

fn server(shm: Shm, tags: Tags, peer: Address) {
    let mut table = Table::new(false);
    table.on_request(1, |done, message, replier| {
        replier.reply(2, &[message.words.iter().sum()], &[]).expect("one word");
        *done = true;
    });
    let (config, mut space) = (config_for(&shm, 1), vec![]);
    space.resize(config.words(), 0);
    let mut port = Port::new(shm, &mut space, &config).expect("port");
    let peer = port.open(&peer, tags).expect("channel");
    port.accept(peer, &mut table, Duration::from_secs(5)).expect("connection");
    port.wait_until(peer, &mut table, Duration::from_secs(5), |table| table.context).expect("a request");
    let _ = port.drain(peer, &mut table);
}

fn main() {
    let (here, there) = (Shm::new(Default::default()).expect("shm"), Shm::new(Default::default()).expect("shm"));
    let cards: [Card; 2] = [(here.address(), Tag::random().expect("tag")), (there.address(), Tag::random().expect("tag"))];
    let far = Tags { receive: cards[1].1, send: cards[0].1 };
    let serving = std::thread::spawn(move || server(there, far, cards[0].0));

    // The ten lines.
    let config = config_for(&here, 1);
    let mut space = memory(&config);
    let mut port = Port::new(here, &mut space, &config).expect("port");
    let peer = port.open(&cards[1].0, Tags { receive: cards[0].1, send: cards[1].1 }).expect("channel");
    let mut table = Table::new(None);
    table.on_reply(2, |sum, message| *sum = Some(message.words[0]));
    port.connect(peer, &mut table).expect("connection");
    port.request(peer, 1, &[20, 22], &[], &mut table).expect("request");
    port.wait_until(peer, &mut table, Duration::from_secs(5), |table| table.context.is_some()).expect("reply");
    println!("20 + 22 = {}", table.context.unwrap_or(0));
    serving.join().expect("server");
}
