//! Turns: some messages, one by one or as fast as they go.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Barrier;
use std::time::Instant;

use crate::control::Control;
use crate::peers::{Receive, Send};
use crate::{place, Failure, AROUND};

/// How messages follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Each when the receiver waits for it.
    OneWay,
    /// Each when there is room.
    Stream,
}

impl Kind {
    /// How many messages of a size are a turn: some hundredths of a second.
    pub fn count(self, size: usize) -> u64 {
        let bytes: usize = if self == Kind::OneWay { 64 << 20 } else { 128 << 20 };
        (bytes / size) as u64
    }
}

/// A turn as the receiver is told of it.
#[derive(Clone, Copy, Debug)]
pub struct Order {
    pub kind: Kind,
    pub size: usize,
    pub count: u64,
}

impl Order {
    pub fn tell(self, told: &mut UnixStream) -> Result<(), Failure> {
        let words = [u64::from(self.kind == Kind::Stream), self.size as u64, self.count];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Ok(told.write_all(&bytes)?)
    }

    /// `None`: there are no more.
    pub fn hear(told: &mut UnixStream) -> Result<Option<Self>, Failure> {
        let mut words = [0u64; 3];
        for (number, word) in words.iter_mut().enumerate() {
            let mut bytes = [0; 8];
            match told.read_exact(&mut bytes) {
                Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof && number == 0 => return Ok(None),
                read => read?,
            }
            *word = u64::from_le_bytes(bytes);
        }
        let kind = if words[0] == 0 { Kind::OneWay } else { Kind::Stream };
        Ok(Some(Self { kind, size: usize::try_from(words[1])?, count: words[2] }))
    }
}

/// What each byte of a message is.
pub fn filling(number: u64) -> u8 {
    (number % 251) as u8 + 1
}

/// Reads each word, and compares what they are together with what was written.
fn expect(message: &[u8], number: u64) -> Result<(), Failure> {
    // SAFETY: any bits are a number; what lies in front of the first whole word and behind the last is looked at below.
    let (front, words, back) = unsafe { message.align_to::<u64>() };
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(*word));
    let wanted = u64::from_le_bytes([filling(number); 8]).wrapping_mul(words.len() as u64);
    if sum != wanted || front.iter().chain(back).any(|byte| *byte != filling(number)) {
        return Err(format!("message {number} is not what was sent").into());
    }
    Ok(())
}

/// Receives a turn's messages.
pub fn receive(receiver: &mut dyn Receive, control: &Control, order: Order) -> Result<(), Failure> {
    for number in 1..=order.count {
        if order.kind == Kind::OneWay || number == 1 {
            control.ready(number);
        }
        receiver.receive(order.size, &mut |message| {
            if message.len() != order.size {
                return Err(format!("message {number} has {} bytes", message.len()).into());
            }
            expect(message, number)?;
            if order.kind == Kind::OneWay || number == order.count {
                control.done(number);
            }
            Ok(())
        })?;
    }
    // The next turn's first message has the same number.
    control.ready(0);
    Ok(())
}

fn wait(sender: &mut dyn Send, control: &Control, is: impl Fn() -> bool) -> Result<(), Failure> {
    while !is() {
        control.check()?;
        sender.progress()?;
        std::hint::spin_loop();
    }
    Ok(())
}

/// Sends them: the median time of a message in nanoseconds, or bytes a second.
pub fn send(sender: &mut dyn Send, control: &Control, order: Order) -> Result<f64, Failure> {
    let mut times = Vec::with_capacity(order.count as usize);
    wait(sender, control, || control.is_ready(1))?;
    let begun = Instant::now();
    for number in 1..=order.count {
        if order.kind == Kind::OneWay {
            wait(sender, control, || control.is_ready(number))?;
        }
        sender.write(order.size, filling(number))?;
        let called = Instant::now();
        sender.send(order.size)?;
        if order.kind == Kind::OneWay {
            wait(sender, control, || control.is_done(number))?;
            // What goes before goes once around: what the last contender left in the caches is gone, and this one's memory is there.
            if number > (AROUND / order.size) as u64 {
                times.push(called.elapsed().as_nanos() as f64);
            }
        }
    }
    wait(sender, control, || control.is_done(order.count))?;
    let whole = begun.elapsed();
    Ok(match order.kind {
        Kind::OneWay => spread(&times).0,
        Kind::Stream => (order.count * order.size as u64) as f64 / whole.as_secs_f64(),
    })
}

/// Nanoseconds that a cache line takes to the other processor and back.
pub fn line(core: usize) -> f64 {
    const TRIPS: u64 = 20_000;
    let word = AtomicU64::new(0);
    // It begins on this processor, which is to be left to it until it has gone.
    let apart = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            place::settle(core);
            apart.wait();
            for trip in 0..TRIPS {
                while word.load(Ordering::Acquire) != 2 * trip + 1 {
                    std::hint::spin_loop();
                }
                word.store(2 * trip + 2, Ordering::Release);
            }
        });
        apart.wait();
        let mut begun = Instant::now();
        for trip in 0..TRIPS {
            if trip == TRIPS / 10 {
                begun = Instant::now();
            }
            word.store(2 * trip + 1, Ordering::Release);
            while word.load(Ordering::Acquire) != 2 * trip + 2 {
                std::hint::spin_loop();
            }
        }
        begun.elapsed().as_nanos() as f64 / (TRIPS - TRIPS / 10) as f64
    })
}

/// The median, the least and the largest; not numbers where there are none.
pub fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
    (at(sorted.len() / 2), at(0), at(sorted.len().saturating_sub(1)))
}
