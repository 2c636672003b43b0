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
        let rest = from.clone().rest();
        // Neither copy moves the other's bytes.
        assert_eq!(from.rest(), rest);
        Ok(Self(first, text.to_vec(), rest.to_vec()))
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
    copies.reuse();
    value
}

#[test]
fn what_finds_no_room_goes_to_larger_memory() {
    type Value = (u32, Bytes<100>, u64);
    for length in 0..60 {
        let value: Value = (7, Bytes(vec![5; length]), 9);
        let bytes = to_bytes(&value);
        let (mut near, mut larger) = ([0xaa; 40], [0xaa; 64]);
        let mut encoder = Encoder::spilling(&mut near, &mut larger);
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
