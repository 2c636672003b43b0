//! AF_UNIX streams and packets: bytes in their order, whichever way they came, packets apart, and ends behind them.

use super::*;
use shunt_sys::libc::{
    self, ECONNRESET, EPIPE, MSG_DONTWAIT, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL, POLLERR, POLLHUP, POLLIN, POLLOUT,
    POLLRDHUP, SHUT_RDWR, SHUT_WR, SOCK_SEQPACKET, SOCK_STREAM, SOL_SOCKET,
};

const EAGAIN: Errno = Errno(libc::EAGAIN);

#[test]
fn a_stream_is_one_row_of_bytes() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_STREAM);
        for text in ["one", "two", "three"] {
            world.send(near, text.as_bytes(), 0).unwrap();
        }
        assert!(world.in_memory(far));
        [4, 0, 2, 64].map(|most| world.text(far, most, MSG_DONTWAIT).unwrap())
    });
    assert_eq!(told, ["onet", "", "wo", "three"]);
}

#[test]
fn packets_are_kept_apart_and_their_rest_is_lost() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_SEQPACKET);
        for text in ["abcdef", "xy", "longest"] {
            world.send(near, text.as_bytes(), 0).unwrap();
        }
        assert!(world.in_memory(far));
        [(4, 0), (64, 0), (3, MSG_TRUNC)].map(|(most, flags)| {
            let got = world.receive_message(far, plain(&[most], flags | MSG_DONTWAIT)).unwrap();
            (got.told, got.flags & MSG_TRUNC)
        })
    });
    assert_eq!(told, [(4, MSG_TRUNC), (2, 0), (7, MSG_TRUNC)]);
}

#[test]
fn an_empty_packet_is_one_and_empty_bytes_are_nothing() {
    let told = in_both(|world| {
        [SOCK_SEQPACKET, SOCK_STREAM].map(|kind| {
            let (near, far) = world.pair(kind);
            let sent = [world.send(near, b"a", 0), world.send(near, b"", 0), world.send(near, b"b", 0)];
            (sent, [(); 3].map(|()| world.text(far, 8, MSG_DONTWAIT)))
        })
    });
    assert_eq!(told[0].1, [Ok("a".into()), Ok("".into()), Ok("b".into())]);
    assert_eq!(told[1].1, [Ok("ab".into()), Err(EAGAIN), Err(EAGAIN)]);
}

#[test]
fn a_peek_takes_nothing_of_streams_and_packets() {
    let told = in_both(|world| {
        [SOCK_SEQPACKET, SOCK_STREAM].map(|kind| {
            let (near, far) = world.pair(kind);
            world.send(near, b"first", 0).unwrap();
            world.send(near, b"second", 0).unwrap();
            assert!(world.in_memory(far));
            [MSG_PEEK, MSG_PEEK, 0].map(|flag| world.text(far, 64, flag | MSG_DONTWAIT).unwrap())
        })
    });
    assert_eq!(told[0], ["first"; 3]);
    assert_eq!(told[1][0], told[1][2]);
}

#[test]
fn the_ring_comes_before_the_kernels_queue() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_STREAM);
        world.send(near, b"ring ", 0).unwrap();
        assert!(world.in_memory(far));
        // A message with credentials is the kernel's.
        let right = world::control(SOL_SOCKET, libc::SCM_RIGHTS, &far.to_ne_bytes());
        world.send_message(near, &[b"queue "], None, &right, 0).unwrap();
        world.send(near, b"behind", 0).unwrap();
        let mut all = String::new();
        while let Ok(text) = world.text(far, 4, MSG_DONTWAIT) {
            all += &text;
        }
        world.send(near, b"again", 0).unwrap();
        assert!(world.in_memory(far), "all is read: memory serves again");
        (all, world.text(far, 64, MSG_DONTWAIT))
    });
    assert_eq!(told, ("ring queue behind".to_string(), Ok("again".to_string())));
}

