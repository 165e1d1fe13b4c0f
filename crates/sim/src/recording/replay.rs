//! A recording as a scenario: what each job did by itself, without what it waited for.
//!
//! A job opens when it did and launches its own iterations. Of each it is kept what the device needed for
//! it, and how long the job's host worked before it launched it. The host's time is counted from what the
//! host had waited for, so that its gaps stay where iterations come earlier or later:
//!
//! - An iteration that was asked for as soon as the one before it was handed over was launched before
//!   that, and waited in its session: its host took no time that mattered ([`Pace::is_behind`]).
//! - If the job has read something since its last launch, the launch comes after the end of the
//!   iteration that had ended last: at most as many are in flight as there were.
//! - Otherwise it comes after the launch before it.
//!
//! Compilations and uploads are part of that time. Device time is from when the lane had come to an
//! iteration to its end, without arrays that were paged in; of one that ran beside another lane's, it is
//! the median of those of its program that did not, if there are any.
//!
//! Not here: the order in which iterations run, and what waits for memory, which are simulated.

use std::collections::BTreeMap;
use std::sync::Arc;

use salus_engine::{Duration, JobSettings, Policy, Room, Time};

use super::{Closed, Iteration, Line, Opened, Recording, Settings, length};
use crate::cluster::Setup;
use crate::scenario::{Command, Factor, Job, Requests, Scenario, SomeSettings, Span};
use crate::trace::Step;

/// A session that waits for nothing takes this long from one launch to the next on a busy machine. What
/// takes longer is its job's own time.
const SESSION_TIME: Duration = Duration(1_000_000);

/// A session as it was recorded.
#[derive(Debug, Clone)]
pub(super) struct Recorded {
    pub(super) session: u64,
    pub(super) name: String,
    /// When it was opened, or the recording began.
    pub(super) from_ns: u64,
    /// When it was closed, or its last iteration ended.
    pub(super) until_ns: u64,
    settings: JobSettings,
    closed: Option<Closed>,
    /// In the order in which they were asked for.
    pub(super) iterations: Vec<Iteration>,
    /// Times in which it waited for an array's room, or arrays were paged in.
    not_its_own: Vec<(u64, u64)>,
}

impl Recording {
    /// Sessions that ran something, in the order in which they were opened.
    pub(super) fn sessions(&self) -> Vec<Recorded> {
        let mut sessions: BTreeMap<u64, Recorded> = BTreeMap::new();
        for (number, line) in &self.lines {
            if let Line::Opened(opened) = line {
                let recorded = self.opened(opened, *number);
                sessions.insert(opened.session, recorded);
            }
        }
        for (_, line) in &self.lines {
            let session = match line {
                Line::Iteration(i) => i.session,
                Line::Waited(w) => w.session,
                Line::Moved(m) => m.session,
                Line::Closed(c) | Line::StillOpen(c) => c.session,
                _ => continue,
            };
            // Of a recording of which a part is missing, the beginning of a session may be.
            let Some(recorded) = sessions.get_mut(&session) else {
                continue;
            };
            match line {
                Line::Iteration(i) => recorded.iterations.push(*i),
                Line::Waited(w) => recorded.not_its_own.push((w.ready_ns, w.until_ns)),
                Line::Moved(m) if !m.out => recorded.not_its_own.push((m.began_ns, m.ended_ns)),
                Line::Closed(c) => {
                    recorded.until_ns = c.at_ns;
                    recorded.closed = Some(c.clone());
                }
                Line::StillOpen(c) => recorded.closed = Some(c.clone()),
                _ => {}
            }
        }
        let mut sessions: Vec<Recorded> = sessions.into_values().collect();
        sessions.retain(|recorded| !recorded.iterations.is_empty());
        for recorded in &mut sessions {
            recorded
                .iterations
                .sort_by_key(|i| (i.ready_ns, i.started_ns));
            let last = recorded.iterations.iter().map(|i| i.ended_ns).max();
            recorded.until_ns = recorded.until_ns.max(last.unwrap_or_default());
        }
        sessions.sort_by_key(|recorded| (recorded.from_ns, recorded.session));
        sessions
    }

    fn opened(&self, opened: &Opened, number: usize) -> Recorded {
        Recorded {
            session: opened.session,
            name: opened.name.clone(),
            from_ns: opened.at_ns.max(self.header.at_ns),
            until_ns: 0,
            settings: read(&opened.settings, number),
            closed: None,
            iterations: Vec::new(),
            not_its_own: Vec::new(),
        }
    }

    /// The scenario in which these sessions are the jobs, under a policy throughout or as recorded.
    pub(super) fn scenario(&self, sessions: &[Recorded], policy: Option<Policy>) -> Scenario {
        let header = &self.header;
        let alone = Alone::of(sessions);
        let link_bytes = self.link_bytes();
        let jobs = sessions.iter();
        let scenario = Scenario {
            policy: self.policy,
            lanes: header.lanes.max(1),
            width: header.width.max(1),
            room: Room {
                device_bytes: header.memory_bytes,
                host_bytes: header.host_bytes,
                user_max: None,
            },
            link_bytes,
            step: None,
            until: None,
            jobs: jobs
                .map(|one| one.job(header.at_ns, link_bytes, &alone))
                .collect(),
            commands: self.commands(sessions),
        };
        match policy {
            Some(policy) => scenario.under(policy),
            None => scenario,
        }
    }

