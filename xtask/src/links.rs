//! Links, file names and names of tests in documents and comments lead somewhere.

use std::collections::BTreeSet;

use crate::repository::{File, Finding, Repository, pattern};

pub(crate) fn check(repository: &Repository) -> Result<Vec<Finding>, String> {
    let mut findings = links(repository);
    findings.extend(file_names(repository));
    findings.extend(tests(repository));
    Ok(findings)
}

/// `[text](target)`: the target is a file of the repository, and its heading is there.
fn links(repository: &Repository) -> Vec<Finding> {
    let link = pattern(r"\]\(([^)\s]+)\)");
    let mut findings = Vec::new();
    for document in repository.documents() {
        let folder = document
            .path
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder);
        for (line, text) in document.lines() {
            for found in link.captures_iter(text) {
                let target = &found[1];
                if target.contains("://") {
                    continue;
                }
                let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
                let path = match path {
                    "" => document.path.clone(),
                    path => resolve(folder, path),
                };
                if !repository.root.join(&path).exists() {
                    findings.push(document.finding(line, format!("no file `{path}`")));
                } else if !anchor.is_empty() && !has_heading(repository, &path, anchor) {
                    let message = format!("`{path}` has no heading `#{anchor}`");
                    findings.push(document.finding(line, message));
                }
            }
        }
    }
    findings
}

fn resolve(folder: &str, path: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').filter(|part| !part.is_empty()).collect();
    for part in path.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

fn has_heading(repository: &Repository, path: &str, anchor: &str) -> bool {
    let Ok(document) = repository.file(path) else {
        return false;
    };
    let mut headings = document.lines().filter(|(_, line)| line.starts_with('#'));
    headings.any(|(_, line)| slug(line.trim_start_matches('#').trim()) == anchor)
}

/// A heading as a link names it.
fn slug(heading: &str) -> String {
    let kept = heading.chars().filter_map(|c| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
        _ => None,
    });
    kept.collect()
}

/// `` `engine/src/engine.rs` ``: the file is there, under the root, `crates/` or, for a bare name, in
/// the folder of the file that names it.
fn file_names(repository: &Repository) -> Vec<Finding> {
    let name = pattern(r"`((?:[\w.-]+/)+[\w.-]+\.(?:rs|py|md|toml|txt|svg|csv))`");
    let mut findings = Vec::new();
    let named = repository.documents().chain(repository.sources());
    for file in named.filter(|file| file.path != "CHANGELOG.md") {
        for (line, text) in file.lines() {
            if !is_prose(file, text) {
                continue;
            }
            for found in name.captures_iter(text) {
                if !leads_to_a_file(repository, file, &found[1]) {
                    findings.push(file.finding(line, format!("no file `{}`", &found[1])));
                }
            }
        }
    }
    findings
}

fn is_prose(file: &File, line: &str) -> bool {
    file.path.ends_with(".md") || line.trim_start().starts_with("//")
}

/// The path may begin anywhere below the root: `memory/ledger.rs` is enough.
fn leads_to_a_file(repository: &Repository, from: &File, path: &str) -> bool {
    // Paths of users' own files and of the system.
    if path.starts_with("etc/") || path.starts_with("jax_plugins/") || path.contains("NAME") {
        return true;
    }
    let tail = format!("/{path}");
    let mut files = repository.files();
    let folder = from.path.rsplit_once('/').map_or("", |(folder, _)| folder);
    files.any(|file| file.path == path || file.path.ends_with(&tail))
        || repository.root.join(folder).join(path).exists()
}

/// `` `test_…` ``: a test or a file of tests with that name.
fn tests(repository: &Repository) -> Vec<Finding> {
    let name = pattern(r"`(test_\w+)(?:\.py)?`");
    let definition = pattern(r"(?m)^\s*(?:def|fn) (test_\w+)");
    let mut known = BTreeSet::new();
    for file in repository.files() {
        if let Some(stem) = file.path.strip_suffix(".py") {
            known.extend(stem.rsplit('/').next().map(str::to_owned));
            let found = definition.captures_iter(&file.text);
            known.extend(found.map(|found| found[1].to_owned()));
        }
    }
    let mut findings = Vec::new();
    for document in repository.documents() {
        for (line, text) in document.lines() {
            for found in name.captures_iter(text) {
                if !known.contains(&found[1]) {
                    findings.push(document.finding(line, format!("no test `{}`", &found[1])));
                }
            }
        }
    }
    findings
}
