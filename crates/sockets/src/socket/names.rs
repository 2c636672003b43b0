//! Both addresses of a stream, where its peer cannot change them.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use shunt_segment::address::Address;

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
