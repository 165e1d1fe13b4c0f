//! Which programs a GPU's compiler measures for: those with matrix products and convolutions.
//!
//! A guess from the names of operations in the bytes, because a wrong one costs time only: a tuned
//! compilation that measures nothing, or a program that is not as fast as it could be.

/// As StableHLO's operations and the vendors' own calls are named.
const TUNED: &[&[u8]] = &[b"dot_general", b"convolution", b"__cublas$", b"__cudnn$"];

/// Whether anything in the program is worth measuring.
pub fn may_be_tuned(format: &str, code: &[u8]) -> bool {
    let has = |name: &&[u8]| code.windows(name.len()).any(|window| window == *name);
    // Operations of HLO have names that are part of others; those programs are few and large.
    format != "mlir" || TUNED.iter().any(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_tuned_and_sums_are_not() {
        let scale = include_bytes!("../corpus/mlir/scale.mlirbc");
        assert!(!may_be_tuned("mlir", scale));
        assert!(may_be_tuned("hlo", scale));
        let product = "func @main(%a) { stablehlo.dot_general %a, %a }";
        assert!(may_be_tuned("mlir", product.as_bytes()));
        assert!(!may_be_tuned("mlir", b""));
    }
}
