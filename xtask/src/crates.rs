//! The crate table of ARCHITECTURE.md: every member of the workspace has a row, and the row names
//! the crates of ours that it uses.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use serde_json::Value;

use crate::repository::{Finding, Repository, output, pattern};

const DOCUMENT: &str = "ARCHITECTURE.md";
const PREFIX: &str = "salus-";

pub(crate) fn check(repository: &Repository) -> Result<Vec<Finding>, String> {
    let used = dependencies(repository)?;
    let document = repository.file(DOCUMENT)?;
    let row = pattern(r"^\| `([a-z]+)` \| ([^|]*) \|");
    let word = pattern(r"[a-z]+");
    let mut findings = Vec::new();
    let mut seen = BTreeSet::new();
    for (line, text) in document.lines() {
        let Some(cells) = row.captures(text) else {
            continue;
        };
        let Some(uses) = used.get(&cells[1]) else {
            continue;
        };
        seen.insert(cells[1].to_owned());
        let listed: BTreeSet<String> = word
            .find_iter(&cells[2])
            .map(|found| found.as_str().to_owned())
            .filter(|name| used.contains_key(name))
            .collect();
        for name in uses.difference(&listed) {
            let message = format!("`{}` uses `{name}`, which its row does not say", &cells[1]);
            findings.push(document.finding(line, message));
        }
        for name in listed.difference(uses) {
            let message = format!("`{}` does not use `{name}`", &cells[1]);
            findings.push(document.finding(line, message));
        }
    }
    for name in used.keys().filter(|name| !seen.contains(*name)) {
        findings.push(document.finding(1, format!("the crate table has no row for `{name}`")));
    }
    Ok(findings)
}

/// Each of our crates, with those of ours that it uses outside of tests.
fn dependencies(repository: &Repository) -> Result<BTreeMap<String, BTreeSet<String>>, String> {
    let json = output(
        Command::new("cargo")
            .args([
                "metadata",
                "--no-deps",
                "--offline",
                "--format-version",
                "1",
            ])
            .current_dir(&repository.root),
    )?;
    let metadata: Value =
        serde_json::from_str(&json).map_err(|error| format!("cargo metadata: {error}"))?;
    let list = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
    let mut used = BTreeMap::new();
    for package in list(&metadata, "packages") {
        let Some(name) = package["name"].as_str().and_then(ours) else {
            continue;
        };
        let normal = list(&package, "dependencies");
        let normal = normal.iter().filter(|one| one["kind"].is_null());
        let names = normal.filter_map(|one| one["name"].as_str().and_then(ours));
        used.insert(name, names.collect());
    }
    Ok(used)
}

fn ours(name: &str) -> Option<String> {
    name.strip_prefix(PREFIX).map(str::to_owned)
}
