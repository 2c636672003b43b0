//! Options of connections and of listeners, by all numbers that there are rather than by name.

use super::*;
use shunt_segment::address::Address;

/// What differs from one connection to the next, or is another thing here as docs/SEMANTICS.md says.
fn varies(level: i32, name: i32) -> bool {
    const IP_MULTICAST_TTL: i32 = 33;
    const IP_LOCAL_PORT: i32 = 52; // two ports of the kernel's own (IP_PROTOCOL and the like answer otherwise)
    match level {
        libc::IPPROTO_IP | IPPROTO_IPV6 if name == ORIGINAL_DESTINATION => true,
        libc::IPPROTO_IP => matches!(name, IP_MULTICAST_TTL | IP_LOCAL_PORT | 4),
        SOL_SOCKET => matches!(name, 26 | 28 | 49 | 50 | 55 | 56 | 57), // filters, names, processors, memory, cookies
        IPPROTO_TCP => matches!(name, libc::TCP_MAXSEG | 10 | 11 | 12 | 19 | 24 | 26), // windows, TCP_INFO, TCP_REPAIR, time stamps
        _ => false,
    }
}

/// SO_ORIGINAL_DST, which is answered where connections are tracked, as on hosts of containers.
const ORIGINAL_DESTINATION: i32 = 80;

const LEVELS: [i32; 7] = [libc::IPPROTO_IP, SOL_SOCKET, IPPROTO_TCP, IPPROTO_IPV6, 17, 255, -1];

#[test]
fn each_number_of_an_option_reads_as_on_the_kernel_at_both_ends() {
    start();
    let ends = [World::Kernel, World::Engine].map(World::connection);
    for (level, name) in LEVELS.iter().flat_map(|level| (-1..90).map(|name| (*level, name))).filter(|(l, n)| !varies(*l, *n)) {
        for room in [64, 4, 1] {
            let [kernel, engine] =
                ends.each_ref().map(|(_, client, server)| [client, server].map(|end| end.get_bytes(level, name, room)));
            assert_eq!(engine, kernel, "level {level}, option {name}, {room} bytes");
        }
    }
}

#[test]
fn the_original_destination_is_the_server_s_address() {
    start();
    let told = |world: World| {
        let (_, client, server) = world.connection();
        let name = server.name().expect("a name");
        let address = [&(libc::AF_INET as u16).to_ne_bytes()[..], &name.port.to_be_bytes(), &name.ip[12..]].concat();
        let ask = |end: &Fd, room| end.get_bytes(libc::IPPROTO_IP, ORIGINAL_DESTINATION, room);
        [&client, &server].map(|end| [64, 16, 4].map(|room| ask(end, room).map(|bytes| bytes[..8] == address)))
    };
    let kernel = told(World::Kernel);
    assert!(kernel.as_flattened().iter().all(|told| *told != Ok(false)), "{kernel:?}");
    assert_eq!(told(World::Engine), kernel);
}

#[test]
fn each_number_of_an_option_is_set_as_on_the_kernel() {
    start();
    for level in [libc::IPPROTO_IP, SOL_SOCKET, IPPROTO_TCP] {
        let ends = [World::Kernel, World::Engine].map(World::connection);
        // An option may take the route away, and its size with it, until the next segment.
        for name in (0..70).filter(|name| !varies(level, *name) && (level, *name) != (libc::IPPROTO_IP, libc::IP_MTU)) {
            for value in [1, 0, -1, 7, 70_000] {
                let [kernel, engine] =
                    ends.each_ref().map(|(_, client, _)| (client.set(level, name, value), client.get_bytes(level, name, 64)));
                assert_eq!(engine, kernel, "level {level}, option {name} to {value}");
            }
        }
    }
}

/// Options that an accepted connection has from its listener, with a value that is not the usual one.
const SETTINGS: [(i32, i32, i32); 15] = [
    (SOL_SOCKET, libc::SO_KEEPALIVE, 1),
    (SOL_SOCKET, libc::SO_OOBINLINE, 1),
    (SOL_SOCKET, libc::SO_RCVLOWAT, 9),
    (SOL_SOCKET, libc::SO_SNDBUF, 30_000),
    (SOL_SOCKET, libc::SO_RCVBUF, 30_000),
    (SOL_SOCKET, libc::SO_PRIORITY, 3),
    (IPPROTO_TCP, libc::TCP_NODELAY, 1),
    (IPPROTO_TCP, libc::TCP_KEEPIDLE, 77),
    (IPPROTO_TCP, libc::TCP_KEEPINTVL, 78),
    (IPPROTO_TCP, libc::TCP_KEEPCNT, 8),
    (IPPROTO_TCP, libc::TCP_USER_TIMEOUT, 12_345),
    (IPPROTO_TCP, libc::TCP_SYNCNT, 4),
    (IPPROTO_TCP, libc::TCP_LINGER2, 11),
    (libc::IPPROTO_IP, libc::IP_TTL, 33),
    (libc::IPPROTO_IP, libc::IP_TOS, 0x20),
];