#[test]
fn a_receive_with_room_goes_on_in_the_kernels_queue() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_STREAM);
        world.send(near, b"ring", 0).unwrap();
        world.send(near, b"!", MSG_OOB).unwrap();
        world.send(near, b"rest", 0).unwrap();
        let at = world.text(far, 64, MSG_DONTWAIT);
        (at, world.text(far, 1, MSG_OOB | MSG_DONTWAIT), world.text(far, 64, MSG_DONTWAIT))
    });
    assert_eq!(told, (Ok("ring".into()), Ok("!".into()), Ok("rest".into())), "it ends at the urgent byte");
}

#[test]
fn waiting_for_all_takes_ring_and_queue() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_STREAM);
        world.send(near, b"abc", 0).unwrap();
        std::thread::scope(|scope| {
            let receiving = scope.spawn(|| world.text(far, 9, MSG_WAITALL));
            for part in [b"def", b"ghi"] {
                std::thread::sleep(std::time::Duration::from_millis(5));
                world.send(near, part, 0).unwrap();
            }
            receiving.join().unwrap()
        })
    });
    assert_eq!(told, Ok("abcdefghi".into()));
}

#[test]
fn waiting_for_all_is_content_with_the_end_and_with_a_time_limit() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_STREAM);
        world.send(near, b"abc", 0).unwrap();
        world.set_receive_limit(far, 20_000);
        let late = world.text(far, 9, MSG_WAITALL);
        world.send(near, b"de", 0).unwrap();
        world.shut(near, SHUT_WR).unwrap();
        [late, world.text(far, 9, MSG_WAITALL), world.text(far, 9, MSG_WAITALL)]
    });
    assert_eq!(told, ["abc", "de", ""].map(|text| Ok(text.to_string())));
}

#[test]
fn bytes_come_before_the_end() {
    let told = in_both(|world| {
        [SOCK_STREAM, SOCK_SEQPACKET].map(|kind| {
            let (near, far) = world.pair(kind);
            world.send(near, b"last", 0).unwrap();
            assert!(world.in_memory(far));
            world.close(near);
            let asked = POLLIN | POLLOUT | POLLRDHUP;
            let events = world.events(far, asked);
            (events, [(); 3].map(|()| world.text(far, 8, MSG_DONTWAIT)), world.events(far, asked))
        })
    });
    for (_, texts, _) in told {
        assert_eq!(texts, ["last", "", ""].map(|text| Ok(text.to_string())));
    }
}

#[test]
fn unread_bytes_of_a_peer_that_closes_are_a_reset_told_once() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_STREAM);
        world.send(near, b"unread", 0).unwrap();
        assert!(world.in_memory(far));
        world.close(far);
        let before = world.events(near, POLLIN) & (POLLERR | POLLHUP);
        let first = world.text(near, 8, MSG_DONTWAIT);
        (before, first, world.events(near, POLLIN) & (POLLERR | POLLHUP), world.text(near, 8, MSG_DONTWAIT))
    });
    assert_eq!(told, (POLLERR | POLLHUP, Err(Errno(ECONNRESET)), POLLHUP, Ok("".into())));
}

#[test]
fn a_packet_to_a_peer_that_closed_with_some_unread_is_told_of_the_reset() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_SEQPACKET);
        world.send(near, b"unread", 0).unwrap();
        assert!(world.in_memory(far));
        world.close(far);
        [(); 3].map(|()| world.send(near, b"x", 0))
    });
    assert_eq!(told, [Err(Errno(ECONNRESET)), Err(Errno(EPIPE)), Err(Errno(EPIPE))]);
}

#[test]
fn a_peer_that_read_everything_leaves_no_reset() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_STREAM);
        world.send(near, b"read", 0).unwrap();
        world.text(far, 8, 0).unwrap();
        world.close(far);
        (world.text(near, 8, MSG_DONTWAIT), world.send(near, b"x", 0), world.events(near, 0))
    });
    assert_eq!(told, (Ok("".into()), Err(Errno(EPIPE)), POLLHUP));
}

