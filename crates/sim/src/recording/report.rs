//! What a replay says: completion times of the recorded jobs, beside those that were measured.

use salus_engine::{Duration, Policy, Time};

use super::{Recording, length};
use crate::cluster::Summary;
use crate::output::render::percent;
use crate::output::report::Fate;
use crate::output::table::{Column, table};
use crate::output::trace::show_span;
use crate::run::Run;
use crate::scenario::quantity::show_bytes;

/// A recording that was replayed.
#[derive(Debug, Clone)]
pub struct Replay {
    /// At its beginning.
    pub policy: Policy,
    /// In the order in which they were opened.
    pub jobs: Vec<ReplayedJob>,
    /// From the first opening to the last end, as recorded and in the replay.
    pub recorded_makespan: Duration,
    pub makespan: Duration,
    /// How long the device ran anything, as recorded and in the replay.
    pub recorded_busy: Duration,
    pub busy: Duration,
    pub moved_bytes: u64,
    pub switches: u64,
}

#[derive(Debug, Clone)]
pub struct ReplayedJob {
    pub session: u64,
    pub name: String,
    /// Since the recording began.
    pub opened: Time,
    pub iterations: u64,
    /// From its opening to its end, or where that was not recorded to the end of its last iteration.
    pub recorded: Duration,
    /// The same in the replay; `None` if it did not end there.
    pub replayed: Option<Duration>,
    /// Iterations that it ran in the replay.
    pub ran: u64,
}

impl Recording {
    /// Replays it, under one policy throughout or as it was recorded.
    pub fn replay(&self, policy: Option<Policy>) -> Replay {
        let sessions = self.sessions();
        let scenario = self.scenario(&sessions, policy);
        let mut run = Run::undrawn(&scenario);
        run.run_out();
        let jobs: Vec<ReplayedJob> = sessions
            .iter()
            .zip(&run.actors)
            .map(|(one, actor)| ReplayedJob {
                session: one.session,
                name: one.name.clone(),
                opened: actor.job.from,
                iterations: one.iterations.len() as u64,
                recorded: length(one.from_ns, one.until_ns),
                replayed: match actor.fate {
                    Fate::Finished(at) => Some(at - actor.job.from),
                    _ => None,
                },
                ran: actor.ended,
            })
            .collect();
        let first = jobs.iter().map(|job| job.opened).min().unwrap_or_default();
        let end = |took: fn(&ReplayedJob) -> Option<Duration>| {
            let ends = jobs.iter().filter_map(|job| Some(job.opened + took(job)?));
            ends.max().unwrap_or_default() - first
        };
        let iterations = sessions.iter().flat_map(|one| &one.iterations);
        let mut spans: Vec<(u64, u64)> = iterations.map(|i| (i.began_ns, i.ended_ns)).collect();
        Replay {
            policy: scenario.policy,
            recorded_makespan: end(|job| Some(job.recorded)),
            makespan: end(|job| job.replayed),
            recorded_busy: covered(&mut spans),
            busy: run.device.busy,
            moved_bytes: run.moved_bytes,
            switches: run.device.switches,
            jobs,
        }
    }
}

/// How long at least one of the spans was there.
fn covered(spans: &mut [(u64, u64)]) -> Duration {
    spans.sort_unstable();
    let mut until = 0;
    let mut sum = 0;
    for &mut (began, ended) in spans {
        sum += ended.saturating_sub(began.max(until));
        until = until.max(ended);
    }
    Duration(sum)
}

impl Replay {
    pub fn recorded(&self) -> Summary {
        Summary::of(self.jobs.iter().map(|job| job.recorded))
    }

    /// Of jobs that ended.
    pub fn replayed(&self) -> Summary {
        Summary::of(self.jobs.iter().filter_map(|job| job.replayed))
    }

    pub fn unfinished(&self) -> usize {
        let jobs = self.jobs.iter();
        jobs.filter(|job| job.replayed.is_none()).count()
    }
}

struct Row {
    name: String,
    completion: Summary,
    makespan: Duration,
    busy: Duration,
    moved: Option<u64>,
    average: Option<u64>,
    p95: Option<u64>,
}

/// A line for what was recorded, and one for each replay.
pub fn replays_shown(recording: &Recording, replays: &[Replay]) -> String {
    let Some(first) = replays.first() else {
        return String::new();
    };
    let recorded = first.recorded();
    let mut rows = vec![Row {
        name: "recorded".into(),
        completion: recorded,
        makespan: first.recorded_makespan,
        busy: first.recorded_busy,
        moved: None,
        average: None,
        p95: None,
    }];
    rows.extend(replays.iter().map(|replay| {
        let completion = replay.replayed();
        Row {
            name: replay.policy.name().into(),
            completion,
            makespan: replay.makespan,
            busy: replay.busy,
            moved: Some(replay.moved_bytes),
            average: Some(thousandths(completion.mean, recorded.mean)),
            p95: Some(thousandths(completion.p95, recorded.p95)),
        }
    }));
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".into());
    let columns = [
        Column::left("POLICY", &rows, |row| row.name.clone()),
        Column::right("COMPLETION", &rows, |row| show_span(row.completion.mean)),
        Column::right("P50", &rows, |row| show_span(row.completion.p50)),
        Column::right("P95", &rows, |row| show_span(row.completion.p95)),
        Column::right("P99", &rows, |row| show_span(row.completion.p99)),
        Column::right("MAKESPAN", &rows, |row| show_span(row.makespan)),
        Column::right("BUSY", &rows, |row| {
            percent(thousandths(row.busy, row.makespan))
        }),
        Column::right("MOVED", &rows, |row| or_dash(row.moved.map(show_bytes))),
        Column::right("AVERAGE OF RECORDED", &rows, |row| {
            or_dash(row.average.map(percent))
        }),
        Column::right("P95", &rows, |row| or_dash(row.p95.map(percent))),
    ];
    let header = &recording.header;
    let mut out = format!(
        "{} jobs, recorded on {} ({}) under {}\n\n{}\n",
        first.jobs.len(),
        header.device,
        header.kind,
        recording.policy().name(),
        table(&columns)
    );
    out.push_str("completion: from a session's opening to its end\n");
    for replay in replays.iter().filter(|replay| replay.unfinished() > 0) {
        let (count, policy) = (replay.unfinished(), replay.policy.name());
        out.push_str(&format!("{count} jobs do not end under {policy}\n"));
    }
    out
}

fn thousandths(part: Duration, whole: Duration) -> u64 {
    let whole = u128::from(whole.0.max(1));
    ((u128::from(part.0) * 1000 + whole / 2) / whole) as u64
}
