//! What the standard says, what lies, and how deep and large values may be.

use super::*;
use proptest::prelude::*;

type Everything = (u32, i64, (bool, Bytes<8>), List<(i32, Opaque<5>), 9>, Option<Box<(u32, Option<Box<u64>>)>>, [u16; 3]);

#[test]
fn the_bytes_are_those_of_the_standard() {
    assert_eq!(to_bytes(&(-1i32, 2u64)), [255, 255, 255, 255, 0, 0, 0, 0, 0, 0, 0, 2]);
    assert_eq!(to_bytes(&Bytes::<9>(b"hello".to_vec())), *b"\0\0\0\x05hello\0\0\0");
    assert_eq!(to_bytes(&Opaque(*b"abc")), *b"abc\0");
    assert_eq!(to_bytes(&Some(Box::new(7u32))), [0, 0, 0, 1, 0, 0, 0, 7]);
    assert_eq!(to_bytes(&List::<u32, 3>(vec![1, 2])), [0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2]);
}

#[test]
fn what_lies_is_refused() {
    let refused = |bytes: &[u8]| from_bytes::<Bytes<8>>(bytes).unwrap_err().reason;
    assert_eq!(refused(&[0, 0, 0, 9]), Reason::Bound { count: 9, most: 8 });
    assert_eq!(refused(&[0, 0, 0, 8, 1]), Reason::Short);
    assert_eq!(refused(&[0, 0, 0, 1, 1, 0, 1, 0]), Reason::Padding);
    assert_eq!(refused(&[0, 0, 0, 0, 1]), Reason::Rest(1));
    assert_eq!(from_bytes::<bool>(&[0, 0, 0, 2]).unwrap_err().reason, Reason::Boolean(2));
    // A count of four thousand million costs nothing.
    assert_eq!(from_bytes::<List<u32, { u32::MAX }>>(&[255; 12]).unwrap_err().reason, Reason::Short);
}

/// `struct list { list *next; }`.
#[derive(Debug, PartialEq)]
struct Chain(Option<Box<Chain>>);

impl Xdr for Chain {
    const LEAST: usize = 4;
    const MOST: usize = usize::MAX;
    fn encode(&self, to: &mut Encoder<'_>) {
        self.0.encode(to);
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        Ok(Self(Xdr::decode(from)?))
    }
}

/// `struct tree { int value; tree kids<>; };`, as it is generated.
#[derive(Debug, Default)]
struct Tree {
    _value: i32,
    kids: List<Tree, { u32::MAX }>,
}

impl Xdr for Tree {
    const LEAST: usize = 8;
    const MOST: usize = usize::MAX;
    fn encode(&self, _: &mut Encoder<'_>) {}
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        Ok(Self { _value: i32::decode(from)?, kids: List::decode(from)? })
    }
}

/// `struct node { opaque data[4096]; node *next; };`
#[derive(Debug)]
struct Node {
    _data: [u8; 4096],
    _next: Option<Box<Node>>,
}

impl Xdr for Node {
    const LEAST: usize = 4100;
    const MOST: usize = usize::MAX;
    fn encode(&self, _: &mut Encoder<'_>) {}
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let _data = from.fixed(4096)?.try_into().unwrap();
        Ok(Self { _data, _next: Option::decode(from)? })
    }
}

/// On a stack as threads have it.
fn on_a_thread<T: Send>(act: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| std::thread::Builder::new().stack_size(2 << 20).spawn_scoped(scope, act).unwrap().join().unwrap())
}

/// `union u switch (int k) { case 1: opaque x[4096]; default: void; };`
#[derive(Debug)]
enum Union {
    _Large([u8; 4096]),
    Void,
}

impl Xdr for Union {
    const LEAST: usize = 4;
    const MOST: usize = 4100;
    fn encode(&self, _: &mut Encoder<'_>) {}
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        i32::decode(from).map(|_| Self::Void)
    }
}

#[test]
fn values_take_a_bounded_memory() {
    let unions = |count: u32| [&count.to_be_bytes()[..], &vec![0; count as usize * 4]].concat();
    let decoded = |count| from_bytes::<List<Union, { u32::MAX }>>(&unions(count)).map(|list| list.len());
    assert_eq!(decoded(200), Ok(200));
    assert_eq!(decoded(1 << 20).unwrap_err().reason, Reason::Memory);
}

