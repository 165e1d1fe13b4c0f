//! Reads an entry field by field and tells a visitor what it finds.
//!
//! Promise: `Some` only if the fields took every byte.
//! Not here: what becomes of the fields. There are two visitors: `form` writes them down, and
//! `locations` looks whether a location is one.

use super::bytes::Cursor;
use super::layouts::{self, Field};
use super::tables::{Module, at};

pub(super) trait Visitor {
    fn int(&mut self, value: u64);
    fn blob(&mut self, bytes: &[u8]);
    fn string(&mut self, index: u64) -> Option<()>;
    fn attribute(&mut self, index: u64) -> Option<()>;
    fn kind(&mut self, index: u64) -> Option<()>;

    /// An attribute that must be a string.
    fn name(&mut self, index: u64) -> Option<()> {
        self.attribute(index)
    }

    /// An attribute that must be a location.
    fn location(&mut self, index: u64) -> Option<()> {
        self.attribute(index)
    }
}

pub(super) fn read(
    module: &Module<'_>,
    layout: &[Field],
    mut cursor: Cursor<'_>,
    visitor: &mut impl Visitor,
) -> Option<()> {
    for &field in layout {
        read_field(module, field, &mut cursor, visitor)?;
    }
    cursor.is_empty().then_some(())
}

fn read_field(
    module: &Module<'_>,
    field: Field,
    cursor: &mut Cursor<'_>,
    visitor: &mut impl Visitor,
) -> Option<()> {
    match field {
        Field::Int => visitor.int(cursor.varint()?),
        Field::Byte => visitor.int(u64::from(cursor.byte()?)),
        Field::Blob => visitor.blob(cursor.blob()?),
        Field::String => visitor.string(cursor.varint()?)?,
        Field::Attribute => visitor.attribute(cursor.varint()?)?,
        Field::Name => visitor.name(cursor.varint()?)?,
        Field::Location => visitor.location(cursor.varint()?)?,
        Field::Type => visitor.kind(cursor.varint()?)?,
        Field::Optional => match cursor.flagged()? {
            (0, false) => visitor.int(0),
            (index, true) => {
                visitor.int(1);
                visitor.attribute(index)?;
            }
            _ => return None,
        },
        Field::Preceded => match cursor.varint()? {
            0 => visitor.int(0),
            1 => {
                visitor.int(1);
                visitor.attribute(cursor.varint()?)?;
            }
            _ => return None,
        },
        Field::Number => {
            let index = cursor.varint()?;
            visitor.kind(index)?;
            visitor.int(match bits(module, index)? {
                // A plain byte: a varint would need a bit more.
                0..=8 => u64::from(cursor.byte()?),
                9..=64 => cursor.varint()?,
                _ => return None,
            });
        }
        Field::Ints => list(cursor, visitor, |cursor, visitor| {
            visitor.int(cursor.varint()?);
            Some(())
        })?,
        Field::Attributes => {
            list(cursor, visitor, |cursor, visitor| {
                visitor.attribute(cursor.varint()?)
            })?;
        }
        Field::Locations => {
            list(cursor, visitor, |cursor, visitor| {
                visitor.location(cursor.varint()?)
            })?;
        }
        Field::Types => list(cursor, visitor, |cursor, visitor| {
            visitor.kind(cursor.varint()?)
        })?,
        Field::Named => list(cursor, visitor, |cursor, visitor| {
            visitor.attribute(cursor.varint()?)?;
            visitor.attribute(cursor.varint()?)
        })?,
    }
    Some(())
}

/// Each element takes at least a byte, so a count that is too large ends with the bytes.
fn list<'a, V: Visitor>(
    cursor: &mut Cursor<'a>,
    visitor: &mut V,
    each: impl Fn(&mut Cursor<'a>, &mut V) -> Option<()>,
) -> Option<()> {
    let count = cursor.varint()?;
    visitor.int(count);
    (0..count).try_for_each(|_| each(cursor, visitor))
}

fn bits(module: &Module<'_>, kind: u64) -> Option<u32> {
    let entry = at(&module.types, kind)?;
    if !entry.custom {
        return None;
    }
    let (code, mut cursor) = entry.open()?;
    if layouts::is_integer(entry.dialect, code) {
        return u32::try_from(cursor.varint()? >> 2).ok();
    }
    layouts::bits(entry.dialect, code)
}
