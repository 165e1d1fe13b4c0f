//! Reads `salus.toml` strictly: serde takes the values, problems are worded for people.
//!
//! The readers of values say only what they expected; the key, the value that was found and the line
//! are looked up in the parsed file, where the error was.
//!
//! Promise: every problem names file and line, shows the value it is about, and says what was expected.
//! Not here: which settings there are, and what holds by default (`sections.rs`).

use std::fmt;
use std::path::{Path, PathBuf};

use salus_engine::Policy;
use salus_units::parse_bytes;
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::Serializer;
use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::sections::Sections;
use super::{AllowUsers, Problem};
use crate::paths::absolute;

pub(super) struct File<'a> {
    pub(super) path: &'a Path,
    pub(super) text: &'a str,
}

impl File<'_> {
    pub(super) fn read(&self) -> Result<Sections, Problem> {
        let table = DeTable::parse(self.text).map_err(|e| self.syntax(&e))?;
        let root = table.get_ref();
        self.check_version(root)?;
        // Serde would take a list for a section, by the order of its keys.
        for (name, _) in known().iter().filter(|(_, keys)| keys.is_object()) {
            if let Some(value) = root.get(name.as_str())
                && !value.get_ref().is_table()
            {
                return Err(self.expected(name, value, format_args!("a section [{name}]")));
            }
        }
        Sections::deserialize(toml::Deserializer::from(table.clone())).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            let Some((section, key, value)) = find("", root, at) else {
                return self.syntax(&e);
            };
            let expected = e.message().rsplit_once(", expected ");
            match expected.map_or(e.message(), |(_, expected)| expected) {
                _ if e.message().starts_with("unknown field") => self.unknown(section, key, at),
                "a map" => self.expected(key, value, format_args!("a section [{section}.{key}]")),
                expected => self.expected(key, value, expected),
            }
        })
    }

    fn check_version(&self, root: &DeTable<'_>) -> Result<(), Problem> {
        let Some(found) = root.get("schema_version") else {
            return Err(self
                .problem(0, "`schema_version` is missing")
                .hint("write `schema_version = 1` as the first line"));
        };
        match found.get_ref().as_integer().map(|n| n.as_str()) {
            Some("1") => Ok(()),
            _ => {
                let expected = "1, which this version of Salus reads";
                Err(self.expected("schema_version", found, expected))
            }
        }
    }

    /// A problem at a byte of the text.
    fn problem(&self, at: usize, what: impl fmt::Display) -> Problem {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = 1 + before.iter().filter(|&&b| b == b'\n').count();
        Problem::new(format!("{}, line {line}: {what}", self.path.display()))
    }

    fn syntax(&self, error: &toml::de::Error) -> Problem {
        self.problem(error.span().map_or(0, |span| span.start), error.message())
    }

    fn expected(&self, key: &str, found: &Found<'_>, expected: impl fmt::Display) -> Problem {
        let shown = match found.get_ref() {
            DeValue::String(text) => format!("{text:?}"),
            DeValue::Datetime(_) => "a date".into(),
            DeValue::Array(_) => "a list".into(),
            DeValue::Table(_) => "a section".into(),
            _ => self.text.get(found.span()).unwrap_or_default().to_owned(),
        };
        let what = format!("`{key}`: expected {expected}, found {shown}");
        self.problem(found.span().start, what)
    }

    fn unknown(&self, section: &str, key: &str, at: usize) -> Problem {
        let problem = match section {
            "" => format!("`{key}` is not a key or section of the configuration"),
            _ => format!("`{key}` is not a key of [{section}]"),
        };
        self.problem(at, problem).hint(meant(section, key))
    }
}

type Found<'a> = Spanned<DeValue<'a>>;

/// The section, key and value at a byte of the text.
fn find<'t>(
    section: &'t str,
    table: &'t DeTable<'_>,
    at: usize,
) -> Option<(&'t str, &'t str, &'t Found<'t>)> {
    table.iter().find_map(|(key, value)| {
        let name = key.get_ref().as_ref();
        let below = value.get_ref().as_table();
        let here = || key.span().start == at || value.span().start == at;
        below
            .and_then(|table| find(name, table, at))
            .or_else(|| here().then_some((section, name, value)))
    })
}

/// The keys of the top level, and below each section its own, as the defaults have them.
pub(super) fn known() -> Map<String, Value> {
    match serde_json::to_value(Sections::default()) {
        Ok(Value::Object(known)) => known,
        _ => Map::new(),
    }
}

