//! A service by hand: what generated code would be.
#![allow(dead_code)]

use shunt_rpc::xdr::{to_bytes, Bytes, Decoder, List, Xdr};
use shunt_rpc::*;

pub const PROGRAM: u32 = 0x2000_0042;

pub const NULL: u16 = 0;
pub const ADD: u16 = 1;
pub const ECHO: u16 = 2;
pub const SORT: u16 = 3;
pub const FAIL: u16 = 4;
pub const PANIC: u16 = 5;
pub const SLEEP: u16 = 6;
pub const COUNT: u16 = 7;
pub const FILL: u16 = 8;
pub const BREAK: u16 = 9;
pub const BREAK_ON: u16 = 10;
pub const JUDGE: u16 = 11;

/// What its tools are told.
pub const TEXT: &str = "program TEST { version V { int ADD(int, int) = 1; } = 1; } = 0x20000042;";

pub type Data = Bytes<{ 2 << 20 }>;

/// Counts in counts.
pub type Judged = List<(u32, Bytes<20>, Option<Box<u64>>), 100>;

/// One for each thread.
#[derive(Default)]
pub struct Test {
    pub count: u32,
}

pub fn interface(version: u32) -> Interface {
    Interface {
        program: PROGRAM,
        version,
        name: "TEST",
        procedures: &[Procedure { number: ADD, name: "ADD", definition: "int ADD(int, int)" }],
        text: TEXT,
    }
}

impl Service for Test {
    fn interfaces(&self) -> Vec<Interface> {
        vec![interface(1), interface(2)]
    }

    fn call(
        &mut self,
        context: &Context<'_>,
        procedure: u16,
        arguments: Decoder<'_>,
        answer: &mut Answer<'_>,
    ) -> Result<(), Refusal> {
        match procedure {
            NULL => serve(arguments, answer, |()| Ok(())),
            ADD => serve(arguments, answer, |(a, b): (i32, i32)| Ok(a.wrapping_add(b))),
            ECHO => serve(arguments, answer, |data: Data| Ok(data)),
            SORT => serve(arguments, answer, |keys: Reference<u32>| {
                let mut keys = context.shared(keys, 1 << 20)?;
                let mut sorted = keys.to_vec();
                sorted.sort_unstable();
                keys.copy_from(&sorted);
                Ok(())
            }),
            FAIL => serve(arguments, answer, |code: i32| Err::<(), _>(Fault::new(code, "as it was asked to").into())),
            PANIC => serve(arguments, answer, |()| -> Result<(), Refusal> { panic!("as it was asked to") }),
            SLEEP => serve(arguments, answer, |milliseconds: u32| {
                let end = std::time::Instant::now() + std::time::Duration::from_millis(milliseconds.into());
                while std::time::Instant::now() < end && !context.is_cancelled() {
                    std::thread::sleep(std::time::Duration::from_micros(100));
                }
                self.count += 1;
                Ok(context.is_cancelled())
            }),
            COUNT => serve(arguments, answer, |()| {
                self.count += 1;
                Ok(self.count)
            }),
            FILL => serve(arguments, answer, |(into, byte): (Reference<u8>, u32)| {
                let mut into = context.shared(into, u32::MAX)?;
                let bytes = vec![byte as u8; into.len()];
                into.copy_from(&bytes);
                Ok(bytes.len() as u32)
            }),
            // Without the hook, which would write to the standard error.
            BREAK => serve(arguments, answer, |_: Data| -> Result<(), Refusal> {
                self.count += 1;
                std::panic::resume_unwind(Box::new("as it was asked to"))
            }),
            BREAK_ON => serve(arguments, answer, |keys: Reference<u32>| -> Result<(), Refusal> {
                let mut keys = context.shared(keys, 1 << 20)?;
                let changed: Vec<u32> = keys.to_vec().iter().map(|key| key + 1).collect();
                keys.copy_from(&changed);
                std::panic::resume_unwind(Box::new("as it was asked to"))
            }),
            JUDGE => {
                let mut arguments = arguments;
                let length = arguments.left();
                let value = Judged::decode(&mut arguments)?;
                // Whatever another process writes meanwhile: the counts that were compared are those that are used.
                assert!(value.len() <= 100 && value.iter().all(|(_, bytes, _)| bytes.len() <= 20));
                assert_eq!(to_bytes(&value).len(), length - arguments.left());
                answer.put(&(value.len() as u32));
                Ok(())
            }
            _ => Err(Refusal::NoProcedure),
        }
    }
}

/// A name that no other test has.
pub fn name(test: &str) -> Address {
    format!("test-{test}-{}", std::process::id()).parse().unwrap()
}

pub fn server(test: &str, options: ServerOptions) -> Running {
    Server::bind(&name(test), options).unwrap().spawn(Test::default).unwrap()
}

pub fn client(at: &Address) -> Client {
    Client::connect(at, PROGRAM, 1..=2, Options::default()).unwrap()
}
