//! What this layer promises, as ratios of one run's medians.

use super::record::{Record, Sheet};
use super::{beside, halves, hand_over, inet, parts, served, shm, tables, taken, unet};

/// A promise: one figure over another, or by itself, and its bound.
struct Aim {
    what: &'static str,
    above: Place,
    below: Option<Place>,
    bound: Bound,
}

/// Table, row, column.
type Place = (&'static str, &'static str, &'static str);

enum Bound {
    AtMost(f64),
    AtLeast(f64),
    /// Said, not promised.
    None,
}

const OWN: &str = "endpoint xdp, own queue";
const SOCKETS: &str = "sockets, xdp";
const BLOCKING: &str = "blocking, 1 connection, two processors";
const SPINNING: &str = "kernel TCP, programs, spinning";

fn aims() -> Vec<Aim> {
    use Bound::{AtLeast, AtMost, None as Said};
    let aim = |what, above, below, bound| Aim { what, above, below, bound };
    let near = |row| (shm::ROUND_TRIPS, row, "ns");
    let far = |row| (tables::ROUND_TRIPS, row, "8 B");
    let stored = |row| (shm::BULK, row, "GB/s");
    let bulk = |row| (tables::BULK, row, "Gb/s");
    let lossy = |row| (tables::LOSS, row, "1.0 %");
    let requests = |row| (tables::REDIS, row, "-c 1");
    let kernel_peer = |row, end| (inet::REQUESTS, row, end);
    let round_trip = (hand_over::ROUND_TRIPS, hand_over::ONE, hand_over::ENGINE);
    let handed = |row, head| (hand_over::HAND_OVERS, row, head);
    let served = |row, head| (taken::SERVERS, row, head);
    let beside = |row| (tables::BESIDE, row, tables::MIDDLE);
    let programs = |row| (served::PROGRAMS, row, taken::TO_KERNEL);
    let other = |row| (beside::BESIDE, row, beside::TO_NONE);
    let by_size = |row| (unet::ROUND_TRIPS, row, "8 B");
    let share = |row| (tables::SHARE, row, "100M/64K");
    vec![
        aim("round trip, shm: active messages / bare endpoint", near(shm::MESSAGES), Some(near(shm::BARE)), AtMost(1.1)),
        aim("round trip, shm: active messages / UCX am_lat", near(shm::MESSAGES), Some(near(shm::UCT)), AtMost(1.0)),
        aim("round trip, shm: active messages / UCX ucp_am_lat", near(shm::MESSAGES), Some(near(shm::UCP)), AtMost(1.0)),
        aim("8 B active messages, shm, M/s", (shm::RATES, shm::MESSAGES, "M/s"), None, AtLeast(10.0)),
        aim("bulk store, shm / bare byte ring", stored(shm::STORES), Some(stored(shm::RING)), AtLeast(0.9)),
        aim("bulk store, shm / bare endpoint", stored(shm::STORES), Some(stored(shm::LARGEST)), AtLeast(0.9)),
        aim("round trip, xdp: active messages / bare endpoint", far(tables::MESSAGES), Some(far(OWN)), AtMost(1.1)),
        aim("round trip, xdp: sockets / bare endpoint", beside(tables::THERE_AND_BACK), None, AtMost(1.3)),
        aim("round trip, xdp: kernel TCP spinning / sockets", far(SPINNING), Some(far(SOCKETS)), AtLeast(3.0)),
        aim("round trip, xdp: kernel TCP spinning / bare endpoint", far(SPINNING), Some(far(OWN)), Said),
        aim("round trip, xdp: kernel TCP spinning / one sendto", far(SPINNING), Some((parts::PARTS, parts::SENDTO, "8 B")), Said),
        aim("stream, xdp: sockets / bare endpoint", beside(tables::LARGE_SENDS), None, AtLeast(0.9)),
        aim("stream: sockets / kernel TCP, no offload", bulk(SOCKETS), Some(bulk(tables::UNAIDED)), AtLeast(1.0)),
        aim("stream: sockets / kernel TCP, offload", bulk(SOCKETS), Some(bulk(tables::TCP)), Said),
        aim("stream, 1 % lost: sockets, xdp / kernel TCP", lossy(SOCKETS), Some(lossy(tables::TCP)), AtLeast(1.0)),
        aim("stream, 1 % lost: sockets, udp / kernel TCP", lossy("sockets, udp"), Some(lossy(tables::TCP)), AtLeast(1.0)),
        aim("redis, 1 connection: sockets, xdp / kernel TCP", requests(SOCKETS), Some(requests(tables::TCP)), AtLeast(3.0)),
        aim("blocking, peer without shunt: client / today", kernel_peer(BLOCKING, inet::CLIENT), None, AtLeast(1.4)),
        aim("blocking, peer without shunt: server / today", kernel_peer(BLOCKING, inet::SERVER), None, AtLeast(1.4)),
        aim("8 B, kernel peer that spins: kernel spinning / taken", round_trip, None, AtLeast(1.25)),
        aim("a connection is taken, us", handed(hand_over::TAKE, "p50"), None, AtMost(60.0)),
        aim("a connection is given back, us", handed(hand_over::GIVE, "p50"), None, AtMost(60.0)),
        aim("the peer's next byte, p99, us", handed(hand_over::NEXT, "p99"), None, AtMost(1000.0)),
        aim("redis, clients plain, -c 1: --inet / kernel", served("-c 1", taken::TO_KERNEL), None, AtLeast(1.25)),
        aim("redis, clients plain, -c 50: --inet / kernel", served("-c 50", taken::TO_KERNEL), None, AtLeast(1.2)),
        aim("redis, clients plain, -c 50 -P 16: --inet / kernel", served("-c 50 -P 16", taken::TO_KERNEL), None, AtLeast(1.0)),
        aim("short connections, clients plain: --inet / kernel", served(taken::SHORT, taken::TO_KERNEL), None, AtLeast(0.97)),
        aim("memcached, 1 connection: --inet / kernel", programs(served::ROWS[0]), None, AtLeast(1.15)),
        aim("memcached, 32 connections: --inet / kernel", programs(served::ROWS[1]), None, AtLeast(1.15)),
        aim("nginx, 1 KB, kept: --inet / kernel", programs(served::ROWS[2]), None, AtLeast(1.15)),
        aim("haproxy before a plain nginx: --inet / kernel", programs(served::ROWS[3]), None, AtLeast(1.15)),
        aim("own half of a round trip: taken / kernel", (halves::HALVES, halves::ONE, halves::OWN), None, AtMost(0.6)),
        aim("other traffic beside taken connections: round trip", other(beside::ROWS[0]), None, AtLeast(0.97)),
        aim("other traffic: stream from the interface", other(beside::ROWS[1]), None, AtLeast(0.97)),
        aim("other traffic: stream to the interface", other(beside::ROWS[2]), None, AtLeast(0.97)),
        aim("8 B, both ends by --inet / bare endpoint", by_size(unet::BOTH), Some(by_size(unet::BARE)), AtMost(1.3)),
        aim("UDP, 8 B, both ends by --inet / bare endpoint", (unet::RATIOS, unet::UDP, unet::TODAY), None, AtMost(1.3)),
        aim("% of a 100 Mbit/s link beside TCP, udp", share("active messages, udp"), None, Said),
        aim("% of a 100 Mbit/s link beside TCP, xdp", share("active messages, xdp"), None, Said),
    ]
}

/// Adds the table of those that this run measured.
pub fn add(record: &mut Record) {
    let mut sheet = Sheet::new(TITLE, &["figure", "at most", "at least", "kept"], &[2, 1, 1, 0]);
    let mut any = false;
    for aim in aims() {
        let of = |(title, row, head): Place| record.figure(title, row, head);
        let Some(above) = of(aim.above) else { continue };
        let below = match aim.below {
            Some(place) => of(place),
            None => Some(1.0),
        };
        let Some(figure) = below.map(|below| above / below) else { continue };
        let (most, least, kept) = match aim.bound {
            Bound::AtMost(bound) => (bound, f64::NAN, f64::from(u8::from(figure <= bound))),
            Bound::AtLeast(bound) => (f64::NAN, bound, f64::from(u8::from(figure >= bound))),
            Bound::None => (f64::NAN, f64::NAN, f64::NAN),
        };
        sheet.put(aim.what, &[figure, most, least, kept]);
        any = true;
    }
    if any {
        record.add(sheet);
    }
}

const TITLE: &str = "aims: ratios of the medians above (kept: 1, missed: 0)";
