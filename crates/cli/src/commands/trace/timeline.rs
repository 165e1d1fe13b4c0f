//! A recording put in order: who ran in which lane, and what each job did at every moment.
//!
//! Promise: iterations of a lane do not overlap, and neither do the stretches of a job; all are
//! sorted and inside the time that is shown, also of sessions that are older than that.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use salus_daemon::log::tame;
use salus_wire::{RecordedIteration, RecordedMemory, RecordedMove, Recording};

/// All times are nanoseconds of the service's clock.
pub(super) struct Timeline {
    pub(super) from: u64,
    pub(super) until: u64,
    /// `cpu (Host CPU)`.
    pub(super) device: String,
    pub(super) policy: String,
    pub(super) room_bytes: u64,
    pub(super) jobs: Vec<Job>,
    /// By their numbers.
    pub(super) lanes: BTreeMap<u32, Vec<Run>>,
    pub(super) memory: Vec<RecordedMemory>,
    /// When the policy became which.
    pub(super) policies: Vec<(u64, String)>,
}

pub(super) struct Job {
    pub(super) session: u64,
    /// 0 if it is not known.
    pub(super) pid: i32,
    /// Its name, and its number where others are called the same.
    pub(super) label: String,
    pub(super) stretches: Vec<Stretch>,
    pub(super) moves: Vec<RecordedMove>,
    /// What happened at one moment.
    pub(super) marks: Vec<(u64, String)>,
}

/// An iteration where its lane worked on it.
pub(super) struct Run {
    /// Its place in `jobs`.
    pub(super) job: usize,
    pub(super) program: String,
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) whole: RecordedIteration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) from: u64,
    pub(super) until: u64,
    pub(super) state: State,
}

/// What a job does. Where several hold at once, the first of them is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Moving,
    Running,
    Paused,
    Memory,
    Turn,
    Compiling,
}

impl State {
    const ALL: [Self; 6] = [
        Self::Moving,
        Self::Running,
        Self::Paused,
        Self::Memory,
        Self::Turn,
        Self::Compiling,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Moving => "moving",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Memory => "waiting for memory",
            Self::Turn => "waiting for its turn",
            Self::Compiling => "compiling",
        }
    }
}

impl Timeline {
    /// `last`: no more than that.
    pub(super) fn of(recording: Recording, last: Option<Duration>) -> Self {
        let until = recording.until_ns;
        let last = last.map_or(u64::MAX, |last| {
            u64::try_from(last.as_nanos()).unwrap_or(u64::MAX)
        });
        let from = recording.from_ns.max(until.saturating_sub(last)).min(until);
        let mut timeline = Self {
            from,
            until,
            device: format!("{} ({})", tame(&recording.platform), tame(&recording.kind)),
            policy: tame(&recording.policy),
            room_bytes: recording.room_bytes,
            jobs: jobs(&recording, from),
            lanes: BTreeMap::new(),
            memory: Vec::new(),
            policies: recording.policies.clone(),
        };
        timeline.policies.retain(|(at, _)| *at >= from);
        timeline.set_memory(&recording.memory);
        timeline.set_lanes(&recording);
        timeline.set_jobs(&recording);
        timeline
    }

    pub(super) fn iterations(&self) -> usize {
        self.lanes.values().map(Vec::len).sum()
    }

    /// The part of it that is shown, if any is.
    fn shown(&self, from: u64, until: u64) -> Option<(u64, u64)> {
        let shown = (from.max(self.from), until.min(self.until));
        (until >= self.from && shown.0 <= shown.1).then_some(shown)
    }

    /// What held at the beginning, and what changed since.
    fn set_memory(&mut self, noted: &[RecordedMemory]) {
        let mut noted = noted.to_vec();
        noted.sort_by_key(|memory| memory.at_ns);
        let before = noted.partition_point(|memory| memory.at_ns <= self.from);
        self.memory = noted.split_off(before.saturating_sub(1));
        if let Some(first) = self.memory.first_mut() {
            first.at_ns = first.at_ns.max(self.from);
        }
    }

    fn set_lanes(&mut self, recording: &Recording) {
        let names: BTreeMap<u64, &String> =
            recording.programs.iter().map(|(p, n)| (*p, n)).collect();
        let places = self.places();
        for iteration in &recording.iterations {
            let shown = self.shown(iteration.began_ns, iteration.ended_ns);
            let job = places.get(&iteration.session);
            let (Some((from, until)), Some(&job)) = (shown, job) else {
                continue;
            };
            let program = match names.get(&iteration.program) {
                Some(name) => tame(name),
                None => format!("program {:016x}", iteration.program),
            };
            self.lanes.entry(iteration.lane).or_default().push(Run {
                job,
                program,
                from,
                until,
                whole: iteration.clone(),
            });
        }
        for runs in self.lanes.values_mut() {
            runs.sort_by_key(|run| (run.from, run.until));
        }
    }

