//! FTP: a process for every session, and a connection of its own for every file, in passive and in active mode.
//!
//! vsftpd is a hard case on purpose: its sessions give up their rights, enter an empty network namespace, hand data
//! connections over as descriptors in messages, and forbid themselves most system calls (seccomp).

use shunt_testkit::{in_every_mode, program, Host, Process, Random};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

const PORT: u16 = 2121;
const DEADLINE: Duration = Duration::from_secs(60);

/// Small ones, one that does not fit any buffer, and one in between.
const SIZES: [usize; 5] = [0, 1, 1000, 300_000, 6_000_000];

/// An FTP server for anonymous users, who may write into `incoming`. Root is needed by every way vsftpd works in.
fn start<'host>(host: &'host Host, options: &str) -> Process<'host> {
    let root = directory(host);
    fs::create_dir_all(root.join("incoming")).expect("the scratch directory can be written");
    // vsftpd refuses an anonymous root that its user may write.
    fs::set_permissions(&root, fs::Permissions::from_mode(0o555)).expect("its mode can be set");
    fs::set_permissions(root.join("incoming"), fs::Permissions::from_mode(0o777)).expect("its mode can be set");
    let empty = host.scratch().join("empty");
    fs::create_dir(&empty).expect("the scratch directory can be written");
    // SAFETY: takes no arguments and cannot fail.
    let privileged = unsafe { libc::geteuid() } == 0;
    let unprivileged = if privileged { "" } else { "run_as_launching_user=YES\nanon_world_readable_only=NO\n" };
    let configuration = host.scratch().write(
        "vsftpd.conf",
        format!(
            "listen=YES\nlisten_address=127.0.0.1\nlisten_port={PORT}\nbackground=NO\n\
             anonymous_enable=YES\nlocal_enable=NO\nno_anon_password=YES\nanon_root={}\n\
             write_enable=YES\nanon_upload_enable=YES\nanon_other_write_enable=YES\nanon_umask=022\n\
             pasv_enable=YES\nport_enable=YES\nconnect_from_port_20=NO\nsecure_chroot_dir={}\n\
             vsftpd_log_file={}\nxferlog_enable=YES\n{unprivileged}{options}\n",
            root.display(),
            empty.display(),
            host.scratch().join("vsftpd.log").display()
        ),
    );
    let server = host.server(program("vsftpd", "vsftpd")).arg(configuration).start();
    host.wait_for_listener(&server, PORT);
    server
}

fn directory(host: &Host) -> PathBuf {
    host.scratch().join("ftp")
}

fn stop(host: &Host, server: Process<'_>) {
    // The sessions end with their clients; the listener has no handler for the signal.
    host.wait_until("the sessions to end", DEADLINE, || host.processes().len() == 1);
    let output = server.terminate(libc::SIGTERM).expect_signal(libc::SIGTERM);
    assert!(!output.text().contains("OOPS") && !output.error_text().contains("OOPS"), "{}", output.describe());
    fs::set_permissions(directory(host), fs::Permissions::from_mode(0o755)).expect("its mode can be set");
}

/// Puts files into the directory that the server offers; returns what is in them.
fn offered(host: &Host) -> Vec<Vec<u8>> {
    let mut random = Random::for_test();
    fs::create_dir(directory(host)).expect("the scratch directory can be written");
    let files: Vec<Vec<u8>> = SIZES.iter().map(|size| random.bytes(*size)).collect();
    for (index, file) in files.iter().enumerate() {
        host.scratch().write(&format!("ftp/offered-{index}"), file);
        host.scratch().write(&format!("mine-{index}"), file);
    }
    files
}

fn expect_files(host: &Host, prefix: &str, files: &[Vec<u8>]) {
    for (index, file) in files.iter().enumerate() {
        let path = host.scratch().join(format!("{prefix}{index}"));
        let moved = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(moved == *file, "{} has {} bytes, not the {} sent", path.display(), moved.len(), file.len());
    }
}

fn transfer_with_lftp(host: &Host, options: &str) {
    let files = offered(host);
    let server = start(host, options);
    for passive in ["on", "off"] {
        let script: String = (0..files.len())
            .map(|index| {
                format!("get offered-{index} -o {passive}-got-{index}; put -O incoming mine-{index} -o {passive}-put-{index};\n")
            })
            .collect();
        let script = format!(
            "set net:max-retries 1; set net:timeout 20; set cmd:fail-exit yes; set ftp:passive-mode {passive};\n\
             open -p {PORT} 127.0.0.1;\n{script}cls -1 incoming;\nbye;\n"
        );
        let script = host.scratch().write("script", script);
        host.client(program("lftp", "lftp"))
            .arg("--norc")
            .arg("-f")
            .arg(script)
            .env("HOME", host.scratch().path())
            .run(DEADLINE)
            .expect_text(&format!("{passive}-put-{}", files.len() - 1));
        expect_files(host, &format!("{passive}-got-"), &files);
        expect_files(host, &format!("ftp/incoming/{passive}-put-"), &files);
    }
    // Four sessions at once, each with several connections.
    let mirror = || {
        host.client(program("lftp", "lftp"))
            .args(["--norc", "-e", "set net:max-retries 1; set net:timeout 20; set cmd:fail-exit yes; mirror --parallel=3 --include offered . mirrored; bye"])
            .args(["-p", "2121", "127.0.0.1"])
            .env("HOME", host.scratch().path())
    };
    let clients: Vec<_> = (0..4)
        .map(|number| {
            let own = host.scratch().join(format!("session-{number}"));
            fs::create_dir(&own).expect("the scratch directory can be written");
            mirror().directory(own).start()
        })
        .collect();
    for (number, client) in clients.into_iter().enumerate() {
        client.wait(DEADLINE).expect_success();
        expect_files(host, &format!("session-{number}/mirrored/offered-"), &files);
    }
    host.expect_path(0);
    stop(host, server);
}

fn lftp_and_vsftpd_transfer_files(host: &Host) {
    transfer_with_lftp(host, "seccomp_sandbox=NO\nisolate=NO\nisolate_network=NO");
}
in_every_mode!(lftp_and_vsftpd_transfer_files);

fn lftp_and_vsftpd_transfer_files_from_a_sandbox(host: &Host) {
    transfer_with_lftp(host, "");
}
in_every_mode!(lftp_and_vsftpd_transfer_files_from_a_sandbox);

fn tnftp_and_vsftpd_transfer_files(host: &Host) {
    let files = offered(host);
    let server = start(host, "");
    for (mode, passive) in [("-p", "passive"), ("-A", "active")] {
        let commands: String = (0..files.len())
            .map(|index| format!("get offered-{index} {passive}-got-{index}\nput mine-{index} incoming/{passive}-put-{index}\n"))
            .collect();
        let commands = host.scratch().write("commands", format!("binary\n{commands}quit\n"));
        host.client(program("tnftp", "tnftp"))
            .args([mode, "-a", "-V", "127.0.0.1", "2121"])
            .input_file(commands)
            .env("HOME", host.scratch().path())
            .run(DEADLINE);
        expect_files(host, &format!("{passive}-got-"), &files);
        expect_files(host, &format!("ftp/incoming/{passive}-put-"), &files);
    }
    host.expect_path(0);
    stop(host, server);
}
in_every_mode!(tnftp_and_vsftpd_transfer_files);