    /// What was moved in a second while arrays moved, or what is assumed where none did.
    fn link_bytes(&self) -> u64 {
        let moves = self.lines.iter().filter_map(|(_, line)| match line {
            Line::Moved(m) => Some((m.bytes, length(m.began_ns, m.ended_ns).0)),
            _ => None,
        });
        let (bytes, ns) = moves.fold((0_u128, 0_u128), |(bytes, ns), (b, n)| {
            (bytes + u128::from(b), ns + u128::from(n))
        });
        match u64::try_from(bytes * 1_000_000_000 / ns.max(1)) {
            Ok(rate) if bytes > 0 => rate.max(1),
            _ => Setup::default().link_bytes,
        }
    }

    /// What was done to the service and its sessions meanwhile.
    fn commands(&self, sessions: &[Recorded]) -> Vec<(Time, Command)> {
        let job = |session| sessions.iter().position(|one| one.session == session);
        let at = |ns: u64| Time(length(self.header.at_ns, ns).0);
        let mut commands = Vec::new();
        for (number, line) in &self.lines {
            match line {
                Line::Policy(change) => {
                    if let Ok(policy) = super::policy(*number, &change.name) {
                        commands.push((at(change.at_ns), Command::Policy(policy)));
                    }
                }
                Line::Paused(span) => {
                    if let Some(job) = job(span.session) {
                        commands.push((at(span.began_ns), Command::Pause { job }));
                        commands.push((at(span.ended_ns), Command::Resume { job }));
                    }
                }
                Line::Changed(changed) => {
                    if let Some(job) = job(changed.session) {
                        let settings = some(&read(&changed.settings, *number));
                        commands.push((at(changed.at_ns), Command::Change { job, settings }));
                    }
                }
                _ => {}
            }
        }
        commands.sort_by_key(|(at, _)| *at);
        commands
    }
}

/// Settings of a line that was checked when it was read.
fn read(settings: &Settings, number: usize) -> JobSettings {
    settings.read(number).unwrap_or_default()
}

fn some(settings: &JobSettings) -> SomeSettings {
    SomeSettings {
        weight: Some(settings.weight),
        priority: Some(settings.priority),
        deadline: settings.deadline,
        work: settings.work,
    }
}

impl Recorded {
    fn job(&self, origin_ns: u64, link_bytes: u64, alone: &Alone) -> Job {
        let closed = self.closed.as_ref();
        let memory_bytes = closed.map_or(0, |closed| closed.memory_bytes);
        let upload = u128::from(memory_bytes) * 1_000_000_000 / u128::from(link_bytes);
        let mut steps = self.steps(alone);
        if let Some(first) = steps.first_mut() {
            // It took that time when it was recorded, too.
            let upload = u64::try_from(upload).unwrap_or(u64::MAX);
            first.host = Duration(first.host.0.saturating_sub(upload));
        }
        let last = self.iterations.iter().map(|i| i.ended_ns).max();
        Job {
            name: self.name.clone(),
            settings: self.settings,
            from: Time(length(origin_ns, self.from_ns).0),
            iterations: steps.len() as u64,
            each: Span::default(),
            memory_bytes,
            scratch_bytes: closed.map_or(0, |closed| closed.scratch_bytes),
            wait: Span::default(),
            ahead: u64::MAX,
            requests: Requests::Always,
            beside: Factor(alone.beside),
            recalled: closed.and_then(|closed| closed.recalled_ns.map(Duration)),
            program: 0,
            steps: Some(Arc::from(steps)),
            linger: length(last.unwrap_or_default(), self.until_ns),
            dies_after: None,
        }
    }

    fn steps(&self, alone: &Alone) -> Vec<Step> {
        let mut pace = Pace::new(self);
        let iterations = self.iterations.iter().enumerate();
        let steps = iterations.map(|(index, iteration)| {
            let (host, behind) = pace.next(index);
            Step {
                host,
                device: alone.device_time(iteration, self),
                program: Some(iteration.program),
                behind,
            }
        });
        steps.collect()
    }

    /// How much of a time was not its own.
    fn waited(&self, from_ns: u64, until_ns: u64) -> u64 {
        let parts = self.not_its_own.iter();
        parts
            .map(|(from, until)| (*until).min(until_ns).saturating_sub((*from).max(from_ns)))
            .sum()
    }
}

/// Follows a job's host from launch to launch.
struct Pace<'a> {
    recorded: &'a Recorded,
    /// When the last launch is taken to have been made.
    launched_ns: u64,
    /// When the session was last handed something, or had room for an array.
    free_ns: u64,
    /// Iterations that had ended by now.
    ended: usize,
    /// The job has read something since the last launch of which the time is known.
    reads: bool,
}

