//! What a client says to an agent: packets that are none, sizes that no endpoint has, addresses of any family.

use shunt_endpoint::shared::Layout;
use shunt_xdp::address::{decode, encode};
use shunt_xdp::protocol::{Kind, Operation, Request};
use shunt_xdp::socket::Shape;
use shunt_xdp::state::memory_shape;

/// Bytes of frames on the interface.
const FRAME: u32 = 1514;

pub fn run(data: &[u8]) {
    let Some((request, rest)) = Request::of(data) else { return };
    assert!(rest.is_empty() || request.operation == Operation::Pass as u32);
    for kind in Kind::of(request.kind).into_iter().chain([Kind::Own, Kind::Multiplexed]) {
        let Ok(rings) = Shape::for_frames(FRAME, request.sizes.depth) else { continue };
        let Some(layout) = memory_shape(kind, &request.sizes, rings.chunk).and_then(Layout::new) else { continue };
        // What is accounted is what is made, and stays countable.
        assert!(rings.is_sound() && layout.size() < 1 << 31, "{:?} take {} bytes", request.sizes, layout.size());
        assert!(layout.size() > request.sizes.segment as usize);
    }
    let tags = request.tags();
    assert_eq!((tags.receive, tags.send), (request.tags().receive, request.tags().send));
    if let Some((peer, scope)) = decode(&request.remote()) {
        assert_eq!(decode(&encode(&peer, scope)).map(|(again, _)| again), Some(peer));
    }
}
