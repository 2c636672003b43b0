//! SunRPC with strangers: rpcgen's code over libtirpc calls our server, and serves our caller; over TCP and UDP, with and without
//! rpcbind. All of it runs in a network and a mount namespace of its own, so rpcbind's port and socket are the test's.

use shunt_rpc::{Claim, Client, Context, Error, Fault, Kind, Options, Ran, Running, Server, ServerOptions, Transport};
use shunt_rpc_examples::log::{LogV1, LogV1Client, LogV1Server, OpaqueRecord, Stat};
use shunt_rpc_examples::onc::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[derive(Default)]
struct Service(u32);

impl OncV1 for Service {
    fn echo(&mut self, _: &Context<'_>, data: Data) -> Result<Data, Fault> {
        Ok(data)
    }
    fn half(&mut self, _: &Context<'_>, number: i32) -> Result<i32, Fault> {
        Ok(number / 2)
    }
    fn caller(&mut self, context: &Context<'_>) -> Result<Claimed, Fault> {
        let claim = context.claim().cloned().unwrap_or_default();
        Ok(Claimed { machine: claim.machine.as_str().into(), uid: claim.uid, gid: claim.gid })
    }
    fn refuse(&mut self, _: &Context<'_>, _: i32) -> Result<(), Fault> {
        Err(Fault::new(1, "as it was asked to"))
    }
    fn count(&mut self, _: &Context<'_>) -> Result<u32, Fault> {
        self.0 += 1;
        Ok(self.0)
    }
}

impl OncV3 for Service {
    fn half(&mut self, _: &Context<'_>, number: i32) -> Result<i32, Fault> {
        Ok(number / 2)
    }
}

fn serve(address: &str, threads: usize) -> std::io::Result<Running> {
    let options = ServerOptions { threads, ..ServerOptions::default() };
    let make = || shunt_rpc::Services::new().with(OncV1Server(Service(0))).with(OncV3Server(Service(0)));
    Server::bind(&address.parse().unwrap(), options)?.spawn(make)
}

fn claim() -> Claim {
    Claim { machine: "ours".into(), uid: 12, gid: 34, groups: vec![5, 6] }
}

fn connect(address: &str) -> OncV1Client {
    let options = Options { claim: Some(claim()), deadline: Some(Duration::from_secs(20)), ..Options::default() };
    OncV1Client::connect_with(&address.parse().unwrap(), options).unwrap()
}

/// All that a server of `onc.x` is to do.
fn exercise(address: &str, sizes: &[usize]) {
    let client = connect(address);
    for &size in sizes {
        let data: Vec<u8> = (0..size).map(|at| at as u8).collect();
        assert!(*client.echo(&Data::from(data.clone())).unwrap() == data[..], "{size} bytes over {address}");
    }
    let calls: Vec<_> = (0..64).map(|number| client.half_begin(&(number * 2), None).unwrap()).collect();
    for (number, call) in calls.into_iter().enumerate().rev() {
        assert_eq!(call.wait().unwrap(), number as i32);
    }
    let said = client.caller().unwrap();
    assert_eq!((&said.machine[..], said.uid, said.gid), (&b"ours"[..], 12, 34));
    let told = |error: Error| (error.kind(), error.ran());
    assert_eq!(told(client.refuse(&1).unwrap_err()), (Kind::Application, Ran::Maybe));
    assert_eq!(told(client.0.call::<_, ()>(77, &()).unwrap_err()), (Kind::NoProcedure, Ran::No));
    // libtirpc decodes a datagram's arguments from its whole buffer: there, what is missing is what came before.
    if address.contains("tcp") {
        assert_eq!(told(client.0.call::<_, ()>(2, &()).unwrap_err()), (Kind::BadArguments, Ran::No));
    }
    assert_eq!(told(client.0.call::<_, ()>(2, &7).unwrap_err()), (Kind::BadResults, Ran::Yes));
    drop(client.half_begin(&8, None).unwrap());
    client.0.tell(2, &8).unwrap();
    assert_eq!(client.half(&8).unwrap(), 4);
    assert_eq!(client.0.outstanding(), 0);
    let bind = |program, versions| Client::connect(&address.parse().unwrap(), program, versions, Options::default());
    assert_eq!(bind(0x2000_0099, 1..=2).unwrap().version(), 1);
    assert_eq!(bind(0x2000_0099, 1..=9).unwrap().version(), 3);
    assert_eq!(told(bind(0x2000_0099, 4..=5).unwrap_err()), (Kind::Version, Ran::No));
}

