//! What stands between hosts: a switch that drops packets, or whose link is slow.

use std::io;

use shunt_agent::ebpf::assembler::{Assembler, Register, Test};
use shunt_agent::ebpf::kernel::{Attachment, Link, Program};
use shunt_testkit::hosts::{segment, Host, Joint, Segment};

/// Two hosts with a switch between them.
pub struct Switched {
    /// The hosts.
    pub hosts: [Host; 2],
    switch: Host,
}

/// Packets are dropped while this exists.
pub struct Lossy {
    _links: Vec<Link>,
}

impl Switched {
    /// Makes them.
    ///
    /// # Errors
    /// A sentence.
    pub fn new() -> Result<Switched, String> {
        let Segment { hosts, switch } = segment(2, Joint::default())?;
        let hosts = hosts.try_into().map_err(|_| "two hosts were asked for".to_string())?;
        Ok(Switched { hosts, switch })
    }

    /// The switch drops `per_mille` of all packets from now on. No host's own device passes by there, so all contenders meet the
    /// same.
    ///
    /// # Errors
    /// What the kernel answers.
    pub fn lose(&self, per_mille: u32) -> io::Result<Lossy> {
        let links = ["port1", "port2"].map(|port| drop_packets(&self.switch, port, per_mille));
        Ok(Lossy { _links: links.into_iter().collect::<io::Result<_>>()? })
    }

    /// The link to the second host carries so many megabits in a second, and its queue holds `queue` bytes.
    ///
    /// # Errors
    /// What `tc` says.
    pub fn shape(&self, megabits: u32, queue: u32) -> Result<(), String> {
        let mut command = self.switch.command("tc");
        let line = format!("qdisc replace dev port2 root tbf rate {megabits}mbit burst 32k limit {queue}");
        let output = command.args(line.split(' ')).output().map_err(|error| format!("tc: {error}"))?;
        output.status.success().then_some(()).ok_or_else(|| String::from_utf8_lossy(&output.stderr).trim().to_string())
    }
}

fn drop_packets(host: &Host, interface: &str, per_mille: u32) -> io::Result<Link> {
    const GET_PRANDOM_U32: i32 = 7;
    const XDP_DROP: i32 = 1;
    const XDP_PASS: i32 = 2;
    let mut code = Assembler::default();
    let pass = code.label();
    code.call(GET_PRANDOM_U32);
    // 32 random bits against a share of 2^32; at most a half, since what is compared with is a signed number.
    code.jump_if_value(Register::R0, Test::More, (u64::from(per_mille) * (1 << 32) / 1000) as i32, pass);
    code.set(Register::R0, XDP_DROP);
    code.exit();
    code.place(pass);
    code.set(Register::R0, XDP_PASS);
    code.exit();
    let program = Program::load("drop", &code.finish(), false)?;
    let name = std::ffi::CString::new(interface).map_err(io::Error::other)?;
    host.enter(|| {
        // SAFETY: a string that ends with a zero byte.
        match unsafe { libc::if_nametoindex(name.as_ptr()) } {
            0 => Err(io::Error::last_os_error()),
            index => program.attach(index, Attachment::Native),
        }
    })
}