fn all_of(end: &Fd) -> Vec<shunt_sys::Result<i32>> {
    SETTINGS.iter().map(|(level, name, _)| end.get(*level, *name)).collect()
}

#[test]
fn an_accepted_connection_has_each_option_as_its_listener_hands_it_down() {
    for (level, name, value) in SETTINGS {
        same(|world| {
            let listener = world.listener();
            let usual = listener.get(level, name);
            listener.set(level, name, value).unwrap();
            assert_ne!(listener.get(level, name), usual);
            let (client, server) = world.connection_to(&listener);
            (level, name, all_of(&server), all_of(&client))
        });
    }
}

#[test]
fn a_client_keeps_each_option_that_it_had_before_it_connected() {
    for (level, name, value) in SETTINGS {
        same(|world| {
            let (listener, client) = (world.listener(), world.tcp());
            client.set(level, name, value).unwrap();
            client.connect(&listener.name().unwrap()).unwrap();
            client.expect_stream();
            (level, name, all_of(&client), all_of(&listener.accept().unwrap()))
        });
    }
}

#[test]
fn an_option_that_is_set_behind_a_client_s_back_is_not_its_connection_s() {
    same(|world| {
        let listener = world.listener();
        listener.set(IPPROTO_TCP, libc::TCP_KEEPIDLE, 50).unwrap();
        let [early, late] = [51, 52].map(|next| {
            let client = world.tcp();
            client.connect(&listener.name().unwrap()).unwrap();
            client.expect_stream();
            listener.set(IPPROTO_TCP, libc::TCP_KEEPIDLE, next).unwrap();
            client
        });
        let accepted = [early, late].map(|client| {
            let server = listener.accept().unwrap();
            assert_eq!(server.peer(), client.name());
            server.get(IPPROTO_TCP, libc::TCP_KEEPIDLE)
        });
        (accepted, listener.get(IPPROTO_TCP, libc::TCP_KEEPIDLE))
    });
}

#[test]
fn limits_of_time_are_handed_down_and_read_back_rounded() {
    same(|world| {
        let listener = world.listener();
        let times = [(0i64, 1i64), (0, 3_999), (5, 999_999), (-1, 0), (1 << 40, 0)];
        times.map(|(seconds, micros)| {
            let time = libc::timeval { tv_sec: seconds, tv_usec: micros };
            let set = listener.set_raw(SOL_SOCKET, libc::SO_SNDTIMEO, (&raw const time).cast(), 16);
            let (client, server) = world.connection_to(&listener);
            let mine = client.set_raw(SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const time).cast(), 16);
            (set, mine, server.get_bytes(SOL_SOCKET, libc::SO_SNDTIMEO, 16), client.get_bytes(SOL_SOCKET, libc::SO_RCVTIMEO, 16))
        })
    });
}

#[test]
fn lingering_that_is_switched_off_keeps_its_time() {
    same(|world| {
        let (_listener, client, _server) = world.connection();
        [(1, 7), (0, 9), (0, 0), (1, -1), (1, 1 << 30)].map(|(on, time)| {
            let linger = libc::linger { l_onoff: on, l_linger: time };
            (
                client.set_raw(SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), 8),
                client.get_bytes(SOL_SOCKET, libc::SO_LINGER, 8),
            )
        })
    });
}