/// The C programs, if all is there that they need.
fn strangers() -> Option<PathBuf> {
    let here = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests");
    let directory = std::env::temp_dir().join(format!("shunt-onc-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    std::fs::copy(here.join("onc.x"), directory.join("onc.x")).unwrap();
    for (switch, target) in [("-h", "onc.h"), ("-c", "onc_xdr.c"), ("-l", "onc_clnt.c"), ("-m", "onc_svc.c")] {
        let made = Command::new("rpcgen").args([switch, "-o", target, "onc.x"]).current_dir(&directory).status();
        if !made.is_ok_and(|status| status.success()) {
            eprintln!("not tested: rpcgen is not installed (rpcsvc-proto)");
            return None;
        }
    }
    if !Path::new("/usr/include/tirpc/rpc/rpc.h").exists() {
        eprintln!("not tested: libtirpc's headers are not installed (libtirpc-dev)");
        return None;
    }
    for (program, part) in [("onc_client", "onc_clnt.c"), ("onc_server", "onc_svc.c")] {
        let mut compile = Command::new("cc");
        compile.args(["-w", "-O1", "-I/usr/include/tirpc", "-I.", "-o", program, "onc_xdr.c", part]);
        let made = compile.arg(here.join(format!("{program}.c"))).arg("-ltirpc").current_dir(&directory).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    Some(directory)
}

/// A program that ends with this value.
struct Guard(Child);

impl Drop for Guard {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn their_server(directory: &Path, net: &str, named: bool) -> (Guard, u16) {
    let mut command = Command::new(directory.join("onc_server"));
    command.arg(net).args(named.then_some("named")).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Guard(child), line.trim().parse().expect("its port"))
}

fn their_client(directory: &Path, net: &str, port: u16, bytes: usize) {
    let words = [net.to_string(), port.to_string(), bytes.to_string()];
    let done = Command::new(directory.join("onc_client")).args(words).output().unwrap();
    assert!(done.status.success(), "{net} {bytes}: {:?} {}", done.status, String::from_utf8_lossy(&done.stderr));
}

fn port(running: &Running) -> u16 {
    running.address().to_string().rsplit_once(':').unwrap().1.parse().unwrap()
}

#[derive(Default)]
struct Log;

impl LogV1 for Log {
    fn append(&mut self, _: &Context<'_>, record: OpaqueRecord) -> Result<Stat, Fault> {
        Ok(Stat { bytes: record.len() as u64, records: 1 })
    }
    fn read(&mut self, _: &Context<'_>, _: u32) -> Result<OpaqueRecord, Fault> {
        panic!("as a test");
    }
    fn sort(&mut self, _: &Context<'_>, mut keys: shunt_rpc::Shared<'_, u32>) -> Result<(), Fault> {
        let mut sorted = keys.to_vec();
        sorted.sort_unstable();
        keys.copy_from(&sorted);
        Ok(())
    }
}

const SIZES: [usize; 5] = [0, 1, 4000, 64 << 10, 1 << 20];

#[test]
fn ours_and_ours() {
    for threads in [1, 3] {
        let server = serve("sunrpc+tcp://127.0.0.1:0", threads).unwrap();
        exercise(&server.address().to_string(), &SIZES);
        let server = serve("sunrpc+udp://127.0.0.1:0", threads).unwrap();
        exercise(&server.address().to_string(), &[0, 4000, 60_000]);
    }
}

#[test]
fn parameters_by_reference_go_by_value() {
    for net in ["tcp", "udp"] {
        let address = format!("sunrpc+{net}://127.0.0.1:0").parse().unwrap();
        let server = Server::bind(&address, ServerOptions::default()).unwrap().spawn(|| LogV1Server(Log)).unwrap();
        let log = LogV1Client::connect(&server.address().to_string()).unwrap();
        let mut keys = log.0.buffer::<u32>(5).unwrap();
        keys.view().copy_from(&[5, 3, 4, 1, 2]);
        log.sort(&keys).unwrap();
        assert_eq!(keys.view().to_vec(), [1, 2, 3, 4, 5]);
        // A panic is an error of that call alone.
        assert_eq!(log.read(&1).unwrap_err().kind(), Kind::Application);
        assert_eq!(log.append(&"more".into()).unwrap().bytes, 4);
        drop(server);
    }
}

#[test]
fn hostile_records_end_their_connection_alone() {
    let server = serve("sunrpc+tcp://127.0.0.1:0", 1).unwrap();
    let good = connect(&server.address().to_string());
    for bytes in [&[0u8; 4][..], &[0xff; 4], &[0x80, 0, 0, 4, 1, 2, 3, 4], &[0x80, 0, 0, 0]] {
        let mut bad = TcpStream::connect(("127.0.0.1", port(&server))).unwrap();
        bad.write_all(bytes).unwrap();
        assert_eq!(bad.read(&mut [0; 16]).unwrap_or(0), 0);
        assert_eq!(good.half(&4).unwrap(), 2);
    }
    // Calls behind each other, cut into fragments of a byte, are answered in turn.
    let mut slow = TcpStream::connect(("127.0.0.1", port(&server))).unwrap();
    for xid in [7u32, 8] {
        let words = [xid, 0, 2, 0x2000_0099, 1, 0, 0, 0, 0, 0].map(u32::to_be_bytes).concat();
        for (at, byte) in words.iter().enumerate() {
            let last = if at + 1 == words.len() { 0x80 } else { 0 };
            slow.write_all(&[last, 0, 0, 1, *byte]).unwrap();
        }
    }
    let mut answers = [0; 56];
    slow.read_exact(&mut answers).unwrap();
    assert_eq!((&answers[4..8], &answers[32..36]), (&[0, 0, 0, 7][..], &[0, 0, 0, 8][..]));
}

/// A caller that only sends is held back, and finds all its answers later.
#[test]
fn a_caller_that_does_not_read_is_held_back() {
    const ECHOED: usize = 20_000;
    let server = serve("sunrpc+tcp://127.0.0.1:0", 1).unwrap();
    let mut stream = TcpStream::connect(("127.0.0.1", port(&server))).unwrap();
    let head = [0, 2, 0x2000_0099, 1, 1, 0, 0, 0, 0, ECHOED as u32].map(u32::to_be_bytes).concat();
    let call = |xid: u32| {
        let mark = 0x8000_0000 | (4 + head.len() + ECHOED) as u32;
        [&mark.to_be_bytes()[..], &xid.to_be_bytes(), &head, &[xid as u8; ECHOED]].concat()
    };
    let mut writer = stream.try_clone().unwrap();
    writer.set_nonblocking(true).unwrap();
    let (mut sent, mut rest) = (0u32, vec![]);
    let mut refused = 0;
    // The kernel's buffers on both sides, and what the server keeps, are some MiB: hundreds of calls.
    while refused < 20 {
        assert!(sent < 5000, "the server takes calls without end");
        if rest.is_empty() {
            rest = call(sent);
            sent += 1;
        }
        match writer.write(&rest) {
            Ok(count) => {
                rest.drain(..count);
                refused = 0;
            }
            Err(_) => {
                refused += 1;
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    let last = std::thread::spawn(move || {
        writer.set_nonblocking(false).unwrap();
        writer.write_all(&rest).unwrap();
    });
    stream.set_nonblocking(false).unwrap();
    for xid in 0..sent {
        let mut answer = vec![0; 4 + 28 + ECHOED];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!((&answer[4..8], answer[32..].iter().all(|byte| *byte == xid as u8)), (&xid.to_be_bytes()[..], true));
    }
    last.join().unwrap();
}

#[test]
fn a_server_that_is_gone_is_lost() {
    let server = serve("sunrpc+tcp://127.0.0.1:0", 1).unwrap();
    let client = connect(&server.address().to_string());
    drop(server);
    assert_eq!(client.half(&1).unwrap_err().kind(), Kind::Lost);
}

/// Between a caller and a server: the first datagram of each call is lost, and the next one comes twice. Gives the port, and which calls came how often.
fn bad_line(server: u16) -> (u16, std::sync::mpsc::Receiver<u32>) {
    let (front, back) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    back.connect(("127.0.0.1", server)).unwrap();
    let port = front.local_addr().unwrap().port();
    let (seen, calls) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut bytes, mut known) = ([0; 2048], vec![]);
        loop {
            let (length, from) = front.recv_from(&mut bytes).unwrap();
            let xid = u32::from_be_bytes(bytes[..4].try_into().unwrap());
            if seen.send(xid).is_err() {
                return;
            }
            if !known.contains(&xid) {
                known.push(xid);
                continue;
            }
            for _ in 0..2 {
                back.send(&bytes[..length]).unwrap();
                let mut answer = [0; 2048];
                let length = back.recv(&mut answer).unwrap();
                front.send_to(&answer[..length], from).unwrap();
            }
        }
    });
    (port, calls)
}

#[test]
fn a_call_that_is_lost_and_doubled_runs_once() {
    let server = serve("sunrpc+udp://127.0.0.1:0", 1).unwrap();
    let (port, calls) = bad_line(port(&server));
    let client = connect(&format!("sunrpc+udp://127.0.0.1:{port}"));
    // The second answer to each call comes when nothing waits for it.
    assert_eq!((client.count().unwrap(), client.count().unwrap(), client.half(&8).unwrap()), (1, 2, 4));
    let calls: Vec<u32> = calls.try_iter().collect();
    let different: std::collections::BTreeSet<u32> = calls.iter().copied().collect();
    // With the null call by which a caller binds.
    assert!(different.len() == 4 && calls.len() >= 8, "each again under its number: {calls:?}");
}

#[test]
fn strangers_call_and_are_called() {
    let Some(directory) = strangers() else { return };
    for (net, sizes) in [("tcp", &SIZES[..]), ("udp", &[0, 1, 4000])] {
        let server = serve(&format!("sunrpc+{net}://127.0.0.1:0"), 1).unwrap();
        for &size in sizes {
            their_client(&directory, net, port(&server), size);
        }
        let (_server, port) = their_server(&directory, net, false);
        let address = format!("sunrpc+{net}://127.0.0.1:{port}");
        exercise(&address, sizes);
        assert_eq!(connect(&address).refuse(&2).unwrap_err().kind(), Kind::Denied);
    }
    let _ = std::fs::remove_dir_all(directory);
}

/// Runs a test again in namespaces of its own, with rpcbind; false: this is that run, or it cannot be.
fn apart(name: &str) -> bool {
    if std::env::var_os("SHUNT_TEST_ONC_APART").is_some() {
        return false;
    }
    let script = "mount -t tmpfs none /run && mkdir /run/rpcbind && ip link set lo up && rpcbind -f & \
        for i in $(seq 200); do [ -S /run/rpcbind.sock ] && break; sleep 0.05; done; timeout 100 \"$0\" --exact \"$1\" --nocapture; \
        result=$?; kill $!; wait; exit $result";
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new("unshare");
    command.args(["-mn", "--kill-child", "--fork", "sh", "-c", script]).arg(program).arg(name);
    let done = command.env("SHUNT_TEST_ONC_APART", "1").output().unwrap();
    assert!(done.status.success(), "{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    true
}

#[test]
fn rpcbind_tells_where_servers_are() {
    // SAFETY: it only asks.
    if unsafe { libc::geteuid() } != 0 || !Path::new("/usr/sbin/rpcbind").exists() && !Path::new("/sbin/rpcbind").exists() {
        eprintln!("not tested: rpcbind is not installed, or this is not root");
        return;
    }
    if apart("rpcbind_tells_where_servers_are") {
        return;
    }
    let Some(directory) = strangers() else { return };
    for net in ["tcp", "udp"] {
        let address = format!("sunrpc+{net}://127.0.0.1");
        let server = serve(&address, 1).unwrap();
        exercise(&address, &[4000]);
        their_client(&directory, net, 0, 4000);
        let dump = |transport| shunt_rpc::onc::rpcbind::dump(transport, "127.0.0.1", Duration::from_secs(20)).unwrap();
        let listed = dump(Transport::Udp);
        assert_eq!(listed, dump(Transport::Tcp));
        let ours: Vec<_> =
            listed.iter().filter(|entry| entry.program == 0x2000_0099).map(|entry| (entry.version, &*entry.net)).collect();
        assert!(ours.contains(&(1, net)) && ours.contains(&(3, net)) && ours.len() == 2, "{listed:?}");
        // While it lives, another one is refused.
        assert_eq!(serve(&address, 1).err().unwrap().kind(), std::io::ErrorKind::AddrInUse);
        exercise(&address, &[1]);
        drop(server);
        let hurried = Options { patience: Duration::from_millis(10), ..Options::default() };
        let none = OncV1Client::connect_with(&address.parse().unwrap(), hurried).unwrap_err();
        assert_eq!(none.kind(), Kind::Unreachable, "{none}");

        let (theirs, _) = their_server(&directory, net, true);
        exercise(&address, &[4000]);
        assert_eq!(serve(&address, 1).err().unwrap().kind(), std::io::ErrorKind::AddrInUse);
        // Killed, it leaves its registration behind, which is replaced.
        drop(theirs);
        let server = serve(&address, 1).unwrap();
        exercise(&address, &[4000]);
        drop(server);
    }
    let _ = std::fs::remove_dir_all(directory);
}
