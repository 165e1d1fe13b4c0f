//! `salus bench sweep`: a search for hyper-parameters, as many short trials of one program.
//!
//! A trial is a new process of an ordinary script; its rate is an argument of the program, so all trials
//! run the same one. The trials run one after another directly on the plugin, the same with JAX's own
//! compilation cache, and several at once through the service under `pack`, in turn. One workload leaves
//! a core idle when it is alone, as short trials of small models do; the other does not.

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use serde_json::{Value, json};

use crate::Common;
use crate::contenders::queue::{self, Done, Submission};
use crate::contenders::service::PrivateService;
use crate::contenders::setup::{Route, Setup};
use crate::measure::statistics::median;
use crate::report::experiment::{
    Claim, Experiment, Judgement, Plot, PlotKind, Point, Series, Table,
};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// How often each way runs
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    rounds: usize,
    /// Trials of a sweep
    #[arg(long, value_name = "N", default_value_t = TRIALS)]
    trials: usize,
}

const ROUNDS: usize = 3;
pub(crate) const TRIALS: usize = 12;
const QUICK_TRIALS: usize = 3;
/// Trials at once through the service: while some compute, others import.
const AT_ONCE: usize = 6;
const TARGET: f64 = 2.4;
const CACHED_TARGET: f64 = 1.5;
/// The first has targets, and is the only one of a quick run.
const SWEEPS: [&str; 2] = ["seq2seq_8", "mlp_wide_64"];
/// Trials have as many steps as take this part of a trial's time alone on this machine: the gain is to be one
/// of training, not of starting. A trial of some steps says how many.
const STEPS_SHARE: f64 = 0.51;
const FIRST_STEPS: u32 = 500;
const ORIGINAL: [&str; 2] = ["2.38 x (superres_128)", "1.07 x (resnet50_50)"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Exclusive,
    Cached,
    Salus,
}

impl Way {
    const ALL: [Self; 3] = [Self::Exclusive, Self::Cached, Self::Salus];

    fn name(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Cached => "exclusive, JAX's cache",
            Self::Salus => "Salus",
        }
    }
}

pub(crate) fn sweep(arguments: &Arguments) -> Outcome {
    let setup = arguments.common.setup()?;
    let quick = arguments.common.quick;
    let experiment = measure(&setup, quick, arguments.rounds, arguments.trials)?;
    arguments.common.show(&setup, &experiment)
}

/// What a sweep took in each way: seconds in all, and of an average trial for import, compilation and
/// steps.
#[derive(Debug, Clone, Copy)]
struct Took {
    total: f64,
    split: [f64; 3],
}

impl Took {
    fn of(jobs: &[Done]) -> Self {
        let mean = |part: fn(&Done) -> f64| jobs.iter().map(part).sum::<f64>() / jobs.len() as f64;
        Self {
            total: jobs.iter().map(|job| job.ended).fold(0.0, f64::max),
            split: [
                mean(|job| job.imported - job.started),
                mean(|job| job.compiled - job.imported),
                mean(|job| job.trained - job.compiled),
            ],
        }
    }
}

/// One workload's sweep: rounds, in each of them all ways.
struct Sweep {
    workload: &'static str,
    /// Of each trial.
    steps: u32,
    rounds: Vec<[Took; 3]>,
}

impl Sweep {
    /// By how much Salus is faster, round by round.
    fn gains(&self, against: Way) -> Vec<f64> {
        let gain = |round: &[Took; 3]| round[against as usize].total / round[2].total;
        self.rounds.iter().map(gain).collect()
    }

    fn median(&self, figure: impl Fn(&[Took; 3]) -> f64) -> f64 {
        median(self.rounds.iter().map(figure))
    }

    /// The part of a trial's time alone that is steps.
    fn steps_share(&self) -> f64 {
        self.median(|round| {
            let split = round[0].split;
            split[2] / split.iter().sum::<f64>()
        })
    }
}