    fn set_jobs(&mut self, recording: &Recording) {
        let places = self.places();
        let mut spans: Vec<Vec<Stretch>> = self.jobs.iter().map(|_| Vec::new()).collect();
        for (session, stretch) in stretches(recording) {
            let shown = self.shown(stretch.from, stretch.until);
            if let (Some((from, until)), Some(&job)) = (shown, places.get(&session)) {
                spans[job].push(Stretch {
                    from,
                    until,
                    ..stretch
                });
            }
        }
        for (job, spans) in self.jobs.iter_mut().zip(&spans) {
            job.stretches = flatten(spans);
        }
        for moved in &recording.moves {
            let shown = self.shown(moved.began_ns, moved.ended_ns);
            if let (Some((began_ns, ended_ns)), Some(&job)) = (shown, places.get(&moved.session)) {
                self.jobs[job].moves.push(RecordedMove {
                    began_ns,
                    ended_ns,
                    ..moved.clone()
                });
            }
        }
        for refused in &recording.refusals {
            let shown = self.shown(refused.at_ns, refused.at_ns);
            if let (Some((at, _)), Some(&job)) = (shown, places.get(&refused.session)) {
                let what = format!("refused: {}", tame(&refused.why));
                self.jobs[job].marks.push((at, what));
            }
        }
    }

    /// Sessions by number: their places in `jobs`.
    fn places(&self) -> BTreeMap<u64, usize> {
        let jobs = self.jobs.iter().enumerate();
        jobs.map(|(place, job)| (job.session, place)).collect()
    }
}

/// The sessions of the time that is shown, in the order in which they were opened.
fn jobs(recording: &Recording, from: u64) -> Vec<Job> {
    let sessions = recording.sessions.iter();
    let mut there: Vec<_> = sessions
        .filter(|session| session.closed_ns.is_none_or(|closed| closed >= from))
        .collect();
    there.sort_by_key(|session| session.session);
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for session in &there {
        *names.entry(&session.name).or_default() += 1;
    }
    let mut jobs = Vec::new();
    for session in &there {
        let label = match names.get(session.name.as_str()) {
            Some(1) => tame(&session.name),
            _ => format!("{} #{}", tame(&session.name), session.session),
        };
        let mut job = Job::new(session.session, label);
        job.pid = session.pid;
        let opened = Some((session.opened_ns, "opened"));
        let closed = session.closed_ns.map(|at| (at, "closed"));
        let ends = [opened, closed].into_iter().flatten();
        let ends = ends.filter(|(at, _)| *at >= from);
        job.marks = ends.map(|(at, what)| (at, what.to_owned())).collect();
        jobs.push(job);
    }
    // The service keeps the names of a limited number of ended sessions.
    let mut known: BTreeSet<u64> = there.iter().map(|session| session.session).collect();
    let iterations = recording.iterations.iter();
    for unknown in iterations.filter(|i| i.ended_ns >= from).map(|i| i.session) {
        if known.insert(unknown) {
            jobs.push(Job::new(unknown, format!("session {unknown}")));
        }
    }
    jobs
}

impl Job {
    fn new(session: u64, label: String) -> Self {
        Self {
            session,
            pid: 0,
            label,
            stretches: Vec::new(),
            moves: Vec::new(),
            marks: Vec::new(),
        }
    }
}

/// Everything that took a job's time, as it was recorded: it may overlap.
fn stretches(recording: &Recording) -> Vec<(u64, Stretch)> {
    let mut all = Vec::new();
    let mut add = |session, state, from, until| {
        all.push((session, Stretch { from, until, state }));
    };
    let waits = recording.waits.iter();
    let waits = waits.map(|w| (w.session, w.ready_ns, w.until_ns, w.memory_ns));
    let iterations = recording.iterations.iter();
    let turns = iterations
        .clone()
        .map(|i| (i.session, i.ready_ns, i.started_ns, i.memory_ns));
    for (session, ready, until, memory) in waits.chain(turns) {
        // First others are before it; who is the first then waits for room.
        let lacks = until.saturating_sub(memory).max(ready);
        add(session, State::Turn, ready, lacks);
        add(session, State::Memory, lacks, until);
    }
    for i in iterations {
        add(i.session, State::Turn, i.started_ns, i.began_ns);
        add(i.session, State::Running, i.began_ns, i.ended_ns);
    }
    for m in &recording.moves {
        add(m.session, State::Moving, m.began_ns, m.ended_ns);
    }
    for p in &recording.pauses {
        add(p.session, State::Paused, p.began_ns, p.ended_ns);
    }
    for c in &recording.compilations {
        add(c.session, State::Compiling, c.began_ns, c.ended_ns);
    }
    all
}

/// At every moment the first of the states that hold.
fn flatten(spans: &[Stretch]) -> Vec<Stretch> {
    let spans = spans.iter().filter(|span| span.from < span.until);
    let mut edges: Vec<(u64, State, bool)> = spans
        .flat_map(|s| [(s.from, s.state, true), (s.until, s.state, false)])
        .collect();
    edges.sort_by_key(|(at, ..)| *at);
    let mut holds = [0u32; State::ALL.len()];
    let mut out: Vec<Stretch> = Vec::new();
    let mut edges = edges.into_iter().peekable();
    while let Some((from, state, begins)) = edges.next() {
        match begins {
            true => holds[state as usize] += 1,
            false => holds[state as usize] -= 1,
        }
        let Some(&(until, ..)) = edges.peek() else {
            break;
        };
        let first = State::ALL.into_iter().find(|s| holds[*s as usize] > 0);
        let Some(state) = first.filter(|_| from < until) else {
            continue;
        };
        match out.last_mut() {
            Some(last) if last.until == from && last.state == state => last.until = until,
            _ => out.push(Stretch { from, until, state }),
        }
    }
    out
}

#[cfg(test)]
pub(super) mod tests;
