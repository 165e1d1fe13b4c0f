//! A module's tables, taken apart: strings, operation names, attributes, types, properties.
//!
//! The container is a header and sections. Entries are found and bounded here, not yet decoded:
//! most of them are locations, and those that nothing refers to do not count.
//!
//! Promise: every byte of these sections belongs to something, or the module is not understood;
//! memory is bounded by [`ENTRIES_MAX`], whatever the counts in the bytes.
//! Not here: dialects with a version of their own and resources. No artifact of JAX has either.

use super::bytes::Cursor;
use super::layouts::Field;
use super::properties;

/// The bytecode's version since StableHLO 0.15. Versions differ in what is written where.
const VERSION: u64 = 6;
const MAGIC: &[u8] = b"ML\xefR";
/// Producers whose modules hold what `layouts` and `properties` describe.
const PRODUCER: &[u8] = b"StableHLO_v";
/// In each table. A program of 100 KB has about 2,000; a million make 50 MB of ours at most.
const ENTRIES_MAX: usize = 1 << 20;

const STRINGS: u8 = 0;
const DIALECTS: u8 = 1;
const ENTRIES: u8 = 2;
const OFFSETS: u8 = 3;
const IR: u8 = 4;
const RESOURCES: u8 = 5;
const RESOURCE_OFFSETS: u8 = 6;
const PROPERTIES: u8 = 8;

#[derive(Debug)]
pub(super) struct Module<'a> {
    pub(super) producer: &'a [u8],
    pub(super) strings: Vec<&'a [u8]>,
    pub(super) operations: Vec<Operation>,
    pub(super) attributes: Vec<Entry<'a>>,
    pub(super) types: Vec<Entry<'a>>,
    pub(super) properties: Vec<&'a [u8]>,
    pub(super) ir: &'a [u8],
}

/// A dialect, and its name as a string of the module.
type NamedDialect = (Dialect, u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dialect {
    Builtin,
    Vhlo,
    Sdy,
    Other,
}

/// The name of an operation.
#[derive(Debug)]
pub(super) struct Operation {
    /// Both are strings of the module.
    pub(super) dialect: u64,
    pub(super) name: u64,
    /// Whether the producer knew it. One it did not know keeps its properties in another way.
    pub(super) registered: bool,
    /// How its properties are laid out, if that is known.
    pub(super) properties: Option<&'static [Field]>,
}

/// An attribute or a type.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'a> {
    pub(super) dialect: Dialect,
    /// The dialect's name, a string of the module.
    pub(super) dialect_name: u32,
    /// In the dialect's own encoding; otherwise as MLIR's text.
    pub(super) custom: bool,
    pub(super) data: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Which encoding of its dialect this is, and what comes after.
    pub(super) fn open(&self) -> Option<(u64, Cursor<'a>)> {
        let mut cursor = Cursor::new(self.data);
        Some((cursor.varint()?, cursor))
    }
}

impl<'a> Module<'a> {
    pub(super) fn read(code: &'a [u8]) -> Option<Self> {
        let mut cursor = Cursor::new(code.strip_prefix(MAGIC)?);
        if cursor.varint()? != VERSION {
            return None;
        }
        let producer = cursor.text()?;
        if !producer.starts_with(PRODUCER) {
            return None;
        }
        let mut sections: [Option<&[u8]>; PROPERTIES as usize + 1] = [None; _];
        while !cursor.is_empty() {
            let (id, data) = cursor.section()?;
            // The one number that is missing is for sections inside of others.
            let known = matches!(id, STRINGS..=RESOURCE_OFFSETS | PROPERTIES);
            if !known || sections[usize::from(id)].replace(data).is_some() {
                return None;
            }
        }
        no_resources(
            sections[usize::from(RESOURCES)],
            sections[usize::from(RESOURCE_OFFSETS)],
        )?;
        let [strings, dialects, entries, offsets, ir] =
            [STRINGS, DIALECTS, ENTRIES, OFFSETS, IR].map(|id| sections[usize::from(id)]);
        let strings = read_strings(strings?)?;
        let (dialects, operations) = read_dialects(dialects?, &strings)?;
        let (attributes, types) = read_entries(entries?, offsets?, &dialects)?;
        let properties = match sections[usize::from(PROPERTIES)] {
            Some(section) => read_properties(section)?,
            None => Vec::new(),
        };
        Some(Self {
            producer,
            strings,
            operations,
            attributes,
            types,
            properties,
            ir: ir?,
        })
    }
}

