//! Random modules of valid StableHLO.
//!
//! A module is a few arguments and a few operations on them, drawn from families that a vendor's code
//! generator or runtime may take wrongly: each is what the language allows, or nearly so (the
//! compiler's refusals are counted). Operations are chained, so that they are also fused.
//!
//! Promise: all of it ends. Loops count, and nothing is larger than a few hundred kB.

mod builder;
mod calls;
mod control;
mod index;
mod lapack;
mod math;
mod products;
mod window;

use salus_harness::Service;

use self::builder::{Builder, Value};
use crate::Problem;
use crate::runs::{Module, Runs};
use crate::tally::Tally;

/// With `small`, most arrays have elements of less than a byte.
pub(crate) fn attack(
    service: &Service,
    seed: u64,
    count: u64,
    small: bool,
) -> Result<Tally, Problem> {
    let mut runs = Runs::new(service, "generated")?;
    for seed in seed..seed.saturating_add(count) {
        let made = module(seed, small);
        runs.module(&Module {
            origin: format!(
                "generated --seed {seed} --count 1{} ({})",
                if small { " --small" } else { "" },
                made.families.join(", ")
            ),
            code: made.text.into_bytes(),
            options: Vec::new(),
            seed,
        })?;
    }
    runs.finish()
}

/// A module and what it is made of.
pub(crate) struct Made {
    pub(crate) text: String,
    pub(crate) families: Vec<&'static str>,
}

/// An operation that is appended to a module. It picks its operands among the values there are.
type Family = fn(&mut Builder);

const FAMILIES: &[(&str, u32, Family)] = &[
    ("elementwise", 4, math::elementwise),
    ("convert", 2, math::convert),
    ("bitcast", 2, math::bitcast),
    ("compare and select", 2, math::select),
    ("move", 3, math::move_about),
    ("dot", 2, products::dot),
    ("fft", 2, products::fft),
    ("random numbers", 2, products::random_numbers),
    ("linear algebra", 2, products::linear_algebra),
    ("batch norm", 1, products::batch_norm),
    ("sort", 6, index::sort),
    ("gather", 4, index::gather),
    ("scatter", 5, index::scatter),
    ("dynamic slice", 4, index::dynamic_slice),
    ("dynamic size", 3, index::dynamic_size),
    ("reduce", 3, window::reduce),
    ("reduce window", 3, window::reduce_window),
    ("select and scatter", 2, window::select_and_scatter),
    ("convolution", 3, window::convolution),
    ("pad", 2, window::pad),
    ("loop", 3, control::nested_loops),
    ("branch", 2, control::branch),
    ("map", 1, control::map),
    ("tuple", 1, control::tuple),
    ("call", 1, control::call),
    ("collective", 4, calls::collective),
    ("custom call", 4, calls::custom_call),
    ("lapack", 4, lapack::lapack),
    ("top k", 2, calls::top_k),
    ("callback", 1, calls::callback),
    ("token", 2, calls::token),
];

pub(crate) fn module(seed: u64, small: bool) -> Made {
    let mut builder = Builder::new(seed, small);
    let parameters: Vec<Value> = (0..builder.random.usize(1..4))
        .map(|_| builder.parameter())
        .collect();
    let weights: u32 = FAMILIES.iter().map(|(_, weight, _)| weight).sum();
    let mut families = Vec::new();
    for _ in 0..builder.random.usize(1..5) {
        let mut drawn = builder.random.u32(..weights);
        for (name, weight, family) in FAMILIES {
            if drawn < *weight {
                families.push(*name);
                family(&mut builder);
                break;
            }
            drawn -= weight;
        }
    }
    Made {
        text: builder.finish(&parameters),
        families,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_module() {
        for seed in 0..500 {
            let (one, again) = (module(seed, false), module(seed, false));
            assert_eq!(one.text, again.text);
            assert!(one.text.len() < 1 << 16, "{}", one.text);
        }
    }

    #[test]
    fn every_family_is_drawn() {
        let mut seen: Vec<&str> = (0..2000)
            .flat_map(|seed| module(seed, false).families)
            .collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), FAMILIES.len());
    }
}
