//! A well-behaved session beside the hostile ones: what it computes must stay right.

use std::time::Duration;

use salus_wire::Signature;

use crate::service::Service;
use crate::session::{Loss, Ran, Session};

/// A launch waits for those of others before it.
const TIME: Duration = Duration::from_secs(60);
const ELEMENTS: u32 = 256;
const CODE: &str = "module @canary { func.func public @main(%a: tensor<256xi32>) -> tensor<256xi32> {
  %c = stablehlo.constant dense<1234567> : tensor<i32>
  %b = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<256xi32>
  %m = stablehlo.multiply %a, %b : tensor<256xi32>
  %r = stablehlo.xor %m, %a : tensor<256xi32>
  return %r : tensor<256xi32> } }";

pub(crate) struct Canary {
    session: Session,
    program: u64,
    signature: Signature,
    round: u32,
}

impl Canary {
    pub(crate) fn new(service: &Service) -> Result<Self, Loss> {
        let mut session = Session::open(service.socket(), "canary")?;
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
        let numbers: Vec<u32> = (0..ELEMENTS).map(|n| n.wrapping_mul(self.round)).collect();
        let bytes = |numbers: &[u32]| -> Vec<u8> {
            numbers.iter().flat_map(|n| n.to_le_bytes()).collect()
        };
        let right: Vec<u32> = numbers.iter().map(|n| n.wrapping_mul(1_234_567) ^ n).collect();
        let argument = bytes(&numbers);
        let size = argument.len() as u64;
        let (program, signature) = (self.program, &self.signature);
        match self.session.run_with(program, signature, &[argument], &[size], TIME)? {
            Ran::Well(results) => Ok(results == [bytes(&right)]),
            Ran::Failed(_) | Ran::NotFed => Ok(false),
        }
    }
}
