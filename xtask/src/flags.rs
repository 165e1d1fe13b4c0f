//! Flags of `salus` that documents name are flags that it has; variables that documents name are
//! variables that are read, and those that are read are documented.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use crate::repository::{Finding, Repository, output, pattern};

const CONFIGURATION: &str = "docs/configuration.md";

pub(crate) fn check(repository: &Repository) -> Result<Vec<Finding>, String> {
    let mut findings = flags(repository)?;
    findings.extend(variables(repository)?);
    Ok(findings)
}

fn flags(repository: &Repository) -> Result<Vec<Finding>, String> {
    let mut helps = Helps::new(repository);
    let command = pattern(r"\bsalus ([a-z][^`\n]*)");
    let mut findings = Vec::new();
    for document in repository.documents() {
        if document.path == "CHANGELOG.md" {
            continue;
        }
        let mut fenced = false;
        for (line, text) in document.lines() {
            fenced ^= text.starts_with("```");
            for found in command.captures_iter(text) {
                let in_code =
                    fenced || text[..found.get(0).map_or(0, |m| m.start())].ends_with('`');
                if !in_code {
                    continue;
                }
                for flag in helps.unknown_flags(&found[1])? {
                    let message = format!("`salus {}` has no `{flag}`", &found[1]);
                    findings.push(document.finding(line, message));
                }
            }
        }
    }
    Ok(findings)
}

/// What `salus … --help` prints, by subcommand.
struct Helps<'a> {
    repository: &'a Repository,
    texts: BTreeMap<String, Option<String>>,
}

impl<'a> Helps<'a> {
    fn new(repository: &'a Repository) -> Self {
        Self {
            repository,
            texts: BTreeMap::new(),
        }
    }

    /// Flags of a command line, such as `run --weight 3 -- python train.py`, that its subcommand does
    /// not have.
    fn unknown_flags(&mut self, line: &str) -> Result<Vec<String>, String> {
        let line = line.split(" #").next().unwrap_or(line);
        let words = line.split_whitespace().take_while(|word| *word != "--");
        let words: Vec<&str> = words
            .map(|word| word.trim_matches(['[', ']', ',']))
            .collect();
        let mut path = String::new();
        let mut help = self.help("")?.unwrap_or_default();
        // A job's name may stand between two subcommands: `salus job JOB kill`.
        for word in words.iter().take_while(|word| !word.starts_with('-')) {
            path = format!("{path} {word}");
            if let Some(text) = self.help(path.trim())? {
                help = text;
            }
        }
        let flags = words.iter().filter(|word| word.starts_with("--"));
        let flags = flags.map(|flag| flag.split('=').next().unwrap_or(flag));
        let known = |flag: &&str| pattern(&format!(r"{flag}\b")).is_match(&help);
        Ok(flags
            .filter(|flag| !known(flag))
            .map(str::to_owned)
            .collect())
    }

    fn help(&mut self, path: &str) -> Result<Option<String>, String> {
        if let Some(known) = self.texts.get(path) {
            return Ok(known.clone());
        }
        let mut cargo = Command::new("cargo");
        cargo.args(["run", "-q", "--locked", "-p", "salus-cli", "--"]);
        cargo.args(path.split_whitespace()).arg("--help");
        cargo.current_dir(&self.repository.root);
        let text = match path {
            "" => Some(output(&mut cargo)?),
            _ => output(&mut cargo).ok(),
        };
        self.texts.insert(path.to_owned(), text.clone());
        Ok(text)
    }
}

fn variables(repository: &Repository) -> Result<Vec<Finding>, String> {
    let name = pattern(r"\bSALUS_[A-Z_]+\b");
    let quoted = pattern(r#""(SALUS_[A-Z_]+)""#);
    let mut read = BTreeSet::new();
    let mut findings = Vec::new();
    let documented = repository.file(CONFIGURATION)?;
    for file in repository.files() {
        let source = file.is_source() || file.path.starts_with("python/salus/");
        for (line, text) in file.lines() {
            for found in quoted.captures_iter(text) {
                let new = read.insert(found[1].to_owned());
                let test = found[1].starts_with("SALUS_TEST_");
                if new && source && !test && !documented.text.contains(&found[1]) {
                    let message = format!("`{}` is not in {CONFIGURATION}", &found[1]);
                    findings.push(file.finding(line, message));
                }
            }
        }
    }
    for document in repository.documents() {
        for (line, text) in document.lines() {
            for found in name.find_iter(text) {
                if !read.contains(found.as_str()) {
                    let message = format!("nothing reads `{}`", found.as_str());
                    findings.push(document.finding(line, message));
                }
            }
        }
    }
    Ok(findings)
}