#[test]
fn shut_halves_are_the_kernels_words() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_STREAM);
        world.send(near, b"before", 0).unwrap();
        world.shut(near, SHUT_WR).unwrap();
        let sent = world.send(near, b"x", 0);
        let read = [world.text(far, 64, 0), world.text(far, 64, 0)];
        let back = (world.send(far, b"back", 0), world.text(near, 64, 0));
        world.shut(far, SHUT_RDWR).unwrap();
        (sent, read, back, world.events(near, POLLIN | POLLRDHUP), world.send(far, b"x", 0))
    });
    assert_eq!(told.0, Err(Errno(EPIPE)));
    assert_eq!(told.1, [Ok("before".into()), Ok("".into())]);
    assert_eq!(told.2, (Ok(4), Ok("back".into())));
}

#[test]
fn sizes_of_queues_count_the_ring() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_STREAM);
        let fresh = (world.readable(far), world.unread(near));
        world.send(near, &[1; 100], 0).unwrap();
        world.send(near, &[2; 50], 0).unwrap();
        assert!(world.in_memory(far));
        let full = (world.readable(far), world.unread(near));
        world.text(far, 120, MSG_DONTWAIT).unwrap();
        let half = (world.readable(far), world.unread(near));
        world.text(far, 120, MSG_DONTWAIT).unwrap();
        [fresh, full, half, (world.readable(far), world.unread(near))]
    });
    assert_eq!(told.map(|(bytes, _)| bytes), [0, 150, 30, 0]);
}

#[test]
fn what_the_ring_does_not_take_goes_behind_it_and_a_full_socket_says_so() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_STREAM);
        world.set_nonblocking(near);
        let bytes: Vec<u8> = (0..100_000).map(|at| (at * 7 + at / 251) as u8).collect();
        let (mut sent, mut got): (Vec<u8>, Vec<u8>) = (Vec::new(), Vec::new());
        let mut ends = Vec::new();
        for start in (0..90_000).cycle().step_by(1_000) {
            match world.send(near, &bytes[start..start + 10_000], 0) {
                Ok(taken) => sent.extend(&bytes[start..start + taken]),
                Err(error) => {
                    ends.push(error);
                    break;
                }
            }
        }
        while let Ok(message) = world.receive_message(far, plain(&[7_777], MSG_DONTWAIT)) {
            got.extend(&message.bytes[..message.told]);
        }
        (ends, sent == got, sent.len() > 30_000)
    });
    assert_eq!(told, (vec![EAGAIN], true, true));
}

#[test]
fn packets_up_to_the_longest_arrive_whole_and_longer_ones_are_refused() {
    let told = in_both(|world| {
        let (near, far) = world.pair(SOCK_SEQPACKET);
        let limit = shunt_sys::calls::getsockopt_int(near, SOL_SOCKET, libc::SO_SNDBUF).unwrap() as usize;
        [1, 4096, 20_000, 60_000, 100_000, limit].map(|length| {
            let bytes: Vec<u8> = (0..length).map(|at| (at * 7 + at / 251) as u8).collect();
            let sent = world.send(near, &bytes, MSG_DONTWAIT);
            let got = world.receive_message(far, plain(&[300_000], MSG_DONTWAIT));
            (sent, got.is_ok_and(|got| got.bytes[..got.told] == bytes))
        })
    });
    assert_eq!(told[4], (Ok(100_000), true));
    assert_eq!(told[5], (Err(Errno(libc::EMSGSIZE)), false));
}

#[test]
fn a_receive_that_faults_keeps_bytes_and_loses_a_packet() {
    let told = in_both(|world| {
        [SOCK_STREAM, SOCK_SEQPACKET].map(|kind| {
            let (near, far) = world.pair(kind);
            world.send(near, b"one", 0).unwrap();
            world.send(near, b"two", 0).unwrap();
            assert!(world.in_memory(far));
            (world.receive_into_nothing(far, 8), world.text(far, 3, MSG_DONTWAIT))
        })
    });
    let fault = Err(Errno(libc::EFAULT));
    assert_eq!(told, [(fault, Ok("one".into())), (fault, Ok("two".into()))]);
}
