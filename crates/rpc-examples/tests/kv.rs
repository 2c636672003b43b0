//! The store of `kv.x`: spans, revisions, and a watch that goes on where it was.

use shunt_rpc::{Running, Server, ServerOptions};
use shunt_rpc_examples::kv::*;
use shunt_rpc_examples::store::{Store, FORGOTTEN};

fn store(name: &str) -> (Running, KeyValueV1Client) {
    let name = format!("store-{name}-{}", std::process::id());
    let server = Server::bind(&name.parse().unwrap(), ServerOptions::default()).unwrap();
    let server = server.spawn(|| KeyValueV1Server(Store::default())).unwrap();
    let store = KeyValueV1Client::connect(&name).unwrap();
    (server, store)
}

fn span(key: &str, end: &str) -> Span {
    Span { key: key.into(), end: end.into() }
}

fn keys(reply: &RangeReply) -> Vec<String> {
    reply.entries.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned()).collect()
}

#[test]
fn a_span_is_half_open() {
    let (_server, store) = store("span");
    for key in ["b", "a", "ab", "c"] {
        store.put(&key.into(), &"value".into(), &false).unwrap();
    }
    assert_eq!(keys(&store.range(&span("a", "c"), &0).unwrap()), ["a", "ab", "b"]);
    assert_eq!(keys(&store.range(&span("a", ""), &0).unwrap()), ["a"]);
    assert_eq!(keys(&store.range(&span("c", "a"), &0).unwrap()), [""; 0]);
    let some = store.range(&span("a", "d"), &2).unwrap();
    assert_eq!((keys(&some).len(), some.count, some.revision), (2, 4, 4));
    assert_eq!(store.delete_range(&span("a", "b")).unwrap().deleted, 2);
    assert_eq!(store.delete_range(&span("a", "b")).unwrap(), DeleteReply { revision: 5, deleted: 0 });
    assert_eq!(keys(&store.range(&span("a", "d"), &0).unwrap()), ["b", "c"]);
}

#[test]
fn a_watch_misses_nothing() {
    let (_server, store) = store("watch");
    for at in 0..10u32 {
        store.put(&(if at % 2 == 0 { "even" } else { "odd" }).into(), &at.to_string().as_str().into(), &false).unwrap();
    }
    store.delete_range(&span("a", "z")).unwrap();
    let (mut next, mut seen) = (1, vec![]);
    loop {
        let reply = store.watch(&span("even", ""), &next, &2).unwrap();
        if reply.events.is_empty() && reply.next == next {
            break;
        }
        assert!(reply.next > next);
        next = reply.next;
        seen.extend(reply.events.0);
    }
    let puts: Vec<&[u8]> = seen.iter().filter(|event| !event.deleted).map(|event| &event.what.value[..]).collect();
    assert_eq!(puts, [b"0", b"2", b"4", b"6", b"8"]);
    assert!(seen.last().unwrap().deleted && seen.len() == 6);
    assert_eq!(next, 12);
    // More than is remembered.
    let value = vec![0; 1 << 20].into();
    for _ in 0..80 {
        store.put(&"large".into(), &value, &false).unwrap();
    }
    let error = store.watch(&span("a", "z"), &1, &1).unwrap_err();
    assert_eq!(error.fault().map(|fault| fault.code), Some(FORGOTTEN));
}
