//! The attack as one command: JAX jobs train while everything else in this crate happens at once.
//!
//! First the jobs run by themselves, round after round until the time is over, then again under
//! attack. Every round must print the bits of the first one; the device host must not die.
//!
//! How much of a job's time may be the attackers' doing? They are users of the service like others, and
//! entitled to their turns on the device. So the time that the device worked for them is taken off a
//! round's time, and what is left is compared with the undisturbed rounds, of which each job has the other
//! jobs beside it all the time, too:
//!
//! ```text
//! ratio = (time of a round under attack - device time of attackers meanwhile) / undisturbed time
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

use crate::iteration;
use crate::setup::Setup;
use crate::setup::footprint;
use salus_harness::{Client, Service, TempDir};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use fastrand::Rng;
use serde_json::json;

use crate::Problem;
use crate::tally::Tally;
use account::Account;
use jobs::{Job, Round};

#[derive(Args)]
pub(crate) struct Arguments {
    /// How long the attack lasts, and as long before it that is compared with
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Only these attackers: `kills and stops`, `frames`, …; `none` shows the noise
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,
    /// How many well-behaved jobs train meanwhile
    #[arg(long, default_value_t = 5)]
    jobs: usize,
    /// How long their training is, in percent of what it is by default
    #[arg(long, default_value_t = 100)]
    steps: u64,
    /// The seed of all random draws
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the example scripts are
    #[arg(long, default_value = "examples")]
    examples: PathBuf,
}

pub(crate) fn attack(setup: &Setup, arguments: &Arguments) -> Result<Tally, Problem> {
    let service = setup.start_with(&["--memory", "4GiB", "--host-memory", "512MiB"])?;
    let keeper = setup.keeper()?;
    let logs = TempDir::new(&keeper, "salus-attack-")?;
    let jobs = jobs::all(setup, &keeper, &logs, arguments, service.socket())?;
    let mut tally = Tally::new("all");
    let lasts = Duration::from_secs(arguments.seconds);
    // The first rounds compile, and say which bits are right; the second ones say how long it takes.
    let right = jobs::rounds(&jobs, None)?;
    let calm = jobs::rounds(&jobs, Some(Instant::now() + lasts))?;
    tally.note("before", footprint(&service)?);
    let restarts = service.restarts()?;

    let over = AtomicBool::new(false);
    let began = Instant::now();
    let until = began + lasts;
    let account = Account::default();
    let (rounds, harm) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| account.watch(&service, &jobs, &over));
        let attackers = attackers::start(scope, &service, &keeper, arguments, &over);
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
            service.log_tail()
        ));
    }
    for (number, job) in jobs.iter().enumerate() {
        let right = &right[number][0];
        compare_bits(&mut tally, job, right, &calm[number]);
        compare_bits(&mut tally, job, right, &rounds[number]);
        compare_times(&mut tally, job, &calm[number], &rounds[number], &account);
    }
    service.wait_until_idle()?;
    tally.note("after", footprint(&service)?);
    tally.note("attack_seconds", began.elapsed().as_secs_f64());
    Ok(tally)
}

fn compare_bits(tally: &mut Tally, job: &Job, right: &Round, rounds: &[Round]) {
    for round in rounds {
        tally.count("rounds of training");
        if round.output != right.output {
            tally.count("rounds with other bits");
            tally.finding(format!(
                "{}: a round ended with\n{}\nand not\n{}\n{}",
                job.name,
                last_line(&round.output),
                last_line(&right.output),
                round.errors
            ));
        }
    }
}

fn compare_times(
    tally: &mut Tally,
    job: &Job,
    calm: &[Round],
    rounds: &[Round],
    account: &Account,
) {
    let mean = |rounds: &[Round]| {
        let whole: Duration = rounds.iter().map(Round::time).sum();
        whole.as_secs_f64() / rounds.len().max(1) as f64
    };
    let others: Duration = rounds
        .iter()
        .map(|round| account.between(round.began, round.ended))
        .sum();
    let others = others.as_secs_f64() / rounds.len().max(1) as f64;
    let (undisturbed, attacked) = (mean(calm), mean(rounds));
    let rounded = |number: f64| (number * 100.0).round() / 100.0;
    tally.note(
        job.name.clone(),
        json!({
            "rounds": rounds.len(),
            "undisturbed_s": rounded(undisturbed),
            "under_attack_s": rounded(attacked),
            "attackers_device_s": rounded(others),
            "ratio": rounded((attacked - others) / undisturbed),
        }),
    );
}

fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or("nothing")
}

/// A session that launches until it is killed: what the siege stops and kills at random.
pub(crate) fn victim(service: &Service, seed: u64) -> Result<Tally, Problem> {
    let mut random = Rng::with_seed(seed);
    let mut session = Client::open(service.socket(), "victim")?;
    loop {
        let code = attackers::small_program(random.u32(..1000));
        let made = session.compile("mlir", code.as_bytes(), &[], Duration::from_secs(60))?;
        let (program, signature) = made?;
        for _ in 0..random.u32(1..200) {
            iteration::run(
                &mut session,
                program,
                &signature,
                None,
                Duration::from_secs(60),
            )?;
        }
        session.drop_program(program);
    }
}
