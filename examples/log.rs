//! A service from `log.x`, and a caller: `cargo run --release -p shunt-rpc-examples --example log`.

use shunt_rpc::{Context, Fault, Server, ServerOptions, Shared};
use shunt_rpc_examples::log::{LogV1, LogV1Client, LogV1Server, OpaqueRecord, Stat};

/// The service: one for each of its threads.
#[derive(Default)]
struct Log {
    records: Vec<OpaqueRecord>,
}

impl LogV1 for Log {
    fn append(&mut self, _: &Context<'_>, record: OpaqueRecord) -> Result<Stat, Fault> {
        self.records.push(record);
        let bytes = self.records.iter().map(|record| record.len() as u64).sum();
        Ok(Stat { bytes, records: self.records.len() as u32 })
    }

    fn read(&mut self, _: &Context<'_>, number: u32) -> Result<OpaqueRecord, Fault> {
        self.records.get(number as usize).cloned().ok_or_else(|| Fault::new(404, format!("no record {number}")))
    }

    fn sort(&mut self, _: &Context<'_>, mut keys: Shared<'_, u32>) -> Result<(), Fault> {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        keys.copy_from(&sorted);
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The server would be another process: it needs no more than this line.
    let name = format!("example-log-{}", std::process::id());
    let server = Server::bind(&name.parse()?, ServerOptions::default())?.spawn(|| LogV1Server(Log::default()))?;

    let log = LogV1Client::connect(&name)?;
    for record in ["first", "second"] {
        let stat = log.append(&record.into())?;
        println!("{} records, {} bytes", stat.records, stat.bytes);
    }
    println!("record 1: {}", String::from_utf8_lossy(&log.read(&1)?));
    if let Err(error) = log.read(&7) {
        println!("{}", error.fault().map_or("", |fault| &fault.text));
    }

    // Many calls at once; each is answered in its own time.
    let calls: Vec<_> = (0..100).map(|_| log.append_begin(&"more".into(), None)).collect::<Result<_, _>>()?;
    let last = calls.into_iter().map(|call| call.wait()).last().expect("a hundred")?;
    println!("{} records", last.records);

    // By reference: the server works on this buffer.
    let mut keys = log.0.buffer::<u32>(3)?;
    keys.view().copy_from(&[3, 1, 2]);
    log.sort(&keys)?;
    println!("{:?}", keys.view().to_vec());
    drop(keys);

    drop(server);
    println!("{:?}", log.read(&0).expect_err("nobody is there").kind());
    Ok(())
}