#[test]
fn options_whose_value_or_length_lies_nowhere_are_refused() {
    same(|world| {
        let (_listener, client, _server) = world.connection();
        let nowhere = core::ptr::without_provenance_mut::<u8>(8);
        let mut room = [0u8; 64];
        [
            (SOL_SOCKET, libc::SO_KEEPALIVE),
            (SOL_SOCKET, libc::SO_LINGER),
            (SOL_SOCKET, libc::SO_ERROR),
            (IPPROTO_TCP, libc::TCP_NODELAY),
            (IPPROTO_TCP, libc::TCP_INFO),
            (IPPROTO_TCP, 999),
        ]
        .map(|(level, name)| {
            let [mut whole, mut negative] = [64, -1i32 as u32];
            [
                client.get_raw(level, name, nowhere, &mut whole),
                client.get_raw(level, name, room.as_mut_ptr(), nowhere.cast()),
                client.get_raw(level, name, room.as_mut_ptr(), &mut negative),
                client.set_raw(level, name, nowhere, 16),
                client.set_raw(level, name, room.as_ptr(), 3),
                client.set_raw(level, name, room.as_ptr(), -1i32 as u32),
            ]
        })
    });
}

#[test]
fn a_stream_is_bound_no_more() {
    same(|world| {
        let (_listener, client, server) = world.connection();
        let nowhere = core::ptr::without_provenance(8);
        let unix = [1u8; 16];
        [client, server].map(|end| {
            [
                end.bind(&loopback(0)),
                end.bind(&Address::v4([192, 0, 2, 1], 0)),
                end.bind_raw(nowhere, 16),
                end.bind_raw(unix.as_ptr().cast(), 3),
                end.bind_raw(unix.as_ptr().cast(), 16),
            ]
        })
    });
}

/// The state, and the bytes that were acknowledged and received, of struct tcp_info.
fn information(end: &Fd) -> (u8, u64, u64) {
    let bytes = end.get_bytes(IPPROTO_TCP, libc::TCP_INFO, 256).unwrap();
    let word = |at: usize| u64::from_ne_bytes(*bytes[at..].first_chunk().unwrap());
    (bytes[0], word(120), word(128))
}

#[test]
fn tcp_info_tells_the_state_that_the_connection_is_in() {
    same(|world| {
        let (_listener, client, server) = world.connection();
        let first = (information(&client).0, information(&server).0);
        client.shut(libc::SHUT_WR).unwrap();
        assert_eq!(server.receive().unwrap(), "");
        let half = information(&server).0;
        server.reset();
        (first, half, information(&client).0)
    });
}

#[test]
fn tcp_info_counts_the_bytes_of_either_direction() {
    same(|world| {
        let (_listener, client, server) = world.connection();
        client.send(&[b'x'; 100]).unwrap();
        server.receive().unwrap();
        server.send(&[b'y'; 30]).unwrap();
        client.receive().unwrap();
        (information(&client), information(&server).2)
    });
}

#[test]
fn an_end_counts_as_a_byte() {
    same(|world| {
        let (_listener, client, server) = world.connection();
        client.send(b"seven..").unwrap();
        client.shut(libc::SHUT_WR).unwrap();
        assert_eq!(server.receive().unwrap(), "seven..");
        let behind_one = information(&server).2;
        server.shut(libc::SHUT_WR).unwrap();
        assert_eq!(client.receive().unwrap(), "");
        (behind_one, information(&client).1, information(&client).2)
    });
}

#[test]
fn a_reset_is_no_byte() {
    same(|world| {
        let (_listener, client, server) = world.connection();
        client.send(b"seven..").unwrap();
        assert_eq!(server.receive().unwrap(), "seven..");
        client.reset();
        information(&server)
    });
}

#[test]
fn no_two_sockets_have_one_cookie_and_none_changes() {
    start();
    let listener = World::Engine.listener();
    let cookie = |end: &Fd| end.get_bytes(SOL_SOCKET, libc::SO_COOKIE, 8).unwrap();
    let mut seen = Vec::new();
    for _ in 0..3 {
        let (client, server) = World::Engine.connection_to(&listener); // on the same companions each time
        for end in [&client, &server] {
            assert_eq!(cookie(end), cookie(end));
            seen.push(cookie(end));
        }
    }
    let count = seen.len();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), count);
}

#[test]
fn a_cookie_that_was_told_before_connecting_stays() {
    same(|world| {
        let (listener, client) = (world.listener(), world.tcp());
        if world == World::Engine {
            crate::socket_cache::spoil(client.object()); // as the hook does
            crate::options::note_get(client.number, client.object(), SOL_SOCKET, libc::SO_COOKIE);
        }
        let before = client.get_bytes(SOL_SOCKET, libc::SO_COOKIE, 8);
        client.connect(&listener.name().unwrap()).unwrap();
        client.expect_stream();
        assert_eq!(client.get_bytes(SOL_SOCKET, libc::SO_COOKIE, 8), before);
    });
}

