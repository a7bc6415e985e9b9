//! The trust model in the crate graph: `ARCHITECTURE.md`'s table is an allow-list, compared with `cargo metadata`.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

type Names = BTreeSet<String>;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// The table's rows: crate name to the crates it may depend on.
fn allow_list() -> BTreeMap<String, Names> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        assert_eq!(cells.len(), 3, "row `{line}` has not three cells");
        let name = cells[0].trim_matches('`').to_owned();
        let allowed = match cells[2] {
            "–" => Names::new(),
            list => list.split(", ").map(|short| format!("cacheon-{short}")).collect(),
        };
        assert!(rows.insert(name.clone(), allowed).is_none(), "{name} stands in the table twice");
    }
    rows
}

fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Each workspace crate's direct dependencies on other workspace crates: (normal and build, dev).
fn edges() -> BTreeMap<String, (Names, Names)> {
    let metadata = metadata();
    let packages = metadata["packages"].as_array().unwrap();
    let members: Names =
        packages.iter().map(|package| package["name"].as_str().unwrap().to_owned()).collect();
    let mut edges = BTreeMap::new();
    for package in packages {
        let (mut normal, mut dev) = (Names::new(), Names::new());
        for dependency in package["dependencies"].as_array().unwrap() {
            let name = dependency["name"].as_str().unwrap();
            if members.contains(name) {
                let set = if dependency["kind"] == "dev" { &mut dev } else { &mut normal };
                set.insert(name.to_owned());
            }
        }
        edges.insert(package["name"].as_str().unwrap().to_owned(), (normal, dev));
    }
    edges
}

fn closure(of: &str, edges: &BTreeMap<String, (Names, Names)>) -> Names {
    let mut seen = Names::new();
    let mut open = vec![of.to_owned()];
    while let Some(next) = open.pop() {
        for name in &edges[&next].0 {
            if seen.insert(name.clone()) {
                open.push(name.clone());
            }
        }
    }
    seen
}

#[test]
fn every_edge_is_in_the_allow_list_and_every_crate_has_a_row() {
    let (allowed, edges) = (allow_list(), edges());
    let rows: Names = allowed.keys().cloned().collect();
    let members: Names = edges.keys().cloned().collect();
    assert_eq!(rows, members, "the table's rows and the workspace's crates differ");
    for (name, (normal, _)) in &edges {
        let foreign: Vec<_> = normal.difference(&allowed[name]).collect();
        assert!(foreign.is_empty(), "{name} depends on {foreign:?}, which ARCHITECTURE.md does not allow");
    }
}

#[test]
fn the_worker_binary_holds_nothing_that_decides() {
    let expected: Names =
        ["identity", "records", "protocol", "model"].map(|name| format!("cacheon-{name}")).into();
    let found = closure("cacheon-worker", &edges());
    assert!(found.is_subset(&expected), "cacheon-worker reaches {found:?}");
    assert!(found.contains("cacheon-protocol"), "cacheon-worker no longer speaks the protocol");
}

#[test]
fn nothing_but_the_worker_itself_links_the_worker() {
    for (name, (normal, dev)) in edges() {
        assert!(!normal.contains("cacheon-worker"), "{name} links the worker into a controller");
        assert!(
            !(dev.contains("cacheon-wallet") && dev.contains("cacheon-worker")),
            "{name} pulls the wallet and the worker together"
        );
    }
}

#[test]
fn the_verifier_needs_neither_ledger_nor_arena() {
    let found = closure("cacheon-evidence", &edges());
    for forbidden in ["cacheon-ledger", "cacheon-arena", "cacheon-sandbox", "cacheon-protocol"] {
        assert!(!found.contains(forbidden), "cacheon-evidence reaches {forbidden}");
    }
}
