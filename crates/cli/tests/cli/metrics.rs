//! What `shunt metrics` prints is read by Prometheus's own checker, and the dashboard asks for nothing else.

use std::collections::BTreeSet;
use std::io::Write;
use std::process::{Command, Stdio};

use crate::common::{plain, quiet_output, SHUNT};
use serde_json::Value;

fn metrics() -> String {
    quiet_output(plain(SHUNT).arg("metrics"))
}

/// The names of series, as a query has them: of families that have no row now, too.
fn names() -> BTreeSet<String> {
    metrics().lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next().map(str::to_owned)).collect()
}

#[test]
fn promtool_finds_nothing() {
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is there (scripts/prepare test)");
    promtool.stdin.take().unwrap().write_all(metrics().as_bytes()).unwrap();
    let output = promtool.wait_with_output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && said.trim().is_empty(), "{}: {said}", output.status);
}

#[test]
fn the_dashboard_asks_for_series_that_there_are() {
    let dashboard: Value = serde_json::from_str(include_str!("../../../../packaging/grafana/shunt.json")).unwrap();
    let known = names();
    let mut asked = BTreeSet::new();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            queries.push(target["expr"].as_str().unwrap().to_owned());
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        queries.extend(variable["query"]["query"].as_str().map(str::to_owned));
    }
    for query in &queries {
        let words = query.split(|character: char| !character.is_ascii_alphanumeric() && character != '_');
        asked.extend(words.filter(|word| word.starts_with("shunt_")).map(str::to_owned));
    }
    assert!(asked.is_subset(&known), "{:?}", asked.difference(&known));
    assert!(known.is_subset(&asked), "the dashboard leaves out {:?}", known.difference(&asked));
}

#[test]
fn the_dashboards_queries_are_promql() {
    let dashboard = include_str!("../../../../packaging/grafana/shunt.json");
    let dashboard: Value = serde_json::from_str(dashboard).unwrap();
    let mut rules = String::from("groups:\n- name: shunt\n  rules:\n");
    let mut number = 0;
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().unwrap() {
            let query = target["expr"]
                .as_str()
                .unwrap()
                .replace("$__rate_interval", "1m")
                .replace("$instance", ".*")
                .replace("$program", ".*");
            number += 1;
            rules += &format!("  - record: shunt:query{number}\n    expr: {}\n", serde_json::to_string(&query).unwrap());
        }
    }
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(rules.as_bytes()).unwrap();
    let output = Command::new("promtool").args(["check", "rules"]).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(number > 8);
}
