//! The store of `kv.x`, and what its calls cost: `kv serve ADDRESS`; `kv bench ADDRESS ROW MILLISECONDS` prints nanoseconds of a call, where
//! a row is `put/BYTES/OUTSTANDING`, `range/BYTES/OUTSTANDING` or `watch/BYTES/EVENTS`, of an event.

use shunt_rpc::{Options, Pending, Server, ServerOptions};
use shunt_rpc_examples::kv::{KeyValueV1Client, KeyValueV1Server, Span};
use shunt_rpc_examples::store::Store;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

type Failure = Box<dyn std::error::Error>;

/// Calls of one kind, so many outstanding, for so long: nanoseconds of each.
fn calls<'c, R: shunt_rpc::xdr::Xdr>(
    outstanding: usize,
    length: Duration,
    begin: impl Fn() -> Result<Pending<'c, R>, shunt_rpc::Error>,
) -> Result<f64, Failure> {
    let mut under_way = VecDeque::new();
    let mut run = |length: Duration| -> Result<f64, Failure> {
        let (begun, mut count) = (Instant::now(), 0);
        while begun.elapsed() < length {
            for _ in 0..16 {
                while under_way.len() < outstanding {
                    under_way.push_back(begin()?);
                }
                let first: Pending<'_, R> = under_way.pop_front().expect("one at least");
                first.wait()?;
                count += 1;
            }
        }
        Ok(begun.elapsed().as_nanos() as f64 / f64::from(count))
    };
    run(length / 5)?;
    run(length)
}

fn bench(address: &str, row: &str, length: Duration) -> Result<f64, Failure> {
    // Room for results is set aside for each call: so much as an answer can have here, not as the definition allows.
    let options = Options { window: 32 << 20, room: 256 << 10, ..Options::default() };
    let store = KeyValueV1Client::connect_with(&address.parse()?, options)?;
    let parts: Vec<&str> = row.split('/').collect();
    let [what, bytes, many] = parts[..] else { return Err("a row has three parts".into()) };
    let (bytes, many): (usize, usize) = (bytes.parse()?, many.parse()?);
    let (key, value) = (b"key".to_vec().into(), vec![7; bytes].into());
    let keys = Span { key: b"key".to_vec().into(), end: vec![].into() };
    match what {
        "put" => calls(many, length, || store.put_begin(&key, &value, &false, None)),
        "range" => {
            store.put(&key, &value, &false)?;
            calls(many, length, || store.range_begin(&keys, &1, None))
        }
        _ => {
            let first = store.put(&key, &value, &false)?.revision;
            for _ in 1..many {
                store.put(&key, &value, &false)?;
            }
            let all = Span { key: b"key".to_vec().into(), end: b"kez".to_vec().into() };
            let limit = (100_000 / (bytes + 64)) as u32;
            let (begun, mut count) = (Instant::now(), 0);
            while begun.elapsed() < length {
                let (mut next, mut got) = (first, 0);
                while got < many {
                    let reply = store.watch(&all, &next, &limit)?;
                    (next, got) = (reply.next, got + reply.events.len());
                }
                count += got;
            }
            Ok(begun.elapsed().as_nanos() as f64 / count as f64)
        }
    }
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["serve", address] => {
            Server::bind(&address.parse()?, ServerOptions::default())?.run(|| KeyValueV1Server(Store::default()))?
        }
        ["bench", address, row, milliseconds] => {
            println!("{:.1}", bench(address, row, Duration::from_millis(milliseconds.parse()?))?);
        }
        _ => return Err("kv serve ADDRESS, or kv bench ADDRESS ROW MILLISECONDS".into()),
    }
    Ok(())
}