pub(crate) fn measure(
    setup: &Setup,
    quick: bool,
    rounds: usize,
    trials: usize,
) -> Result<Experiment, Problem> {
    let (chosen, rounds, trials) = match quick {
        true => (&SWEEPS[..1], 1, QUICK_TRIALS),
        false => (&SWEEPS[..], rounds.max(1), trials.max(1)),
    };
    let mut sweeps = Vec::new();
    for (n, &workload) in chosen.iter().enumerate() {
        output::say(&format!(
            "sweep: {workload}, one trial, for the number of steps"
        ));
        let first = run(setup, Way::Exclusive, workload, FIRST_STEPS, 1, 0)?;
        let steps = steps_for(STEPS_SHARE, &Took::of(&first), FIRST_STEPS);
        // The second is there for comparison.
        let (rounds, trials) = match n {
            0 => (rounds, trials),
            _ => (1, (trials / 3).max(1)),
        };
        let mut found = Vec::new();
        for round in 1..=rounds {
            let mut ways = Vec::new();
            for way in Way::ALL {
                output::say(&format!(
                    "sweep: {workload}, round {round} of {rounds}, {}",
                    way.name()
                ));
                ways.push(Took::of(&run(setup, way, workload, steps, trials, round)?));
            }
            found.push([ways[0], ways[1], ways[2]]);
        }
        sweeps.push(Sweep {
            workload,
            steps,
            rounds: found,
        });
    }
    Ok(experiment(&sweeps, trials))
}

/// How many steps take that part of a trial's time, given a trial with some steps; in hundreds.
fn steps_for(share: f64, trial: &Took, steps: u32) -> u32 {
    let [import, compile, training] = trial.split;
    let wanted = (import + compile) * share / (1.0 - share);
    let hundreds = wanted / training * f64::from(steps) / 100.0;
    100 * hundreds.ceil().clamp(1.0, 1000.0) as u32
}

fn run(
    setup: &Setup,
    way: Way,
    workload: &str,
    steps: u32,
    trials: usize,
    round: usize,
) -> Result<Vec<Done>, Problem> {
    let service = match way {
        Way::Salus => Some(PrivateService::start_with(setup, &["--policy", "pack"])?),
        _ => None,
    };
    let route = match (&service, way) {
        (Some(service), _) => Route::Salus(service.socket().to_owned(), Vec::new()),
        (None, Way::Cached) => {
            // A new one every time: the first trial fills it, as it fills the service's.
            let name = format!("sweep-{workload}-{round}");
            Route::DirectCached(setup.scratch.directory(&name)?)
        }
        (None, _) => Route::Direct,
    };
    let trial = |n: usize| {
        let (steps, rate) = (steps.to_string(), format!("{}", 1e-4 * (n + 1) as f64));
        let command = ["train.py", workload, "--steps", &steps, "--rate", &rate];
        Submission {
            name: format!("trial-{n}"),
            at: 0.0,
            command: command.map(String::from).to_vec(),
            route: route.clone(),
        }
    };
    let jobs: Vec<Submission> = (0..trials).map(trial).collect();
    let at_once = if way == Way::Salus { AT_ONCE } else { 1 };
    queue::run(setup, &jobs, at_once, |_| {})
}

fn experiment(sweeps: &[Sweep], trials: usize) -> Experiment {
    let mut claims = Vec::new();
    for (n, sweep) in sweeps.iter().enumerate() {
        let targets = [(Way::Exclusive, TARGET), (Way::Cached, CACHED_TARGET)];
        for (against, target) in targets {
            claims.push(claim(sweep, n, against, target));
        }
    }
    Experiment {
        name: "sweep".into(),
        title: "A hyper-parameter sweep".into(),
        command: "salus bench sweep".into(),
        what: format!(
            "{trials} trials of one program with different rates, each a new process; one at a time \
             directly on the plugin, the same with JAX's own compilation cache, and {AT_ONCE} at a time \
             through Salus under `pack`. Of the second program there are a third as many trials, once."
        ),
        claims,
        tables: vec![table(sweeps)],
        plots: vec![plot(sweeps)],
        numbers: sweeps.iter().map(sweep_json).collect::<Vec<Value>>().into(),
    }
}

