//! Serialized executables that were changed, as JAX's cache might hand them to the library.
//!
//! The library decodes a token in the job and asks the service to compile what is in it. Damage must
//! be noticed; what is whole but hostile is a program like any other.

use std::time::Duration;

use fastrand::Rng;
use salus_harness::{Client, Loss, Service};
use salus_wire::Token;

use crate::Problem;
use crate::canary::Canary;
use crate::options;
use crate::programs::{self, change_bytes};
use crate::setup::footprint;
use crate::tally::Tally;

const COMPILE_TIME: Duration = Duration::from_secs(60);

pub(crate) fn attack(service: &Service, seed: u64, count: u64) -> Result<Tally, Problem> {
    let mut tally = Tally::new("tokens");
    tally.note("before", footprint(service)?);
    let mut canary = Canary::new(service)?;
    let mut session = Client::open(service.socket(), "tokens")?;
    for seed in seed..seed.saturating_add(count) {
        let mut random = Rng::with_seed(seed);
        let (token, bytes, damaged) = token(&mut random);
        let decoded = match Token::decode(&bytes) {
            Ok(decoded) => decoded,
            Err(why) => {
                tally.count("refused as no token, or as damaged");
                tally.reason(&why.to_string());
                if !damaged {
                    tally.finding(format!(
                        "tokens --seed {seed} --count 1: a whole token is refused: {why}"
                    ));
                }
                continue;
            }
        };
        if damaged && decoded != token {
            tally.finding(format!(
                "tokens --seed {seed} --count 1: damage is not noticed"
            ));
        }
        match session.compile(
            &decoded.format,
            &decoded.code,
            &decoded.options,
            COMPILE_TIME,
        ) {
            Ok(Ok((program, _))) => {
                tally.count("compiled");
                session.drop_program(program);
            }
            Ok(Err(error)) => {
                tally.count("refused at compile");
                tally.reason(&error.message);
            }
            Err(loss) => {
                tally.count("session lost");
                tally.finding(format!("tokens --seed {seed} --count 1: {loss}"));
                service.wait_until_up()?;
                session = Client::open(service.socket(), "tokens")?;
            }
        }
    }
    match canary.sings() {
        Ok(true) => {}
        Ok(false) => tally.finding("the canary's bits are wrong".into()),
        Err(loss @ (Loss::Late | Loss::Refused(_) | Loss::Gone)) => {
            tally.finding(format!("the canary: {loss}"))
        }
    }
    drop((canary, session));
    service.wait_until_idle()?;
    tally.note("after", footprint(service)?);
    Ok(tally)
}

/// A token, its bytes, and whether those were changed.
fn token(random: &mut Rng) -> (Token, Vec<u8>, bool) {
    let (_, mut code) = match random.bool() {
        true => programs::module(random.u64(..)),
        false => {
            let (name, code) = programs::BYTECODE[random.usize(..programs::BYTECODE.len())];
            (name, code.to_vec())
        }
    };
    if random.u32(..8) == 0 {
        code.clear();
    }
    let format = match random.u32(..6) {
        0 => "hlo",
        1 => "",
        2 => "mlir\0",
        _ => "mlir",
    };
    let token = Token {
        format: format.into(),
        code,
        options: options::mutated(random, "/nonexistent"),
    };
    let mut bytes = token.encode();
    let damaged = random.u32(..3) > 0;
    if damaged {
        for _ in 0..random.u32(1..4) {
            change_bytes(random, &mut bytes);
        }
    }
    (token, bytes, damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_is_noticed() {
        for seed in 0..2000 {
            let (token, bytes, _) = token(&mut Rng::with_seed(seed));
            if let Ok(decoded) = Token::decode(&bytes) {
                assert_eq!(decoded, token, "seed {seed}");
            }
        }
    }
}
