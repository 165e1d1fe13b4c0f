//! Checks that a location is one.
//!
//! Locations are what the digest leaves out, so they are the one thing it does not notice by itself
//! when damaged. A module with a location that MLIR would refuse must not be taken for the sound
//! module beside it.
//!
//! Promise: an accepted location is a finite tree of known kinds of locations and names.
//! Cost: each location once, however often it is used; no recursion.
//! Not here: metadata of fused locations. It can be any attribute, and JAX attaches none.

use super::fields::{self, Visitor};
use super::layouts;
use super::tables::{Dialect, Entry, Module, at};

/// Locations found and not yet checked. More than any traceback has.
const PENDING_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(super) struct Locations<'m, 'a> {
    module: &'m Module<'a>,
    /// By attribute.
    seen: Vec<Seen>,
    pending: Vec<Step>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Seen {
    Not,
    /// Below it somewhere is the location that is being looked at.
    Open,
    Good,
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Enter(usize),
    Leave(usize),
}

impl<'m, 'a> Locations<'m, 'a> {
    pub(super) fn new(module: &'m Module<'a>) -> Self {
        Self {
            module,
            seen: vec![Seen::Not; module.attributes.len()],
            pending: Vec::new(),
        }
    }

    pub(super) fn check(&mut self, index: u64) -> Option<()> {
        self.location(index)?;
        while let Some(step) = self.pending.pop() {
            match step {
                Step::Leave(index) => *self.seen.get_mut(index)? = Seen::Good,
                Step::Enter(index) => self.enter(index)?,
            }
        }
        Some(())
    }

    fn enter(&mut self, index: usize) -> Option<()> {
        let seen = self.seen.get_mut(index)?;
        match *seen {
            Seen::Good => return Some(()),
            // A location inside itself.
            Seen::Open => return None,
            Seen::Not => *seen = Seen::Open,
        }
        let entry = self.module.attributes.get(index)?;
        let code = builtin_code(entry).filter(|&code| layouts::is_location(code))?;
        let (_, rest) = entry.open()?;
        self.pending.push(Step::Leave(index));
        fields::read(
            self.module,
            layouts::attribute(Dialect::Builtin, code)?,
            rest,
            self,
        )
    }
}

impl Visitor for Locations<'_, '_> {
    fn int(&mut self, _: u64) {}

    fn blob(&mut self, _: &[u8]) {}

    fn string(&mut self, _: u64) -> Option<()> {
        None
    }

    fn attribute(&mut self, _: u64) -> Option<()> {
        None
    }

    fn kind(&mut self, _: u64) -> Option<()> {
        None
    }

    fn name(&mut self, index: u64) -> Option<()> {
        let entry = at(&self.module.attributes, index)?;
        let (_, mut rest) = entry.open()?;
        let is_string = builtin_code(entry)? == layouts::STRING_ATTRIBUTE;
        let string = at(&self.module.strings, rest.varint()?);
        (is_string && string.is_some() && rest.is_empty()).then_some(())
    }

    fn location(&mut self, index: u64) -> Option<()> {
        let index = usize::try_from(index).ok()?;
        if self.pending.len() >= PENDING_MAX {
            return None;
        }
        match self.seen.get(index)? {
            Seen::Good => {}
            Seen::Open | Seen::Not => self.pending.push(Step::Enter(index)),
        }
        Some(())
    }
}

fn builtin_code(entry: &Entry<'_>) -> Option<u64> {
    let own = entry.custom && entry.dialect == Dialect::Builtin;
    own.then(|| entry.open())?.map(|(code, _)| code)
}
