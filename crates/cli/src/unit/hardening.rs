//! Directives of a unit that keep its program's connections on the kernel, or limit what shunt can do (systemd.exec(5)).
use std::path::Path;

use serde::Serialize;
use shunt_segment::area::LINK_SIZE;

use super::file::{Assignment, Unit};
use super::root::Root;
use crate::run::obstacle::Obstacle;

/// What a directive does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Effect {
    /// Something to know.
    Note,
    /// Shunt works, and something about it does not.
    Limited,
    /// Connections go through the kernel.
    Missing,
}

/// A directive, and what follows.
#[derive(Debug, Serialize)]
pub struct Finding {
    pub effect: Effect,
    /// As it stands in the unit, and where.
    pub directive: String,
    pub from: String,
    pub follows: String,
    /// What a drop-in would say against it.
    pub remedy: Option<String>,
}

/// Descriptors that a program under shunt keeps beside its own, roughly.
const FEWEST_DESCRIPTORS: u64 = 256;

/// All that are found. `library` is where the library lies for the unit, `root` where the unit's files do.
pub fn findings(unit: &Unit, root: &Root, library: &Path) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |effect, assignment: &Assignment, follows: String, remedy: Option<&str>| {
        found.push(Finding {
            effect,
            directive: format!("{}={}", assignment.key, assignment.value),
            from: assignment.place(),
            follows,
            remedy: remedy.map(str::to_owned),
        });
    };
    for (family, effect, follows) in [
        ("AF_UNIX", Effect::Missing, "the program may make no AF_UNIX sockets, by which programs under shunt meet (reason no-unix)"),
        ("AF_NETLINK", Effect::Limited, "the program cannot ask who owns a port, so connections that it opens go through the kernel (reason no-sock-diag); those that it accepts do not, unless they are to be taken (--inet)"),
    ] {
        if let Some(assignment) = forbids_family(unit, family) {
            say(effect, assignment, follows.to_owned(), Some(&format!("RestrictAddressFamilies={family}")));
        }
    }
    for assignment in unit.list("SystemCallFilter") {
        if let Some(refused) = refuses_calls(&assignment.value) {
            say(
                Effect::Missing,
                assignment,
                format!("{refused} is refused, which shared segments need"),
                Some("SystemCallFilter=@system-service memfd_create"),
            );
        }
    }
    for assignment in unit.list("UnsetEnvironment") {
        if assignment.value.split_whitespace().any(|word| word == "LD_PRELOAD" || word.starts_with("LD_PRELOAD=")) {
            say(Effect::Missing, assignment, "the variable that loads the library is taken away".to_owned(), None);
        }
    }
    for (key, follows) in [
        ("PrivateNetwork", "the service has a network namespace of its own: programs of this host are reached by no address"),
        (
            "PrivateUsers",
            "users of others are not visible in its user namespace: it refuses servers of them (reason peer-unknown)",
        ),
    ] {
        if let Some(assignment) = unit.last(key).filter(|assignment| !is_no(&assignment.value)) {
            say(Effect::Limited, assignment, follows.to_owned(), Some(&format!("{key}=no")));
        }
    }
    if let Some(assignment) = unit.last("NetworkNamespacePath") {
        let follows = "connections to programs in other network namespaces need a common directory (option near)";
        say(Effect::Limited, assignment, follows.to_owned(), None);
    }
    for key in ["RootDirectory", "RootImage"] {
        if let Some(assignment) = unit.last(key).filter(|assignment| assignment.value != "/") {
            let follows = format!("the library must lie there as {}", library.display());
            say(Effect::Missing, assignment, follows, Some(&format!("BindReadOnlyPaths={}", library.display())));
        }
    }
    if let Some(assignment) = hides(unit, library) {
        let remedy = format!("BindReadOnlyPaths={}", library.display());
        say(Effect::Missing, assignment, format!("the service does not see {}", library.display()), Some(&remedy));
    }
    for (key, least, effect, follows) in [
        (
            "LimitNOFILE",
            FEWEST_DESCRIPTORS,
            Effect::Limited,
            "when no descriptor is left, connections go through the kernel (reason no-descriptors)",
        ),
        ("LimitFSIZE", LINK_SIZE as u64, Effect::Missing, "no segment can be made, which is a sparse file (reason no-memory)"),
    ] {
        if let Some(assignment) = unit.last(key).filter(|assignment| size(&assignment.value).is_some_and(|size| size < least)) {
            say(effect, assignment, follows.to_owned(), Some(&format!("{key}={least}")));
        }
    }
    for key in ["IPAddressDeny", "IPAddressAllow", "SocketBindDeny", "IPAccounting", "IPIngressFilterPath", "IPEgressFilterPath"]
    {
        for assignment in unit.list(key).into_iter().filter(|assignment| !is_no(&assignment.value)) {
            let follows = "it is asked by packets and does not see bytes that go through shared memory: on one host it protects and counts nothing";
            say(Effect::Note, assignment, follows.to_owned(), None);
        }
    }
    for assignment in unit.list("ExecStart") {
        let one = Unit { name: String::new(), files: vec![], service: vec![assignment.clone()] };
        for program in one.programs() {
            // Where links inside of the root lead.
            let inside = root.find(&program).and_then(|file| std::fs::read_link(file.path()));
            if let Some(obstacle) = inside.ok().and_then(|inside| Obstacle::of(&inside, None)) {
                say(Effect::Missing, assignment, obstacle.to_string(), None);
            }
        }
    }
    found.sort_by_key(|finding| match finding.effect {
        Effect::Missing => 0,
        Effect::Limited => 1,
        Effect::Note => 2,
    });
    found
}

