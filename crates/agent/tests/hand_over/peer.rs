//! The plain peer: it sends back what it reads.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener};

use shunt_testkit::hosts::Host;

/// Serves for as long as the test runs, a thread a connection; what it ends with is told by the connection itself.
pub fn serve(host: &Host, version_6: bool) -> SocketAddr {
    let address = host.addresses[usize::from(version_6)];
    // Threads begin in the network namespace of the thread that makes them.
    host.enter(|| {
        let listener = TcpListener::bind((address, 0)).expect("a listener");
        let address = listener.local_addr().expect("an address");
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(mut stream) = stream else { return };
                std::thread::spawn(move || {
                    let _ = stream.set_nodelay(true);
                    let mut bytes = vec![0; 32 << 10];
                    loop {
                        match stream.read(&mut bytes) {
                            Ok(0) => return stream.shutdown(Shutdown::Write),
                            Ok(count) => stream.write_all(&bytes[..count])?,
                            Err(error) => return Err(error),
                        }
                    }
                });
            }
        });
        address
    })
}