#[test]
fn so_peername_gives_as_many_bytes_as_were_asked_for() {
    same(|world| {
        let (_listener, client, server) = world.connection();
        let port = server.name().unwrap().port.to_be_bytes();
        const SO_PEERNAME: i32 = 28;
        [0, 2, 7, 16, 17, 64].map(|room| {
            client.get_bytes(SOL_SOCKET, SO_PEERNAME, room).map(|mut bytes| {
                (2..4).filter(|at| *at < bytes.len()).collect::<Vec<_>>().into_iter().for_each(|at| bytes[at] ^= port[at - 2]);
                bytes
            })
        })
    });
}

#[test]
fn an_ipv6_socket_with_an_ipv4_peer_becomes_one_of_ipv4() {
    const IPV6_ADDRFORM: i32 = 1;
    same(|world| {
        let (listener, client) = (world.listener(), world.socket(AF_INET6, 0));
        let early = client.set(IPPROTO_IPV6, IPV6_ADDRFORM, AF_INET);
        client.connect(&listener.name().unwrap()).unwrap();
        client.expect_stream();
        let mut length = 28;
        let mut told = [0u8; 28];
        let refused = [0, AF_INET6, -1].map(|family| client.set(IPPROTO_IPV6, IPV6_ADDRFORM, family));
        let changed = client.set(IPPROTO_IPV6, IPV6_ADDRFORM, AF_INET);
        client.peer_raw(told.as_mut_ptr().cast(), &mut length).unwrap();
        (
            early,
            refused,
            changed,
            length,
            client.get(SOL_SOCKET, libc::SO_DOMAIN),
            client.set(IPPROTO_IPV6, IPV6_ADDRFORM, AF_INET),
        )
    });
}

#[test]
fn an_ipv6_socket_with_an_ipv6_peer_stays_one() {
    same(|world| {
        let (listener, client) = (world.socket(AF_INET6, 0), world.socket(AF_INET6, 0));
        listener.bind(&loopback_six(0)).unwrap();
        listener.listen(1).unwrap();
        client.connect(&listener.name().unwrap()).unwrap();
        client.expect_stream();
        (client.set(IPPROTO_IPV6, 1, AF_INET), client.get(SOL_SOCKET, libc::SO_DOMAIN))
    });
}

#[test]
fn the_route_of_an_ipv4_connection_is_ipv4_s_whatever_the_socket_s_family() {
    same(|world| {
        let (listener, client) = (world.listener(), world.socket(AF_INET6, 0));
        client.connect(&listener.name().unwrap()).unwrap();
        client.expect_stream();
        (client.get(libc::IPPROTO_IP, libc::IP_MTU), client.get(IPPROTO_IPV6, libc::IPV6_MTU))
    });
}

#[test]
fn what_is_set_without_asking_is_what_the_kernel_would_have_kept() {
    start();
    let options = (0..100).flat_map(|name| [SOL_SOCKET, IPPROTO_TCP, libc::IPPROTO_IP].map(|level| (level, name)));
    let values = [i32::MIN, -1, 0, 1, 2, 6, 7, 64, 127, 128, 255, 256, 32_767, 32_768, 65_535, 65_536, i32::MAX];
    let (_listener, connected, _server) = World::Kernel.connection();
    let mut judged = 0;
    for (level, name) in options {
        for value in values {
            let bytes = [value, 0, value, 0].map(i32::to_ne_bytes).concat();
            for length in [3, 4, 8, 16, 20] {
                // SAFETY: a slice that is longer.
                let given = unsafe { crate::options::as_given(level, name, bytes.as_ptr(), length.min(16)) }.unwrap();
                let Some((kept, size)) = given else { continue };
                judged += 1;
                let set = connected.set_bytes(level, name, &bytes[..length.min(16) as usize]);
                assert_eq!(set, Ok(()), "level {level}, option {name} to {value}, {length} bytes");
                let told = connected.get_bytes(level, name, size).unwrap();
                // No time at all reads back as no limit, which is told where it is asked for.
                let no_time = kept == shunt_stream::options::limits::NO_TIME;
                assert!(no_time || kept[..size] == told, "level {level}, option {name} to {value}, {length} bytes: {told:?}");
            }
        }
    }
    assert!(judged > 100);
}
