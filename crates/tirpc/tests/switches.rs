//! What rpcgen makes with each of its switches says the same whether layers are collapsed or not, at either end.

mod common;

use common::{gcc, library};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Switches, and what they are to the program. Those that only name what is to be made (-a, -c, -h, -l, -m, -o, -Sc, -Ss, -Sm, -Y) are
/// used on the way, or change none of its code. What -t and -T make, and -I together with -M or -5, no compiler of today takes, and -n is not
/// there in Debian's.
const SWITCHES: [(&[&str], &[&str]); 14] = [
    (&[], &[]),
    (&["-C"], &[]),
    (&["-b"], &[]),
    (&["-k"], &["-DOLD"]),
    (&["-L"], &[]),
    (&["-i", "0"], &[]),
    (&["-i", "1"], &[]),
    (&["-i", "1000"], &[]),
    (&["-N"], &["-DNEWSTYLE"]),
    (&["-M"], &["-DMTSAFE"]),
    (&["-N", "-M"], &["-DNEWSTYLE", "-DMTSAFE"]),
    (&["-5"], &["-DSVR4"]),
    (&["-I", "-K", "1"], &["-DINETD"]),
    (&["-I", "-K", "1", "-N"], &["-DINETD", "-DNEWSTYLE"]),
];

/// How long a server may take to begin or to end: an hour would do, where nothing else is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes server and client in the folder. False: there is no rpcgen.
fn made(folder: &Path, switches: &[&str], macros: &[&str]) -> bool {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    std::fs::copy(here.join("switches.x"), folder.join("switches.x")).unwrap();
    let inetd = switches.contains(&"-I");
    let parts = [("-h", "switches.h"), ("-c", "xdr.c"), ("-l", "clnt.c"), if inetd { ("-s", "svc.c") } else { ("-m", "svc.c") }];
    for (part, target) in parts {
        // Inlining is the routines' alone, and a time without calls is main's.
        let of_part = |switch: &str| match (switch, part) {
            ("-i", "-c") | ("-I" | "-K", "-s") | ("-5", "-m") => true,
            ("-i" | "-I" | "-K" | "-5", _) => false,
            _ => true,
        };
        // Numbers are those of the switches before them.
        let mut taken = false;
        let words: Vec<&str> = switches
            .iter()
            .copied()
            .filter(|word| {
                taken = if word.starts_with('-') { of_part(word) } else { taken };
                taken
            })
            .collect();
        let newstyle = macros.contains(&"-DNEWSTYLE").then_some("-DNEWSTYLE");
        let mut command = Command::new("rpcgen");
        command.args(newstyle).args(&words).arg(part).args((part == "-s").then_some("tcp")).args(["-o", target, "switches.x"]);
        match command.current_dir(folder).output() {
            Ok(done) => assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr)),
            Err(_) => return false,
        }
    }
    let (source, at) = (here.join("switches.c"), |name: &str| folder.join(name).to_str().unwrap().to_owned());
    let (source, include) = (source.to_str().unwrap(), format!("-I{}", folder.display()));
    // What is inlined names a type of C++'s.
    let usual = ["-w", "-O1", "-std=gnu11", "-Dbool=bool_t", &include];
    let server = ["-o", &at("server"), &at("xdr.c"), &at("svc.c"), source];
    gcc(&[&usual[..], macros, &server, &["-ltirpc"]].concat());
    let client = ["-DCALLER", "-o", &at("client"), &at("xdr.c"), &at("clnt.c"), source, "-ltirpc"];
    gcc(&[&usual[..], macros, &client].concat());
    true
}

/// A process that ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for something.
fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What clients say with these libraries preloaded at the server and at the client, and what is told on both error streams.
fn said(folder: &Path, inetd: bool, [server, client]: [&str; 2]) -> (String, String, String) {
    let _ = std::fs::remove_file(folder.join("port"));
    let file = |name: &str| std::fs::File::create(folder.join(name)).unwrap();
    // What -I makes looks at as many descriptors as there may be, in a set of 1,024.
    let mut command = Command::new("prlimit");
    command
        .arg("--nofile=1024")
        .arg(folder.join("server"))
        .current_dir(folder)
        .env("LD_PRELOAD", server)
        .env("SHUNT_UDP", "on")
        .stderr(file("server.err"));
    let mut running;
    let ports: Vec<String> = if inetd {
        // As by inetd, with `wait`: the listener is the server's input.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        running = Server(command.stdin(Stdio::from(OwnedFd::from(listener))).spawn().unwrap());
        vec![port.to_string()]
    } else {
        running = Server(command.stdin(Stdio::null()).spawn().unwrap());
        let ports = until("the server's ports", || std::fs::read_to_string(folder.join("port")).ok());
        ports.lines().map(str::to_owned).collect()
    };
    let (mut text, mut told) = (String::new(), String::new());
    for (transport, port) in ["tcp", "udp"].iter().zip(&ports) {
        let mut command = Command::new("timeout");
        command.args(["60"]).arg(folder.join("client")).args([transport, port.as_str()]);
        let done = command.env("LD_PRELOAD", client).env("SHUNT_UDP", "on").output().unwrap();
        let failed = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{transport}: {failed}");
        text += &format!("{transport}\n{}", String::from_utf8_lossy(&done.stdout));
        told += &failed;
    }
    if inetd {
        // Its time without calls is over: it ends by itself.
        let status = until("the server's end", || running.0.try_wait().unwrap());
        assert!(status.success(), "{status}");
    }
    drop(running);
    (text, told, std::fs::read_to_string(folder.join("server.err")).unwrap())
}

#[test]
fn switches_of_rpcgen_change_nothing() {
    let (ours, shunt) = (library("libshunt_tirpc.so"), library("libshunt.so"));
    let (ours, shunt) = (ours.to_str().unwrap(), shunt.to_str().unwrap());
    let both = format!("{shunt}:{ours}");
    let sides = [[ours, ours], [shunt, shunt], [&both, &both], [&both, shunt], [shunt, &both], [&both, ""], ["", &both]];
    for (switches, macros) in SWITCHES {
        let folder = tempfile::tempdir().unwrap();
        if !made(folder.path(), switches, macros) {
            eprintln!("not tested: rpcgen is not installed (rpcsvc-proto)");
            return;
        }
        let inetd = switches.contains(&"-I");
        let (plain, _, _) = said(folder.path(), inetd, ["", ""]);
        assert!(plain.contains("sum: 64\n") && plain.contains("name: green\n"), "{switches:?}: {plain}");
        for side in sides {
            let (text, client, server) = said(folder.path(), inetd, side);
            assert_eq!(text, plain, "{switches:?}, {side:?}");
            for (told, what, library) in [(server, "reply in", side[0]), (client, "call in", side[1])] {
                let lines: Vec<&str> = told.lines().filter(|line| line.starts_with(what)).collect();
                assert!(!lines.is_empty(), "{switches:?}, {side:?}: {told}");
                let collapsed = lines.iter().all(|line| line.ends_with("libshunt_tirpc.so"));
                assert_eq!(collapsed, library.contains("tirpc"), "{switches:?}, {side:?}: {told}");
            }
        }
    }
}
