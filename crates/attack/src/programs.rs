//! Modules with bytes and words changed, as text and as bytecode.
//!
//! Half of them are bytecode that JAX made of small functions, half are modules of `generated`. What
//! still compiles is run. Some of it may run long: then the service is asked to end it.

use fastrand::Rng;
use salus_harness::Service;

use crate::Problem;
use crate::generated;
use crate::runs::{Module, Runs};
use crate::tally::Tally;

/// Made by JAX 0.10.2 of functions that sort, scan, gather, convolve, factorize and draw.
pub(crate) const BYTECODE: &[(&str, &[u8])] = &[
    (
        "conv",
        include_bytes!("../../formats/corpus/mlir/conv.mlirbc"),
    ),
    (
        "gather",
        include_bytes!("../../formats/corpus/mlir/gather.mlirbc"),
    ),
    (
        "mlp",
        include_bytes!("../../formats/corpus/mlir/mlp.mlirbc"),
    ),
    ("qr", include_bytes!("../../formats/corpus/mlir/qr.mlirbc")),
    (
        "random",
        include_bytes!("../../formats/corpus/mlir/random.mlirbc"),
    ),
    (
        "scan",
        include_bytes!("../../formats/corpus/mlir/scan.mlirbc"),
    ),
    (
        "sort",
        include_bytes!("../../formats/corpus/mlir/sort.mlirbc"),
    ),
];

pub(crate) fn attack(service: &Service, seed: u64, count: u64) -> Result<Tally, Problem> {
    let mut runs = Runs::new(service, "programs")?;
    for seed in seed..seed.saturating_add(count) {
        let (what, code) = module(seed);
        runs.module(&Module {
            origin: format!("programs --seed {seed} --count 1 ({what})"),
            code,
            options: Vec::new(),
            seed,
        })?;
    }
    runs.finish()
}

pub(crate) fn module(seed: u64) -> (&'static str, Vec<u8>) {
    let mut random = Rng::with_seed(seed);
    if random.bool() {
        let (name, code) = BYTECODE[random.usize(..BYTECODE.len())];
        let mut code = code.to_vec();
        for _ in 0..random.u32(1..4) {
            change_bytes(&mut random, &mut code);
        }
        return (name, code);
    }
    let text = generated::module(random.u64(..), false).text;
    ("text", change_text(&mut random, &text).into_bytes())
}

pub(crate) fn change_bytes(random: &mut Rng, code: &mut Vec<u8>) {
    if code.is_empty() {
        return;
    }
    let (len, at) = (code.len(), random.usize(..code.len()));
    let length = random.usize(1..9).min(len - at);
    match random.u32(..8) {
        0 => code[at] ^= 1 << random.u32(..8),
        1 => code[at] = random.u8(..),
        2 => code[at] = code[at].wrapping_add(1),
        3 => code[at] = code[at].wrapping_sub(1),
        4 => drop(code.drain(at..at + length)),
        5 => {
            let part = code[at..at + length].to_vec();
            let to = random.usize(..len);
            code.splice(to..to, part);
        }
        6 => {
            let other = random.usize(..len);
            code.swap(at, other);
        }
        _ => code.truncate(at),
    }
}

/// Words that mean something in a module.
const WORDS: &[&str] = &[
    "f32",
    "i32",
    "i1",
    "ui64",
    "bf16",
    "complex<f32>",
    "i4",
    "0",
    "1",
    "-1",
    "2",
    "7",
    "64",
    "4096",
    "9223372036854775807",
    "-9223372036854775808",
    "4294967296",
    "?",
    "true",
    "false",
    "LT",
    "GE",
    "add",
    "subtract",
    "divide",
    "sort",
    "while",
    "reduce",
    "gather",
    "scatter",
    "#stablehlo.bounds<4>",
    "dense<>",
    "tensor<f32>",
    "tensor<?xi32>",
    "[]",
    "[0]",
    "[1, 0]",
    "%p0",
    "%v1",
    "%v2",
];

fn change_text(random: &mut Rng, text: &str) -> String {
    let mut words = words_of(text);
    for _ in 0..random.u32(1..5) {
        let at = random.usize(..words.len());
        match random.u32(..6) {
            // A number becomes another one near it, or one of the special ones.
            0..3 => {
                let numbers: Vec<usize> = (0..words.len())
                    .filter(|at| words[*at].bytes().all(|byte| byte.is_ascii_digit()))
                    .collect();
                if let Some(at) = random.choice(&numbers) {
                    let number: i64 = words[*at].parse().unwrap_or(0);
                    words[*at] = match random.u32(..4) {
                        0 => number.saturating_add(1).to_string(),
                        1 => (number - 1).max(0).to_string(),
                        2 => (number / 2).to_string(),
                        _ => random.choice(WORDS).map_or("0", |word| *word).to_owned(),
                    };
                }
            }
            3 => words[at] = random.choice(WORDS).map_or("0", |word| *word).to_owned(),
            4 => {
                let other = random.usize(..words.len());
                words.swap(at, other);
            }
            _ => {
                words.remove(at);
            }
        }
    }
    words.concat()
}

/// Words, numbers, and what is between them.
fn words_of(text: &str) -> Vec<String> {
    let kind = |letter: char| match letter {
        letter if letter.is_ascii_digit() => 0,
        letter if letter.is_alphabetic() || matches!(letter, '_' | '.' | '%') => 1,
        _ => 2,
    };
    let mut words: Vec<String> = Vec::new();
    let mut last = 3;
    for letter in text.chars() {
        let now = kind(letter);
        match words.last_mut() {
            Some(word) if now == last && now != 2 => word.push(letter),
            _ => words.push(letter.into()),
        }
        last = now;
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_module_and_no_change_panics() {
        for seed in 0..3000 {
            assert_eq!(module(seed), module(seed));
        }
    }
}
