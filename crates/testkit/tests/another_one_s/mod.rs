//! A stranger that announces another one's connection in the memory of its own link to the server.

use super::two_hosts::{until, Site};
use core::mem::offset_of;
use shunt_segment::channel::{ChannelPage, Head};
use shunt_segment::link::LinkHeader;
use shunt_testkit::{python_program, spawn};
use std::process::{Child, Stdio};

/// How the connections go.
pub struct Ways<'a> {
    /// Where both connect to.
    pub to: (&'a str, u16),
    /// What the victim's looks like to the server, which listens at port 9100: from which address, and at which.
    pub seen: (&'a str, &'a str),
    /// The victim's host, and its address.
    pub victim: (usize, &'a str),
}

/// Makes connections of its own until it has links, and announces the victim's in all their channels. Arguments: where to, what the victim's looks like, places.
const STRANGER: &str = "import ctypes,socket,struct,sys,time\n\
    page, generation, client, server, ports, announced, mark, bits = (int(n) for n in sys.argv[5:13])\n\
    def ip(a): return b'\\0' * 10 + b'\\xff\\xff' + socket.inet_aton(a)\n\
    def put(a, b): ctypes.memmove(a, b, len(b))\n\
    def links():\n\
    \x20   maps = [l.split('-')[0] for l in open('/proc/self/maps') if 'memfd:shunt-link' in l and l.split()[2] == '00000000']\n\
    \x20   return [b for b in (int(m, 16) for m in maps) if ctypes.string_at(b, 8) == b'shuntlnk']\n\
    made = 0\n\
    while made < 12 or not links():\n\
    \x20   s = socket.create_connection((sys.argv[1], int(sys.argv[2]))); s.sendall(b'hello'); assert s.recv(5); s.close()\n\
    \x20   made += 1; time.sleep(0.005)\n\
    for base in links():\n\
    \x20   for channel in range(32):\n\
    \x20       p = base + page * (1 + channel); g = struct.unpack('I', ctypes.string_at(p + generation, 4))[0]\n\
    \x20       put(p + client, ip(sys.argv[3])); put(p + server, ip(sys.argv[4])); put(p + ports, struct.pack('I', 39999 | 9100 << 16))\n\
    \x20       put(p + mark, struct.pack('I', 1329)); put(p, struct.pack('I', 1))\n\
    \x20       put(p + announced, struct.pack('I', (g << 3 | 2) & 0xffffffff))\n\
    \x20   put(base + bits, b'\\xff' * 4)\n\
    print('announced', flush=True); time.sleep(60)\n";

/// A client without shunt, whose connection shows a mark of announcements. Arguments: where to, and its own address.
const VICTIM: &str = "import socket,sys\n\
    s = socket.socket(); s.bind((sys.argv[3], 39999)); s.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1329)\n\
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b'\\1\\0\\0\\0\\0\\0\\0\\0')\n\
    s.connect((sys.argv[1], int(sys.argv[2]))); s.settimeout(1); b = b''\n\
    try:\n\
    \x20   while True: b += s.recv(1000) or 1 / 0\n\
    except ConnectionResetError: print('reset')\n\
    except TimeoutError: print('none' if not b else 'left')\n";

/// Until one was claimed: then the victim's connection has ended by a reset. A server that comes late has refused it, and the victim hears nothing.
pub fn connection_is_announced(site: &Site, ways: &Ways<'_>) {
    let page = |at: usize| (offset_of!(ChannelPage, head) + at).to_string();
    let places = [
        core::mem::size_of::<ChannelPage>().to_string(),
        page(offset_of!(Head, generation)),
        page(offset_of!(Head, client)),
        page(offset_of!(Head, server)),
        page(offset_of!(Head, ports)),
        page(offset_of!(Head, announced)),
        page(offset_of!(Head, mark)),
        offset_of!(LinkHeader, announced).to_string(),
    ];
    let port = ways.to.1.to_string();
    let of_stranger = ["-c", STRANGER, ways.to.0, &port, ways.seen.0, ways.seen.1];
    let of_stranger: Vec<&str> = of_stranger.into_iter().chain(places.iter().map(String::as_str)).collect();
    until("a connection that was announced by another one", || {
        let stranger = site.start(0, "stranger", &python_program(), &of_stranger);
        stranger.wait_for("announced");
        let mut command = site.hosts[ways.victim.0].command(python_program());
        command.args(["-c", VICTIM, ways.to.0, &port, ways.victim.1]).stdout(Stdio::piped());
        let said = spawn(&mut command).and_then(Child::wait_with_output).expect("it runs").stdout;
        stranger.kill();
        assert!(said == b"reset\n" || said == b"none\n", "{said:?}");
        said == b"reset\n"
    });
}
