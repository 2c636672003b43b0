//! A network namespace that lives as long as a test.
//!
//! A holder process makes the namespace, brings its loopback interface up, and sleeps; programs join through
//! `/proc/<holder>/ns`. Ports, abstract names and segment counters are private to the test, so tests run side by
//! side and nothing reaches the machine's own network. As root the holder makes a network namespace alone;
//! otherwise it makes a user namespace first, in which users map to themselves.

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// Why no namespace could be made: tests that need one are skipped with this sentence.
#[derive(Debug)]
pub struct NamespaceUnavailable(pub io::Error);

/// A local address that is not in 127.0.0.0/8 (TEST-NET-1, RFC 5737). Programs that resolve names with AI_ADDRCONFIG,
/// such as netperf, refuse even numeric addresses on a machine that has only loopback ones.
pub const SECOND_ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// A private network namespace with nothing but a loopback interface, which has [`SECOND_ADDRESS`] too.
pub struct NetworkNamespace {
    holder: Child,
    identity: PathBuf,
    network: File,
    user: Option<File>,
}

/// What a child process does between fork and exec to join; holds only descriptors, so it may cross the fork.
#[derive(Clone, Copy)]
pub(crate) struct Entry {
    user: Option<RawFd>,
    network: RawFd,
}

impl NetworkNamespace {
    /// Makes the namespace. When this returns, its loopback interface is up.
    pub fn new() -> Result<NetworkNamespace, NamespaceUnavailable> {
        // SAFETY: these two calls take no arguments and cannot fail.
        let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
        let privileged = user == 0;
        let user_map = format!("{user} {user} 1");
        let group_map = format!("{group} {group} 1");
        let mut command = Command::new("sleep");
        command.arg("infinity").env_remove("LD_PRELOAD");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // SAFETY: between fork and exec the closure makes system calls on memory prepared before; no allocation, no lock.
        unsafe {
            command.pre_exec(move || {
                die_with_parent()?;
                if !privileged {
                    check(libc::unshare(libc::CLONE_NEWUSER))?;
                    write_file(c"/proc/self/setgroups", b"deny")?;
                    write_file(c"/proc/self/uid_map", user_map.as_bytes())?;
                    write_file(c"/proc/self/gid_map", group_map.as_bytes())?;
                }
                check(libc::unshare(libc::CLONE_NEWNET))?;
                // A default of bbr paces loopback; where reno cannot be had, the test is merely slower.
                let _ = write_file(c"/proc/sys/net/ipv4/tcp_congestion_control", b"reno");
                bring_loopback_up()
            });
        }
        // `spawn` returns after a successful exec, that is, after the closure: the namespace is ready.
        let mut holder = command.spawn().map_err(NamespaceUnavailable)?;
        let directory = PathBuf::from(format!("/proc/{}/ns", holder.id()));
        let open = |name: &str| File::open(directory.join(name));
        let opened = (|| {
            let user = if privileged { None } else { Some(open("user")?) };
            Ok((open("net")?, user, fs::read_link(directory.join("net"))?))
        })();
        match opened {
            Ok((network, user, identity)) => Ok(NetworkNamespace { holder, identity, network, user }),
            Err(error) => {
                let _ = holder.kill();
                let _ = holder.wait();
                Err(NamespaceUnavailable(error))
            }
        }
    }

    /// The process that keeps the namespace; `/proc/<holder>/net` shows the namespace's tables.
    pub fn holder(&self) -> u32 {
        self.holder.id()
    }

    /// What `/proc/<pid>/ns/net` links to for every process inside.
    pub fn identity(&self) -> &PathBuf {
        &self.identity
    }

    /// Does `work` inside, in a thread of its own.
    ///
    /// # Errors
    /// What the kernel answers; always inside a user namespace, which a thread alone may not enter.
    pub(crate) fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> io::Result<T> {
        let entry = self.entry();
        let entered = std::thread::scope(|scope| scope.spawn(move || entry.join().map(|()| work())).join());
        entered.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    pub(crate) fn entry(&self) -> Entry {
        Entry { user: self.user.as_ref().map(|file| file.as_raw_fd()), network: self.network.as_raw_fd() }
    }
}

impl Drop for NetworkNamespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

impl Entry {
    /// Joins the namespace. Only for the single-threaded child between fork and exec, and for a thread of [`NetworkNamespace::enter`].
    pub(crate) fn join(self) -> io::Result<()> {
        // SAFETY: setns reads nothing but its two integers.
        unsafe {
            if let Some(user) = self.user {
                check(libc::setns(user, libc::CLONE_NEWUSER))?;
            }
            check(libc::setns(self.network, libc::CLONE_NEWNET))
        }
    }
}

/// Asks the kernel to kill this process when the thread that forked it ends, so an aborted test orphans nothing.
pub(crate) fn die_with_parent() -> io::Result<()> {
    // SAFETY: PR_SET_PDEATHSIG takes one integer.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) })
}

/// The error of a system call that returned -1.
pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn write_file(path: &std::ffi::CStr, bytes: &[u8]) -> io::Result<()> {
    // SAFETY: the path ends in a zero byte and the buffer is as long as said; the descriptor is closed below.
    unsafe {
        let descriptor = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
        check(descriptor)?;
        let written = libc::write(descriptor, bytes.as_ptr().cast(), bytes.len());
        let result = if written == -1 { Err(io::Error::last_os_error()) } else { Ok(()) };
        libc::close(descriptor);
        result
    }
}

/// Brings the interface up, and gives it [`SECOND_ADDRESS`] under the label `lo:1`.
fn bring_loopback_up() -> io::Result<()> {
    // SAFETY: `ifreq` is plain data for which zero is valid; the ioctls read the name and access the flags or the
    // address, and all lie in a request that outlives them. An address of IPv4 fits where a `sockaddr` is kept.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        check(socket)?;
        let mut up = interface_request(b"lo");
        let mut result = check(libc::ioctl(socket, libc::SIOCGIFFLAGS, &mut up)).and_then(|()| {
            up.ifr_ifru.ifru_flags |= (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
            check(libc::ioctl(socket, libc::SIOCSIFFLAGS, &up))
        });
        let mut address = interface_request(b"lo:1");
        let value: *mut libc::sockaddr_in = (&raw mut address.ifr_ifru.ifru_addr).cast();
        (*value).sin_family = libc::AF_INET as libc::sa_family_t;
        (*value).sin_addr.s_addr = u32::from(SECOND_ADDRESS).to_be();
        result = result.and_then(|()| check(libc::ioctl(socket, libc::SIOCSIFADDR, &address)));
        libc::close(socket);
        result
    }
}

fn interface_request(name: &[u8]) -> libc::ifreq {
    // SAFETY: `ifreq` is plain data for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(name) {
        *place = *byte as libc::c_char;
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_that_join_see_only_its_loopback() {
        let Ok(namespace) = NetworkNamespace::new() else { return };
        let entry = namespace.entry();
        let mut command = Command::new("cat");
        command.arg("/proc/self/net/dev");
        // SAFETY: `join` makes two system calls.
        unsafe { command.pre_exec(move || entry.join()) };
        let table = String::from_utf8(command.output().expect("cat runs").stdout).expect("the table is text");
        let interfaces: Vec<&str> = table.lines().filter_map(|line| line.split_once(':')).map(|row| row.0.trim()).collect();
        assert_eq!(interfaces, ["lo"]);
    }
}
