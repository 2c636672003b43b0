//! What the agent's program passes on: everything that is for no endpoint, as it is, whatever the agent itself is doing.
mod agents;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use agents::{attach, mac_of, pair, Agent, Raw};
use shunt_endpoint::conformance::{connect, provide};
use shunt_endpoint::{Arrival, Endpoint, Message, SendError};
use shunt_testkit::hosts::{Host, Joint};
use shunt_testkit::Random;
use shunt_wire::endpoint::{Kind as FrameKind, Repr, HEADER};
use shunt_xdp::packet::{Path, Sum};
use shunt_xdp::protocol::{Kind, PORT};

const DEADLINE: Duration = Duration::from_secs(20);

/// A source address by which frames are told from what the kernels say of themselves.
const NOBODY: [u8; 6] = [2, 0, 0, 0, 0, 99];

fn udp_path(hosts: &[Host; 2], version: usize, port: u16) -> Path {
    let address = |host: &Host, port| SocketAddr::new(host.addresses[version], port);
    Path { from: NOBODY, to: mac_of(&hosts[1]), source: address(&hosts[0], 9), destination: address(&hosts[1], port) }
}

fn udp(path: &Path, datagram: &[u8]) -> Vec<u8> {
    let headers = path.headers(datagram.len(), Some(Sum::default().add(datagram)));
    [&headers[..path.header()], datagram].concat()
}

/// Frames that are for no endpoint, some of them nearly for one.
fn frames(hosts: &[Host; 2]) -> Vec<Vec<u8>> {
    let mut datagram = vec![0; HEADER];
    Repr { kind: FrameKind::Message, tag: 0x0123_4567_89ab_cdef, length: 40 }.emit(&mut datagram);
    datagram.extend([7; 40]);
    let mut frames = Vec::new();
    for version in [0, 1] {
        let path = udp_path(hosts, version, PORT);
        let ip = 14;
        // A tag that nobody has; no header of ours; a byte too few for one; another port; a trailer.
        frames.push(udp(&path, &datagram));
        frames.push(udp(&path, &[9; 300]));
        frames.push(udp(&path, &datagram[..HEADER - 1]));
        frames.push(udp(&udp_path(hosts, version, 53), &datagram));
        frames.push([udp(&path, &datagram), vec![0xee; 30]].concat());
        // The largest; one cut off within its headers.
        frames.push(udp(&path, &vec![5; 1514 - path.header()]));
        frames.push(udp(&path, &datagram)[..path.header() - 3].to_vec());
        // In a virtual network.
        let whole = udp(&path, &datagram);
        frames.push([&whole[..12], &[0x81, 0, 0, 5], &whole[12..]].concat());
        let mut changed = |at: usize, bytes: &[u8]| {
            let mut frame = whole.clone();
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            frames.push(frame);
        };
        // TCP to the same port; a protocol that nobody knows.
        changed(if version == 0 { ip + 9 } else { ip + 6 }, &[6]);
        changed(12, &[0x88, 0xcc]);
        if version == 0 {
            // The first fragment of several, a later one, and options that lie about their length.
            changed(ip + 6, &[0x20, 0]);
            changed(ip + 6, &[0, 100]);
            changed(ip, &[0x46]);
        } else {
            // A header before the datagram's, and a fragment's.
            changed(ip + 6, &[0]);
            changed(ip + 6, &[44]);
        }
    }
    frames
}

/// What of `frames` the second host's kernel hears.
fn heard(hosts: &[Host; 2], frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (sends, hears) = (Raw::new(&hosts[0]), Raw::listening(&hosts[1]));
    let last = [&mac_of(&hosts[1])[..], &NOBODY, &[0x88, 0xb5, 1]].concat();
    frames.iter().for_each(|frame| sends.send(frame));
    sends.send(&last);
    let (began, mut heard) = (Instant::now(), Vec::new());
    while heard.last() != Some(&last) {
        assert!(began.elapsed() < DEADLINE, "heard {} of {} frames", heard.len(), frames.len());
        heard.extend(hears.next().filter(|frame| frame.get(6..12) == Some(&NOBODY)));
    }
    heard
}

/// The kernel's own connections and datagrams, segments and fragments among them.
fn talk(hosts: &[Host; 2]) {
    let sent = Random::seeded(3).bytes(8 << 20);
    for version in [0, 1] {
        let listener = hosts[1].enter(|| TcpListener::bind(SocketAddr::new(hosts[1].addresses[version], 0))).expect("a listener");
        let mut client = hosts[0].enter(|| TcpStream::connect(listener.local_addr().unwrap())).expect("a connection");
        let (mut server, _) = listener.accept().expect("a client");
        server.set_read_timeout(Some(DEADLINE)).expect("a timeout");
        let mut got = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| client.write_all(&sent).and_then(|()| client.shutdown(std::net::Shutdown::Write)).expect("sent"));
            server.read_to_end(&mut got).expect("received");
        });
        assert!(got == sent, "TCP brought other bytes");
        let bind = |host: &Host| {
            let socket = host.enter(|| UdpSocket::bind(SocketAddr::new(host.addresses[version], 0))).expect("a socket");
            socket.set_read_timeout(Some(DEADLINE)).expect("a timeout");
            socket
        };
        let (a, b) = (bind(&hosts[0]), bind(&hosts[1]));
        for length in [0, 1, 1400, 9000] {
            a.send_to(&sent[..length], b.local_addr().unwrap()).expect("sent");
            let mut bytes = [0; 10_000];
            assert_eq!(b.recv_from(&mut bytes).expect("received"), (length, a.local_addr().unwrap()));
            assert!(bytes[..length] == sent[..length], "UDP brought other bytes");
        }
    }
}

/// Running, stopped with its queue full, and killed, before the stack and in the driver.
#[test]
fn everything_else_passes_as_it_is() {
    let Some(hosts) = pair(Joint::default()) else { return };
    let frames = frames(&hosts);
    let plain = heard(&hosts, &frames);
    assert!(plain.len() > 20, "the kernel hears {} frames", plain.len());
    for attachment in ["generic", "native"] {
        let mut agents = hosts.each_ref().map(|host| Agent::start(host, &["--attach", attachment]));
        let mut ends = hosts.each_ref().map(|host| attach(host, Kind::Multiplexed, false));
        let [a, b] = &mut ends;
        provide(a, 64);
        provide(b, 64);
        let (to_b, _) = connect(a, b);
        assert!(heard(&hosts, &frames) == plain, "{attachment}: other frames");
        talk(&hosts);

        agents[1].signal(libc::SIGSTOP);
        for _ in 0..10_000 {
            match a.send(&Message::small(to_b, b"for one who sleeps")) {
                Ok(_) | Err(SendError::NoResource) => a.flush().expect("the device works"),
                Err(error) => panic!("{error:?}"),
            };
        }
        assert!(heard(&hosts, &frames) == plain, "{attachment}, stopped: other frames");
        talk(&hosts);
        agents[1].signal(libc::SIGCONT);
        let (began, mut arrival) = (Instant::now(), Arrival::empty());
        while !b.receive(&mut arrival) {
            assert!(began.elapsed() < DEADLINE, "an agent that goes on brings nothing");
        }
        b.release(&mut arrival);

        agents[1].signal(libc::SIGKILL);
        agents[1].wait();
        assert!(heard(&hosts, &frames) == plain, "{attachment}, killed: other frames");
        talk(&hosts);
    }
}
