//! Bytes arrive whole, once and in order, whatever their number and however they are cut.

use super::*;
use std::thread;

#[test]
fn one_byte() {
    let Pair { near, far } = &Pair::new();
    assert_eq!(near.send(b"x", 0), Ok(1));
    assert_eq!(far.text(8, 0).unwrap(), "x");
}

#[test]
fn both_directions_are_apart() {
    let Pair { near, far } = &Pair::new();
    near.send(b"there", 0).unwrap();
    far.send(b"back", 0).unwrap();
    assert_eq!(near.text(8, 0).unwrap(), "back");
    assert_eq!(far.text(8, 0).unwrap(), "there");
}

#[test]
fn sends_are_joined() {
    let Pair { near, far } = &Pair::new();
    for part in ["one ", "two ", "three"] {
        near.send(part.as_bytes(), 0).unwrap();
    }
    assert_eq!(far.text(64, 0).unwrap(), "one two three");
}

#[test]
fn a_send_is_cut_by_small_receives() {
    let Pair { near, far } = &Pair::new();
    near.send(b"abcdef", 0).unwrap();
    assert_eq!(far.text(2, 0).unwrap(), "ab");
    assert_eq!(far.text(1, 0).unwrap(), "c");
    assert_eq!(far.text(64, 0).unwrap(), "def");
}

#[test]
fn nothing_is_sent_of_nothing() {
    let Pair { near, far } = &Pair::new();
    assert_eq!(near.send(b"", 0), Ok(0));
    assert_eq!(far.receive(&mut [0; 4], NOW), Err(EAGAIN));
}

#[test]
fn sizes_around_those_of_the_ring() {
    for size in
        [7, 8, 9, 47, 48, 49, 55, 56, 57, 63, 64, 65, 127, 255, 256, 511, 512, 513, 1023, 1024, 4095, 4096, 4097, 8191, 8193]
    {
        let Pair { near, far } = &Pair::new();
        let sent = pattern(size);
        for turn in 0..3 {
            assert_eq!(near.send(&sent, 0), Ok(size), "{size} bytes, turn {turn}");
            assert_eq!(receive_whole(far, size), sent, "{size} bytes, turn {turn}");
        }
    }
}

#[test]
fn a_stream_larger_than_every_ring() {
    let pair = Pair::new();
    let (near, far) = (pair.near, pair.far);
    let sent = pattern(24 << 20);
    let expected = sent.clone();
    let sender = thread::spawn(move || {
        let mut done = 0;
        while done < sent.len() {
            done += near.send(&sent[done..], 0).unwrap();
        }
    });
    assert!(receive_whole(&far, expected.len()) == expected, "24 MiB arrive as they were");
    sender.join().unwrap();
}

#[test]
fn both_ends_stream_at_once() {
    let pair = Pair::new();
    let ends = [pair.near, pair.far];
    let threads: Vec<_> = (0..4)
        .map(|number| {
            let end = ends[number % 2];
            thread::spawn(move || {
                let bytes = pattern(3 << 20);
                if number < 2 {
                    let mut done = 0;
                    while done < bytes.len() {
                        done += end.send(&bytes[done..(done + 10_000).min(bytes.len())], 0).unwrap();
                    }
                } else {
                    assert!(receive_whole(&end, bytes.len()) == bytes);
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn a_vector_is_one_stream() {
    let Pair { near, far } = &Pair::new();
    assert_eq!(near.send_all(&[b"ab", b"", b"cde", b"f"], 0), Ok(6));
    assert_eq!(far.text(64, 0).unwrap(), "abcdef");
}

#[test]
fn a_vector_receives_in_order() {
    let Pair { near, far } = &Pair::new();
    near.send(b"abcdefgh", 0).unwrap();
    let got = far.receive_all(&[3, 0, 2, 100], 0).unwrap();
    assert_eq!(got, [b"abc".to_vec(), vec![], b"de".to_vec(), b"fgh".to_vec()]);
}

#[test]
fn a_long_vector_of_large_buffers() {
    let pair = Pair::new();
    let (near, far) = (pair.near, pair.far);
    let parts: Vec<Vec<u8>> = (1..=40).map(|part| pattern(part * 3001)).collect();
    let expected: Vec<u8> = parts.concat();
    let length = expected.len();
    let sender = thread::spawn(move || {
        let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
        assert_eq!(near.send_all(&slices, 0), Ok(length));
    });
    assert!(receive_whole(&far, length) == expected);
    sender.join().unwrap();
}

#[test]
fn a_full_ring_takes_what_fits() {
    let Pair { near, far } = &Pair::new();
    let mut total = 0;
    loop {
        match near.send(&pattern(100_000), NOW) {
            Ok(some) => total += some,
            Err(full) => break assert_eq!(full, EAGAIN),
        }
        assert!(total < 64 << 20, "it fills");
    }
    assert!(total >= 64 << 10, "at least the smallest ring: {total}");
    let mut left = total;
    while left > 0 {
        left -= far.receive(&mut vec![0; 1 << 20], NOW).unwrap();
    }
    assert_eq!(far.receive(&mut [0; 1], NOW), Err(EAGAIN));
    assert!(near.send(b"room again", NOW).is_ok());
}

#[test]
fn several_senders_lose_nothing() {
    let pair = Pair::new();
    let (near, far) = (pair.near, pair.far);
    let threads: Vec<_> = (0..3u8)
        .map(|number| {
            thread::spawn(move || {
                for _ in 0..2000 {
                    assert_eq!(near.send(&[number; 16], 0), Ok(16));
                }
            })
        })
        .collect();
    let mut counts = [0usize; 3];
    let got = receive_whole(&far, 3 * 2000 * 16);
    got.iter().for_each(|byte| counts[*byte as usize] += 1);
    assert_eq!(counts, [32_000; 3]);
    assert!(got.chunks(16).all(|message| message.iter().all(|byte| *byte == message[0])), "no send is cut by another");
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn several_receivers_share_the_bytes() {
    let pair = Pair::new();
    let (near, far) = (pair.near, pair.far);
    let threads: Vec<_> = (0..3)
        .map(|_| {
            thread::spawn(move || {
                let (mut sum, mut count) = (0u64, 0);
                let mut bytes = [0; 64];
                loop {
                    match far.receive(&mut bytes, 0).unwrap() {
                        0 => return (sum, count),
                        got => {
                            count += got;
                            sum += bytes[..got].iter().map(|byte| u64::from(*byte)).sum::<u64>();
                        }
                    }
                }
            })
        })
        .collect();
    let sent = pattern(300_000);
    let mut done = 0;
    while done < sent.len() {
        done += near.send(&sent[done..(done + 777).min(sent.len())], 0).unwrap();
    }
    near.shut(libc::SHUT_WR).unwrap();
    let results: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(results.iter().map(|(_, count)| count).sum::<usize>(), sent.len());
    assert_eq!(results.iter().map(|(sum, _)| sum).sum::<u64>(), sent.iter().map(|byte| u64::from(*byte)).sum::<u64>());
}
