//! Sessions that come and go: what is left of them?

use std::io::Write;
use std::time::{Duration, Instant};

use fastrand::Rng;
use salus_harness::{Client, Loss, Service};
use salus_wire::{ArrayId, Launch, OperationId, ToService, encode_frame};

use crate::Problem;
use crate::canary::Canary;
use crate::iteration;
use crate::setup::footprint;
use crate::tally::Tally;

const TIME: Duration = Duration::from_secs(60);
/// Different programs: few enough that most are found loaded, as those of real jobs are.
const PROGRAMS: u32 = 40;
/// The canary is asked after this many sessions.
const CANARY_EVERY: u64 = 50;

pub(crate) fn attack(service: &Service, seed: u64, seconds: u64) -> Result<Tally, Problem> {
    let mut tally = Tally::new("churn");
    let mut random = Rng::with_seed(seed);
    let mut canary = Canary::new(service)?;
    // What is kept loaded for the next job is the service's own, and bounded by its configuration.
    for number in 0..PROGRAMS {
        one(service, &mut random, number, 1, false)?;
    }
    tally.note("before", footprint(service)?);
    let restarts = service.restarts()?;
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut sessions = 0;
    while Instant::now() < end {
        let (number, many) = (random.u32(..PROGRAMS), random.u32(1..4));
        let cut = random.bool();
        match one(service, &mut random, number, many, cut) {
            Ok(()) if cut => tally.count("cut off in the middle of a frame"),
            Ok(()) => tally.count("ended in order"),
            Err(loss) => {
                tally.count("lost");
                tally.finding(format!("churn: session {sessions}: {loss}"));
                service.wait_until_up()?;
            }
        }
        sessions += 1;
        if sessions % CANARY_EVERY == 0 && !matches!(canary.sings(), Ok(true)) {
            tally.finding(format!(
                "churn: the canary no longer sings after {sessions} sessions"
            ));
            service.wait_until_up()?;
            canary = Canary::new(service)?;
        }
    }
    drop(canary);
    service.wait_until_idle()?;
    tally.add("deaths of the device host", service.restarts()? - restarts);
    tally.note("after", footprint(service)?);
    Ok(tally)
}

/// One session with `programs` programs, each run once.
fn one(
    service: &Service,
    random: &mut Rng,
    number: u32,
    programs: u32,
    cut: bool,
) -> Result<(), Loss> {
    let mut session = Client::open(service.socket(), "churn")?;
    for program in 0..programs {
        let code = format!(
            "module @churn {{ func.func public @main(%a: tensor<64x64xf32>) -> tensor<64x64xf32> {{
               %c = stablehlo.constant dense<{}.0> : tensor<64x64xf32>
               %r = stablehlo.multiply %a, %c : tensor<64x64xf32> return %r : tensor<64x64xf32> }} }}",
            (number + program) % PROGRAMS
        );
        let made = session.compile("mlir", code.as_bytes(), &[], TIME)?;
        let (id, signature) = made.map_err(|error| Loss::Refused(error.message))?;
        iteration::run(&mut session, id, &signature, None, TIME)?;
        if cut && program + 1 == programs {
            let mut bytes = Vec::new();
            let launch = ToService::from(Launch {
                operation: OperationId(999),
                program: id,
                first_output: ArrayId(1000),
                arguments: vec![ArrayId(1); random.usize(1..500)],
                keep: vec![],
            });
            encode_frame(&launch, 0, &mut bytes);
            bytes.truncate(random.usize(1..bytes.len()));
            let mut stream = session.stream();
            stream.write_all(&bytes)?;
        }
    }
    Ok(())
}
