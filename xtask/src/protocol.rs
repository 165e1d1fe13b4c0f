//! docs/protocol.md: the table of versions is the one in the code, and every message between a job and
//! the service is explained.

use crate::repository::{Finding, Repository, pattern};

const DOCUMENT: &str = "docs/protocol.md";
const VERSIONS: &str = "crates/wire/src/version.rs";

pub(crate) fn check(repository: &Repository) -> Result<Vec<Finding>, String> {
    let document = repository.file(DOCUMENT)?;
    let mut findings = Vec::new();
    let feature = pattern(r#"\(\s*(\d+),\s*"([^"]+)""#);
    let table = repository.file(VERSIONS)?;
    let features: Vec<String> = feature
        .captures_iter(&table.text)
        .map(|found| format!("| {} | {} |", &found[1], &found[2]))
        .collect();
    if features.is_empty() {
        return Err(format!(
            "expected the table of versions in {VERSIONS}, found none"
        ));
    }
    for row in &features {
        if !document.text.contains(row) {
            let message = format!("the table of versions lacks the row `{row}`");
            findings.push(document.finding(1, message));
        }
    }
    let message = pattern(r"^        \d+ = (\w+),$");
    let start = pattern(r"^    (?:ToService|FromService) \{$");
    for source in repository.sources() {
        if !source.path.starts_with("crates/wire/src/") {
            continue;
        }
        let mut inside = false;
        for (line, text) in source.lines() {
            inside = (inside && text != "    }") || start.is_match(text);
            let Some(found) = message.captures(text).filter(|_| inside) else {
                continue;
            };
            if !pattern(&format!(r"\b{}\b", &found[1])).is_match(&document.text) {
                let message = format!("{DOCUMENT} does not explain `{}`", &found[1]);
                findings.push(source.finding(line, message));
            }
        }
    }
    Ok(findings)
}
