//! PostgreSQL on the second host.

use super::{text, until, Running, Site};
use shunt_testkit::program;
use std::fs;
use std::path::{Path, PathBuf};

/// The server refuses to be root.
const USER: [&str; 3] = ["--reuid=postgres", "--regid=postgres", "--clear-groups"];

/// Whether the balances are those that the transactions of pgbench keep, the first ones of all branches and tellers.
pub const SUMS: &str =
    "SELECT (SELECT sum(abalance) FROM pgbench_accounts) IS NOT DISTINCT FROM (SELECT sum(delta) FROM pgbench_history), \
     (SELECT sum(bbalance) FROM pgbench_branches) = (SELECT sum(tbalance) FROM pgbench_tellers)";

/// The programs of PostgreSQL, which Debian keeps out of PATH.
fn find(name: &str) -> PathBuf {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut programs: Vec<PathBuf> = versions.map(|entry| entry.path().join("bin").join(name)).collect();
    programs.retain(|path| path.is_file());
    programs.sort();
    programs.pop().unwrap_or_else(|| program(name, "postgresql"))
}

/// A database, and where it is served.
pub struct Postgres {
    data: PathBuf,
    address: String,
}

impl Postgres {
    /// An empty one.
    pub fn new(site: &Site) -> Postgres {
        let parent = site.scratch.join("postgres");
        fs::create_dir(&parent).expect("a directory");
        site.run(1, &program("chown", "coreutils"), &["postgres", &text(&parent)]);
        let (initdb, data) = (text(&find("initdb")), parent.join("data"));
        let name = text(&data);
        let initialize = [&initdb, "--no-sync", "--auth=trust", "--no-locale", "--username=postgres", "-D", &name];
        site.run(1, &program("setpriv", "util-linux"), &[&USER[..], &initialize].concat());
        fs::write(data.join("pg_hba.conf"), "host all all 10.77.0.0/24 trust\n").expect("a file");
        Postgres { data, address: site.address() }
    }

    /// Its server, when it serves.
    pub fn start(&self, site: &Site) -> Running {
        let (binary, data, listen) = (text(&find("postgres")), text(&self.data), format!("listen_addresses={}", self.address));
        let serve =
            [&binary, "-D", &data, "-c", &listen, "-c", "fsync=off", "-c", "unix_socket_directories=", "-c", "autovacuum=off"];
        let server = site.start(1, "postgres", &program("setpriv", "util-linux"), &[&USER[..], &serve].concat());
        site.wait_for_listener(5432);
        self.wait_until_ready(site);
        server
    }

    /// It listens before it has recovered; until then it answers with an error.
    pub fn wait_until_ready(&self, site: &Site) {
        until("the server to serve", || {
            let mut command = site.hosts[0].command(find("pg_isready"));
            let quiet = command.args(self.place()).stdout(std::process::Stdio::null());
            shunt_testkit::spawn(quiet).and_then(|mut child| child.wait()).expect("it runs").success()
        });
    }

    fn place(&self) -> [&str; 6] {
        ["-h", &self.address, "-p", "5432", "-U", "postgres"]
    }

    /// What a statement answers.
    pub fn ask(&self, site: &Site, statement: &str) -> String {
        let arguments = [&self.place()[..], &["--no-psqlrc", "-q", "-t", "-A", "-d", "postgres", "-c", statement]].concat();
        String::from_utf8(site.run(0, Path::new(&find("psql")), &arguments)).expect("text")
    }

    /// What pgbench says.
    pub fn bench(&self, site: &Site, arguments: &[&str]) -> Vec<u8> {
        site.run(0, &find("pgbench"), &[arguments, &self.place()[..], &["postgres"]].concat())
    }

    /// pgbench in the background.
    pub fn start_bench(&self, site: &Site, name: &str, arguments: &[&str]) -> Running {
        site.start(0, name, &find("pgbench"), &[arguments, &self.place()[..], &["postgres"]].concat())
    }
}
