//! Modules that once did harm, kept so that they never do again.

use std::path::Path;

use salus_harness::Service;

use crate::Problem;
use crate::runs::{Module, Runs};
use crate::tally::Tally;

/// What each did is in its first line.
const HARMFUL: &[(&str, &str)] = &[
    (
        "dynamic_result",
        include_str!("../corpus/dynamic_result.mlir"),
    ),
    (
        "exchange_two_bits",
        include_str!("../corpus/exchange_two_bits.mlir"),
    ),
    ("gather_more", include_str!("../corpus/gather_more.mlir")),
    ("infeed", include_str!("../corpus/infeed.mlir")),
    ("outfeed", include_str!("../corpus/outfeed.mlir")),
    (
        "permute_absent",
        include_str!("../corpus/permute_absent.mlir"),
    ),
    (
        "sort_nan_self",
        include_str!("../corpus/sort_nan_self.mlir"),
    ),
    (
        "sort_not_greater",
        include_str!("../corpus/sort_not_greater.mlir"),
    ),
    (
        "sort_returns_parameter",
        include_str!("../corpus/sort_returns_parameter.mlir"),
    ),
    ("sort_true", include_str!("../corpus/sort_true.mlir")),
    (
        "sort_two_bits",
        include_str!("../corpus/sort_two_bits.mlir"),
    ),
];

pub(crate) fn attack(service: &Service) -> Result<Tally, Problem> {
    let mut runs = Runs::new(service, "corpus")?;
    for (name, code) in HARMFUL {
        // With zeros and with random numbers.
        for seed in 0..4 {
            runs.module(&Module {
                origin: format!("corpus/{name}.mlir, seed {seed}"),
                code: code.as_bytes().to_vec(),
                options: Vec::new(),
                seed,
            })?;
        }
    }
    runs.finish()
}

pub(crate) fn one(service: &Service, file: &Path, seed: u64) -> Result<Tally, Problem> {
    let mut runs = Runs::new(service, "run")?;
    runs.module(&Module {
        origin: file.display().to_string(),
        code: std::fs::read(file)?,
        options: Vec::new(),
        seed,
    })?;
    runs.finish()
}
