//! `shunt rpc` against a server that the generator made: what it lists, calls and traces.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use crate::common::{plain, quiet_output, SHUNT};
use serde_json::{json, Value};
use shunt_rpc::{Context, Fault, Running, Server, ServerOptions, Shared};
use shunt_rpc_examples::log::{LogV1, LogV1Client, LogV1Server, OpaqueRecord, Stat};

#[derive(Default)]
struct Log(Vec<OpaqueRecord>);

impl LogV1 for Log {
    fn append(&mut self, _: &Context<'_>, record: OpaqueRecord) -> Result<Stat, Fault> {
        self.0.push(record);
        Ok(Stat { bytes: self.0.iter().map(|record| record.len() as u64).sum(), records: self.0.len() as u32 })
    }
    fn read(&mut self, _: &Context<'_>, number: u32) -> Result<OpaqueRecord, Fault> {
        self.0.get(number as usize).cloned().ok_or_else(|| Fault::new(404, format!("no record {number}")))
    }
    fn sort(&mut self, _: &Context<'_>, mut keys: Shared<'_, u32>) -> Result<(), Fault> {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        keys.copy_from(&sorted);
        Ok(())
    }
}

fn server(test: &str) -> (Running, String) {
    let name = format!("test-cli-{test}-{}", std::process::id());
    let server = Server::bind(&name.parse().unwrap(), ServerOptions::default()).unwrap();
    (server.spawn(|| LogV1Server(Log::default())).unwrap(), name)
}

fn shunt(words: &[&str]) -> std::process::Command {
    let mut command = plain(SHUNT);
    command.arg("rpc").args(words);
    command
}

/// Exit status and standard error.
fn refused(words: &[&str]) -> (i32, String) {
    let output = shunt(words).output().unwrap();
    assert!(output.stdout.is_empty(), "{}", String::from_utf8_lossy(&output.stdout));
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn servers_are_listed_with_what_they_have() {
    let (_server, name) = server("list");
    let all: Value = serde_json::from_str(&quiet_output(&mut shunt(&["list", "--json"]))).unwrap();
    let ours = all.as_array().unwrap().iter().find(|one| one["address"] == format!("shm:{name}")).unwrap();
    assert_eq!((&ours["pid"], &ours["interfaces"][0]["name"]), (&json!(std::process::id()), &json!("LOG")));
    let sort = json!({"number": 3, "name": "SORT", "definition": "void SORT(INOUT unsigned keys<1048576>) = 3"});
    assert_eq!(ours["interfaces"][0]["procedures"][2], sort);
    let text = quiet_output(&mut shunt(&["list", &name]));
    assert!(text.starts_with(&format!("shm:{name}  ")), "{text}");
    assert!(text.contains("    LOG (0x20000042), version 1\n        stat APPEND(opaque record<1048576>) = 1\n"), "{text}");
    let (status, why) = refused(&["list", "no-such-server"]);
    assert!(status == 1 && why.contains("no server"), "{why}");
}

#[test]
fn procedures_are_called_with_words() {
    let (_server, name) = server("call");
    let said = |words: &[&str]| quiet_output(&mut shunt(&[&["call", &name], words].concat()));
    assert_eq!(said(&["LOG.APPEND", "hello"]), "{\"bytes\":5,\"records\":1}\n");
    assert_eq!(said(&["LOG.1.APPEND", "0x0102"]), "{\"bytes\":7,\"records\":2}\n");
    assert_eq!(said(&["0x20000042.2", "0"]), "\"0x68656c6c6f\"\n");
    assert_eq!(said(&["LOG.SORT", "[3, 1, 4294967295, 2]"]), "{\"keys\":[1,2,3,4294967295],\"result\":null}\n");
    assert_eq!(said(&["LOG.READ", "--xdr", "00000001"]), "0x000000020102".to_string() + "0000\n");
    assert_eq!(said(&["LOG.0"]), "0x\n");
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/log.x");
    assert_eq!(said(&["LOG.READ", "1", "--interface", file]), "\"0x0102\"\n");
    // More than a message holds.
    let long = "x".repeat(100_000);
    assert_eq!(said(&["LOG.APPEND", &long]), "{\"bytes\":100007,\"records\":3}\n");

    let refused = |words: &[&str]| refused(&[&["call", &name], words].concat());
    let (status, why) = refused(&["LOG.READ", "9"]);
    assert!(status == 1 && why.contains("no record 9"), "{why}");
    let (status, why) = refused(&["LOG.READ", "-1"]);
    assert!(status == 2 && why.contains("from 0 to 4294967295"), "{why}");
    let (status, why) = refused(&["LOG.READ"]);
    assert!(status == 2 && why.contains("opaque_record READ(unsigned number) = 2"), "{why}");
    let (status, why) = refused(&["LOG.DELETE"]);
    assert!(status == 1 && why.contains("no procedure LOG.DELETE"), "{why}");
    assert_eq!(refused(&["LOG.SORT", "7"]).0, 2);
}

#[test]
fn calls_are_traced_by_name() {
    let (_server, name) = server("trace");
    let log = LogV1Client::connect(&name).unwrap();
    let mut child = shunt(&["trace", &name, "--calls", "2"]).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    // It begins at some time; until then calls are not told.
    let told = std::thread::scope(|scope| {
        let told = scope.spawn(move || [lines.next().unwrap().unwrap(), lines.next().unwrap().unwrap()]);
        while !told.is_finished() {
            log.append(&"word".into()).unwrap();
            log.read(&1_000_000).unwrap_err();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        told.join().unwrap()
    });
    assert!(child.wait().unwrap().success());
    let pid = std::process::id().to_string();
    let mut outcomes = vec![];
    for line in &told {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[1], pid, "{line}");
        outcomes.push((words[2], words[3], words[4], *words.last().unwrap()));
    }
    outcomes.sort_unstable();
    assert_eq!(outcomes, [("LOG.1.APPEND", "8+12", "bytes", "ok"), ("LOG.1.READ", "4+0", "bytes", "fault")]);

    let child = shunt(&["trace", &name, "--histogram", "--seconds", "1", "--json"]).stdout(Stdio::piped()).spawn().unwrap();
    let ends = std::time::Instant::now() + std::time::Duration::from_millis(1500);
    let mut calls = 0;
    while std::time::Instant::now() < ends {
        log.append(&"word".into()).unwrap();
        calls += 1;
    }
    let sums: Value = serde_json::from_slice(&child.wait_with_output().unwrap().stdout).unwrap();
    let (counted, one) = (sums[0]["calls"].as_u64().unwrap(), &sums[0]);
    assert_eq!((&one["procedure"], &one["outcome"], sums.as_array().unwrap().len()), (&json!("LOG.1.APPEND"), &json!("ok"), 1));
    assert!(counted > 0 && counted <= calls, "{counted} of {calls}");
    let buckets = one["buckets"].as_array().unwrap();
    assert_eq!(buckets.iter().map(|bucket| bucket["calls"].as_u64().unwrap()).sum::<u64>(), counted);
}
