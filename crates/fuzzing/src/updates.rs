//! Updates of a peer that knows its key and lies about all else, and frames in the receive queue from a broken agent: exported
//! memory is written where it may be, and nothing else.

use crate::input::Input;
use shunt_endpoint::device::local::Switch;
use shunt_endpoint::direct::{apply, Emulated, GRAIN};
use shunt_endpoint::{
    Area, Arrival, ArrivalKind, ArrivalParts, Body, Bytes, Channel, DirectAccess, Endpoint, Key, Message, Rights, Tag, Tags,
};
use shunt_wire::endpoint::{Kind, Update};

const EXPORTED: Area = Area::new(GRAIN, GRAIN);
const OTHERS: Area = Area::new(3 * GRAIN, GRAIN);

fn joined(a: &mut impl Endpoint, b: &mut impl Endpoint, number: u64) -> (Channel, Channel) {
    let (to_a, to_b) = (Tag(2 * number), Tag(2 * number + 1));
    let there = a.open(&b.address(), Tags { receive: to_a, send: to_b }).expect("a channel");
    (there, b.open(&a.address(), Tags { receive: to_b, send: to_a }).expect("a channel"))
}

pub fn run(data: &[u8]) {
    let switch = Switch::new().expect("memory");
    let (mut a, mut b) = (switch.plug().expect("a port"), switch.plug().expect("a port"));
    let ((to_b, to_a), (_, to_a_too)) = (joined(&mut a, &mut b, 1), joined(&mut a, &mut b, 2));
    let key = b.export(to_a, EXPORTED, Rights::Write).expect("an export");
    let others = b.export(to_a_too, OTHERS, Rights::Write).expect("an export");
    b.notify(key, true);
    // Buffers far behind both.
    (0..16).for_each(|number| b.post(Area::new((16 + number) * GRAIN, 2048)).expect("room"));
    let mut input = Input(data);
    let mut exported = true;
    while let (Some(operation), Some(length)) = (input.byte(), input.length(3000)) {
        let named = match operation & 3 {
            0 | 1 => key,
            2 => others,
            _ => Key(input.word().unwrap_or(0)),
        };
        let offset = match operation >> 2 & 3 {
            0 => u64::from(input.half().unwrap_or(0)),
            1 => u64::from(GRAIN).wrapping_sub(length as u64),
            _ => input.word().unwrap_or(0),
        };
        let mut payload = [0; Update::HEADER].to_vec();
        Update { key: named.0, offset }.emit(&mut payload);
        payload.resize(Update::HEADER + length, operation | 1);
        payload.truncate(payload.len() - usize::from(operation >> 4 & 1) * (length % 20).min(payload.len()));
        let kind = if operation & 32 == 0 { Kind::Update } else { Kind::UpdateNotify };
        match operation >> 6 {
            0 if exported && length % 16 == 0 => {
                b.unexport(key);
                exported = false;
            }
            1 => {
                // As if the agent had put it there: lengths and areas are anything.
                let areas = [Area::new(offset as u32, length as u32), Area::new(input.half().unwrap_or(0).into(), GRAIN)];
                let count = usize::from(operation & 1) + 1;
                let head = &payload[..payload.len().min(112)];
                let whole = payload.len() as u32 ^ u32::from(operation >> 4 & 1) << 20;
                let frame = ArrivalParts { channel: to_a, length: whole, head, areas: &areas[..count], buffers: &[] };
                apply(b.exporting(), &frame, true);
            }
            _ => {
                let message = Message { channel: to_b, head: &[], body: Body::Bytes(Bytes::from(&payload[..])) };
                let _ = a.put_frame(&message, kind);
                let _ = a.flush();
            }
        }
        let mut arrival = Arrival::empty();
        while b.receive(&mut arrival) {
            assert_eq!(arrival.kind(), ArrivalKind::Notification, "an update's frame was shown to the program");
            let told = arrival.notification().expect("a notification");
            assert!(told.key == key && u64::from(told.offset) + u64::from(told.length) <= GRAIN.into());
            b.release(&mut arrival);
        }
    }
    let mut bytes = vec![1; 16 * GRAIN as usize];
    assert!(b.segment().read(Area::new(0, 16 * GRAIN), &mut bytes));
    let outside = |at: &usize| !(EXPORTED.offset as usize..EXPORTED.end() as usize).contains(at);
    assert!((0..bytes.len()).filter(outside).all(|at| bytes[at] == 0), "memory outside the export was written");
}