fn is_no(value: &str) -> bool {
    ["no", "false", "off", "0"].contains(&value.to_ascii_lowercase().as_str())
}

/// The line by which the unit forbids a family: lists that allow say what else is forbidden, those with ~ what is. The first that is not empty says
/// which kind the list is.
fn forbids_family<'u>(unit: &'u Unit, family: &str) -> Option<&'u Assignment> {
    let lines = unit.list("RestrictAddressFamilies");
    let first = lines.first()?;
    let allows = !first.value.starts_with('~');
    let mut named = false;
    let mut by = *first;
    for line in lines {
        let (inverted, words) = match line.value.strip_prefix('~') {
            Some(words) => (true, words),
            None => (false, line.value.as_str()),
        };
        if words.split_whitespace().any(|word| word == family) {
            named = inverted != allows;
            by = line;
        }
    }
    (named != allows).then_some(by)
}

/// A call that such a line refuses and shunt cannot do without, as far as the line itself tells.
fn refuses_calls(value: &str) -> Option<&'static str> {
    let words: Vec<&str> =
        value.trim_start_matches('~').split_whitespace().map(|word| word.split(':').next().unwrap_or(word)).collect();
    let named = |name: &str| words.contains(&name);
    match value.starts_with('~') {
        true => ["memfd_create", "ftruncate", "mmap", "sendmsg", "recvmsg", "connect", "bind"]
            .into_iter()
            .find(|call| named(call))
            .or_else(|| ["@network-io", "@file-system", "@basic-io", "@io-event"].into_iter().find(|group| named(group))),
        false => {
            // A list that allows large groups allows what these have.
            let wide = ["@system-service", "@default", "@file-system", "@known", "memfd_create"];
            (!words.iter().any(|word| wide.contains(word)) && words.iter().any(|word| word.starts_with('@')))
                .then_some("memfd_create")
        }
    }
}

