//! Pages of arrays that are on the device again: as long as an array is not overwritten, paging it out
//! needs no copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{PageMemory, Pool};

/// The page of an array that was paged in from it. The pool may have given it up.
pub(crate) struct KeptPage {
    pool: Arc<Pool>,
    number: u64,
}

impl KeptPage {
    pub(super) fn new(pool: &Arc<Pool>, number: u64) -> Self {
        Self {
            pool: Arc::clone(pool),
            number,
        }
    }

    /// The page, if it is still kept; it is the caller's from now on.
    pub(crate) fn take(&self) -> Option<PageMemory> {
        self.pool.take_page(self.number)
    }
}

impl Drop for KeptPage {
    fn drop(&mut self) {
        drop(self.take());
    }
}

/// All of them, by number: the oldest is the first.
#[derive(Default)]
pub(super) struct KeptPages {
    pages: BTreeMap<u64, PageMemory>,
    last: u64,
}

impl KeptPages {
    pub(super) fn bytes(&self) -> u64 {
        self.pages.values().map(|page| page.len() as u64).sum()
    }

    pub(super) fn add(&mut self, page: PageMemory) -> u64 {
        self.last += 1;
        self.pages.insert(self.last, page);
        self.last
    }

    pub(super) fn take(&mut self, number: u64) -> Option<PageMemory> {
        self.pages.remove(&number)
    }

    pub(super) fn pop_oldest(&mut self) -> Option<PageMemory> {
        self.pages.pop_first().map(|(_, page)| page)
    }
}
