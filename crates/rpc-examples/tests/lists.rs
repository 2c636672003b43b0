//! Lists of rpcgen's kind, whose last member is the pointer to the next element: as long as there are bytes, on any stack.

use shunt_rpc::xdr::{from_bytes, to_bytes, Encoder, Reason, Xdr};
use shunt_rpc_examples::torture::Link;

/// Deeper than any stack, were an element a level.
const LONG: i32 = 1_000_000;

fn list(count: i32) -> Link {
    let mut first = Link { value: 0, next: None };
    let mut last = &mut first;
    for value in 1..count {
        last = last.next.insert(Box::new(Link { value, next: None }));
    }
    first
}

#[test]
fn a_list_is_as_long_as_there_are_bytes_for() {
    std::thread::Builder::new()
        .stack_size(256 << 10)
        .spawn(|| {
            let all = list(LONG);
            let bytes = to_bytes(&all);
            assert_eq!(bytes.len(), LONG as usize * 8);
            let mut again: Link = from_bytes(&bytes).unwrap();
            assert!(again == all);
            assert!(all.clone() == again);
            assert!(format!("{again:?}").ends_with("{ value: 999999 }]"));
            again.next.as_mut().unwrap().value = 7;
            assert!(again != all && list(LONG - 1) != all);
            // A list that is cut is none, and what was made of it goes.
            assert_eq!(from_bytes::<Link>(&bytes[..bytes.len() - 4]).unwrap_err().reason, Reason::Short);
            assert_eq!(from_bytes::<Link>(&[bytes, vec![0; 4]].concat()).unwrap_err().reason, Reason::Rest(4));
        })
        .unwrap()
        .join()
        .unwrap();
}

/// A value that holds others of its type by an optional field that is not its last.
struct Nested(Option<Box<Nested>>);

impl Xdr for Nested {
    const LEAST: usize = 8;
    const MOST: usize = usize::MAX;
    fn encode(&self, to: &mut Encoder<'_>) {
        self.0.encode(to);
        0u32.encode(to);
    }
    fn decode(from: &mut shunt_rpc::xdr::Decoder<'_>) -> Result<Self, shunt_rpc::xdr::Error> {
        let first = Xdr::decode(from)?;
        u32::decode(from)?;
        Ok(Self(first))
    }
}

#[test]
fn what_nests_too_deeply_is_not_sent() {
    let over = |depth: u32| {
        let mut value = Nested(None);
        (0..depth).for_each(|_| value = Nested(Some(Box::new(std::mem::replace(&mut value, Nested(None))))));
        let mut encoder = Encoder::new(&mut []);
        value.encode(&mut encoder);
        let over = encoder.is_over();
        // Its own destructor would be as deep.
        while let Some(inner) = value.0.take() {
            value = *inner;
        }
        over
    };
    assert_eq!([over(10), over(100_000)], [false, true]);
}