impl<'a> Pace<'a> {
    fn new(recorded: &'a Recorded) -> Self {
        Self {
            recorded,
            launched_ns: recorded.from_ns,
            free_ns: 0,
            ended: 0,
            reads: false,
        }
    }

    /// How long the host worked before it launched this iteration, and how many may be in flight then, if
    /// it waited for one of them.
    fn next(&mut self, index: usize) -> (Duration, Option<u64>) {
        let iterations = &self.recorded.iterations;
        let iteration = &iterations[index];
        let ready = iteration.ready_ns;
        self.reads |= iteration.reads;
        let before = iterations[..index].iter().skip(self.ended);
        self.ended += before.take_while(|i| i.ended_ns <= ready).count();
        let is_behind = index > 0 && self.is_behind(ready);
        self.free_ns = iteration.started_ns;
        if is_behind {
            return (Duration(0), None);
        }
        let mut from = self.launched_ns;
        let mut behind = None;
        if std::mem::take(&mut self.reads) && index > 0 {
            behind = Some((index - self.ended) as u64);
            let last_end = self
                .ended
                .checked_sub(1)
                .map(|last| iterations[last].ended_ns);
            from = from.max(last_end.unwrap_or_default());
        }
        self.launched_ns = ready.max(self.launched_ns);
        let waited = self.recorded.waited(from, ready);
        (
            Duration(length(from, ready).0.saturating_sub(waited)),
            behind,
        )
    }

    /// Whether it was launched before its session could ask for it.
    fn is_behind(&self, ready_ns: u64) -> bool {
        let own = length(self.free_ns, ready_ns).0;
        let own = own.saturating_sub(self.recorded.waited(self.free_ns, ready_ns));
        // A job that reads is not ahead, however quick it is.
        own < SESSION_TIME.0 && !self.reads
    }
}

/// What iterations take where no other lane works.
pub(super) struct Alone {
    lanes: BTreeMap<u32, Vec<(u64, u64)>>,
    /// Medians, by session and program.
    medians: BTreeMap<(u64, u64), u64>,
    /// How much longer they take beside others, in thousandths.
    beside: u64,
}

impl Alone {
    fn of(sessions: &[Recorded]) -> Self {
        let mut lanes: BTreeMap<u32, Vec<(u64, u64)>> = BTreeMap::new();
        for iteration in sessions.iter().flat_map(|one| &one.iterations) {
            let lane = lanes.entry(iteration.lane).or_default();
            lane.push((iteration.ended_ns, iteration.began_ns));
        }
        for lane in lanes.values_mut() {
            lane.sort_unstable();
        }
        let mut alone = Self {
            lanes,
            medians: BTreeMap::new(),
            beside: Setup::default().beside,
        };
        alone.measure(sessions);
        alone
    }

    fn measure(&mut self, sessions: &[Recorded]) {
        let mut times: BTreeMap<(u64, u64), [Vec<u64>; 2]> = BTreeMap::new();
        for one in sessions {
            for iteration in &one.iterations {
                let key = (one.session, iteration.program);
                let beside = usize::from(self.is_beside(iteration));
                times.entry(key).or_default()[beside].push(own_time(iteration, one));
            }
        }
        let (mut took, mut alone) = (0_u128, 0_u128);
        for (key, [mut by_itself, beside]) in times {
            if by_itself.is_empty() {
                continue;
            }
            by_itself.sort_unstable();
            let median = by_itself[by_itself.len() / 2];
            self.medians.insert(key, median);
            took += beside.iter().map(|ns| u128::from(*ns)).sum::<u128>();
            alone += u128::from(median) * beside.len() as u128;
        }
        if let Some(factor) = (took * 1000).checked_div(alone) {
            let factor = u64::try_from(factor).unwrap_or(u64::MAX);
            self.beside = factor.clamp(1000, 10_000);
        }
    }

    /// Whether something ran in another lane meanwhile.
    fn is_beside(&self, iteration: &Iteration) -> bool {
        let others = self
            .lanes
            .iter()
            .filter(|(lane, _)| **lane != iteration.lane);
        others.into_iter().any(|(_, spans)| {
            let first = spans.partition_point(|(ended, _)| *ended <= iteration.began_ns);
            let first = spans.get(first);
            first.is_some_and(|(_, began)| *began < iteration.ended_ns)
        })
    }

    fn device_time(&self, iteration: &Iteration, of: &Recorded) -> Duration {
        let median = self.medians.get(&(of.session, iteration.program));
        let took = own_time(iteration, of);
        match median {
            Some(median) if self.is_beside(iteration) => Duration(took.min(*median)),
            _ => Duration(took),
        }
    }
}

/// Without what was paged in for it.
fn own_time(iteration: &Iteration, of: &Recorded) -> u64 {
    let (began, ended) = (iteration.began_ns, iteration.ended_ns);
    length(began, ended)
        .0
        .saturating_sub(of.waited(began, ended))
}
