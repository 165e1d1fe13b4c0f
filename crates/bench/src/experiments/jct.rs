//! `salus bench jct`: a queue of training jobs of very different lengths, as on a shared machine.
//!
//! Each job is a new process of an ordinary script, submitted at its time: it imports, compiles, trains
//! and ends. In every round the queue runs *exclusively* (one process at a time, directly on the plugin,
//! in the order of submission), from which come the durations alone, and through the service under
//! `srtf`, which is told the durations as the original was. The other ways run in the first round.
//! From the durations alone follows the best average that any order could have.

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use salus_engine::{Duration, Time};
use salus_sim::{IdealWork, shortest_remaining_first};
use serde_json::{Value, json};

use crate::Common;
use crate::contenders::queue::{self, ALIVE_MOST, Done, Submission};
use crate::contenders::service::PrivateService;
use crate::contenders::setup::{Route, Setup};
use crate::measure::statistics::{least, median, most, quantile_of};
use crate::report::experiment::{Claim, Experiment, Judgement, Plot, PlotKind, Series, Table};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// How often the queue runs exclusively and under `srtf`
    #[arg(long, value_name = "N", default_value_t = ROUNDS)]
    rounds: usize,
}

const ROUNDS: usize = 5;
const TARGET: f64 = 0.85;
/// Workload, steps, and seconds after the job before it.
pub(crate) type QueuedJob = (&'static str, u32, f64);

/// Lengths are heavy-tailed: half of the jobs have a tenth of the steps' time. Drawn once, because every
/// machine should run the same queue.
const QUEUE: [QueuedJob; 16] = [
    ("transformer_16", 1200, 0.0),
    ("mlp_64", 500, 1.0),
    ("lstm_16", 600, 2.0),
    ("mlp_wide_64", 1200, 1.0),
    ("cnn_32", 300, 2.5),
    ("mlp_64", 1500, 1.5),
    ("vae_64", 150, 2.0),
    ("lstm_16", 5000, 1.0),
    ("mlp_64", 400, 2.5),
    ("transformer_16", 200, 2.0),
    ("cnn_32", 2200, 1.5),
    ("vae_64", 300, 2.5),
    ("lstm_16", 800, 2.0),
    ("mlp_64", 700, 1.5),
    ("cnn_32", 400, 2.0),
    ("mlp_64", 2500, 2.5),
];
const QUICK_JOBS: usize = 6;
const QUICK_SHARE: f64 = 0.3;
/// Processes at once where each has a fixed share of the device's memory: the device is taken to be
/// large enough for two of the largest job.
const STATIC_SHARES: usize = 2;
/// What runs once, beside exclusive use and `srtf`; the first of them also in a quick run.
const OTHERS: [Way; 5] = [
    Way::Unmanaged,
    Way::Static,
    Way::Service("fair"),
    Way::Service("pack"),
    Way::Service("las"),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Exclusive,
    Static,
    Unmanaged,
    Service(&'static str),
}

impl Way {
    fn name(self) -> String {
        match self {
            Self::Exclusive => "exclusive".into(),
            Self::Static => "static partition".into(),
            Self::Unmanaged => "unmanaged".into(),
            Self::Service(policy) => format!("Salus, {policy}"),
        }
    }
}

/// One run of the queue.
struct Run {
    way: Way,
    jobs: Vec<Done>,
}

pub(crate) fn jct(arguments: &Arguments) -> Outcome {
    let setup = arguments.common.setup()?;
    let experiment = measure(&setup, arguments.common.quick, arguments.rounds)?;
    arguments.common.show(&setup, &experiment)
}

pub(crate) fn measure(setup: &Setup, quick: bool, rounds: usize) -> Result<Experiment, Problem> {
    let queue = queue(quick);
    let (rounds, others) = match quick {
        true => (1, &OTHERS[..1]),
        false => (rounds.max(1), &OTHERS[..]),
    };
    let mut all: Vec<Vec<Run>> = Vec::new();
    for round in 1..=rounds {
        let mut ways = vec![Way::Exclusive, Way::Service("srtf")];
        if round == 1 {
            ways.extend(others);
        }
        let mut runs: Vec<Run> = Vec::new();
        for way in ways {
            output::say(&format!("jct: round {round} of {rounds}, {}", way.name()));
            let alone = runs.first().map(|run| run.jobs.as_slice());
            let jobs = run(setup, way, &queue, alone)?;
            runs.push(Run { way, jobs });
        }
        all.push(runs);
    }
    Ok(experiment(&queue, &all))
}

pub(crate) fn queue(quick: bool) -> Vec<QueuedJob> {
    let shorter = |(name, steps, gap)| (name, (f64::from(steps) * QUICK_SHARE) as u32, gap);
    match quick {
        true => QUEUE.into_iter().take(QUICK_JOBS).map(shorter).collect(),
        false => QUEUE.to_vec(),
    }
}

fn run(
    setup: &Setup,
    way: Way,
    queue: &[QueuedJob],
    alone: Option<&[Done]>,
) -> Result<Vec<Done>, Problem> {
    let service = match way {
        Way::Service(policy) => Some(PrivateService::start_with(setup, &["--policy", policy])?),
        _ => None,
    };
    let jobs = submissions(queue, service.as_ref(), alone);
    let at_once = match way {
        Way::Exclusive => 1,
        Way::Static => STATIC_SHARES,
        Way::Unmanaged | Way::Service(_) => ALIVE_MOST,
    };
    queue::run(setup, &jobs, at_once, |_| {})
}

/// The queue's jobs, through a service or directly. A service is told how long their steps took alone,
/// or how many they are where that is not known.
pub(crate) fn submissions(
    queue: &[QueuedJob],
    service: Option<&PrivateService>,
    alone: Option<&[Done]>,
) -> Vec<Submission> {
    let mut at = 0.0;
    let jobs = queue.iter().enumerate();
    let submission = |(index, (workload, steps, gap)): (usize, &QueuedJob)| {
        at += gap;
        let alone = alone.and_then(|alone| alone.get(index));
        let told = match alone {
            Some(alone) => {
                let expected = ((alone.trained - alone.compiled) * 1e6) as u64;
                (salus_wire::env::EXPECT_US, expected.to_string())
            }
            None => (salus_wire::env::ITERATIONS, steps.to_string()),
        };
        let steps = steps.to_string();
        Submission {
            name: format!("{index}-{workload}"),
            at,
            command: ["train.py", workload, "--steps", &steps]
                .map(String::from)
                .to_vec(),
            route: match service {
                None => Route::Direct,
                Some(service) => Route::Salus(service.socket().to_owned(), vec![told]),
            },
        }
    };
    jobs.map(submission).collect()
}

/// Figures of one run, in seconds.
struct Figures {
    average: f64,
    quantiles: [f64; 3],
    queueing: f64,
    makespan: f64,
}

impl Figures {
    fn of(jobs: &[Done]) -> Self {
        let times: Vec<f64> = jobs.iter().map(Done::completion).collect();
        // Until the first step had ended: what a person waits for to see it run.
        let waits = jobs.iter().map(|job| job.compiled - job.submitted);
        Self {
            average: mean(&times),
            quantiles: [0.5, 0.95, 0.99].map(|q| quantile_of(&times, q)),
            queueing: mean(&waits.collect::<Vec<f64>>()),
            makespan: jobs.iter().map(|job| job.ended).fold(0.0, f64::max),
        }
    }

    fn row(&self, name: &str, exclusive: f64) -> Vec<String> {
        let [p50, p95, p99] = self.quantiles;
        let seconds = [self.average, p50, p95, p99, self.queueing, self.makespan];
        let mut row = vec![name.to_owned()];
        row.extend(seconds.map(|s| format!("{s:.1} s")));
        row.push(format!("{:.2} x", exclusive / self.average));
        row
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The best average completion time of these jobs, from what each took alone.
fn ideal_average(alone: &[Done]) -> f64 {
    let nanoseconds = |seconds: f64| (seconds * 1e9) as u64;
    let work = |job: &Done| IdealWork {
        submitted: Time(nanoseconds(job.submitted)),
        service: Duration(nanoseconds(job.took())),
    };
    let jobs: Vec<IdealWork> = alone.iter().map(work).collect();
    let ends = shortest_remaining_first(&jobs).into_iter().zip(&jobs);
    let completions = ends.map(|((_, ended), job)| (ended - job.submitted).0 as f64 / 1e9);
    mean(&completions.collect::<Vec<f64>>())
}

/// What one round says of `srtf`.
struct Gain {
    reached: f64,
    ideal: f64,
}

impl Gain {
    fn of(runs: &[Run]) -> Self {
        let (alone, srtf) = (&runs[0].jobs, &runs[1].jobs);
        let exclusive = Figures::of(alone).average;
        Self {
            reached: exclusive / Figures::of(srtf).average,
            ideal: exclusive / ideal_average(alone),
        }
    }

    fn share(&self) -> f64 {
        self.reached / self.ideal
    }
}

fn experiment(queue: &[QueuedJob], rounds: &[Vec<Run>]) -> Experiment {
    let gains: Vec<Gain> = rounds.iter().map(|runs| Gain::of(runs)).collect();
    let first = &rounds[0];
    let exclusive = Figures::of(&first[0].jobs).average;
    let mut rows: Vec<Vec<String>> = first
        .iter()
        .map(|run| Figures::of(&run.jobs).row(&run.way.name(), exclusive))
        .collect();
    let best = ideal_average(&first[0].jobs);
    let mut ideal_row = vec!["ideal, from durations alone".into(), format!("{best:.1} s")];
    ideal_row.extend(vec![String::new(); 5]);
    ideal_row.push(format!("{:.2} x", exclusive / best));
    rows.push(ideal_row);
    let shares: Vec<f64> = gains.iter().map(Gain::share).collect();
    let share = median(shares.iter().copied());
    let reached = median(gains.iter().map(|gain| gain.reached));
    let ideal = median(gains.iter().map(|gain| gain.ideal));
    Experiment {
        name: "jct".into(),
        title: "Completion time of a queue".into(),
        command: "salus bench jct".into(),
        what: format!(
            "{} training jobs, each a new process that imports, compiles and trains, submitted over {:.0} s; \
             at most {ALIVE_MOST} processes at once. Exclusive: one at a time, directly on the plugin, in \
             order. Static partition: {STATIC_SHARES} at once. Unmanaged: all at once, without Salus.",
            queue.len(),
            queue.iter().map(|job| job.2).sum::<f64>(),
        ),
        claims: vec![Claim {
            what: "gain of `srtf` over exclusive, as a part of the ideal gain".into(),
            original: "3.19 x over FIFO on its own trace".into(),
            target: format!("at least {TARGET}"),
            measured: format!("{share:.2} ({reached:.2} x of at most {ideal:.2} x)"),
            spread: format!("{:.2} to {:.2}", least(&shares), most(&shares)),
            rounds: rounds.len(),
            verdict: Judgement::of(share >= TARGET),
            reason: "the ideal is one device that runs the shortest remaining job, with durations \
                     alone; imports and compilations beside other jobs' steps can beat it"
                .into(),
        }],
        tables: vec![Table {
            title: "completion times, first round".into(),
            columns: [
                "way",
                "average",
                "p50",
                "p95",
                "p99",
                "first step",
                "makespan",
                "gain",
            ]
            .map(String::from)
            .to_vec(),
            rows,
        }],
        plots: vec![distribution(first)],
        numbers: json!({
            "share_of_ideal": shares,
            "gains": gains.iter().map(|g| g.reached).collect::<Vec<_>>(),
            "ideal_gains": gains.iter().map(|g| g.ideal).collect::<Vec<_>>(),
            "rounds": rounds.iter().map(|runs| round_json(queue, runs)).collect::<Vec<_>>(),
        }),
    }
}

/// The part of the jobs that is complete after a time.
fn distribution(runs: &[Run]) -> Plot {
    let series = runs.iter().map(|run| {
        let mut times: Vec<f64> = run.jobs.iter().map(Done::completion).collect();
        times.sort_by(f64::total_cmp);
        let count = times.len() as f64;
        let points = times.into_iter().enumerate();
        Series::new(
            &run.way.name(),
            points.map(|(n, t)| (t, (n + 1) as f64 / count)),
        )
    });
    Plot {
        name: "jct".into(),
        title: "Jobs that were complete after a time".into(),
        kind: PlotKind::Steps,
        x: "completion time (s)".into(),
        y: "part of the jobs".into(),
        log_x: false,
        log_y: false,
        groups: Vec::new(),
        series: series.collect(),
    }
}

fn round_json(queue: &[QueuedJob], runs: &[Run]) -> Value {
    let run = |run: &Run| {
        let jobs = run
            .jobs
            .iter()
            .zip(queue)
            .map(|(job, (workload, steps, _))| {
                json!({
                    "workload": workload,
                    "steps": steps,
                    "submitted_s": job.submitted,
                    "started_s": job.started,
                    "imported_s": job.imported,
                    "compiled_s": job.compiled,
                    "trained_s": job.trained,
                    "ended_s": job.ended,
                    "loss": job.loss,
                })
            });
        json!({ "way": run.way.name(), "jobs": jobs.collect::<Vec<_>>() })
    };
    runs.iter().map(run).collect()
}
