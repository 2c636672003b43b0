//! Strangers that stand in hostd's place or in an end's, and ones that keep it busy.

use super::*;

/// What a stranger is asked and given at hostd's name, as user 4001.
const SQUATTER: &str = "import os,socket,sys\n\
    os.setgid(4001); os.setuid(4001)\n\
    l = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); l.bind(sys.argv[1] + '/hostd'); os.chmod(sys.argv[1] + '/hostd', 0o666); l.listen(100)\n\
    print('ready', flush=True)\n\
    while True:\n\
    \x20   c, _ = l.accept(); c.settimeout(1); print('asked', flush=True)\n\
    \x20   try:\n\
    \x20       c.send(b'shunt-h1H' + bytes(13))\n\
    \x20       m, fds, _, _ = socket.recv_fds(c, 100, 4)\n\
    \x20       if m or fds: print('given', m, fds, flush=True)\n\
    \x20   except OSError: pass\n";

/// One of the program's own number is another container's user as well: only root is given a socket.
#[test]
fn a_stranger_of_the_program_s_own_number() {
    let Some(scene) = Scene::new("same-user", Translated::Both) else { return };
    let output = scene.site.scratch.join("squatter");
    let mut command = scene.site.hosts[1].command(python_program());
    command.args(["-c", SQUATTER, &text(&scene.directory())]).stdout(std::fs::File::create(&output).expect("a file"));
    let squatter = Killed(spawn(&mut command).expect("it runs"));
    let said = || std::fs::read_to_string(&output).unwrap_or_default();
    until("the stranger", || said().contains("ready"));
    let server = scene.serve();
    let client = format!("import os; os.setgid(4001); os.setuid(4001)\n{CLIENT}");
    until("it to be asked", || {
        scene.site.run(0, &python_program(), &["-c", &client, SERVICE, PUBLISHED, "3"]);
        said().contains("asked")
    });
    assert!(!said().contains("given"), "{}", said());
    drop(squatter);
    stop(server, libc::SIGKILL);
    scene.site.finish();
}