/// What was probably meant: a key spelt alike here, or the same key of another section.
fn meant(section: &str, key: &str) -> String {
    // Two letters exchanged, left out or added; more than that is another word.
    const TYPING_ERRORS: usize = 2;
    let all = known();
    let here = all.get(section).map_or(Some(&all), Value::as_object);
    let here: Vec<_> = here.into_iter().flat_map(Map::keys).cloned().collect();
    let distance = |known: &&String| strsim::damerau_levenshtein(key, known);
    let nearest = here.iter().min_by_key(distance);
    if let Some(nearest) = nearest.filter(|known| distance(known) <= TYPING_ERRORS) {
        return format!("did you mean `{nearest}`?");
    }
    if all.contains_key(key) {
        return format!("`{key}` belongs at the top, before the first section");
    }
    match all.iter().find(|(_, keys)| keys.get(key).is_some()) {
        Some((name, _)) => format!("`{key}` belongs in [{name}]"),
        None => format!("it may have `{}`", here.join("`, `")),
    }
}

/// Reads a value as `R`, of which `take` makes what is wanted; `null`, which only JSON has, is `None`.
fn read<'de, D: Deserializer<'de>, R: Deserialize<'de>, T: Default>(
    from: D,
    expected: impl fmt::Display,
    take: impl FnOnce(R) -> Option<T>,
) -> Result<T, D::Error> {
    match Option::<R>::deserialize(from) {
        Ok(None) => Ok(T::default()),
        Ok(Some(raw)) => take(raw).ok_or_else(|| D::Error::custom(expected)),
        Err(_) => Err(D::Error::custom(expected)),
    }
}

pub(super) fn number<'de, const MIN: u32, const MAX: u32, D, T>(from: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: From<u32> + Default,
{
    let expected = format_args!("a whole number from {MIN} to {MAX}");
    let within = |n: u32| (MIN..=MAX).contains(&n).then(|| n.into());
    read(from, expected, within)
}

pub(super) fn size<'de, D: Deserializer<'de>, T: From<u64> + Default>(
    from: D,
) -> Result<T, D::Error> {
    let bytes = |raw| bytes(raw).filter(|bytes| *bytes > 0).map(T::from);
    read(from, "a size such as \"16GiB\"", bytes)
}

/// A size that may be nothing.
pub(super) fn size_or_0<'de, D: Deserializer<'de>, T: From<u64> + Default>(
    from: D,
) -> Result<T, D::Error> {
    let bytes = |raw| bytes(raw).map(T::from);
    read(from, "a size such as \"16GiB\", or 0", bytes)
}

fn bytes(raw: NumberOrText) -> Option<u64> {
    match raw {
        NumberOrText::Number(bytes) => Some(bytes),
        NumberOrText::Text(text) => parse_bytes(&text),
    }
}

pub(super) fn text<'de, D: Deserializer<'de>, T: From<String> + Default>(
    from: D,
) -> Result<T, D::Error> {
    let text = |text: String| (!text.is_empty()).then(|| text.into());
    read(from, "a text", text)
}

/// A path; `~/` is the home directory, because a shell does not see this one.
pub(super) fn path<'de, D: Deserializer<'de>, T: From<PathBuf> + Default>(
    from: D,
) -> Result<T, D::Error> {
    let path = |text: String| {
        let path = match (text.strip_prefix("~/"), std::env::home_dir()) {
            (Some(below), Some(home)) => home.join(below),
            _ => absolute(Path::new(&text)),
        };
        (!text.is_empty()).then(|| path.into())
    };
    read(from, "a text", path)
}

pub(super) fn policy<'de, D: Deserializer<'de>>(from: D) -> Result<Policy, D::Error> {
    let name = String::deserialize(from).ok();
    name.and_then(|name| Policy::named(&name)).ok_or_else(|| {
        let names = Policy::ALL.map(|policy| format!("\"{}\"", policy.name()));
        D::Error::custom(format_args!("one of {}", names.join(", ")))
    })
}

pub(super) fn policy_name<S: Serializer>(policy: &Policy, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(policy.name())
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum NumberOrText {
    Number(u64),
    Text(String),
}

impl<'de> Deserialize<'de> for AllowUsers {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(serde::Deserialize)]
        #[serde(untagged)]
        enum Raw {
            Word(String),
            Users(Vec<NumberOrText>),
        }
        let name = |user| match user {
            NumberOrText::Number(uid) => u32::try_from(uid).ok().map(|uid| uid.to_string()),
            NumberOrText::Text(name) => Some(name).filter(|name| !name.is_empty()),
        };
        let users = |raw| match raw {
            Raw::Word(word) if word == "owner" => Some(Self::Owner),
            Raw::Word(word) if word == "all" => Some(Self::All),
            Raw::Word(_) => None,
            Raw::Users(users) => users
                .into_iter()
                .map(name)
                .collect::<Option<_>>()
                .map(Self::Users),
        };
        read(from, "\"owner\", \"all\" or a list of user names", users)
    }
}
