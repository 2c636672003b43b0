//! Calls: what the other side of a binding says, values that it encoded, and definitions that a user wrote.

use shunt_rpc::onc::message::{Call, Reply};
use shunt_rpc::onc::record::Reader;
use shunt_rpc::wire::{judge, Hello, Welcome, RECORD_BYTES};
use shunt_rpc::xdr::{from_bytes, to_bytes};
use shunt_rpc_examples::torture::Everything;

/// Records of a binding return as they came; words of a call are a call or none, and name no more bytes than came with them.
pub fn records(data: &[u8]) {
    let mut record = [0; RECORD_BYTES];
    let length = data.len().min(RECORD_BYTES);
    record[..length].copy_from_slice(&data[..length]);
    if let Some(hello) = Hello::parse(&record) {
        assert_eq!(Hello::parse(&hello.emit()), Some(hello));
    }
    if let Some(welcome) = Welcome::parse(&record) {
        assert_eq!(Welcome::parse(&welcome.emit()), Some(welcome));
    }
    let words: Vec<u64> = data.chunks_exact(8).take(8).map(|eight| u64::from_le_bytes(eight.try_into().unwrap())).collect();
    let rest = data.get(words.len() * 8..).unwrap_or_default();
    for (words, data) in [(&words[..], &[][..]), (&words[..words.len().min(1)], rest)] {
        let Some((_, _, bytes)) = judge(words, data) else { continue };
        let large = words.iter().any(|&word| word >> 32 == bytes as u64);
        assert!(bytes <= words.len() * 8 + data.len() || large);
    }
}

/// What is decoded encodes to as many bytes, and these to the same value.
pub fn values(data: &[u8]) {
    if let Ok(value) = from_bytes::<Everything>(data) {
        let bytes = to_bytes(&value);
        assert_eq!(bytes.len(), data.len());
        assert_eq!(to_bytes(&from_bytes::<Everything>(&bytes).expect("our own bytes")), bytes);
    }
}

/// Text is a file of the language, of which a program can be made or not, or has an error in one of its lines.
pub fn definitions(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    match shunt_rpcgen::parse(text) {
        Ok(file) => {
            let _ = shunt_rpcgen::rust(&file);
            assert!(shunt_rpcgen::breaks(&file, &file).is_empty());
        }
        Err(error) => assert!(error.line >= 1 && error.line <= text.lines().count() + 1),
    }
}

/// A stream of SunRPC, as a server and as a caller read it: records are bounded, and the same wherever the bytes are split; what is
/// a reply is no call.
pub fn onc(data: &[u8]) {
    const MOST: usize = 4096;
    let Some((&cut, stream)) = data.split_first() else { return };
    let read = |parts: &[&[u8]]| {
        let (mut reader, mut records) = (Reader::new(MOST), vec![]);
        for part in parts {
            let mut rest = *part;
            loop {
                match reader.take(&mut rest) {
                    Ok(Some(record)) => records.push(record),
                    Ok(None) => break,
                    Err(broken) => return (records, Some(broken)),
                }
            }
            assert!(reader.held() <= MOST);
        }
        (records, None)
    };
    let (head, tail) = stream.split_at(usize::from(cut).min(stream.len()));
    let whole = read(&[stream]);
    assert_eq!(read(&[head, tail]), whole);
    for record in whole.0.iter().map(Vec::as_slice).chain([stream]) {
        let call = Call::parse(record);
        if let Some(reply) = Reply::parse(record) {
            assert!(call.is_err());
            assert_eq!(Reply::parse(&reply.to_bytes()).map(|again| again.xid), Some(reply.xid));
        }
    }
}
