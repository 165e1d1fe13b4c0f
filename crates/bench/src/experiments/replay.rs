//! `salus bench replay`: is what the simulator says of a queue what was measured?
//!
//! The queue of `salus bench jct` runs through a service that `salus trace record` follows; the simulator
//! replays the recording under the same policy. Completion is from the opening of a job's session to its
//! end, on both sides.

use std::path::Path;

use clap::Args;
use salus_console::{Outcome, output};
use salus_daemon::config::Problem;
use salus_harness::{Ending, Process};
use salus_sim::{Recording, Summary};
use serde_json::{Value, json};

use crate::Common;
use crate::contenders::queue::{self, ALIVE_MOST};
use crate::contenders::service::PrivateService;
use crate::contenders::setup::Setup;
use crate::experiments::jct;
use crate::report::experiment::{Claim, Experiment, Judgement, Plot, PlotKind, Series, Table};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    common: Common,
    /// Record and replay under these policies
    #[arg(long, value_name = "NAME", num_args = 1.., value_delimiter = ',',
          default_values_t = POLICIES.map(String::from))]
    policies: Vec<String>,
}

const POLICIES: [&str; 2] = ["srtf", "fair"];
/// How far the replay may be from what was measured.
const TARGET: f64 = 0.1;

pub(crate) fn replay(arguments: &Arguments) -> Outcome {
    let setup = arguments.common.setup()?;
    let experiment = measure(&setup, arguments.common.quick, &arguments.policies)?;
    arguments.common.show(&setup, &experiment)
}

/// One policy's run, and its replay.
struct Compared {
    policy: String,
    measured: Summary,
    replayed: Summary,
    /// Of each job, in seconds.
    jobs: Vec<(f64, f64)>,
    unfinished: usize,
}

impl Compared {
    /// How far the average and the 95th percentile are off.
    fn errors(&self) -> [f64; 2] {
        let off = |replayed: f64, measured: f64| replayed / measured - 1.0;
        let (replayed, measured) = (&self.replayed, &self.measured);
        [
            off(seconds(replayed.mean), seconds(measured.mean)),
            off(seconds(replayed.p95), seconds(measured.p95)),
        ]
    }
}

fn seconds(time: salus_engine::Duration) -> f64 {
    time.0 as f64 / 1e9
}

pub(crate) fn measure(
    setup: &Setup,
    quick: bool,
    policies: &[String],
) -> Result<Experiment, Problem> {
    let mut compared = Vec::new();
    for policy in policies {
        output::say(&format!("replay: the queue under {policy}, recorded"));
        compared.push(one(setup, policy, quick)?);
    }
    Ok(experiment(&compared))
}

fn one(setup: &Setup, policy: &str, quick: bool) -> Result<Compared, Problem> {
    let file = setup
        .scratch
        .path()
        .join(format!("{policy}.recording.jsonl"));
    let service = PrivateService::start_with(setup, &["--policy", policy])?;
    let mut recorder = recorder(setup, service.socket(), &file)?;
    let jobs = jct::submissions(&jct::queue(quick), Some(&service), None);
    queue::run(setup, &jobs, ALIVE_MOST, |_| {})?;
    service.wait_until_idle()?;
    if !recorder.end() {
        return Err(recorder.problem("`salus trace record` did not end"));
    }
    let text = std::fs::read_to_string(&file)
        .map_err(|e| Problem::new(format!("the recording cannot be read: {e}")))?;
    let recording = Recording::parse(&text, false)
        .map_err(|problem| Problem::new(format!("the recording is not whole: {problem}")))?;
    let replay = recording.replay(None);
    let job = |job: &salus_sim::recording::ReplayedJob| {
        let replayed = job.replayed.map_or(f64::NAN, seconds);
        (seconds(job.recorded), replayed)
    };
    Ok(Compared {
        policy: policy.into(),
        measured: replay.recorded(),
        replayed: replay.replayed(),
        jobs: replay.jobs.iter().map(job).collect(),
        unfinished: replay.unfinished(),
    })
}

/// Follows the service until it is told to end.
fn recorder(setup: &Setup, socket: &Path, file: &Path) -> Result<Process, Problem> {
    let log = setup.scratch.path().join("recorder.log");
    let salus = setup.keeper.salus().as_os_str().to_owned();
    let ending = Ending::Term;
    Process::start(&setup.keeper, &salus, ending, &log, |command| {
        command
            .args(["trace", "record"])
            .arg(file)
            .arg("--socket")
            .arg(socket)
            .stdout(std::process::Stdio::null());
    })
}

fn experiment(compared: &[Compared]) -> Experiment {
    let claims = compared.iter().map(|one| {
        let errors = one.errors();
        let [average, p95] = errors;
        let within = errors.iter().all(|error| error.abs() <= TARGET);
        Claim {
            what: format!("replay of {} jobs under `{}`", one.jobs.len(), one.policy),
            original: String::new(),
            target: format!("average and p95 within {:.0} %", 100.0 * TARGET),
            measured: format!(
                "average {:+.1} %, p95 {:+.1} %",
                100.0 * average,
                100.0 * p95
            ),
            spread: String::new(),
            rounds: 1,
            verdict: Judgement::of(within && one.unfinished == 0),
            reason: match one.unfinished {
                0 => String::new(),
                left => format!("{left} jobs did not end in the replay"),
            },
        }
    });
    let rows = compared.iter().flat_map(|one| {
        let row = |what: &str, of: &Summary| {
            let times = [of.mean, of.p50, of.p95, of.p99].map(seconds);
            let mut row = vec![format!("{}, {what}", one.policy)];
            row.extend(times.map(|time| format!("{time:.2} s")));
            row
        };
        [
            row("measured", &one.measured),
            row("replayed", &one.replayed),
        ]
    });
    let series = compared.iter().map(|one| {
        let mut points = one.jobs.clone();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        Series::new(&one.policy, points)
    });
    Experiment {
        name: "replay".into(),
        title: "The simulator against a real run".into(),
        command: "salus bench replay".into(),
        what: "The queue of `salus bench jct` through a service that `salus trace record` follows, and \
               the recording replayed by the simulator under the same policy."
            .into(),
        claims: claims.collect(),
        tables: vec![Table {
            title: "completion times, from the opening of a session to its end".into(),
            columns: ["run", "average", "p50", "p95", "p99"]
                .map(String::from)
                .to_vec(),
            rows: rows.collect(),
        }],
        plots: vec![Plot {
            name: "replay".into(),
            title: "Completion in the simulator over completion measured".into(),
            kind: PlotKind::Lines,
            x: "measured (s)".into(),
            y: "replayed (s)".into(),
            log_x: false,
            log_y: false,
            groups: Vec::new(),
            series: series.collect(),
        }],
        numbers: compared
            .iter()
            .map(|one| {
                json!({ "policy": one.policy, "jobs_s": one.jobs, "errors": one.errors() })
            })
            .collect::<Vec<Value>>()
            .into(),
    }
}