fn claim(sweep: &Sweep, n: usize, against: Way, target: f64) -> Claim {
    let gains = sweep.gains(against);
    let gain = median(gains.iter().copied());
    let (least, most) = gains
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(low, high), gain| {
            (low.min(*gain), high.max(*gain))
        });
    let has_target = n == 0;
    Claim {
        what: format!("sweep of {} against {}", sweep.workload, against.name()),
        original: match against {
            Way::Exclusive => ORIGINAL[n].into(),
            _ => String::new(),
        },
        target: match has_target {
            true => format!("at least {target} x"),
            false => String::new(),
        },
        measured: format!("{gain:.2} x"),
        spread: format!("{least:.2} to {most:.2}"),
        rounds: gains.len(),
        verdict: match has_target {
            true => Judgement::of(gain >= target),
            false => Judgement::NoTarget,
        },
        reason: format!(
            "its {} steps are {:.0} % of a trial alone",
            sweep.steps,
            100.0 * sweep.steps_share()
        ),
    }
}

fn table(sweeps: &[Sweep]) -> Table {
    let mut rows = Vec::new();
    for sweep in sweeps {
        for (n, way) in Way::ALL.into_iter().enumerate() {
            let total = sweep.median(|round| round[n].total);
            let mut row = vec![
                format!("{}, {}", sweep.workload, way.name()),
                format!("{total:.1} s"),
            ];
            for part in 0..3 {
                let seconds = sweep.median(|round| round[n].split[part]);
                row.push(format!("{seconds:.2} s"));
            }
            rows.push(row);
        }
    }
    let columns = ["sweep", "in all", "import", "compile", "steps"];
    Table {
        title: "time of the sweep, and of an average trial".into(),
        columns: columns.map(String::from).to_vec(),
        rows,
    }
}

fn plot(sweeps: &[Sweep]) -> Plot {
    let series = |way: Way| {
        let points = sweeps.iter().enumerate().map(|(x, sweep)| {
            let totals = || sweep.rounds.iter().map(|round| round[way as usize].total);
            let low = totals().fold(f64::INFINITY, f64::min);
            let high = totals().fold(0.0, f64::max);
            Point {
                x: x as f64,
                y: median(totals()),
                spread: Some((low, high)),
            }
        });
        Series {
            name: way.name().into(),
            points: points.collect(),
        }
    };
    Plot {
        name: "sweep".into(),
        title: "Time of a sweep".into(),
        kind: PlotKind::Bars,
        x: String::new(),
        y: "seconds".into(),
        log_x: false,
        log_y: false,
        groups: sweeps.iter().map(|sweep| sweep.workload.into()).collect(),
        series: Way::ALL.into_iter().map(series).collect(),
    }
}

fn sweep_json(sweep: &Sweep) -> Value {
    let took = |(way, took): (Way, &Took)| {
        json!({
            "way": way.name(),
            "total_s": took.total,
            "import_s": took.split[0],
            "compile_s": took.split[1],
            "steps_s": took.split[2],
        })
    };
    let round = |round: &[Took; 3]| {
        Way::ALL
            .into_iter()
            .zip(round)
            .map(took)
            .collect::<Vec<_>>()
    };
    json!({
        "workload": sweep.workload,
        "steps": sweep.steps,
        "gain": sweep.gains(Way::Exclusive),
        "gain_over_cached": sweep.gains(Way::Cached),
        "rounds": sweep.rounds.iter().map(round).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_take_their_part_of_a_trial() {
        let trial = |split| Took { total: 0.0, split };
        assert_eq!(steps_for(0.5, &trial([2.0, 3.0, 1.0]), 500), 2500);
        assert_eq!(steps_for(0.75, &trial([1.0, 1.0, 1.0]), 500), 3000);
        // In hundreds, and never none.
        assert_eq!(steps_for(0.5, &trial([1.0, 1.0, 1.9]), 500), 600);
        assert_eq!(steps_for(0.5, &trial([0.0, 0.0, 1.0]), 500), 100);
    }
}
