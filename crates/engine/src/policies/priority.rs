//! PRIORITY: a session of a higher class runs at the next boundary; equal shares within a class.

use super::{Facts, Rank};
use crate::{Class, Wishes};

pub(super) const WHAT: &str = "higher classes at the next boundary, equal shares within a class";

pub(super) fn rank(facts: &Facts<'_>) -> Rank {
    Rank::new(class(facts.wishes), facts.virtual_time)
}

pub(super) fn class(wishes: &Wishes) -> u8 {
    match wishes.class {
        Class::High => 1,
        Class::Normal => 2,
        Class::Low => 3,
    }
}
