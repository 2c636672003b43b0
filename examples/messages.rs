//! A request that adds, a reply that brings the sum; both ends here: `cargo run --release -p shunt-am --example messages`.

use shunt_am::port::{config_for, join, memory, Port, Table};
use shunt_endpoint::device::shm::Shm;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (a, b) = (Shm::new(Default::default())?, Shm::new(Default::default())?);
    let config = config_for(&a, 1);
    let (mut for_a, mut for_b) = (memory(&config), memory(&config));
    let (mut client, mut server) = (Port::new(a, &mut for_a, &config)?, Port::new(b, &mut for_b, &config)?);
    let (mut asking, mut adding) = (Table::new(None), Table::new(()));
    adding.on_request(1, |_, message, replier| replier.reply(2, &[message.words.iter().sum()], &[]).expect("one word"));
    asking.on_reply(2, |sum, message| *sum = Some(message.words[0]));
    let (there, _back) = join((&mut client, &mut asking), (&mut server, &mut adding))?;
    client.request(there, 1, &[20, 22], &[], &mut asking)?;
    while asking.context.is_none() {
        server.poll(&mut adding);
        client.poll(&mut asking);
    }
    println!("20 + 22 = {}", asking.context.unwrap_or(0));
    Ok(())
}
