//! The attack as one command: JAX jobs train while everything else in this crate happens at once.
//!
//! First the jobs run by themselves, then again under attack, round after round until the time is
//! over. Every round must print the bits that it printed undisturbed; the device host must not die.
//!
//! How much of a job's time may be the attackers' doing? They are users of the service like others, and
//! entitled to their turns on the device. So the time that the device worked for them is taken off a
//! round's time, and what is left is compared with the undisturbed round:
//!
//! ```text
//! ratio = (time of the round under attack - device time of attackers meanwhile) / undisturbed time
//! ```
//!
//! Both times are from the job's first line of output to its last, that is, of training: not of
//! Python's start. The attackers' device time is from the service's own record of every iteration
//! (`salus trace`). Attackers run at the lowest priority of the machine (nice 19), because the question
//! is what the service lets them do, not what the kernel lets them do with the cores that the device is
//! made of. Times are shown, never judged: 1.10 is the aim on a machine that does nothing else.

mod account;
mod attackers;
mod jobs;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use fastrand::Rng;
use serde_json::json;

use crate::Problem;
use crate::service::{Service, Setup};
use crate::session::Session;
use crate::tally::Tally;
use account::Account;
use jobs::{Job, Round};

#[derive(Args)]
pub(crate) struct Arguments {
    /// How long the attack lasts
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// How many well-behaved jobs train meanwhile
    #[arg(long, default_value_t = 5)]
    jobs: usize,
    /// How long their training is, in percent of what it is by default
    #[arg(long, default_value_t = 100)]
    steps: u64,
    /// Where chance begins
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the example scripts are
    #[arg(long, default_value = "examples")]
    examples: PathBuf,
}

pub(crate) fn attack(setup: &Setup, arguments: &Arguments) -> Result<Tally, Problem> {
    let service = Service::start_with(setup, "", &["--memory", "4GiB", "--host-memory", "512MiB"])?;
    let jobs = jobs::all(setup, arguments, service.socket())?;
    let mut tally = Tally::new("all");
    // The first rounds compile, and say which bits are right; the second ones say how long it takes.
    let right = jobs::rounds(&jobs, None)?;
    let calm = jobs::rounds(&jobs, None)?;
    for (job, (first, second)) in jobs.iter().zip(right.iter().zip(&calm)) {
        if first[0].output != second[0].output {
            tally.finding(format!("{}: undisturbed rounds differ", job.name));
        }
    }
    tally.note("before", service.footprint()?);
    let restarts = service.restarts()?;

    let over = AtomicBool::new(false);
    let began = Instant::now();
    let until = began + Duration::from_secs(arguments.seconds);
    let account = Account::default();
    let (rounds, harm) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| account.watch(&service, &jobs, &over));
        let attackers = attackers::start(scope, setup, &service, arguments.seed, &over);
        let rounds = jobs::rounds(&jobs, Some(until));
        over.store(true, Ordering::Relaxed);
        let mut harm = Vec::new();
        for attacker in attackers {
            harm.extend(attacker.join().map_err(|_| "an attacker panicked")?);
        }
        watch.join().map_err(|_| "the watch panicked")?;
        Ok::<_, Problem>((rounds?, harm))
    })?;
    for part in harm {
        tally.absorb(part);
    }
    let deaths = service.restarts()? - restarts;
    tally.add("deaths of the device host", deaths);
    if deaths > 0 {
        tally.finding(format!(
            "the device host died {deaths} times\n{}",
            service.log()
        ));
    }
    judge(&mut tally, &jobs, &calm, &rounds, &account);
    service.wait_until_idle()?;
    tally.note("after", service.footprint()?);
    tally.note("attack_seconds", began.elapsed().as_secs_f64());
    Ok(tally)
}

/// Compares the rounds under attack with the undisturbed ones.
fn judge(
    tally: &mut Tally,
    jobs: &[Job],
    calm: &[Vec<Round>],
    rounds: &[Vec<Round>],
    account: &Account,
) {
    let seconds = |time: Duration| (time.as_secs_f64() * 100.0).round() / 100.0;
    for ((job, calm), rounds) in jobs.iter().zip(calm).zip(rounds) {
        let calm = &calm[0];
        let mut whole = Duration::ZERO;
        let mut others = Duration::ZERO;
        for round in rounds {
            tally.count("rounds of training");
            if round.output != calm.output {
                tally.count("rounds with other bits");
                tally.finding(format!(
                    "{}: ended differently under attack:\n{}\nand not\n{}\n{}",
                    job.name,
                    last_line(&round.output),
                    last_line(&calm.output),
                    round.errors
                ));
            }
            whole += round.time();
            others += account.between(round.began, round.ended);
        }
        let count = rounds.len() as u32;
        let own = whole.saturating_sub(others) / count.max(1);
        tally.note(
            job.name.clone(),
            json!({
                "rounds": count,
                "undisturbed_s": seconds(calm.time()),
                "under_attack_s": seconds(whole / count.max(1)),
                "attackers_device_s": seconds(others / count.max(1)),
                "ratio": (own.as_secs_f64() / calm.time().as_secs_f64() * 100.0).round() / 100.0,
            }),
        );
    }
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or("nothing")
}

/// A session that launches until it is killed: what the siege stops and kills at random.
pub(crate) fn victim(service: &Service, seed: u64) -> Result<Tally, Problem> {
    let mut random = Rng::with_seed(seed);
    let mut session = Session::open(service.socket(), "victim")?;
    loop {
        let code = attackers::small_program(random.u32(..1000));
        let made = session.compile("mlir", code.as_bytes(), &[], Duration::from_secs(60))?;
        let (program, signature) = made?;
        for _ in 0..random.u32(1..200) {
            session.run(program, &signature, None, Duration::from_secs(60))?;
        }
        session.drop_program(program);
    }
}