/// Lengths in reverse order, then the strings themselves, each with a NUL that its length counts.
fn read_strings(section: &[u8]) -> Option<Vec<&[u8]>> {
    let mut cursor = Cursor::new(section);
    let count = count(&mut cursor)?;
    let lengths = (0..count)
        .map(|_| cursor.varint())
        .collect::<Option<Vec<_>>>()?;
    let mut strings = Vec::with_capacity(count);
    for length in lengths.into_iter().rev() {
        let (&nul, string) = cursor.take(length)?.split_last()?;
        if nul != 0 {
            return None;
        }
        strings.push(string);
    }
    cursor.is_empty().then_some(strings)
}

/// Dialects with their names, then the names of operations, grouped by dialect.
fn read_dialects(section: &[u8], strings: &[&[u8]]) -> Option<(Vec<NamedDialect>, Vec<Operation>)> {
    let mut cursor = Cursor::new(section);
    let known = count(&mut cursor)?;
    let mut dialects = Vec::with_capacity(known);
    for _ in 0..known {
        let (name, versioned) = cursor.flagged()?;
        let dialect = match *at(strings, name)? {
            b"builtin" => Dialect::Builtin,
            b"vhlo" => Dialect::Vhlo,
            b"sdy" => Dialect::Sdy,
            _ => Dialect::Other,
        };
        if versioned {
            return None;
        }
        dialects.push((dialect, u32::try_from(name).ok()?));
    }
    let expected = count(&mut cursor)?;
    let mut operations = Vec::with_capacity(expected);
    while !cursor.is_empty() {
        let &(dialect, dialect_name) = at(&dialects, cursor.varint()?)?;
        for _ in 0..cursor.varint()? {
            let (name, registered) = cursor.flagged()?;
            let properties = properties::layout(dialect, at(strings, name)?);
            let dialect = u64::from(dialect_name);
            operations.push(Operation {
                dialect,
                name,
                registered,
                properties,
            });
            if operations.len() > expected {
                return None;
            }
        }
    }
    (operations.len() == expected).then_some((dialects, operations))
}

/// Sizes of the attributes and then the types, grouped by dialect; their content is another
/// section.
fn read_entries<'a>(
    section: &'a [u8],
    offsets: &[u8],
    dialects: &[NamedDialect],
) -> Option<(Vec<Entry<'a>>, Vec<Entry<'a>>)> {
    let mut content = Cursor::new(section);
    let mut cursor = Cursor::new(offsets);
    let attributes = count(&mut cursor)?;
    let types = count(&mut cursor)?;
    let mut table = |expected: usize| {
        let mut entries = Vec::with_capacity(expected);
        while entries.len() < expected {
            let &(dialect, dialect_name) = at(dialects, cursor.varint()?)?;
            for _ in 0..cursor.varint()? {
                let (size, custom) = cursor.flagged()?;
                entries.push(Entry {
                    dialect,
                    dialect_name,
                    custom,
                    data: content.take(size)?,
                });
                if entries.len() > expected {
                    return None;
                }
            }
        }
        Some(entries)
    };
    let attributes = table(attributes)?;
    let types = table(types)?;
    (cursor.is_empty() && content.is_empty()).then_some((attributes, types))
}

fn read_properties(section: &[u8]) -> Option<Vec<&[u8]>> {
    let mut cursor = Cursor::new(section);
    let count = count(&mut cursor)?;
    let properties = (0..count).map(|_| cursor.blob()).collect::<Option<_>>()?;
    cursor.is_empty().then_some(properties)
}

/// Both sections are written even if there is nothing in them: not one group of resources.
fn no_resources(resources: Option<&[u8]>, offsets: Option<&[u8]>) -> Option<()> {
    let (Some(resources), Some(offsets)) = (resources, offsets) else {
        return (resources.is_none() && offsets.is_none()).then_some(());
    };
    let mut offsets = Cursor::new(offsets);
    let groups = offsets.varint()?;
    (groups == 0 && offsets.is_empty() && resources.is_empty()).then_some(())
}

/// How many elements follow: no more than there are bytes, since each takes at least one.
fn count(cursor: &mut Cursor<'_>) -> Option<usize> {
    let count = usize::try_from(cursor.varint()?).ok()?;
    (count <= cursor.remaining().min(ENTRIES_MAX)).then_some(count)
}

pub(super) fn at<T>(table: &[T], index: u64) -> Option<&T> {
    table.get(usize::try_from(index).ok()?)
}
