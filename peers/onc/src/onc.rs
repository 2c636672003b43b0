//! The program of onc.x over the messages of the crate `onc-rpc`. Records and their fragments are this file's.

use crate::Failure;
use onc_rpc::auth::{AuthFlavor, AuthUnixParams};
use onc_rpc::{AcceptedReply, AcceptedStatus, CallBody, MessageType, ReplyBody, RpcMessage};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

const PROGRAM: u32 = 0x2000_0099;
const LAST: u32 = 1 << 31;
const SIZES: [usize; 9] = [0, 1, 3, 4, 1000, 4096, 65_480, 65_536, 90_001];

/// A record behind one mark, as the crate takes it.
fn receive(stream: &mut TcpStream) -> Result<Option<Vec<u8>>, Failure> {
    let mut record = vec![0; 4];
    loop {
        let mut mark = [0; 4];
        match stream.read_exact(&mut mark) {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof && record.len() == 4 => return Ok(None),
            other => other?,
        }
        let mark = u32::from_be_bytes(mark);
        let begin = record.len();
        record.resize(begin + (mark & !LAST) as usize, 0);
        stream.read_exact(&mut record[begin..])?;
        if mark & LAST != 0 {
            let length = record.len() as u32 - 4;
            record[..4].copy_from_slice(&(length | LAST).to_be_bytes());
            return Ok(Some(record));
        }
    }
}

/// Opaque bytes of any number.
fn opaque(bytes: &[u8]) -> Vec<u8> {
    let mut made = (bytes.len() as u32).to_be_bytes().to_vec();
    made.extend_from_slice(bytes);
    made.resize(made.len().next_multiple_of(4), 0);
    made
}

fn word(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

pub fn serve() -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?.port());
    let mut counted = 0u32;
    for stream in listener.incoming() {
        let mut stream = stream?;
        while let Some(record) = receive(&mut stream)? {
            let message = RpcMessage::try_from(&record[..])?;
            let call = message.call_body().ok_or("no call")?;
            let answer = answer(call, &mut counted);
            let body = AcceptedReply::new(AuthFlavor::AuthNone(None::<&[u8]>), answer);
            stream.write_all(&RpcMessage::new(message.xid(), MessageType::Reply(ReplyBody::Accepted(body))).serialise()?)?;
        }
    }
    Ok(())
}

fn answer(call: &CallBody<&[u8], &[u8]>, counted: &mut u32) -> AcceptedStatus<Vec<u8>> {
    let arguments = *call.payload();
    if call.program() != PROGRAM {
        return AcceptedStatus::ProgramUnavailable;
    }
    if call.program_version() != 1 {
        return AcceptedStatus::ProgramMismatch { low: 1, high: 1 };
    }
    match (call.procedure(), word(arguments)) {
        (0, _) => AcceptedStatus::Success(vec![]),
        (1, Some(length)) => match arguments.get(4..4 + length as usize) {
            Some(bytes) => AcceptedStatus::Success(opaque(bytes)),
            None => AcceptedStatus::GarbageArgs,
        },
        (2, Some(number)) => AcceptedStatus::Success((number as i32 / 2).to_be_bytes().to_vec()),
        (5, _) => {
            *counted += 1;
            AcceptedStatus::Success(counted.to_be_bytes().to_vec())
        }
        (1 | 2, None) => AcceptedStatus::GarbageArgs,
        _ => AcceptedStatus::ProcedureUnavailable,
    }
}

pub fn call(port: u16) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    let mut xid = 0;
    let mut ask = |version: u32, procedure: u32, arguments: &[u8], claim: bool| -> Result<String, Failure> {
        xid += 1;
        let name = &b"a-crate"[..];
        let credentials = match claim {
            true => AuthFlavor::AuthUnix(AuthUnixParams::new(7, name, 12, 34, [5, 6])),
            false => AuthFlavor::AuthNone(None),
        };
        let body = CallBody::new(PROGRAM, version, procedure, credentials, AuthFlavor::AuthNone(None), arguments);
        stream.write_all(&RpcMessage::new(xid, MessageType::Call(body)).serialise()?)?;
        let record = receive(&mut stream)?.ok_or("the connection ended")?;
        let message = RpcMessage::try_from(&record[..])?;
        assert_eq!(message.xid(), xid);
        Ok(match message.reply_body().ok_or("no answer")? {
            ReplyBody::Accepted(reply) => match reply.status() {
                AcceptedStatus::Success(results) if results.len() > 64 => {
                    format!("{} bytes, {}", results.len(), *results == arguments)
                }
                other => format!("{other:?}"),
            },
            ReplyBody::Denied(why) => format!("{why:?}"),
        })
    };
    println!("null {}", ask(1, 0, &[], false)?);
    for size in SIZES {
        let bytes: Vec<u8> = (0..size).map(|at| (at * 7) as u8).collect();
        println!("echo {size} {}", ask(1, 1, &opaque(&bytes), false)?);
    }
    for number in [0i32, 42, -7] {
        println!("half {}", ask(1, 2, &number.to_be_bytes(), false)?);
    }
    for _ in 0..1000 {
        let said = ask(1, 2, &8u32.to_be_bytes(), true)?;
        assert_eq!(said, "Success([0, 0, 0, 4])");
    }
    println!("caller {} {}", ask(1, 3, &[], false)?, ask(1, 3, &[], true)?);
    println!("refused {} {}", ask(1, 4, &1u32.to_be_bytes(), false)?, ask(1, 4, &2u32.to_be_bytes(), true)?);
    println!("counted {} {}", ask(1, 5, &[], false)?, ask(1, 5, &[], true)?);
    println!("unknown {}", ask(1, 77, &[], false)?);
    println!("missing {}", ask(1, 2, &[], false)?);
    println!("version {}", ask(2, 0, &[], false)?);
    println!("another {}", ask(3, 2, &9u32.to_be_bytes(), false)?);
    Ok(())
}
