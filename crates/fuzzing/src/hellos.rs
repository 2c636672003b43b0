//! The hand-shake of active messages with a forger that says hello as it likes: in the name of a peer that is there, of older
//! lives, with any numbers, with the names that it was told and with others. A forger that was told nothing sets up nothing, each
//! frame is answered by one at most, and an honest peer is heard all the while.

use crate::input::Input;
use shunt_am::frame::{Hello, Kind, Short, SHORT};
use shunt_am::{greeting_check, siphash, Config, Dispatch, Engine, Event, Link, Message, Replier};

/// The peers' numbers at the engine that is tried: an honest one, and the one in whose place frames are made up.
const HONEST: u32 = 0;
const FORGED: u32 = 1;
const MICROSECOND: u64 = 1_000;
const SECOND: u64 = 1_000_000_000;

/// Frames that an engine sent, with their addressees.
#[derive(Default)]
struct Wire(Vec<(u32, Vec<u8>)>);

impl Link for Wire {
    fn send(&mut self, peer: u32, head: &[u8], body: &[u8]) -> bool {
        self.0.push((peer, [head, body].concat()));
        true
    }
}

/// Counts.
#[derive(Default)]
struct Program {
    requests: u64,
    replies: u64,
    ups: [u64; 2],
    lost: [u64; 2],
}

impl Dispatch for Program {
    fn request(&mut self, message: Message<'_>, replier: Replier<'_>) {
        self.requests += u64::from(message.peer == HONEST);
        let _ = replier.reply(1, message.words, &[]);
    }
    fn reply(&mut self, _: Message<'_>) {
        self.replies += 1;
    }
    fn event(&mut self, peer: u32, event: Event) {
        match event {
            Event::Up => self.ups[peer as usize % 2] += 1,
            Event::Lost(_) => self.lost[peer as usize % 2] += 1,
        }
    }
}

/// Names that hellos and tokens are made of.
struct Names {
    /// The forger's own, and those that it was told.
    known: Vec<u64>,
    /// The forger has used one that it was told.
    used: bool,
}

impl Names {
    fn pick(&mut self, input: &mut Input) -> Option<u64> {
        let choice = usize::from(input.byte()?);
        match choice % 8 {
            0 => Some(0),
            1 => input.word(),
            _ => {
                let at = choice / 8 % self.known.len();
                self.used |= at >= 2;
                Some(self.known[at])
            }
        }
    }
}

/// A frame as any host can make it.
fn frame(kind: Kind, flags: u8, token: u64, body: &[u8], sealed: bool) -> Vec<u8> {
    let mut head = [0; SHORT];
    let short = Short { kind, flags, channel: 0, check: 0, token };
    short.emit(&mut head);
    let check = if sealed { greeting_check(&head, body) } else { 7 };
    Short { check, ..short }.emit(&mut head);
    [&head[..], body].concat()
}

/// A hello, mostly a sane one.
fn hello(input: &mut Input, name: u64, shape: &Config) -> Option<Hello> {
    let odd = input.byte()?;
    let mut number = |bit: u8, usual: u32| if odd & bit != 0 { input.word().map(|word| word as u32) } else { Some(usual) };
    Some(Hello {
        epoch: u64::from(odd & 64),
        name,
        window: number(1, shape.window)?,
        channels: number(2, shape.channels)?,
        frame: number(4, shape.frame)?,
        limit: number(8, shape.replies)?,
        reliable: number(16, shape.reliable)?,
    })
}

pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let Some(kind) = input.byte() else { return };
    let shape = if kind & 1 != 0 { Config::reliable(2, 512) } else { Config::lossy(2, 512) };
    // Whether the device checks frames; hellos are checked all the same.
    let config = Config { window: 16, replies: 4, held: 8, channels: 4, checked: (kind >> 1 & 1).into(), ..shape };
    let (mut here, mut there) = (vec![0; config.words()], vec![0; config.words()]);
    let mut engine = Engine::format(&mut here, &config, [1, 2]).expect("an engine");
    let mut honest = Engine::format(&mut there, &config, [3, 4]).expect("an engine");
    let (mut out, mut back) = (Wire::default(), Wire::default());
    let (mut program, mut other) = (Program::default(), Program::default());
    let mut now = SECOND;
    honest.connect(now, 0, &mut back).expect("a peer");
    let mut names = Names { known: vec![0x5ec7e7, 0xf0e], used: false };
    if kind & 4 != 0 {
        // The engine asks, too; a forger that hears that is told a name.
        engine.connect(now, FORGED, &mut out).expect("a peer");
    }
    let mut step = |now: u64, forged: Option<&[u8]>, names: &mut Names, engine: &mut Engine<'_>, program: &mut Program| {
        let mut answers = 0;
        for _ in 0..4 {
            for (_, frame) in std::mem::take(&mut back.0) {
                engine.receive(now, HONEST, &frame, &mut out, program);
            }
            for (peer, frame) in std::mem::take(&mut out.0) {
                if peer == HONEST {
                    honest.receive(now, 0, &frame, &mut back, &mut other);
                } else if let Ok(hello) = Hello::parse(frame.get(SHORT..).unwrap_or_default()) {
                    names.known.push(hello.name);
                }
            }
        }
        if let Some(frame) = forged {
            engine.receive(now, FORGED, frame, &mut out, program);
            answers = out.0.len();
            assert!(out.0.iter().all(|(peer, _)| *peer == FORGED), "a frame of one peer is answered to another");
        }
        honest.transmit(now, &mut back, &mut other);
        engine.transmit(now, &mut out, program);
        // One that may be lost costs no more than a word's worth of memory: the honest peer speaks all the while.
        let _ = honest.request(now, 0, 0, 2, &[1], &[], &mut back);
        answers
    };
    for _ in 0..4 {
        now += MICROSECOND;
        step(now, None, &mut names, &mut engine, &mut program);
    }
    assert!(engine.is_up(HONEST));
    while let Some(operation) = input.byte() {
        let made = make(operation, &mut input, &mut names, &config);
        let Some(made) = made else { break };
        now += u64::from(operation >> 4) * 300 * MICROSECOND;
        let known = names.known.len();
        let answers = step(now, Some(&made), &mut names, &mut engine, &mut program);
        assert!(answers <= 2, "{answers} frames for one");
        assert!(names.known.len() - known <= 8, "it talks by itself");
        assert!(names.used || !engine.is_up(FORGED), "set up by somebody who was told no name");
        if names.known.len() > 64 {
            break;
        }
    }
    for _ in 0..6 {
        now += 20 * MICROSECOND;
        step(now, None, &mut names, &mut engine, &mut program);
    }
    let up = engine.is_up(HONEST);
    assert!(up && program.lost[0] == 0 && program.ups[0] == 1, "the honest peer's connection was touched");
    assert!(program.requests > 0);
    // A peer that was set up falls silent.
    for _ in 0..40 {
        now += SECOND;
        step(now, None, &mut names, &mut engine, &mut program);
    }
    assert!(program.lost[1] <= program.ups[1] + 1 && engine.is_up(HONEST));
}

fn make(operation: u8, input: &mut Input, names: &mut Names, config: &Config) -> Option<Vec<u8>> {
    let kinds = [Kind::Ask, Kind::Answer, Kind::Prove, Kind::Confirm, Kind::Reset, Kind::Bye, Kind::Data, Kind::Plain];
    let kind = kinds[usize::from(operation % 8)];
    let sealed = operation & 8 == 0;
    let (name, to) = (names.pick(input)?, names.pick(input)?);
    Some(match kind {
        Kind::Ask | Kind::Answer | Kind::Prove | Kind::Confirm => {
            let body = hello(input, name, config)?.emit();
            let cut = if sealed { body.len() } else { usize::from(input.byte()?) % 48 };
            frame(kind, 0, to, &body[..cut.min(body.len())], sealed)
        }
        // The token of a pair of names.
        _ => {
            let token = siphash([to, name], &[]).max(1);
            let flags = input.byte()? & 3;
            let body = input.bytes(64);
            frame(kind, flags, token, body, sealed)
        }
    })
}
