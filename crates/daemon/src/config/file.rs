//! The strict reader of `salus.toml`: sections whose keys are all known, values with their lines.
//!
//! Promise: every problem names file and line, shows the value it is about, and says what is due.
//! Not here: which settings there are beyond their names, and what holds by default (`config.rs`).

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use salus_engine::Policy;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{AllowUsers, PluginOption, Problem, parse_bytes};
use crate::paths::absolute;

/// The keys of each section, in the order of the documentation; `""` is the top level.
const KEYS: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "schema_version",
            "service",
            "device",
            "scheduling",
            "limits",
            "cache",
            "compilers",
        ],
    ),
    ("service", &["socket", "allow_users", "idle_exit_seconds"]),
    (
        "device",
        &[
            "device",
            "lanes",
            "memory",
            "host_memory",
            "lapack",
            "options",
        ],
    ),
    ("scheduling", &["policy"]),
    (
        "limits",
        &[
            "memory_per_session",
            "memory_per_user",
            "programs_per_user",
            "sessions_per_user",
            "callback_seconds",
            "compile_seconds",
            "compile_memory",
            "first_iteration_seconds",
            "iteration_seconds",
        ],
    ),
    ("cache", &["directory", "disk", "memory", "memory_programs"]),
    ("compilers", &["count"]),
];

pub(super) struct File<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl File<'_> {
    /// A problem at a byte of the text.
    pub(super) fn problem(&self, at: usize, what: impl fmt::Display) -> Problem {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
        Problem::new(format!("{}, line {line}: {what}", self.path.display()))
    }
}

/// One table of the file, whose keys are all known.
pub(super) struct Section<'a> {
    file: &'a File<'a>,
    table: &'a DeTable<'a>,
    start: usize,
}

impl<'a> Section<'a> {
    pub(super) fn new(
        file: &'a File<'a>,
        name: &'static str,
        table: &'a DeTable<'a>,
        start: usize,
    ) -> Result<Self, Problem> {
        let known = keys_of(name);
        for key in table.keys() {
            if !known.contains(&key.get_ref().as_ref()) {
                let problem = file.problem(key.span().start, unknown(key.get_ref(), name));
                return Err(match nearest(key.get_ref(), name) {
                    Some(hint) => problem.hint(hint),
                    None => problem.hint(format!("it may have {}", listed(known))),
                });
            }
        }
        Ok(Self { file, table, start })
    }

    pub(super) fn check_version(&self) -> Result<(), Problem> {
        let found = self.number("schema_version", 0..=i64::MAX)?;
        match found {
            Some(1) => Ok(()),
            Some(other) => Err(self.wrong(
                "schema_version",
                format!("`schema_version` is {other}, and this version of Salus reads 1"),
            )),
            None => Err(self
                .file
                .problem(self.start, "`schema_version` is missing")
                .hint("write `schema_version = 1` as the first line")),
        }
    }

    fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        self.table.get(key)
    }

    /// A problem with the value of `key`.
    fn wrong(&self, key: &str, what: impl fmt::Display) -> Problem {
        let at = self.value(key).map_or(self.start, |v| v.span().start);
        self.file.problem(at, what)
    }

    fn not_a(&self, key: &str, found: &DeValue<'_>, due: impl fmt::Display) -> Problem {
        self.wrong(
            key,
            format!("`{key}` is {}, and {due} is due", shown(found)),
        )
    }

    pub(super) fn section(&self, name: &'static str) -> Result<Option<Section<'a>>, Problem> {
        let Some(value) = self.value(name) else {
            return Ok(None);
        };
        let table = value
            .get_ref()
            .as_table()
            .ok_or_else(|| self.not_a(name, value.get_ref(), format_args!("a section [{name}]")))?;
        Section::new(self.file, name, table, value.span().start).map(Some)
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>, Problem> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match value.get_ref().as_str() {
            Some(text) if !text.is_empty() => Ok(Some(text)),
            _ => Err(self.not_a(key, value.get_ref(), "a text")),
        }
    }

    /// A path; `~/` is the home directory, because a shell does not see this one.
    pub(super) fn path(&self, key: &str) -> Result<Option<PathBuf>, Problem> {
        Ok(self.text(key)?.map(
            |text| match (text.strip_prefix("~/"), std::env::home_dir()) {
                (Some(below), Some(home)) => home.join(below),
                _ => absolute(Path::new(text)),
            },
        ))
    }

    pub(super) fn number(
        &self,
        key: &str,
        range: RangeInclusive<i64>,
    ) -> Result<Option<i64>, Problem> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        match integer(value.get_ref()) {
            Some(number) if range.contains(&number) => Ok(Some(number)),
            _ => {
                let due = match (*range.start(), *range.end()) {
                    (from, i64::MAX) => format!("a whole number from {from}"),
                    (from, to) => format!("a whole number from {from} to {to}"),
                };
                Err(self.not_a(key, value.get_ref(), due))
            }
        }
    }

    pub(super) fn bytes(&self, key: &str) -> Result<Option<u64>, Problem> {
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let bytes = match value.get_ref() {
            DeValue::String(text) => parse_bytes(text),
            other => integer(other).and_then(|n| u64::try_from(n).ok()),
        };
        match bytes {
            Some(bytes) if bytes > 0 => Ok(Some(bytes)),
            _ => Err(self.not_a(key, value.get_ref(), "a size such as \"16GiB\"")),
        }
    }

    pub(super) fn policy(&self) -> Result<Option<Policy>, Problem> {
        let key = "policy";
        let Some(value) = self.value(key) else {
            return Ok(None);
        };
        let named = match value.get_ref() {
            DeValue::String(text) => Policy::named(text),
            _ => None,
        };
        let names = Policy::ALL.map(|policy| format!("\"{}\"", policy.name()));
        match named {
            Some(policy) => Ok(Some(policy)),
            None => Err(self.not_a(key, value.get_ref(), format!("one of {}", names.join(", ")))),
        }
    }

    pub(super) fn allow_users(&self) -> Result<AllowUsers, Problem> {
        let key = "allow_users";
        let Some(value) = self.value(key) else {
            return Ok(AllowUsers::Owner);
        };
        match value.get_ref() {
            DeValue::String(text) if text == "owner" => return Ok(AllowUsers::Owner),
            DeValue::String(text) if text == "all" => return Ok(AllowUsers::All),
            DeValue::Array(items) => {
                let name = |item: &DeValue<'_>| match item {
                    DeValue::String(text) if !text.is_empty() => Some(text.to_string()),
                    other => integer(other)
                        .and_then(|n| u32::try_from(n).ok())
                        .map(|n| n.to_string()),
                };
                let names: Option<Vec<_>> = items.iter().map(|i| name(i.get_ref())).collect();
                if let Some(names) = names {
                    return Ok(AllowUsers::Users(names));
                }
            }
            _ => {}
        }
        Err(self.not_a(
            key,
            value.get_ref(),
            "\"owner\", \"all\" or a list of user names",
        ))
    }

    pub(super) fn options(&self) -> Result<BTreeMap<String, PluginOption>, Problem> {
        let Some(value) = self.value("options") else {
            return Ok(BTreeMap::new());
        };
        let table = value
            .get_ref()
            .as_table()
            .ok_or_else(|| self.not_a("options", value.get_ref(), "a section [device.options]"))?;
        let mut options = BTreeMap::new();
        for (key, value) in table {
            let option = match value.get_ref() {
                DeValue::Boolean(flag) => Some(PluginOption::Bool(*flag)),
                DeValue::String(text) => Some(PluginOption::Text(text.to_string())),
                DeValue::Float(number) => number.as_str().parse().ok().map(PluginOption::Float),
                DeValue::Array(items) => items
                    .iter()
                    .map(|item| integer(item.get_ref()))
                    .collect::<Option<_>>()
                    .map(PluginOption::Ints),
                other => integer(other).map(PluginOption::Int),
            };
            let option = option.ok_or_else(|| {
                self.file.problem(
                    value.span().start,
                    format!(
                        "`{}` is {}, and a number, a text, true, false or a list of whole \
                         numbers is due",
                        key.get_ref(),
                        shown(value.get_ref())
                    ),
                )
            })?;
            options.insert(key.get_ref().to_string(), option);
        }
        Ok(options)
    }
}

fn keys_of(section: &str) -> &'static [&'static str] {
    KEYS.iter()
        .find(|(name, _)| *name == section)
        .map_or(&[], |(_, keys)| keys)
}

fn unknown(key: &str, section: &str) -> String {
    match section {
        "" => format!("`{key}` is not a key or section of the configuration"),
        _ => format!("`{key}` is not a key of [{section}]"),
    }
}

/// What was probably meant: a key spelt alike here, or the same key of another section.
fn nearest(key: &str, section: &str) -> Option<String> {
    // Two letters exchanged, left out or added; more than that is another word.
    const TYPING_ERRORS: usize = 2;
    let distance = |known: &str| strsim::damerau_levenshtein(key, known);
    let here = keys_of(section)
        .iter()
        .filter(|known| distance(known) <= TYPING_ERRORS)
        .min_by_key(|known| distance(known));
    if let Some(known) = here {
        return Some(format!("did you mean `{known}`?"));
    }
    let (elsewhere, _) = KEYS.iter().find(|(_, keys)| keys.contains(&key))?;
    Some(match *elsewhere {
        "" => format!("`{key}` stands at the top, before the first section"),
        name => format!("`{key}` belongs in [{name}]"),
    })
}

fn listed(keys: &[&str]) -> String {
    let quoted: Vec<_> = keys.iter().map(|key| format!("`{key}`")).collect();
    quoted.join(", ")
}

fn integer(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date".into(),
        DeValue::Array(_) => "a list".into(),
        DeValue::Table(_) => "a section".into(),
    }
}
