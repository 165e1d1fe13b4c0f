//! Walks over the operations: what they do goes into the canonical form, their locations do not.
//!
//! An operation is its name, a mask of what follows, its location, attributes, properties, types
//! of results, operands, successors, orders of uses and regions; a region is blocks, a block is
//! arguments and operations. Values and blocks are numbered by position, so their numbers can be
//! written down as they are.
//!
//! Promise: every field but the locations is written, and every location is checked.
//! Cost: no recursion; nesting beyond [`DEPTH_MAX`] is not understood.
//! Not here: whether an operand exists. A module in which one does not has a stream of its own.

use super::bytes::Cursor;
use super::fields::{self, Visitor};
use super::form::Form;
use super::locations::Locations;
use super::tables::{Module, at};

/// Levels of regions within regions. JAX nests as deep as the user nests loops and branches.
const DEPTH_MAX: usize = 1 << 10;
/// The section that holds the regions of an operation that is isolated from above.
const IR: u8 = 4;

const ATTRIBUTES: u8 = 1;
const RESULTS: u8 = 1 << 1;
const OPERANDS: u8 = 1 << 2;
const SUCCESSORS: u8 = 1 << 3;
const REGIONS: u8 = 1 << 4;
const USE_ORDERS: u8 = 1 << 5;
const PROPERTIES: u8 = 1 << 6;
const ALL: u8 = (1 << 7) - 1;

/// What is left to read of an operation's regions.
#[derive(Debug)]
struct Level<'a> {
    regions: u64,
    blocks: u64,
    operations: u64,
    /// If the regions have a section of their own, what follows it.
    after: Option<Cursor<'a>>,
}

pub(super) fn walk<'m, 'a>(module: &'m Module<'a>, form: &mut Form<'m, 'a>) -> Option<()> {
    let mut walk = Walk {
        module,
        form,
        locations: Locations::new(module),
    };
    let mut cursor = Cursor::new(module.ir);
    // The module is the one operation of a block that belongs to no region.
    let outermost = Level {
        regions: 0,
        blocks: 1,
        operations: 0,
        after: None,
    };
    let mut levels = vec![outermost];
    while let Some(level) = levels.last_mut() {
        if level.operations > 0 {
            level.operations -= 1;
            if let Some(inner) = walk.operation(&mut cursor)? {
                levels.push(inner);
            }
        } else if level.blocks > 0 {
            level.blocks -= 1;
            level.operations = walk.block(&mut cursor)?;
        } else if level.regions > 0 {
            level.regions -= 1;
            level.blocks = walk.region(&mut cursor)?;
        } else if let Some(Level {
            after: Some(after), ..
        }) = levels.pop()
        {
            if !cursor.is_empty() {
                return None;
            }
            cursor = after;
        }
        if levels.len() > DEPTH_MAX {
            return None;
        }
    }
    cursor.is_empty().then_some(())
}

struct Walk<'m, 'a, 'f> {
    module: &'m Module<'a>,
    form: &'f mut Form<'m, 'a>,
    locations: Locations<'m, 'a>,
}

impl<'a> Walk<'_, 'a, '_> {
    /// Everything of an operation but its regions, if it has some.
    fn operation(&mut self, cursor: &mut Cursor<'a>) -> Option<Option<Level<'a>>> {
        let name = cursor.varint()?;
        let mask = cursor.byte()?;
        self.form.operation(name)?;
        self.form.int(u64::from(mask));
        if mask & !ALL != 0 {
            return None;
        }
        self.locations.check(cursor.varint()?)?;
        if mask & ATTRIBUTES != 0 {
            self.form.attribute(cursor.varint()?)?;
        }
        if mask & PROPERTIES != 0 {
            self.properties(name, cursor.varint()?)?;
        }
        let mut results = 0;
        if mask & RESULTS != 0 {
            results = self.count(cursor)?;
            (0..results).try_for_each(|_| self.form.kind(cursor.varint()?))?;
        }
        if mask & OPERANDS != 0 {
            self.ints(cursor)?;
        }
        if mask & SUCCESSORS != 0 {
            self.ints(cursor)?;
        }
        if mask & USE_ORDERS != 0 {
            self.use_orders(cursor, results)?;
        }
        if mask & REGIONS == 0 {
            return Some(None);
        }
        self.regions(cursor)
    }

    fn properties(&mut self, operation: u64, index: u64) -> Option<()> {
        let operation = at(&self.module.operations, operation)?;
        let layout = operation.properties.filter(|_| operation.registered)?;
        let data = at(&self.module.properties, index)?;
        fields::read(self.module, layout, Cursor::new(data), self.form)
    }

    fn regions(&mut self, cursor: &mut Cursor<'a>) -> Option<Option<Level<'a>>> {
        let (regions, isolated) = cursor.flagged()?;
        self.form.int(regions);
        self.form.int(u64::from(isolated));
        if regions == 0 {
            return Some(None);
        }
        let mut after = None;
        if isolated {
            let (id, section) = cursor.section()?;
            if id != IR {
                return None;
            }
            after = Some(std::mem::replace(cursor, Cursor::new(section)));
        }
        Some(Some(Level {
            regions,
            blocks: 0,
            operations: 0,
            after,
        }))
    }

    /// How many blocks the region has.
    fn region(&mut self, cursor: &mut Cursor<'a>) -> Option<u64> {
        let blocks = self.count(cursor)?;
        if blocks > 0 {
            // How many values it defines.
            self.count(cursor)?;
        }
        Some(blocks)
    }

    /// How many operations the block has.
    fn block(&mut self, cursor: &mut Cursor<'a>) -> Option<u64> {
        let (operations, has_arguments) = cursor.flagged()?;
        self.form.int(operations);
        self.form.int(u64::from(has_arguments));
        if has_arguments {
            let arguments = self.count(cursor)?;
            for _ in 0..arguments {
                let (kind, located) = cursor.flagged()?;
                self.form.kind(kind)?;
                if located {
                    self.locations.check(cursor.varint()?)?;
                }
            }
            let ordered = cursor.byte()?;
            self.form.int(u64::from(ordered));
            if ordered != 0 {
                self.use_orders(cursor, arguments)?;
            }
        }
        Some(operations)
    }

    /// For some of the values, in which order their uses are to be kept.
    fn use_orders(&mut self, cursor: &mut Cursor<'a>, values: u64) -> Option<()> {
        let ordered = if values > 1 { self.count(cursor)? } else { 1 };
        for _ in 0..ordered {
            if values > 1 {
                // Which value.
                self.count(cursor)?;
            }
            let (uses, pairs) = cursor.flagged()?;
            self.form.int(uses);
            self.form.int(u64::from(pairs));
            for _ in 0..uses {
                self.form.int(cursor.varint()?);
            }
        }
        Some(())
    }

    /// A number: a count of what follows, or a plain value.
    fn count(&mut self, cursor: &mut Cursor<'a>) -> Option<u64> {
        let count = cursor.varint()?;
        self.form.int(count);
        Some(count)
    }

    fn ints(&mut self, cursor: &mut Cursor<'a>) -> Option<()> {
        for _ in 0..self.count(cursor)? {
            self.form.int(cursor.varint()?);
        }
        Some(())
    }
}
