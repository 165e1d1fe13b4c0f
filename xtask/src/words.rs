//! Words that the glossary of ARCHITECTURE.md replaced, and phrases that are not plain English.

use crate::repository::{Finding, Repository, pattern};

/// A pattern, and what to write instead.
const REPLACED: [(&str, &str); 17] = [
    (r"\briders?\b", "deferred message"),
    (r"\bwishes\b", "settings"),
    (r"\bclaimants?\b", "holder of the reservation"),
    (r"\bpairing\b", "co-run, interference"),
    (r"\bageing\b", "aging"),
    (r"\bsen[dt] away\b", "page out, evict"),
    (
        r"\bbr(?:ing|ings|ought|inging) (?:it |them |arrays )?back\b",
        "page in",
    ),
    (r"\bfetch(?:es|ed)?\b", "read"),
    (r"\btr(?:y|ies|ied) (?:once more|again)\b", "retry"),
    (r"\bso many\b", "this many, or the number"),
    (r"\bso long as\b", "while"),
    (r"\bthose who\b", "name them: operators, jobs, users"),
    (r"\bwho rules?\b", "operator"),
    (r"\bcame to\b", "used, took"),
    (r"\bis due\b", "is expected"),
    (r"\bhis\b", "its, their"),
    (r"\bheeds?\b", "name what is done"),
];

pub(crate) fn check(repository: &Repository) -> Result<Vec<Finding>, String> {
    let replaced = REPLACED.map(|(text, instead)| (pattern(&format!("(?i){text}")), instead));
    let mut findings = Vec::new();
    let read = repository.documents().chain(repository.sources());
    // This file has to name them.
    let read = read.filter(|file| file.path != "xtask/src/words.rs");
    for file in read.filter(|file| file.path != "CHANGELOG.md") {
        for (line, text) in file.lines() {
            for (word, instead) in &replaced {
                if let Some(found) = word.find(text) {
                    let message = format!("`{}`: write {instead}", found.as_str());
                    findings.push(file.finding(line, message));
                }
            }
        }
    }
    Ok(findings)
}