#[test]
fn values_that_hold_others_of_their_type_have_an_end() {
    let tree = |depth: usize| [[0, 0, 0, 1, 0, 0, 0, 1].repeat(depth), vec![0; 8]].concat();
    let node = |depth: usize| [[vec![7; 4096], vec![0, 0, 0, 1]].concat().repeat(depth), vec![0; 4100]].concat();
    on_a_thread(|| {
        assert_eq!(from_bytes::<Tree>(&tree(1)).unwrap().kids.len(), 1);
        assert!(from_bytes::<Tree>(&tree(100)).is_ok());
        assert!(from_bytes::<Node>(&node(5)).is_ok());
        assert_eq!(from_bytes::<Tree>(&tree(400_000)).unwrap_err().reason, Reason::Depth);
        assert_eq!(from_bytes::<Node>(&node(999)).unwrap_err().reason, Reason::Depth);
    });
}

#[test]
fn nesting_has_an_end() {
    let chain = |links: u32| {
        let mut bytes: Vec<u8> = (0..links).flat_map(|_| 1u32.to_be_bytes()).collect();
        bytes.extend([0; 4]);
        bytes
    };
    // Frames are several times as large where nothing is optimised: the stack's bound comes first there.
    let reached = if cfg!(debug_assertions) { DEEPEST / 10 } else { DEEPEST };
    assert!(from_bytes::<Chain>(&chain(reached)).is_ok());
    assert_eq!(from_bytes::<Chain>(&chain(DEEPEST + 1)).unwrap_err().reason, Reason::Depth);
}

#[test]
fn what_does_not_fit_is_counted() {
    let mut small = [0; 6];
    let mut encoder = Encoder::new(&mut small);
    (1u32, 2u32).encode(&mut encoder);
    assert_eq!((encoder.needed(), encoder.fits()), (8, false));
}

/// A type of a program's own, which reads slices.
#[derive(Debug, PartialEq)]
struct Slices(u32, Vec<u8>, Vec<u8>);

impl Xdr for Slices {
    const LEAST: usize = 8;
    const MOST: usize = usize::MAX;
    fn encode(&self, _: &mut Encoder<'_>) {}
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let (first, text) = (from.unsigned()?, from.variable(12)?);
        // Neither copy moves the other's bytes.
        let (before, rest) = (text.to_vec(), from.rest());
        assert_eq!(text, before);
        Ok(Self(first, before, rest.to_vec()))
    }
}

/// The same where another process may write the bytes.
fn from_shared<T: Xdr>(bytes: &[u8], copies: &mut Copies) -> Result<T, Error> {
    let mut memory = vec![0u32; bytes.len().div_ceil(4) + 1];
    let at = memory.as_mut_ptr().cast::<u8>();
    // SAFETY: within the vector, which nobody else has now; it outlives the decoder.
    let value = unsafe {
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), at, bytes.len());
        let mut decoder = Decoder::shared(at, bytes.len(), copies);
        let value = T::decode(&mut decoder).and_then(|value| decoder.end().map(|()| value));
        std::ptr::write_bytes(at, 0xff, bytes.len());
        value
    };
    assert!(copies.bytes() <= bytes.len(), "no byte is copied twice");
    copies.reuse();
    value
}

/// A type of a program's own: counts that it compares itself, and slices that it looks at twice.
#[derive(Debug)]
struct Suspicious(Vec<Vec<u8>>);

impl Xdr for Suspicious {
    const LEAST: usize = 4;
    const MOST: usize = usize::MAX;
    fn encode(&self, to: &mut Encoder<'_>) {
        to.unsigned(self.0.len() as u32);
        self.0.iter().for_each(|text| to.variable(text));
    }
    fn decode(from: &mut Decoder<'_>) -> Result<Self, Error> {
        let count = from.count(4, 4)?;
        let mut texts = vec![];
        for _ in 0..count {
            let text = from.variable(6)?;
            let seen = text.to_vec();
            assert!(seen.len() <= 6);
            assert_eq!(std::hint::black_box(text), seen, "a slice stays as it is");
            texts.push(seen);
        }
        assert!(texts.len() <= 4);
        Ok(Self(texts))
    }
}

