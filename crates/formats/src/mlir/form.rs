//! The stream that is hashed, and the numbers that things have in it.
//!
//! Strings and operation names are written to the stream where they are first used. Attributes and types
//! get their number there and are described after the operations, in the order of their numbers;
//! describing one may number others. So nothing is nested and nothing is written twice, whatever
//! refers to what.
//!
//! Promise: the stream depends on what is referred to, never on where the module keeps it.
//! Not here: reading. `body` walks over the module and calls the methods in the order of its bytes.

use sha2::{Digest, Sha256};

use super::bytes::Cursor;
use super::fields::{self, Visitor};
use super::layouts::{self, Field};
use super::tables::{Dialect, Entry, Module, at};

/// Distinguishes these digests from those of any later form.
const TAG: &[u8] = b"salus mlir 1";
/// Hashing byte by byte would cost more than the hash.
const BUFFER_BYTES: usize = 1 << 12;

#[derive(Debug)]
pub(super) struct Form<'m, 'a> {
    module: &'m Module<'a>,
    out: Stream,
    strings: Numbers,
    operations: Numbers,
    attributes: Numbers,
    types: Numbers,
}

impl<'m, 'a> Form<'m, 'a> {
    pub(super) fn new(module: &'m Module<'a>) -> Self {
        let mut out = Stream {
            hash: Sha256::new(),
            buffer: Vec::with_capacity(BUFFER_BYTES),
        };
        out.blob(TAG);
        out.blob(module.producer);
        Self {
            module,
            out,
            strings: Numbers::of(module.strings.len()),
            operations: Numbers::of(module.operations.len()),
            attributes: Numbers::of(module.attributes.len()),
            types: Numbers::of(module.types.len()),
        }
    }

    pub(super) fn operation(&mut self, index: u64) -> Option<()> {
        let (number, new) = self.operations.number(index)?;
        if !new {
            self.out.int(number + 1);
            return Some(());
        }
        let operation = at(&self.module.operations, index)?;
        self.out.int(0);
        self.string(operation.dialect)?;
        self.string(operation.name)?;
        self.out.int(u64::from(operation.registered));
        Some(())
    }

    /// Describes the attributes and types that were numbered, and those that they lead to.
    pub(super) fn finish(mut self) -> Option<[u8; 32]> {
        let (mut attribute, mut kind) = (0, 0);
        loop {
            if let Some(&index) = self.attributes.order.get(attribute) {
                attribute += 1;
                self.entry(self.module.attributes.get(index)?, layouts::attribute)?;
            } else if let Some(&index) = self.types.order.get(kind) {
                kind += 1;
                self.entry(self.module.types.get(index)?, layouts::kind)?;
            } else {
                return Some(self.out.finish());
            }
        }
    }

    fn entry(
        &mut self,
        entry: &Entry<'_>,
        layout: fn(Dialect, u64) -> Option<&'static [Field]>,
    ) -> Option<()> {
        self.string(u64::from(entry.dialect_name))?;
        self.out.int(u64::from(entry.custom));
        if entry.custom {
            let (code, rest) = entry.open()?;
            self.out.int(code);
            return fields::read(self.module, layout(entry.dialect, code)?, rest, self);
        }
        // As text it refers to nothing else in the module.
        let mut cursor = Cursor::new(entry.data);
        self.out.blob(cursor.text()?);
        cursor.is_empty().then_some(())
    }
}

impl Visitor for Form<'_, '_> {
    fn int(&mut self, value: u64) {
        self.out.int(value);
    }

    fn blob(&mut self, bytes: &[u8]) {
        self.out.blob(bytes);
    }

    fn string(&mut self, index: u64) -> Option<()> {
        let (number, new) = self.strings.number(index)?;
        if new {
            self.out.int(0);
            self.out.blob(at(&self.module.strings, index)?);
        } else {
            self.out.int(number + 1);
        }
        Some(())
    }

    fn attribute(&mut self, index: u64) -> Option<()> {
        let (number, _) = self.attributes.number(index)?;
        self.out.int(number);
        Some(())
    }

    fn kind(&mut self, index: u64) -> Option<()> {
        let (number, _) = self.types.number(index)?;
        self.out.int(number);
        Some(())
    }
}

/// New numbers for a table's entries: 0 for the first that is asked for, and so on.
#[derive(Debug)]
struct Numbers {
    /// By index, one more than the number; 0 for those without.
    numbers: Vec<u32>,
    /// By number, the index.
    order: Vec<usize>,
}

impl Numbers {
    fn of(entries: usize) -> Self {
        Self {
            numbers: vec![0; entries],
            order: Vec::new(),
        }
    }

    /// The entry's number, and whether it got it just now. `None` if there is no such entry.
    fn number(&mut self, index: u64) -> Option<(u64, bool)> {
        let index = usize::try_from(index).ok()?;
        let number = self.numbers.get_mut(index)?;
        let new = *number == 0;
        if new {
            self.order.push(index);
            *number = u32::try_from(self.order.len()).ok()?;
        }
        Some((u64::from(*number) - 1, new))
    }
}

#[derive(Debug)]
struct Stream {
    hash: Sha256,
    buffer: Vec<u8>,
}

impl Stream {
    /// Seven bits a byte, the high bit if more follow: one way to write each number.
    fn int(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.buffer.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.buffer.push(value as u8);
        if self.buffer.len() >= BUFFER_BYTES - 10 {
            self.flush();
        }
    }

    fn blob(&mut self, bytes: &[u8]) {
        self.int(bytes.len() as u64);
        if self.buffer.len() + bytes.len() > BUFFER_BYTES {
            self.flush();
            self.hash.update(bytes);
        } else {
            self.buffer.extend_from_slice(bytes);
        }
    }

    fn flush(&mut self) {
        self.hash.update(&self.buffer);
        self.buffer.clear();
    }

    fn finish(mut self) -> [u8; 32] {
        self.flush();
        self.hash.finalize().into()
    }
}
