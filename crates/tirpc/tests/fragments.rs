//! A call may be cut into fragments anywhere: a server with the library answers it as if it were one.

mod common;

use common::{gcc, library};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command};
use std::time::Duration;

/// A program that ends with the test.
struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn fragment(bytes: &[u8], last: bool) -> Vec<u8> {
    let mut whole = (bytes.len() as u32 | u32::from(last) << 31).to_be_bytes().to_vec();
    whole.extend_from_slice(bytes);
    whole
}

/// An answer whose record is one fragment.
fn answer(stream: &mut TcpStream) -> Vec<u8> {
    let mut mark = [0; 4];
    stream.read_exact(&mut mark).unwrap();
    let mut bytes = vec![0; (u32::from_be_bytes(mark) & !(1 << 31)) as usize];
    stream.read_exact(&mut bytes).unwrap();
    bytes
}

#[test]
fn a_call_is_cut_anywhere() {
    let scratch = tempfile::tempdir().unwrap();
    let programs = scratch.path().join("programs");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs.c");
    gcc(&["-O1", "-o", programs.to_str().unwrap(), source, "-ltirpc", "-lpthread"]);
    let file = scratch.path().join("port");
    let mut command = Command::new(&programs);
    command.args(["server".as_ref(), file.as_os_str(), "run".as_ref()]).env("LD_PRELOAD", library("libshunt_tirpc.so"));
    let mut server = Ends(command.spawn().unwrap());
    let port = loop {
        match std::fs::read_to_string(&file) {
            Ok(text) => break text.trim().parse::<u16>().unwrap(),
            Err(_) => assert!(server.0.try_wait().unwrap().is_none(), "the server ended"),
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Who calls, by AUTH_SYS: a stamp, a name of five bytes, user 4711, group 1, no others. Procedure 4 answers the user.
    let claim = words(&[7, 5, 0x6162_6364, 0x6500_0000, 4711, 1, 0]);
    let head = |xid| [words(&[xid, 0, 2, 0x2000_0099, 1, 4, 1, claim.len() as u32]), claim.clone(), words(&[0, 0])].concat();
    let length = head(0).len();
    for cut in 1..length {
        let xid = cut as u32;
        let call = head(xid);
        let record = [fragment(&call[..cut], false), fragment(&call[cut..], true)].concat();
        // At once, and in two segments of which the second begins anywhere.
        for piece in [record.len(), 1, cut, cut + 4, cut + 8] {
            stream.write_all(&record[..piece]).unwrap();
            if piece < record.len() {
                std::thread::sleep(Duration::from_micros(200));
                stream.write_all(&record[piece..]).unwrap();
            }
            assert_eq!(answer(&mut stream), words(&[xid, 1, 0, 0, 0, 0, 4711]), "cut at {cut}, sent at {piece}");
        }
        // Two calls at once, the first in three fragments.
        let middle = cut.div_ceil(2);
        let three =
            [fragment(&call[..middle], false), fragment(&call[middle..cut], false), fragment(&call[cut..], true)].concat();
        let three = if middle == cut { record.clone() } else { three };
        stream.write_all(&[three, fragment(&head(xid + 1000), true)].concat()).unwrap();
        for xid in [xid, xid + 1000] {
            assert_eq!(answer(&mut stream)[..4], xid.to_be_bytes(), "cut at {middle} and {cut}");
        }
    }
}
