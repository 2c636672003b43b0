//! A peer that is no Linux: smoltcp on the other end of the wire, behind a path that loses, doubles, reorders and damages what passes.

use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;

use shunt_testkit::hosts::Host;
use smoltcp::iface::{Config, Interface, SocketSet};
use smoltcp::phy::{self, Device, DeviceCapabilities, Medium};
use smoltcp::socket::tcp;
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, IpAddress, IpCidr};

use crate::wire::{self, Trouble, Wire, ETHERNET, PORT};

/// As many connections at once.
const SOCKETS: usize = 8;
/// The longest frame of an interface of 1,500 bytes.
const FRAME: usize = 1514;

pub struct Received(Vec<u8>);
pub struct Sending<'a>(&'a mut Wire);

impl phy::RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, work: F) -> R {
        work(&self.0)
    }
}

impl phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, work: F) -> R {
        let mut frame = vec![0; length];
        let result = work(&mut frame);
        self.0.leave(frame);
        result
    }
}

impl Device for Wire {
    type RxToken<'a> = Received;
    type TxToken<'a> = Sending<'a>;

    fn receive(&mut self, _: Instant) -> Option<(Received, Sending<'_>)> {
        if self.arrived.is_empty() {
            self.hear();
        }
        let frame = (!self.arrived.is_empty()).then(|| self.arrived.remove(0))?;
        Some((Received(frame), Sending(self)))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        Some(Sending(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = FRAME;
        capabilities
    }
}

/// Sends back what it gets, until it is dropped.
struct Stranger {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Stranger {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Stranger {
    fn start(host: &Host, ips: [IpAddr; 2], trouble: Trouble) -> Option<Stranger> {
        let mut wire = Wire::open(host, trouble);
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let configuration = Config::new(EthernetAddress(ETHERNET).into());
            let mut interface = Interface::new(configuration, &mut wire, Instant::now());
            interface.update_ip_addrs(|all| {
                for (ip, prefix) in ips.iter().zip([24, 64]) {
                    all.push(IpCidr::new(IpAddress::from(*ip), prefix)).expect("room for two");
                }
            });
            let mut sockets = SocketSet::new(Vec::new());
            let ring = || tcp::SocketBuffer::new(vec![0; 64 << 10]);
            let handles: Vec<_> = (0..SOCKETS).map(|_| sockets.add(tcp::Socket::new(ring(), ring()))).collect();
            let mut bytes = vec![0; 16 << 10];
            while !seen.load(Ordering::Relaxed) {
                interface.poll(Instant::now(), &mut wire, &mut sockets);
                wire.send();
                for handle in &handles {
                    let socket = sockets.get_mut::<tcp::Socket<'_>>(*handle);
                    if !socket.is_open() {
                        socket.set_nagle_enabled(false);
                        socket.listen(PORT).expect("a port");
                    }
                    let room = (socket.send_capacity() - socket.send_queue()).min(bytes.len());
                    if socket.can_recv() && socket.can_send() && room > 0 {
                        let count = socket.recv_slice(&mut bytes[..room]).expect("bytes");
                        assert_eq!(socket.send_slice(&bytes[..count]), Ok(count));
                    } else if !socket.may_recv() && socket.may_send() {
                        socket.close();
                    }
                }
                let wait = interface.poll_delay(Instant::now(), &sockets).map_or(1000, |delay| delay.total_micros().min(1000));
                let mut set = libc::pollfd { fd: wire.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
                let time = libc::timespec { tv_sec: 0, tv_nsec: wait as i64 * 1000 };
                // SAFETY: one entry, and a time.
                unsafe { libc::ppoll(&mut set, 1, &time, std::ptr::null()) };
            }
        });
        Some(Stranger { over, thread: Some(thread) })
    }
}

wire::on_every_path!(Stranger::start);
