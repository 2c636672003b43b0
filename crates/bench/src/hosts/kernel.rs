//! The kernel's own sockets, spinning on non-blocking calls.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use shunt_testkit::hosts::Host;

use super::contender::{side_by_side, thread_time, time_round_trips, Contender, Pattern, Streamed};
use super::Plan;

fn sentence(error: io::Error) -> String {
    error.to_string()
}

/// Calls until it neither would block nor is interrupted.
fn spin<T>(over: Option<&AtomicBool>, mut call: impl FnMut() -> io::Result<T>) -> Result<Option<T>, String> {
    loop {
        match call() {
            Ok(value) => return Ok(Some(value)),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                if over.is_some_and(|over| over.load(Relaxed)) {
                    return Ok(None);
                }
                std::hint::spin_loop();
            }
            // The peer's end was closed at the end of a turn.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(sentence(error)),
        }
    }
}

/// Connected UDP sockets.
pub struct Datagrams;

impl Datagrams {
    fn join(hosts: &[Host; 2]) -> Result<[UdpSocket; 2], String> {
        let bind = |host: &Host| -> io::Result<UdpSocket> {
            let socket = host.enter(|| UdpSocket::bind(SocketAddr::new(host.addresses[0], 0)))?;
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        let join = || -> io::Result<[UdpSocket; 2]> {
            let sockets = [bind(&hosts[0])?, bind(&hosts[1])?];
            sockets[0].connect(sockets[1].local_addr()?)?;
            sockets[1].connect(sockets[0].local_addr()?)?;
            Ok(sockets)
        };
        join().map_err(sentence)
    }
}

impl Contender for Datagrams {
    fn name(&self) -> &'static str {
        "kernel UDP"
    }

    fn carries(&self, size: usize, _: Pattern) -> bool {
        size <= 65_507 // udp(7)
    }

    fn round_trip(&self, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<f64, String> {
        let [a, b] = Datagrams::join(hosts)?;
        let serve = |over: &AtomicBool, _: &AtomicU64| {
            let mut bytes = vec![0; size];
            while let Some(length) = spin(Some(over), || b.recv(&mut bytes))? {
                spin(Some(over), || b.send(&bytes[..length]))?;
            }
            Ok::<(), String>(())
        };
        let drive = |_: &AtomicU64| {
            let mut bytes = vec![7; size];
            time_round_trips(plan.time, || {
                spin(None, || a.send(&bytes))?;
                spin(None, || a.recv(&mut bytes))?;
                Ok(())
            })
        };
        let (served, driven) = side_by_side(serve, drive);
        served?;
        driven
    }

    fn stream(&self, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<Streamed, String> {
        let [a, b] = Datagrams::join(hosts)?;
        let serve = |over: &AtomicBool, count: &AtomicU64| {
            let mut bytes = vec![0; size];
            while spin(Some(over), || b.recv(&mut bytes))?.is_some() {
                count.store(count.load(Relaxed) + 1, Relaxed);
            }
            Ok::<f64, String>(thread_time())
        };
        let drive = |count: &AtomicU64| {
            let bytes = vec![7; size];
            let (began, mut sent) = (Instant::now(), 0u64);
            while began.elapsed() < plan.time {
                spin(None, || a.send(&bytes))?;
                sent += 1;
            }
            Ok::<_, String>((sent, count.load(Relaxed), began.elapsed().as_secs_f64(), thread_time()))
        };
        let (server, driven) = side_by_side(serve, drive);
        let (sent, received, seconds, driver) = driven?;
        let lost = 1.0 - received as f64 / sent.max(1) as f64;
        Ok(Streamed { messages: received as f64, seconds, processor: server? + driver, lost })
    }
}

/// A TCP connection, TCP_NODELAY.
pub struct Stream;

impl Stream {
    pub fn join(hosts: &[Host; 2]) -> Result<[TcpStream; 2], String> {
        let join = || -> io::Result<[TcpStream; 2]> {
            let listener = hosts[1].enter(|| TcpListener::bind(SocketAddr::new(hosts[1].addresses[0], 0)))?;
            let address = listener.local_addr()?;
            let client = hosts[0].enter(|| TcpStream::connect(address))?;
            let (server, _) = listener.accept()?;
            for socket in [&client, &server] {
                socket.set_nodelay(true)?;
                socket.set_nonblocking(true)?;
            }
            Ok([client, server])
        };
        join().map_err(sentence)
    }
}

fn read_all(mut socket: &TcpStream, over: Option<&AtomicBool>, bytes: &mut [u8]) -> Result<bool, String> {
    let mut done = 0;
    while done < bytes.len() {
        match spin(over, || socket.read(&mut bytes[done..]))? {
            None | Some(0) => return Ok(false),
            Some(count) => done += count,
        }
    }
    Ok(true)
}

fn write_all(mut socket: &TcpStream, over: Option<&AtomicBool>, bytes: &[u8]) -> Result<bool, String> {
    let mut done = 0;
    while done < bytes.len() {
        match spin(over, || socket.write(&bytes[done..]))? {
            None => return Ok(false),
            Some(count) => done += count,
        }
    }
    Ok(true)
}

impl Contender for Stream {
    fn name(&self) -> &'static str {
        "kernel TCP"
    }

    fn round_trip(&self, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<f64, String> {
        let [a, b] = Stream::join(hosts)?;
        let serve = |over: &AtomicBool, _: &AtomicU64| {
            let mut bytes = vec![0; size];
            while read_all(&b, Some(over), &mut bytes)? && write_all(&b, Some(over), &bytes)? {}
            Ok::<(), String>(())
        };
        let drive = |_: &AtomicU64| {
            let mut bytes = vec![7; size];
            time_round_trips(plan.time, || {
                write_all(&a, None, &bytes)?;
                read_all(&a, None, &mut bytes).map(|_| ())
            })
        };
        let (served, driven) = side_by_side(serve, drive);
        served?;
        driven
    }

    fn stream(&self, hosts: &[Host; 2], plan: &Plan<'_>, size: usize) -> Result<Streamed, String> {
        let [a, b] = Stream::join(hosts)?;
        let serve = |over: &AtomicBool, count: &AtomicU64| {
            let mut bytes = vec![0; 1 << 18];
            let mut socket = &b;
            while let Some(got @ 1..) = spin(Some(over), || socket.read(&mut bytes))? {
                count.store(count.load(Relaxed) + got as u64, Relaxed);
            }
            Ok::<f64, String>(thread_time())
        };
        let drive = |count: &AtomicU64| {
            let bytes = vec![7; size];
            let began = Instant::now();
            while began.elapsed() < plan.time {
                write_all(&a, None, &bytes)?;
            }
            Ok::<_, String>((count.load(Relaxed), began.elapsed().as_secs_f64(), thread_time()))
        };
        let (server, driven) = side_by_side(serve, drive);
        let (received, seconds, driver) = driven?;
        let messages = received as f64 / size as f64;
        Ok(Streamed { messages, seconds, processor: server? + driver, lost: 0.0 })
    }
}
