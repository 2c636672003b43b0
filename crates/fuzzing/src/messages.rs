//! Frames of a peer that has set up a connection of active messages and then sends whatever it likes.

use crate::input::Input;
use shunt_am::{Config, Data, Dispatch, Engine, Link, Message, Replier};

/// Frames that an engine sent.
#[derive(Default)]
struct Wire(Vec<Vec<u8>>);

impl Link for Wire {
    fn send(&mut self, _peer: u32, head: &[u8], body: &[u8]) -> bool {
        assert!(head.len() <= 112);
        self.0.push([head, body].concat());
        true
    }
}

/// Answers everything, and counts.
#[derive(Default)]
struct Program {
    handled: u64,
    bytes: u64,
    segment: Vec<u8>,
}

impl Dispatch for Program {
    fn request(&mut self, message: Message<'_>, mut replier: Replier<'_>) {
        self.handled += 1;
        if message.handler == 8 {
            let _ = replier.renew(message.channel, message.words.first().copied().unwrap_or(0) as u32);
        }
        let _ = replier.reply(1, message.words, &[]);
    }
    fn reply(&mut self, _: Message<'_>) {
        self.handled += 1;
    }
    fn stream(&mut self, _: u32, _: u16, data: Data<'_>) {
        let mut into = vec![0; data.len()];
        assert!(data.copy_to(0, &mut into));
        self.bytes += data.len() as u64;
    }
    fn segment(&mut self, _: u32) -> &mut [u8] {
        &mut self.segment
    }
}

const ROOM: u64 = 4096;

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let Some(kind) = input.byte() else { return };
    let reliable = kind & 1 != 0;
    let shape = if reliable { Config::reliable(1, 512) } else { Config::lossy(1, 512) };
    // The sender of these frames can make integrity words, so none are asked for.
    let config = Config { window: 16, replies: 4, held: 8, channels: 4, checked: 1, ..shape };
    let (mut here, mut there) = (vec![0; config.words()], vec![0; config.words()]);
    let mut engine = Engine::format(&mut here, &config, [1, 2]).expect("an engine");
    let mut peer = Engine::format(&mut there, &config, [3, 4]).expect("an engine");
    let (mut out, mut back) = (Wire::default(), Wire::default());
    let (mut program, mut other) = (Program { segment: vec![0; 256], ..Program::default() }, Program::default());
    let mut now = 1_000_000_000;
    peer.connect(now, 0, &mut back).expect("a peer");
    for _ in 0..4 {
        now += 1000;
        for frame in std::mem::take(&mut back.0) {
            engine.receive(now, 0, &frame, &mut out, &mut program);
        }
        for frame in std::mem::take(&mut out.0) {
            peer.receive(now, 0, &frame, &mut back, &mut other);
        }
    }
    assert!(engine.is_up(0) && peer.is_up(0));
    engine.grant(0, 1, ROOM, 1).expect("a channel");
    // A frame of the peer's, whose header the others begin with.
    peer.request(now, 0, 0, 2, &[1], &[], &mut back).expect("a request");
    let header = back.0.pop().expect("a frame")[..if reliable { 16 } else { 40 }].to_vec();
    let mut frames = 0u64;
    while let Some(operation) = input.byte() {
        let length = usize::from(input.byte().unwrap_or(0));
        let taken = length.min(input.0.len());
        let (bytes, rest) = input.0.split_at(taken);
        input = Input(rest);
        let mut frame = vec![];
        if operation & 1 == 0 {
            frame.extend(&header);
            // Kind, flags, channel, numbers: as the input says.
            if operation & 2 != 0 && !reliable {
                frame[0] = 0x20 | [2, 3, 5, 2][usize::from(operation >> 6)];
            }
            frame[2] = operation >> 3 & 7;
            if !reliable {
                for (at, byte) in [16, 20, 36].into_iter().zip(bytes) {
                    frame[at] = frame[at].wrapping_add(byte % 8);
                }
            }
        }
        frame.extend(bytes);
        now += u64::from(operation) * 10_000;
        engine.receive(now, 0, &frame, &mut out, &mut program);
        engine.transmit(now, &mut out, &mut program);
        frames += 1;
        assert!(out.0.len() <= 16 + 4 + 4, "{} frames for one", out.0.len());
        out.0.clear();
    }
    let status = engine.status(0).expect("a peer");
    assert!(status.owed <= config.replies && status.held <= config.held);
    assert!(program.handled <= frames * 64 + 64 && program.bytes <= ROOM);
    // Time goes on.
    for _ in 0..40 {
        now += 500_000_000;
        engine.transmit(now, &mut out, &mut program);
    }
}
