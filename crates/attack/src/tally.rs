//! The result of an attack: counts by outcome, and findings, which must not be.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Map, Value, json};

/// What is shown of a reason, and how many of them.
const REASON_LETTERS: usize = 90;
const REASONS: usize = 24;

#[derive(Debug)]
pub(crate) struct Tally {
    attack: &'static str,
    counts: BTreeMap<&'static str, u64>,
    /// Why programs were refused, in words without names and numbers.
    reasons: BTreeMap<String, u64>,
    /// Whatever else is worth showing, in the order in which it was noted.
    notes: Vec<(String, Value)>,
    /// Each says what happened and how to repeat it.
    findings: Vec<String>,
}

impl Tally {
    pub(crate) fn new(attack: &'static str) -> Self {
        Self {
            attack,
            counts: BTreeMap::new(),
            reasons: BTreeMap::new(),
            notes: Vec::new(),
            findings: Vec::new(),
        }
    }

    pub(crate) fn count(&mut self, outcome: &'static str) {
        *self.counts.entry(outcome).or_default() += 1;
    }

    pub(crate) fn add(&mut self, outcome: &'static str, number: u64) {
        *self.counts.entry(outcome).or_default() += number;
    }

    /// Messages that differ only in names and numbers are one reason.
    pub(crate) fn reason(&mut self, message: &str) {
        let first = message.lines().next().unwrap_or_default();
        let mut words = String::new();
        let mut quoted = false;
        for letter in first.chars() {
            match letter {
                '`' | '"' => {
                    quoted = !quoted;
                    words.push(letter);
                }
                _ if quoted => {}
                digit if digit.is_ascii_digit() => {}
                other => words.push(other),
            }
        }
        let words: String = words.chars().take(REASON_LETTERS).collect();
        *self.reasons.entry(words).or_default() += 1;
    }

    fn reasons(&self) -> Map<String, Value> {
        let mut most: Vec<(&String, &u64)> = self.reasons.iter().collect();
        most.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let most = most.into_iter().take(REASONS);
        most.map(|(words, count)| (words.clone(), json!(count)))
            .collect()
    }

    pub(crate) fn note(&mut self, name: impl Into<String>, value: impl Into<Value>) {
        self.notes.push((name.into(), value.into()));
    }

    /// Something that must not be. It is printed at once, because an attack may take long.
    pub(crate) fn finding(&mut self, text: String) {
        eprintln!("FOUND by {}: {text}", self.attack);
        self.findings.push(text);
    }

    /// Another attack that was part of this one.
    pub(crate) fn absorb(&mut self, other: Self) {
        self.notes.push((other.attack.to_owned(), other.json()));
        self.findings.extend(other.findings);
    }

    pub(crate) fn held(&self) -> bool {
        self.findings.is_empty()
    }

    pub(crate) fn json(&self) -> Value {
        let counts: Map<String, Value> = self
            .counts
            .iter()
            .map(|(name, count)| ((*name).to_owned(), json!(count)))
            .collect();
        let notes: Map<String, Value> = self.notes.iter().cloned().collect();
        json!({
            "attack": self.attack,
            "held": self.held(),
            "counts": counts,
            "reasons": self.reasons(),
            "notes": notes,
            "findings": self.findings,
        })
    }

    pub(crate) fn text(&self) -> String {
        let mut text = format!("{}\n", self.attack);
        for (name, count) in &self.counts {
            text += &format!("  {count:>8}  {name}\n");
        }
        if !self.reasons.is_empty() {
            text += &shown("most frequent reasons", &Value::Object(self.reasons()), 2);
        }
        for (name, value) in &self.notes {
            text += &shown(name, value, 2);
        }
        text += match self.findings.len() {
            0 => "  held\n",
            _ => "  DID NOT HOLD\n",
        };
        for finding in &self.findings {
            text += &format!("  - {finding}\n");
        }
        text
    }
}

fn shown(name: &str, value: &Value, indent: usize) -> String {
    match value {
        // A part of a larger attack, or a job, is a line.
        Value::Object(fields) if fields.contains_key("counts") => {
            let counts = value["counts"].as_object();
            format!("{:indent$}{name:<18} {}\n", "", in_a_line(counts))
        }
        Value::Object(fields) if fields.contains_key("ratio") => {
            format!("{:indent$}{name:<24} {}\n", "", in_a_line(Some(fields)))
        }
        Value::Object(fields) if fields.contains_key("rss_kb") => {
            format!("{:indent$}{name:<12} {}\n", "", in_a_line(Some(fields)))
        }
        Value::Object(fields) => {
            let mut text = format!("{:indent$}{name}\n", "");
            for (name, value) in fields {
                text += &shown(name, value, indent + 2);
            }
            text
        }
        Value::String(value) => format!("{:indent$}{name}: {value}\n", ""),
        Value::Array(items) if items.is_empty() => String::new(),
        value => format!("{:indent$}{name}: {value}\n", ""),
    }
}

fn in_a_line(fields: Option<&Map<String, Value>>) -> String {
    let fields = fields.into_iter().flatten();
    let parts: Vec<String> = fields
        .map(|(name, value)| format!("{name} {value}"))
        .collect();
    parts.join(", ")
}

/// Data goes to standard output; if it is closed, nobody wants it.
pub(crate) fn say(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}
