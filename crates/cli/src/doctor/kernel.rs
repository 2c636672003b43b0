//! What the kernel offers to this user.
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::fs::{MemfdFlags, SealFlags};
use rustix::thread::MembarrierQuery;
use shunt_segment::area::LINK_SIZE;

use super::Check;
use crate::inspect::{diagnosis, processes};

const TO_THE_KERNEL: &str = "every connection goes through the kernel";

/// The oldest kernel that shunt is tested on.
const TESTED: (u32, u32) = (5, 10);

pub fn version() -> Check {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|character: char| !character.is_ascii_digit()).map(|part| part.parse::<u32>());
    let found = format!("Linux {release}");
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= TESTED => Check::ok("kernel", found, "new enough"),
        _ => Check::limited("kernel", found, format_args!("older than {}.{}, on which nothing was tested", TESTED.0, TESTED.1)),
    }
}

pub fn processors() -> Check {
    match std::thread::available_parallelism().map(usize::from) {
        Ok(1) => Check::limited("processors", "1 for this process", "nothing can be gained by spinning, so every wait sleeps"),
        Ok(count) => Check::ok("processors", format_args!("{count} for this process"), "waiting threads may spin"),
        Err(error) => Check::limited("processors", error, "waiting threads may spin although nothing is gained by it"),
    }
}

/// A link is a sealed memory file: sealed, so that no peer can shrink it under a reader.
pub fn memory_files() -> Check {
    let name = "memory files";
    // A limit of file sizes must become an error here, not the end of this command by SIGXFSZ.
    // SAFETY: ignoring a signal runs no code of ours in a handler.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    let made = rustix::fs::memfd_create("shunt-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).and_then(|file| {
        rustix::fs::ftruncate(&file, LINK_SIZE as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
    });
    match made {
        Ok(()) => Check::ok(name, "can be made, sized and sealed", "two processes can share rings"),
        Err(error) => Check::missing(name, format_args!("cannot be made, sized and sealed ({error})"), TO_THE_KERNEL),
    }
}

/// Listeners answer clients at abstract AF_UNIX names, and the connected socket carries the doorbell.
pub fn abstract_names() -> Check {
    let name = "abstract names";
    let namespace = processes::network_namespace(std::process::id()).map_or("?".to_owned(), |number| number.to_string());
    let exchange = || -> std::io::Result<()> {
        let address = SocketAddr::from_abstract_name(format!("shunt-doctor-{}", std::process::id()))?;
        let listener = UnixListener::bind_addr(&address)?;
        let mut client = UnixStream::connect_addr(&address)?;
        let (mut server, _) = listener.accept()?;
        client.write_all(b"?")?;
        server.read_exact(&mut [0])
    };
    match exchange() {
        Ok(()) => Check::ok(
            name,
            format_args!("AF_UNIX connects by abstract name in network namespace {namespace}"),
            "programs in the same network namespace find each other",
        ),
        Err(error) => Check::missing(name, format_args!("AF_UNIX does not connect by abstract name ({error})"), TO_THE_KERNEL),
    }
}

/// A client asks the kernel who owns the port, so that no other process can answer for it.
pub fn port_owners() -> Check {
    let name = "port owners";
    let answer = std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| {
        let port = listener.local_addr()?.port();
        let own = std::fs::metadata(format!("/proc/self/fd/{}", listener.as_raw_fd())).ok().map(|metadata| metadata.ino());
        Ok((diagnosis::listener_inode(port)?.map(u64::from), own))
    });
    let failed = |what: &dyn std::fmt::Display| {
        Check::missing(name, format_args!("sock_diag does not tell who listens ({what})"), TO_THE_KERNEL)
    };
    match answer {
        Ok((Some(told), own)) if own.is_none_or(|own| own == told) => {
            Check::ok(name, "sock_diag tells who listens at a port", "nobody can answer for a port that is not theirs")
        }
        Ok((Some(_), _)) => failed(&"it named another socket"),
        Ok((None, _)) => failed(&"it knows no listener at a port that has one"),
        Err(error) => failed(&error),
    }
}

pub fn proc_file_system() -> Check {
    let name = "/proc";
    match (processes::descriptors(std::process::id()), std::fs::read_link("/proc/self/exe")) {
        (Ok(descriptors), Ok(_)) if !descriptors.is_empty() => {
            Check::ok(name, "mounted, and shows this user's processes", "shunt ss and shunt why can look at them")
        }
        _ => Check::limited(name, "not mounted, or hides this user's processes", "shunt ss and shunt why cannot see them"),
    }
}

/// With it, a sender needs no fence to learn whether the receiver sleeps.
pub fn memory_barrier() -> Check {
    let name = "membarrier";
    let wanted = MembarrierQuery::GLOBAL_EXPEDITED | MembarrierQuery::REGISTER_GLOBAL_EXPEDITED;
    if rustix::thread::membarrier_query().contains(wanted) {
        Check::ok(name, "global expedited barriers work", "sends need no memory fence")
    } else {
        Check::limited(name, "no global expedited barriers", "each send pays for a memory fence, some ten nanoseconds")
    }
}

pub fn system_call_filter() -> Check {
    let name = "seccomp";
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    match status.lines().find_map(|line| line.strip_prefix("Seccomp:")).map(str::trim) {
        Some("0") => Check::ok(name, "no system call filter", "nothing is forbidden"),
        Some(mode) => Check::ok(
            name,
            format_args!("a system call filter is in force (mode {mode})"),
            "what the other checks did is allowed; a program may have a stricter filter of its own",
        ),
        None => Check::limited(name, "cannot tell", "a system call filter may forbid what shunt needs"),
    }
}

/// Endpoints to other hosts past the kernel's stack: what `shunt agent` would need, as this user; and who serves here.
pub fn express_data_path() -> Check {
    let name = "AF_XDP";
    let agents = shunt_agent::report::interfaces();
    if !agents.is_empty() {
        let interfaces = agents.join(", ");
        return Check::ok(
            name,
            format_args!("an agent serves {interfaces}"),
            "endpoints reach other hosts past the kernel's stack",
        );
    }
    // SAFETY: integers; a descriptor that was made is closed.
    let opened = unsafe {
        match libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) {
            -1 => Err(std::io::Error::last_os_error()),
            socket => {
                libc::close(socket);
                Ok(())
            }
        }
    };
    match opened {
        Ok(()) => Check::ok(
            name,
            "sockets can be opened, and no agent runs in this network namespace",
            "`shunt agent --interface NAME` would serve endpoints; those of the device `udp` work without it",
        ),
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => Check::ok(
            name,
            "not for this user, and no agent runs in this network namespace",
            "root can run `shunt agent --interface NAME`; endpoints of the device `udp` work without it",
        ),
        Err(error) => {
            Check::ok(name, format_args!("not in this kernel ({error})"), "endpoints reach other hosts by the device `udp` alone")
        }
    }
}