/// Ends a thread also where an assertion fails.
struct Ends<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// A peer that writes all the time. What is decoded meanwhile is a value of its type, and has as many bytes as were taken for it: the length that
/// was compared is the length that is used. It need not be a value that was ever there.
#[cfg(not(miri))] // the peer's writes are a race by intention, as another process's would be
fn read_while_it_changes<T: Xdr>(value: &T, judge: impl Fn(&T)) {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
    const DECODED: u32 = 200_000;
    let honest: Vec<u32> = to_bytes(value).chunks(4).map(|unit| u32::from_ne_bytes(unit.try_into().unwrap())).collect();
    // Room behind it for lengths that are larger.
    let memory: Vec<AtomicU32> = honest.iter().chain(&[0; 16]).map(|&unit| AtomicU32::new(unit)).collect();
    let bytes = memory.len() * 4;
    let (over, changes) = (AtomicBool::new(false), AtomicU32::new(0));
    let (mut found, mut refused) = (0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut state = 88_172_645_463_325_252u64;
            while !over.load(Relaxed) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                // A unit is another for a moment: a count within its bound or beyond it, bytes where zeros belong.
                let at = (state >> 32) as usize % honest.len();
                let units = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, u32::MAX, 0x0101_0101];
                memory[at].store(u32::to_be(units[(state >> 8) as usize % units.len()]), Relaxed);
                (0..state >> 40 & 3).for_each(|_| std::hint::spin_loop());
                memory[at].store(honest[at], Relaxed);
                (0..state >> 42 & 7).for_each(|_| std::hint::spin_loop());
                changes.fetch_add(1, Relaxed);
            }
        });
        let _over = Ends(&over);
        let copies = &mut Copies::default();
        while found + refused < DECODED || changes.load(Relaxed) < DECODED {
            // SAFETY: the memory outlives the decoder, which is made for memory that others write.
            let mut decoder = unsafe { Decoder::shared(memory.as_ptr().cast(), bytes, copies) };
            let value = T::decode(&mut decoder);
            let taken = bytes - decoder.left();
            assert!(copies.bytes() <= taken, "no byte is copied twice");
            copies.reuse();
            match value {
                Ok(value) => {
                    assert_eq!(to_bytes(&value).len(), taken);
                    judge(&value);
                    found += 1;
                }
                Err(_) => refused += 1,
            }
        }
    });
    println!("{found} values, {refused} that were none, {} changes", changes.load(Relaxed));
    assert!(found > 0 && refused > 0, "{found} {refused}");
}

#[test]
#[cfg(not(miri))]
fn what_changes_while_it_is_read_is_one_value_or_none() {
    let bytes = |length: usize| Bytes(b"abcdefgh"[..length].to_vec());
    let lists = List::<Bytes<5>, 7>(vec![bytes(3), bytes(0), bytes(5)]);
    read_while_it_changes(&lists, |lists| assert!(lists.len() <= 7 && lists.iter().all(|one| one.len() <= 5)));
    let everything: Everything =
        (1, 2, (true, Bytes(bytes(6).0)), List(vec![(3, Opaque(*b"opaqu")); 2]), Some(Box::new((4, None))), [5; 3]);
    read_while_it_changes(&everything, |(_, _, (_, bytes), list, ..)| assert!(bytes.len() <= 8 && list.len() <= 9));
    let texts = Suspicious(vec![b"text".to_vec(), b"longer".to_vec(), vec![]]);
    read_while_it_changes(&texts, |texts| assert!(texts.0.len() <= 4 && texts.0.iter().all(|text| text.len() <= 6)));
}

#[test]
fn what_finds_no_room_goes_to_larger_memory() {
    type Value = (u32, Bytes<100>, u64);
    for length in 0..60 {
        let value: Value = (7, Bytes(vec![5; length]), 9);
        let bytes = to_bytes(&value);
        let (mut near, mut larger) = ([0xaa; 40], [0xaa; 64]);
        let mut encoder = Encoder::spilling(&mut near, Sink::own(&mut larger));
        value.encode(&mut encoder);
        let (needed, fits) = (encoder.needed(), encoder.fits());
        assert_eq!((needed, fits), (bytes.len(), bytes.len() <= 64));
        match needed {
            0..=40 => assert!(near[..needed] == bytes && larger == [0xaa; 64], "{length}: the larger memory is not touched"),
            41..=64 => assert_eq!(larger[..needed], bytes),
            _ => {}
        }
    }
}

proptest! {
    /// Slices and values are those of memory of this process alone, and so are errors.
    #[test]
    fn shared_memory_is_read_as_any_other(bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..200)) {
        let copies = &mut Copies::default();
        for _ in 0..2 {
            prop_assert_eq!(from_shared::<Everything>(&bytes, copies), from_bytes(&bytes));
            prop_assert_eq!(from_shared::<Slices>(&bytes, copies), from_bytes(&bytes));
        }
    }

    #[test]
    fn any_bytes_are_a_value_or_none(bytes in proptest::collection::vec(prop_oneof![Just(0u8), Just(1), any::<u8>()], 0..200)) {
        if let Ok(value) = from_bytes::<Everything>(&bytes) {
            let again = to_bytes(&value);
            // Shorts are cut, as libtirpc does; all else is as it came.
            prop_assert_eq!(again.len(), bytes.len());
            prop_assert_eq!(from_bytes::<Everything>(&again).unwrap(), value);
            prop_assert!(again.len() >= Everything::LEAST);
        }
    }
}
