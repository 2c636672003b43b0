//! A network namespace for one trial: only loopback, its own ports and abstract names, and gone with the last process in it.

use std::fs;
use std::io;

/// Moves the calling thread, and the processes it starts from now on, into a new network namespace with loopback up.
///
/// The congestion control is reno where the kernel has it: bbr, where it is the default, paces loopback, so that scenarios which
/// move megabytes would take seconds.
///
/// # Errors
/// What the kernel answers; EPERM without the privilege (see [`become_able`]).
pub fn enter_new() -> io::Result<()> {
    // SAFETY: unshare takes no pointer; CLONE_NEWNET concerns the calling thread only.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } == -1 {
        return Err(io::Error::last_os_error());
    }
    loopback_up()?;
    // Not every kernel has reno available in a fresh namespace; then the default serves, only slower.
    let _ = fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno");
    Ok(())
}

fn loopback_up() -> io::Result<()> {
    // SAFETY: an ifreq of zeroes is valid, and the name fits in front of its terminating zero.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(b"lo") {
        *place = *byte as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: socket takes no pointer.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket == -1 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: SIOCSIFFLAGS reads an ifreq, which `request` is and which outlives the call.
    let result = unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS, &request) };
    let error = io::Error::last_os_error();
    // SAFETY: `socket` is ours and used no more.
    unsafe { libc::close(socket) };
    if result == -1 {
        return Err(error);
    }
    Ok(())
}

/// Starts this program again inside a user namespace (with `unshare`) if network namespaces need one; call it before any thread
/// exists.
///
/// # Errors
/// A sentence, where neither way is allowed.
pub fn become_able() -> Result<(), String> {
    use std::os::unix::process::CommandExt;
    if std::thread::spawn(enter_new).join().is_ok_and(|entered| entered.is_ok()) {
        return Ok(());
    }
    if std::env::var_os("SHUNT_DIFFERENTIAL_INSIDE").is_some() {
        return Err("network namespaces are not allowed here, not even inside a user namespace".into());
    }
    let own = std::env::current_exe().map_err(|error| format!("this program's path: {error}"))?;
    let error = std::process::Command::new("unshare")
        .args(["--user", "--map-root-user", "--net", "--"])
        .arg(own)
        .args(std::env::args_os().skip(1))
        .env("SHUNT_DIFFERENTIAL_INSIDE", "1")
        .exec();
    Err(format!("a network namespace needs root or `unshare` with user namespaces: {error}"))
}
