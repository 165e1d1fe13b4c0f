//! The shape of sources: what a reader can take in at once.
//!
//! A file or function that is longer on purpose says so: `// tidy: long, because …`.

use std::collections::BTreeMap;

use crate::repository::{File, Finding, Repository, pattern};

/// Lines of a file, without its tests.
const FILE_LINES: usize = 450;
const FUNCTION_LINES: usize = 75;
/// Sources side by side in a folder, `mod.rs` or `lib.rs` included.
const FOLDER_FILES: usize = 15;
const EXCUSE: &str = "// tidy: long, because";

pub(crate) fn check(repository: &Repository) -> Result<Vec<Finding>, String> {
    let mut findings = Vec::new();
    let mut folders: BTreeMap<&str, Vec<&File>> = BTreeMap::new();
    for source in repository.sources() {
        if let Some((folder, _)) = source.path.rsplit_once('/') {
            folders.entry(folder).or_default().push(source);
        }
        if !source.text.starts_with("//!") {
            findings.push(source.finding(1, "the first line does not say what the file is for"));
        }
        if source.text.contains(EXCUSE) {
            continue;
        }
        let lines = without_tests(source);
        if lines > FILE_LINES {
            let message = format!("expected at most {FILE_LINES} lines, found {lines}");
            findings.push(source.finding(1, message));
        }
        findings.extend(long_functions(source, lines));
    }
    for (folder, files) in folders {
        if files.len() > FOLDER_FILES {
            let message = format!(
                "expected at most {FOLDER_FILES} files in {folder}, found {}",
                files.len()
            );
            findings.push(files[0].finding(1, message));
        }
    }
    Ok(findings)
}

fn without_tests(source: &File) -> usize {
    let tests = pattern(r"(?m)^#\[cfg\(test\)\]\nmod tests \{");
    match tests.find(&source.text) {
        Some(found) => source.text[..found.start()].lines().count(),
        None => source.text.lines().count(),
    }
}

/// rustfmt puts the closing brace of a function where its first line began.
fn long_functions(source: &File, lines: usize) -> Vec<Finding> {
    let head = pattern(r#"^( *)(?:pub(?:\([a-z: ]+\))? )?(?:const |unsafe |extern "C" )*fn (\w+)"#);
    let mut findings = Vec::new();
    let mut open: Option<(usize, String, String)> = None;
    for (line, text) in source.lines().take(lines) {
        if let Some((start, end, name)) = &open {
            if text == end {
                let length = line - start + 1;
                if length > FUNCTION_LINES {
                    let message = format!(
                        "expected at most {FUNCTION_LINES} lines in a function, `{name}` has {length}"
                    );
                    findings.push(source.finding(*start, message));
                }
                open = None;
            }
        } else if let Some(found) = head.captures(text)
            && !text.ends_with('}')
            && !text.ends_with(';')
        {
            open = Some((line, format!("{}}}", &found[1]), found[2].to_owned()));
        }
    }
    findings
}