/// The line that hides the library's directory from the service.
fn hides<'u>(unit: &'u Unit, library: &Path) -> Option<&'u Assignment> {
    let home = unit.last("ProtectHome").filter(|assignment| {
        let hidden = !is_no(&assignment.value) && assignment.value != "read-only";
        hidden && ["/home", "/root", "/run/user"].iter().any(|place| library.starts_with(place))
    });
    let paths = ["InaccessiblePaths", "TemporaryFileSystem"].into_iter().flat_map(|key| unit.list(key)).find(|assignment| {
        assignment.value.split_whitespace().any(|word| {
            let path = word.trim_start_matches(['-', '+']).split(':').next().unwrap_or(word);
            path.starts_with('/') && library.starts_with(path)
        })
    });
    let tmp = unit
        .last("PrivateTmp")
        .filter(|assignment| !is_no(&assignment.value) && ["/tmp", "/var/tmp"].iter().any(|place| library.starts_with(place)));
    home.or(paths).or(tmp)
}

/// A limit: `infinity`, `1024`, `64M`, `1024:4096` (the soft one counts).
fn size(value: &str) -> Option<u64> {
    let soft = value.split(':').next()?.trim();
    let digits = soft.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let unit = match &soft[digits.len()..] {
        "" => 1,
        "K" => 1 << 10,
        "M" => 1 << 20,
        "G" => 1u64 << 30,
        "T" => 1 << 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(lines: &str) -> Vec<Finding> {
        let root = tempfile::tempdir().unwrap();
        let place = root.path().join("lib/systemd/system");
        std::fs::create_dir_all(&place).unwrap();
        std::fs::write(place.join("x.service"), format!("[Service]\n{lines}\n")).unwrap();
        let root = Root::open(root.path()).unwrap();
        findings(&Unit::read(&root, "x", None).unwrap(), &root, Path::new("/usr/lib/shunt/libshunt.so"))
    }

    fn effects(lines: &str) -> Vec<Effect> {
        found(lines).iter().map(|finding| finding.effect).collect()
    }

    #[test]
    fn families_are_counted_as_systemd_counts_them() {
        use Effect::*;
        let both = "RestrictAddressFamilies=AF_INET AF_INET6";
        assert_eq!(effects(both), [Missing, Limited]);
        assert_eq!(found(both)[0].directive, both);
        assert_eq!(found(both)[0].remedy.as_deref(), Some("RestrictAddressFamilies=AF_UNIX"));
        assert_eq!(effects(&format!("{both}\nRestrictAddressFamilies=AF_UNIX AF_NETLINK")), []);
        assert_eq!(effects("RestrictAddressFamilies=~AF_UNIX"), [Missing]);
        assert_eq!(effects("RestrictAddressFamilies=~AF_UNIX AF_PACKET\nRestrictAddressFamilies=AF_UNIX"), []);
        assert_eq!(effects("RestrictAddressFamilies=AF_UNIX AF_NETLINK\nRestrictAddressFamilies=~AF_UNIX"), [Missing]);
        assert_eq!(effects(&format!("{both}\nRestrictAddressFamilies=")), []);
    }

    #[test]
    fn other_directives_are_named() {
        use Effect::*;
        assert_eq!(
            effects("SystemCallFilter=@system-service\nMemoryDenyWriteExecute=yes\nNoNewPrivileges=yes\nProtectSystem=strict"),
            []
        );
        assert_eq!(effects("SystemCallFilter=~memfd_create"), [Missing]);
        assert_eq!(effects("SystemCallFilter=@network-io"), [Missing]);
        assert_eq!(effects("PrivateUsers=yes\nPrivateNetwork=no\nLimitNOFILE=64"), [Limited, Limited]);
        assert_eq!(effects("LimitNOFILE=infinity\nLimitNOFILE=4096:8192"), []);
        assert_eq!(effects("LimitFSIZE=1M\nIPAddressDeny=any"), [Missing, Note]);
        assert_eq!(effects("RootDirectory=/srv/x"), [Missing]);
        assert_eq!(effects("InaccessiblePaths=-/usr/lib/shunt"), [Missing]);
        assert_eq!(effects("TemporaryFileSystem=/opt:ro\nProtectHome=yes\nPrivateTmp=yes"), []);
        assert_eq!(effects("UnsetEnvironment=A LD_PRELOAD"), [Missing]);
    }
}
