//! A well-behaved session beside the hostile ones: what it computes must stay right.

use std::time::Duration;

use salus_harness::{Client, Loss, Service};
use salus_wire::{ProgramId, Signature};

use crate::iteration::{self, Ran};

/// A launch waits for those of others before it.
const TIME: Duration = Duration::from_secs(60);
const ELEMENTS: u64 = 512;
/// Is in the canary's arrays, and must never be seen in anybody else's.
const MARK: u64 = 0x5ec2_e7a1_c0de_feed;
const CODE: &str = "module @canary { func.func public @main(%a: tensor<512xui64>)
    -> (tensor<512xui64>, tensor<512xui64>, tensor<8xui64>) {
  %c = stablehlo.constant dense<1234567> : tensor<512xui64>
  %m = stablehlo.multiply %a, %c : tensor<512xui64>
  %r = stablehlo.xor %m, %a : tensor<512xui64>
  %t = stablehlo.reverse %a, dims = [0] : tensor<512xui64>
  %s = stablehlo.slice %a [0:16:2] : (tensor<512xui64>) -> tensor<8xui64>
  return %r, %t, %s : tensor<512xui64>, tensor<512xui64>, tensor<8xui64> } }";

/// Whether bytes that another session was given hold what was the canary's.
pub(crate) fn is_stolen(bytes: &[u8]) -> bool {
    bytes.chunks_exact(8).any(|word| word == MARK.to_le_bytes())
}

pub(crate) struct Canary {
    session: Client,
    program: ProgramId,
    signature: Signature,
    round: u64,
}

impl Canary {
    pub(crate) fn new(service: &Service) -> Result<Self, Loss> {
        let mut session = Client::open(service.socket(), "canary")?;
        match session.compile("mlir", CODE.as_bytes(), &[], TIME)? {
            Ok((program, signature)) => Ok(Self {
                session,
                program,
                signature,
                round: 0,
            }),
            Err(error) => Err(Loss::Refused(error.message)),
        }
    }

    /// Whether a small program returns the right bits. `Err` if it does not return.
    pub(crate) fn sings(&mut self) -> Result<bool, Loss> {
        self.round += 1;
        let numbers: Vec<u64> = (0..ELEMENTS)
            .map(|n| if n % 2 == 0 { MARK } else { n * self.round })
            .collect();
        let bytes = |numbers: &mut dyn Iterator<Item = u64>| -> Vec<u8> {
            numbers.flat_map(u64::to_le_bytes).collect()
        };
        let mixed = |n: &u64| n.wrapping_mul(1_234_567) ^ n;
        let right = [
            bytes(&mut numbers.iter().map(mixed)),
            bytes(&mut numbers.iter().rev().copied()),
            bytes(&mut numbers.iter().step_by(2).take(8).copied()),
        ];
        let argument = bytes(&mut numbers.iter().copied());
        let sizes = right.each_ref().map(|one| one.len() as u64);
        let (program, signature) = (self.program, &self.signature);
        match iteration::run_with(
            &mut self.session,
            program,
            signature,
            &[argument],
            &sizes,
            TIME,
        )? {
            Ran::Well(results) => Ok(results == right),
            Ran::Failed(_) | Ran::NotFed => Ok(false),
        }
    }
}
