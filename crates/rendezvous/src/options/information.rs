//! TCP_INFO of a stream: the kernel's structure for a connection over loopback, with what is true of ours filled in.

use super::constants;
use core::sync::atomic::{AtomicU32, Ordering};
use shunt_segment::channel::word;
use shunt_stream::socket::Socket;
use shunt_table::global::LockedCell;

/// `struct tcp_info` of Linux 6 (linux/tcp.h), as bytes.
pub const SIZE: usize = 280;

/// Offsets of the fields that are filled in.
mod field {
    pub const STATE: usize = 0;
    pub const UNACKED: usize = 24;
    pub const LAST_DATA_SENT: usize = 44;
    pub const LAST_DATA_RECEIVED: usize = 52;
    pub const LAST_ACK_RECEIVED: usize = 56;
    pub const BYTES_ACKED: usize = 120;
    pub const BYTES_RECEIVED: usize = 128;
    pub const SEGMENTS_OUT: usize = 136;
    pub const SEGMENTS_IN: usize = 140;
    pub const NOT_SENT: usize = 144;
    pub const DATA_SEGMENTS_IN: usize = 152;
    pub const DATA_SEGMENTS_OUT: usize = 156;
    pub const BYTES_SENT: usize = 200;
}

/// Fills in what is true of `socket`; `segment` is the size of a segment.
pub fn fill(socket: &Socket, info: &mut [u8; SIZE], segment: u64) {
    let narrow = |info: &mut [u8; SIZE], at: usize, value: u64| {
        info[at..at + 4].copy_from_slice(&(value.min(u32::MAX as u64) as u32).to_ne_bytes());
    };
    let wide = |info: &mut [u8; SIZE], at: usize, value: u64| info[at..at + 8].copy_from_slice(&value.to_ne_bytes());
    let written = socket.outgoing().announced() & word::POSITION;
    let not_sent = shunt_stream::room::unacknowledged(socket) as u64;
    let sent = written.saturating_sub(not_sent);
    let said = socket.peer().post.word.load(Ordering::Acquire);
    let received = said & word::POSITION;
    let begin = socket.page().head.since.load(Ordering::Relaxed) as u64 * 1000;
    let (sent_segments, received_segments) = (sent.div_ceil(segment.max(1)), received.div_ceil(segment.max(1)));
    let client = socket.side() == 0;

    info[field::STATE] = shunt_stream::waiting::readiness::phase(socket) as u8;
    narrow(info, field::UNACKED, 0);
    let idle = socket.connected.seen_sending.idle(written, begin) as u64;
    narrow(info, field::LAST_DATA_SENT, idle);
    narrow(info, field::LAST_ACK_RECEIVED, idle);
    narrow(info, field::LAST_DATA_RECEIVED, socket.connected.seen_receiving.idle(received, begin) as u64);
    // The acknowledgement of the client's SYN counts as a byte (tcp_snd_una_update), and so does an end (tcp_fin), if no reset takes its place.
    let end = |said: u64| (said & word::FIN != 0 && (said & word::RST == 0 || said & word::LATE != 0)) as u64;
    wide(info, field::BYTES_ACKED, sent + client as u64 + end(socket.outgoing().announced()));
    wide(info, field::BYTES_RECEIVED, received + end(said));
    narrow(info, field::NOT_SENT, not_sent);
    wide(info, field::BYTES_SENT, sent);
    narrow(info, field::DATA_SEGMENTS_OUT, sent_segments);
    narrow(info, field::DATA_SEGMENTS_IN, received_segments);
    // Set-up, data, and an acknowledgement for each that came.
    narrow(info, field::SEGMENTS_OUT, 1 + client as u64 + sent_segments + received_segments);
    narrow(info, field::SEGMENTS_IN, 2 - client as u64 + sent_segments + received_segments);
}

/// A probe's answer for one family: round trips, windows and sizes of a loopback connection, which are the host's.
pub(super) struct Model {
    /// 0: none yet; 1: being written; 2: there.
    state: AtomicU32,
    answer: LockedCell<(usize, u64, [u8; SIZE])>,
}

impl Model {
    pub(super) const fn new() -> Model {
        Model { state: AtomicU32::new(0), answer: LockedCell::new((0, 0, [0; SIZE])) }
    }
}

/// What a probe of `family` answered before: how many bytes, the size of a segment, and the bytes.
pub fn remembered(family: i32) -> Option<(usize, u64, [u8; SIZE])> {
    let model = &constants::judged(family).model;
    // SAFETY: written once, before the state says so.
    (model.state.load(Ordering::Acquire) == 2).then(|| unsafe { *model.answer.get() })
}

/// A probe of `family`, without options that change it, has answered.
pub fn remember(family: i32, answer: (usize, u64, [u8; SIZE])) {
    let model = &constants::judged(family).model;
    if model.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
        // SAFETY: this thread alone writes, and none reads yet.
        unsafe { *model.answer.get() = answer };
        model.state.store(2, Ordering::Release);
    }
}
