//! Both addresses of a stream, where its peer cannot change them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shunt_segment::address::Address;
use shunt_segment::channel::ChannelPage;

/// The addresses of a stream, in this process's own memory: (client, server).
#[derive(Default)]
pub(super) struct Names {
    client: [AtomicU64; 2],
    server: [AtomicU64; 2],
    /// The client's port, and above it the server's.
    ports: AtomicU32,
    scope: AtomicU32,
}

impl Names {
    pub fn set(&self, (client, server): &(Address, Address)) {
        for (to, from) in [(&self.client, client), (&self.server, server)] {
            let [first, second] = from.words();
            to[0].store(first, Ordering::Relaxed);
            to[1].store(second, Ordering::Relaxed);
        }
        self.ports.store(client.port as u32 | (server.port as u32) << 16, Ordering::Relaxed);
        self.scope.store(server.scope, Ordering::Relaxed);
    }

    pub fn get(&self) -> (Address, Address) {
        let words = |pair: &[AtomicU64; 2]| [pair[0].load(Ordering::Relaxed), pair[1].load(Ordering::Relaxed)];
        let (ports, scope) = (self.ports.load(Ordering::Relaxed), self.scope.load(Ordering::Relaxed));
        (
            Address::from_words(words(&self.client), ports as u16, scope),
            Address::from_words(words(&self.server), (ports >> 16) as u16, scope),
        )
    }
}

/// Both addresses of a channel, as its client told them: (client, server).
pub fn of_channel(page: &ChannelPage) -> (Address, Address) {
    let head = &page.head;
    let ports = head.ports.load(Ordering::Relaxed);
    let scope = head.scope.load(Ordering::Relaxed);
    let words = |pair: &[shunt_segment::sync::AtomicU64; 2]| [pair[0].load(Ordering::Relaxed), pair[1].load(Ordering::Relaxed)];
    (
        Address::from_words(words(&head.client), ports as u16, scope),
        Address::from_words(words(&head.server), (ports >> 16) as u16, scope),
    )
}
