//! What each policy promises, as pictures of who runs when, and on random jobs.
//!
//! A made-up device in virtual time: an iteration takes what its job says, longer if the lane beside
//! it is busy and the two hinder each other. A job that is always ready asks again as soon as an
//! iteration is started, as real ones do; others work on their host between two. In the pictures a
//! column is 10 ms: `#` runs, `-` is ready and waits, `.` neither.

mod common;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;

use common::Random;
use salus_engine::{
    Class, Decision, Demand, Duration, Engine, Event, Kind, Policy, Program, Room, SessionId, Time,
    User, Weight, Why, Wishes, Work,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
/// Whoever has waited so long goes before all others (see `policies/mod.rs`).
const PATIENCE: u64 = 30 * SECOND;
/// A job that does not end within any story.
const ENDLESS: u64 = u64::MAX;
/// Speed beside others, in hundredths of the speed alone.
const ALONE: u64 = 100;

#[derive(Debug, Clone)]
struct Job {
    from: u64,
    /// What its iterations take alone, in turn.
    lengths: Vec<u64>,
    iterations: u64,
    /// Its host works so long after an iteration before it asks again; `None`: always ready.
    gap: Option<u64>,
    program: Program,
    wishes: Wishes,
    /// What earlier jobs like it came to.
    recalled: Option<u64>,
    asked_at: Option<u64>,
    started: u64,
    ended: u64,
    /// When the last of its iterations ended.
    done_at: Option<u64>,
}

/// Iterations of so many ms, from the beginning.
fn job(ms: u64, iterations: u64) -> Job {
    Job {
        from: 0,
        lengths: vec![ms * MS],
        iterations,
        gap: None,
        program: Program(0),
        wishes: Wishes::default(),
        recalled: None,
        asked_at: None,
        started: 0,
        ended: 0,
        done_at: None,
    }
}

impl Job {
    fn from(self, ms: u64) -> Self {
        let from = ms * MS;
        Self { from, ..self }
    }

    fn gap(self, ms: u64) -> Self {
        let gap = Some(ms * MS);
        Self { gap, ..self }
    }

    fn runs(self, program: u64) -> Self {
        let program = Program(program);
        Self { program, ..self }
    }

    fn weight(mut self, weight: u32) -> Self {
        self.wishes.weight = Weight(NonZeroU32::new(weight).expect("not zero"));
        self
    }

    fn class(mut self, class: Class) -> Self {
        self.wishes.class = class;
        self
    }

    fn latency(mut self, ms: u64) -> Self {
        self.wishes.latency = Some(Duration(ms * MS));
        self
    }

    fn work(mut self, work: Work) -> Self {
        self.wishes.work = Some(work);
        self
    }

    /// Its user says what it comes to, times `percent` ÷ 100.
    fn said(self, percent: u64) -> Self {
        let total = self.total() * percent / 100;
        self.work(Work::Time(Duration(total)))
    }

    /// Device time of all its iterations.
    fn total(&self) -> u64 {
        (0..self.iterations).map(|nth| self.length(nth)).sum()
    }

    fn length(&self, nth: u64) -> u64 {
        self.lengths[(nth % self.lengths.len() as u64) as usize]
    }

    fn longest(&self) -> u64 {
        self.lengths.iter().copied().max().unwrap_or(0)
    }
}

/// An iteration that was started.
#[derive(Debug, Clone, Copy)]
struct Run {
    job: u64,
    lane: usize,
    asked_at: u64,
    began: u64,
    ended: u64,
    /// Work before it, in hundredths of a nanosecond.
    left: u64,
}

struct Device {
    engine: Engine,
    now: u64,
    jobs: BTreeMap<u64, Job>,
    /// What is to be told, by time and number.
    agenda: BTreeMap<(u64, u64), Event>,
    numbers: u64,
    lanes: Vec<VecDeque<Run>>,
    /// How fast two programs run side by side, in hundredths.
    beside: fn(Program, Program) -> u64,
    /// Iterations that ended, in that order.
    runs: Vec<Run>,
}

impl Device {
    fn new(policy: Policy, lanes: u32) -> Self {
        let room = Room {
            device_bytes: 1 << 30,
            host_bytes: 1 << 30,
            user_max: None,
        };
        Self {
            engine: Engine::new(policy, room, lanes, lanes),
            now: 0,
            jobs: BTreeMap::new(),
            agenda: BTreeMap::new(),
            numbers: 0,
            lanes: vec![VecDeque::new(); lanes as usize],
            beside: |_, _| ALONE,
            runs: Vec::new(),
        }
    }

    /// Jobs 1, 2, … in order of arrival.
    fn with(policy: Policy, lanes: u32, jobs: impl IntoIterator<Item = Job>) -> Self {
        let mut device = Self::new(policy, lanes);
        for (nth, job) in (1..).zip(jobs) {
            device.add(nth, job);
        }
        device
    }

    fn add(&mut self, id: u64, job: Job) {
        let session = SessionId(id);
        self.later(
            job.from,
            Event::Opened {
                session,
                user: User(0),
                memory_max: None,
                wishes: job.wishes,
            },
        );
        if let Some(total) = job.recalled.map(Duration) {
            self.later(job.from, Event::Recalled { session, total });
        }
        let ready = ready(id, &job);
        self.later(job.from, ready);
        self.jobs.insert(id, job);
    }

    fn later(&mut self, at: u64, event: Event) {
        self.numbers += 1;
        self.agenda.insert((at, self.numbers), event);
    }

    fn pause(&mut self, ms: u64, id: u64) {
        let session = session(id);
        self.later(ms * MS, Event::Paused { session });
    }

    fn resume(&mut self, ms: u64, id: u64) {
        let session = session(id);
        self.later(ms * MS, Event::Resumed { session });
    }

    fn wish(&mut self, ms: u64, id: u64, wishes: Wishes) {
        let session = session(id);
        self.later(ms * MS, Event::Wished { session, wishes });
    }

    fn order(&mut self, ms: u64, policy: Policy) {
        self.later(ms * MS, Event::Ordered { policy });
    }

    /// Until this time, in ms, or until nothing happens any more.
    fn until(&mut self, ms: u64) -> &mut Self {
        while let Some(next) = self.next().filter(|next| *next <= ms * MS) {
            self.advance(next);
            self.end_those_at_their_end();
            while let Some(entry) = self.agenda.first_entry()
                && entry.key().0 <= self.now
            {
                let event = entry.remove();
                self.tell(event);
            }
            if self.engine.wake_at().is_some_and(|at| at.0 <= self.now) {
                self.tell(Event::Woke);
            }
        }
        self
    }

    fn run_out(&mut self) -> &mut Self {
        self.until(10_000_000);
        let unfinished = self.jobs.values().find(|job| job.done_at.is_none());
        assert!(unfinished.is_none(), "{unfinished:?} never ended");
        self
    }

    /// When something happens.
    fn next(&self) -> Option<u64> {
        let ends = (0..self.lanes.len()).filter_map(|lane| {
            let run = self.lanes[lane].front()?;
            Some(self.now + run.left.div_ceil(self.speed(lane)))
        });
        let told = self.agenda.keys().next().map(|(at, _)| *at);
        let wake = self.engine.wake_at().map(|at| at.0);
        ends.chain(told).chain(wake).min()
    }

    fn advance(&mut self, to: u64) {
        let to = to.max(self.now);
        let speeds: Vec<u64> = (0..self.lanes.len()).map(|lane| self.speed(lane)).collect();
        for (lane, speed) in self.lanes.iter_mut().zip(speeds) {
            if let Some(run) = lane.front_mut() {
                run.left = run.left.saturating_sub((to - self.now) * speed);
            }
        }
        self.now = to;
    }

    /// Of what runs in the lane: that of the pair it hinders most.
    fn speed(&self, lane: usize) -> u64 {
        let program = |lane: usize| Some(self.jobs[&self.lanes[lane].front()?.job].program);
        let others = (0..self.lanes.len()).filter(|other| *other != lane);
        let pairs = others.filter_map(|other| Some((self.beside)(program(lane)?, program(other)?)));
        pairs.min().unwrap_or(ALONE)
    }

    fn end_those_at_their_end(&mut self) {
        for lane in 0..self.lanes.len() {
            let Some(run) = self.lanes[lane].front().filter(|run| run.left == 0) else {
                continue;
            };
            let (id, run) = (
                run.job,
                Run {
                    ended: self.now,
                    ..*run
                },
            );
            self.lanes[lane].pop_front();
            if let Some(next) = self.lanes[lane].front_mut() {
                next.began = self.now;
            }
            self.runs.push(run);
            let session = SessionId(id);
            self.tell(Event::Ran {
                session,
                calling: None,
            });
            let now = self.now;
            let job = self.job_mut(id);
            job.ended += 1;
            if job.ended == job.iterations {
                job.done_at = Some(now);
                self.tell(Event::Closed { session });
            } else if let Some(gap) = job.gap {
                let ready = ready(id, job);
                self.later(now + gap, ready);
            }
        }
    }

    fn tell(&mut self, event: Event) {
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            if let Event::Ready { session, .. } = event {
                let now = self.now;
                self.job_mut(session.0).asked_at = Some(now);
            }
            for decision in self.engine.on(Time(self.now), event) {
                events.extend(self.carry_out(decision));
            }
        }
    }

    /// Returns what the job asks for next.
    fn carry_out(&mut self, decision: Decision) -> Option<Event> {
        let Decision::Start { session, lane } = decision else {
            panic!("{decision:?}, and there is room for all")
        };
        let now = self.now;
        let job = self.job_mut(session.0);
        let run = Run {
            job: session.0,
            lane: lane.0 as usize,
            asked_at: job.asked_at.take().expect("it asked"),
            began: now,
            ended: 0,
            left: job.length(job.started) * ALONE,
        };
        job.started += 1;
        let asks = job.gap.is_none() && job.started < job.iterations;
        let next = asks.then(|| ready(session.0, job));
        self.lanes[run.lane].push_back(run);
        next
    }

    fn job_mut(&mut self, id: u64) -> &mut Job {
        self.jobs.get_mut(&id).expect("it came")
    }

    /// What each job does in each column, as far as it came.
    fn picture(&self) -> Vec<String> {
        let columns = self.now / (10 * MS);
        let line = |id: &u64| {
            let runs: Vec<&Run> = self.runs.iter().filter(|run| run.job == *id).collect();
            let column = |at: u64| {
                let middle = at * 10 * MS + 5 * MS;
                let within = |from: u64, to: u64| from <= middle && middle < to;
                if runs.iter().any(|run| within(run.began, run.ended)) {
                    '#'
                } else if runs.iter().any(|run| within(run.asked_at, run.began)) {
                    '-'
                } else {
                    '.'
                }
            };
            let columns: String = (0..columns).map(column).collect();
            format!("{id} {columns}")
        };
        self.jobs.keys().map(line).collect()
    }

    fn done_at(&self, id: u64) -> u64 {
        self.jobs[&id].done_at.expect("it ended") / MS
    }

    /// How long the job's requests waited, each until it ran.
    fn waits(&self, id: u64) -> impl Iterator<Item = u64> {
        let runs = self.runs.iter().filter(move |run| run.job == id);
        runs.map(|run| run.began - run.asked_at)
    }

    /// Device time of a job between two times, in ms.
    fn used(&self, id: u64, from_ms: u64, to_ms: u64) -> u64 {
        let (from, to) = (from_ms * MS, to_ms * MS);
        let runs = self.runs.iter().filter(|run| run.job == id);
        let part = |run: &Run| run.ended.min(to).saturating_sub(run.began.max(from));
        runs.map(part).sum::<u64>() / MS
    }

    /// For how long two lanes worked at once between two times, in hundredths of it.
    fn overlap(&self, from_ms: u64, to_ms: u64) -> u64 {
        let (from, to) = (from_ms * MS, to_ms * MS);
        let runs = |lane: usize| self.runs.iter().filter(move |run| run.lane == lane);
        let both: u64 = runs(0)
            .flat_map(|one| runs(1).map(move |other| (one, other)))
            .map(|(one, other)| {
                let began = one.began.max(other.began).max(from);
                one.ended.min(other.ended).min(to).saturating_sub(began)
            })
            .sum();
        both * 100 / (to - from)
    }

    /// From arrival to the end, on average, in ns.
    fn average_time(&self) -> u64 {
        let times = self.jobs.values().map(|job| {
            let done_at = job.done_at.expect("all ended");
            done_at - job.from
        });
        times.sum::<u64>() / self.jobs.len() as u64
    }
}

fn ready(id: u64, job: &Job) -> Event {
    let demand = Demand {
        kind: Kind::Launch {
            scratch_bytes: 1 << 10,
            program: job.program,
        },
        new_bytes: 0,
        argument_bytes: 0,
        absent_bytes: 0,
    };
    Event::Ready {
        session: SessionId(id),
        demand,
    }
}

/// All jobs run to their end; the picture has a line for each.
#[track_caller]
fn check(device: &mut Device, picture: &str) {
    device.run_out();
    let lines = picture
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty());
    assert_eq!(device.picture(), lines.collect::<Vec<_>>());
}

fn session(id: u64) -> SessionId {
    SessionId(id)
}

// Exclusive.

#[test]
fn exclusive_one_job_has_the_device_until_it_ends() {
    check(
        &mut Device::with(
            Policy::Exclusive,
            1,
            [job(10, 3).gap(20), job(10, 4), job(10, 1)],
        ),
        "
            1 #..#..#.....
            2 -------####.
            3 -----------#
        ",
    );
}

#[test]
fn exclusive_others_wait_whatever_lanes_there_are() {
    check(
        &mut Device::with(Policy::Exclusive, 2, [job(10, 3).gap(20), job(10, 4)]),
        "
            1 #..#..#....
            2 -------####
        ",
    );
}

#[test]
fn exclusive_the_next_has_the_device_while_the_first_is_paused() {
    let mut d = Device::with(Policy::Exclusive, 1, [job(10, 8), job(10, 8)]);
    d.pause(25, 1);
    d.resume(75, 1);
    check(
        &mut d,
        "
            1 ####-----####...
            2 ----#####----###
        ",
    );
}

#[test]
fn exclusive_says_who_has_the_device() {
    let mut d = Device::with(Policy::Exclusive, 1, [job(10, 8), job(10, 8)]);
    d.until(20);
    let owner = Some(session(1));
    assert_eq!(d.engine.why(session(2)), Some(Why::Exclusive { owner }));
}

// First in, first out.

#[test]
fn fifo_a_later_job_runs_while_the_earlier_ones_are_not_ready() {
    check(
        &mut Device::with(
            Policy::Fifo,
            1,
            [job(10, 3).gap(30), job(10, 8), job(10, 6).from(20)],
        ),
        "
            1 #...--#...--#....
            2 -#####-###.......
            3 ..--------##-####
        ",
    );
}

#[test]
fn fifo_jobs_that_are_always_ready_run_one_after_the_other() {
    check(
        &mut Device::with(Policy::Fifo, 1, [job(10, 4), job(10, 3), job(10, 2)]),
        "
            1 ####.....
            2 ----###..
            3 -------##
        ",
    );
}

// The shortest remaining time first.

#[test]
fn srtf_a_shorter_job_runs_from_the_next_boundary() {
    // One iteration runs when it comes, and one was handed over.
    check(
        &mut Device::with(
            Policy::Srtf,
            1,
            [job(10, 10).said(100), job(10, 3).said(100).from(35)],
        ),
        "
            1 #####---#####
            2 ...--###.....
        ",
    );
}

#[test]
fn srtf_a_longer_job_waits() {
    check(
        &mut Device::with(
            Policy::Srtf,
            1,
            [job(10, 6).said(100), job(10, 5).said(100).from(35)],
        ),
        "
            1 ######.....
            2 ...---#####
        ",
    );
}

#[test]
fn srtf_what_nobody_knows_goes_behind_what_is_known() {
    let known = job(10, 4).from(15).said(100);
    let recalled = Job {
        recalled: Some(30 * MS),
        ..job(10, 3).from(15)
    };
    check(
        &mut Device::with(Policy::Srtf, 1, [job(10, 6), known, recalled]),
        "
            1 ###-------###
            2 .-----####...
            3 .--###.......
        ",
    );
}

#[test]
fn srtf_what_nobody_knows_goes_before_what_takes_very_long() {
    // Longer than what is taken of jobs that nobody knows.
    let day = Work::Time(Duration(86_400 * SECOND));
    check(
        &mut Device::with(Policy::Srtf, 1, [job(10, 6).work(day), job(10, 3).from(15)]),
        "
            1 ###---###
            2 .--###...
        ",
    );
}

#[test]
fn srtf_of_what_nobody_knows_the_least_attained_is_first() {
    // Those that had about as much do not take turns.
    check(
        &mut Device::with(Policy::Srtf, 1, [job(10, 5), job(10, 4)]),
        "
            1 #####....
            2 -----####
        ",
    );
    let mut d = Device::with(Policy::Srtf, 1, [job(50, 20), job(50, 2).from(410)]);
    d.run_out();
    assert_eq!((d.done_at(2), d.done_at(1)), (600, 1_100));
}

#[test]
fn srtf_iterations_are_enough_to_know() {
    // 1 has run for long enough to be known: three iterations of it are left.
    let iterations = |n| job(10, n).work(Work::Iterations(n));
    let mut d = Device::with(
        Policy::Srtf,
        1,
        [
            iterations(8),
            job(10, 4).said(100).from(45),
            iterations(3).from(45),
        ],
    );
    d.until(45);
    assert_eq!(d.engine.remaining(session(1)), Some(Duration(40 * MS)));
    assert_eq!(d.engine.remaining(session(3)), None);
    check(
        &mut d,
        "
            1 ########.......
            2 ....----####...
            3 ....--------###
        ",
    );
}

#[test]
fn srtf_who_goes_on_after_its_end_gives_way() {
    let began_and_done = |said: Work, rival: Job| {
        let rival = rival.said(100).from(105);
        let mut d = Device::with(Policy::Srtf, 1, [job(10, 30).work(said), rival]);
        d.run_out();
        let first = d.runs.iter().find(|run| run.job == 2).expect("it ran");
        (first.began / MS, d.done_at(2))
    };
    // What it has exceeded that by is taken to be before it again: 50 ms, then more than that.
    let rival = || job(10, 5);
    let eighty = [Work::Iterations(8), Work::Time(Duration(80 * MS))];
    assert_eq!(
        eighty.map(|said| began_and_done(said, rival())),
        [(140, 190); 2]
    );
    // It had more than twice what was said: it may need much more.
    let rival = || job(10, 20);
    let forty = [Work::Iterations(4), Work::Time(Duration(40 * MS))];
    assert_eq!(
        forty.map(|said| began_and_done(said, rival())),
        [(120, 320); 2]
    );
}

// Side by side where that helps.

/// Two jobs on two lanes, each in a lane of its own.
fn side_by_side(beside: fn(Program, Program) -> u64) -> Device {
    let jobs = [job(10, ENDLESS).runs(1), job(15, ENDLESS).runs(2)];
    let mut d = Device::with(Policy::Pack, 2, jobs);
    d.beside = beside;
    d
}

#[test]
fn pack_lanes_that_help_run_side_by_side() {
    let mut d = side_by_side(|_, _| 80);
    d.until(20_000);
    // Nearly always: they were measured apart, too.
    assert!(d.overlap(0, 20_000) > 95, "{}", d.overlap(0, 20_000));
}

#[test]
fn pack_lanes_that_hinder_each_other_take_turns() {
    let mut d = side_by_side(|_, _| 45);
    d.until(20_000);
    assert!(d.overlap(0, 1_000) > 0, "it was tried");
    assert_eq!(d.overlap(1_000, 20_000), 0);
    // Equal shares, nobody waits for long, and no time is lost between the two.
    let used = [1, 2].map(|id| d.used(id, 1_000, 20_000));
    assert!(used.iter().sum::<u64>() >= 18_980, "{used:?}");
    assert!(used[0].abs_diff(used[1]) <= 30, "{used:?}");
    for id in [1, 2] {
        let longest = d.waits(id).max().expect("it ran");
        assert!(longest <= 100 * MS, "{longest}");
    }
}

#[test]
fn pack_says_that_it_keeps_lanes_apart() {
    let mut d = side_by_side(|_, _| 45);
    d.until(5_000);
    let why = [1, 2].map(|id| d.engine.why(session(id)).expect("open"));
    assert!(why.contains(&Why::Apart), "{why:?}");
}

#[test]
fn pack_looks_again_after_a_while() {
    let mut d = side_by_side(|_, _| 45);
    d.until(20_000);
    assert_eq!(d.overlap(1_000, 20_000), 0);
    d.beside = |_, _| 90;
    d.until(60_000);
    assert_eq!(d.overlap(20_000, 29_000), 0, "it was not looked at again");
    assert!(
        d.overlap(33_000, 60_000) > 95,
        "{}",
        d.overlap(33_000, 60_000)
    );
    d.beside = |_, _| 45;
    d.until(120_000);
    assert!(
        d.overlap(64_000, 120_000) < 50,
        "{}",
        d.overlap(64_000, 120_000)
    );
    assert!(
        d.overlap(95_000, 120_000) < 5,
        "{}",
        d.overlap(95_000, 120_000)
    );
}

#[test]
fn pack_who_leaves_while_it_is_tried_does_not_keep_others_from_it() {
    let jobs = [
        job(10, ENDLESS).runs(1),
        job(10, 20).runs(2),
        job(10, ENDLESS).runs(3).from(1_000),
    ];
    let mut d = Device::with(Policy::Pack, 2, jobs);
    d.beside = |_, _| 45;
    d.until(20_000);
    assert!(d.done_at(2) < 1_000);
    assert!(d.overlap(1_000, 10_000) > 0, "it was tried");
    assert_eq!(d.overlap(10_000, 20_000), 0);
}

#[test]
fn pack_tells_programs_apart() {
    // 1 and 3 share a lane; 2 runs well beside 1, and not beside 3.
    let jobs = [1, 2, 3].map(|program| job(10, ENDLESS).runs(program));
    let mut d = Device::with(Policy::Pack, 2, jobs);
    d.beside = |one, other| match (one.0, other.0) {
        (2, 3) | (3, 2) => 40,
        _ => 90,
    };
    d.until(20_000);
    let tried = 5 * SECOND;
    let beside = |id: u64| {
        let of = |id: u64| {
            d.runs
                .iter()
                .filter(move |run| run.job == id && run.began > tried)
        };
        let overlap = |one: &Run, other: &Run| {
            let began = one.began.max(other.began);
            one.ended.min(other.ended).saturating_sub(began)
        };
        let both: u64 = of(2)
            .flat_map(|two| of(id).map(move |run| overlap(two, run)))
            .sum();
        both / MS
    };
    let (one, three) = (beside(1), beside(3));
    assert!(one > 10 * three, "{one} ms beside 1, {three} ms beside 3");
    let used = [1, 2, 3].map(|id| d.used(id, 1_000, 20_000));
    assert!(used.iter().all(|used| *used > 5_000), "{used:?}");
}

#[test]
fn pack_who_got_less_in_another_lane_does_not_keep_others_out() {
    // 1 has a weight of three: for 20 s both ran all the time, and 2 got three times its share.
    let jobs = [job(10, ENDLESS).runs(1).weight(3), job(15, ENDLESS).runs(2)];
    let mut d = Device::with(Policy::Pack, 2, jobs);
    d.beside = |_, _| 90;
    d.until(20_000);
    assert!(d.overlap(0, 20_000) > 90);
    d.beside = |_, _| 45;
    d.until(60_000);
    assert!(d.overlap(35_000, 60_000) < 5);
    let longest = d.waits(2).max().expect("it ran");
    assert!(longest <= 500 * MS, "{longest}");
}

// Equal shares, and in proportion to weights.

#[test]
fn fair_twice_the_weight_gets_twice_the_time() {
    check(
        &mut Device::with(Policy::Fair, 1, [job(10, 5), job(10, 10).weight(2)]),
        "
            1 ##----#--#--#..
            2 --####-##-##-##
        ",
    );
}

#[test]
fn fair_shares_are_of_time_and_not_of_iterations() {
    let jobs = [job(10, ENDLESS).runs(1), job(70, ENDLESS).runs(2)];
    let mut d = Device::with(Policy::Fair, 1, jobs);
    d.until(2_400);
    // Once both are known: one iteration of 2 for every seven of 1.
    assert_eq!([1, 2].map(|id| d.used(id, 300, 1_700)), [700, 700]);
}

#[test]
fn fair_waiting_earns_no_credit() {
    check(
        &mut Device::with(Policy::Fair, 1, [job(10, 12), job(10, 4).from(80)]),
        "
            1 ##########-#-#..
            2 ........--#-#-##
        ",
    );
}

#[test]
fn fair_who_was_away_comes_back_without_credit() {
    let mut d = Device::with(Policy::Fair, 1, [job(10, ENDLESS), job(10, 400)]);
    d.pause(500, 2);
    d.resume(1_500, 2);
    d.until(2_000);
    let used = [1, 2].map(|id| d.used(id, 1_520, 2_000));
    // It was owed half a second, and is given a tenth of one.
    assert!(used[1] <= 240 + 60, "{used:?}");
    assert!(used[1] >= 230, "{used:?}");
}

#[test]
fn fair_a_changed_weight_holds_from_then_on() {
    let mut d = Device::with(Policy::Fair, 1, [job(10, ENDLESS), job(10, ENDLESS)]);
    d.wish(1_000, 1, job(10, 1).weight(3).wishes);
    d.until(3_000);
    assert!(d.used(1, 0, 1_000).abs_diff(500) <= 20);
    assert!(d.used(1, 1_000, 3_000).abs_diff(1_500) <= 20);
}

#[test]
fn fair_who_is_alone_in_its_lane_does_not_put_others_behind() {
    // One of the first two has a lane for itself, the other shares one with 3, which is not always
    // ready: it must not come back at the time of the lane that is faster.
    let jobs = [job(10, ENDLESS), job(10, ENDLESS), job(10, ENDLESS).gap(5)];
    let mut d = Device::with(Policy::Fair, 2, jobs);
    d.until(20_000);
    let longest = d.waits(3).max().expect("it ran");
    assert!(longest <= 30 * MS, "{longest}");
}

#[test]
fn fair_who_was_alone_in_a_lane_is_not_behind_in_another() {
    // 2 is alone after 3 has ended, while 1 and 4 share the other lane. Then 5 and 7 come to its
    // lane and 6 to the other, which 1 and 4 leave; 2 moves there.
    let mut d = Device::with(
        Policy::Fair,
        2,
        [
            job(10, 510),
            job(10, ENDLESS).gap(1),
            job(10, 1),
            job(10, 510),
            job(10, ENDLESS).from(10_000),
            job(10, ENDLESS).from(10_001),
            job(10, ENDLESS).from(10_002),
        ],
    );
    d.until(15_000);
    let lane = |id: u64, at: u64| {
        let run = d
            .runs
            .iter()
            .find(|run| run.job == id && run.began >= at * MS);
        run.map(|run| run.lane)
    };
    assert_ne!(lane(2, 9_000), lane(1, 9_000));
    assert_eq!(lane(2, 14_000), lane(6, 14_000));
    let longest = d.waits(2).max().expect("it ran");
    assert!(longest <= 60 * MS, "{longest}");
}

// Priorities.

#[test]
fn priority_a_higher_class_runs_at_the_next_boundary() {
    // When it comes first, two had been handed over.
    check(
        &mut Device::with(
            Policy::Priority,
            1,
            [job(10, 10), job(10, 3).gap(25).class(Class::High).from(15)],
        ),
        "
            1 ###-###-###-#
            2 .--#..-#..-#.
        ",
    );
}

#[test]
fn priority_a_lower_class_waits_for_all_higher_ones() {
    // When they come, two had been handed over.
    check(
        &mut Device::with(
            Policy::Priority,
            1,
            [
                job(10, 4).class(Class::Low),
                job(10, 4),
                job(10, 3).class(Class::High),
            ],
        ),
        "
            1 ##-------##
            2 -----####..
            3 --###......
        ",
    );
}

#[test]
fn priority_a_wish_counts_for_what_waits_already() {
    let mut d = Device::with(
        Policy::Priority,
        1,
        [job(10, 9), job(10, 2).class(Class::Low).from(15)],
    );
    d.wish(45, 2, job(10, 1).class(Class::High).wishes);
    check(
        &mut d,
        "
            1 ######--###
            2 .-----##...
        ",
    );
}

#[test]
fn priority_shares_within_a_class() {
    check(
        &mut Device::with(Policy::Priority, 1, [job(10, 5), job(10, 5)]),
        "
            1 ##--#-#-#.
            2 --##-#-#-#
        ",
    );
}

#[test]
fn priority_whoever_is_of_a_higher_class_waits_for_one_iteration_at_most() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut jobs: Vec<Job> = (0..1 + random.below(4))
            .map(|_| random.always_ready(5, 60))
            .collect();
        let longest = jobs.iter().map(Job::longest).max().expect("there are some");
        let class = [Class::Normal, Class::Low][random.below(2) as usize];
        jobs.iter_mut().for_each(|job| job.wishes.class = class);
        jobs.push(
            job(1 + random.below(20), 50)
                .gap(random.below(40))
                .class(Class::High),
        );
        // It is there before the others are.
        jobs.rotate_right(1);
        let mut d = Device::with(Policy::Priority, 1, jobs);
        d.until(5_000);
        let waited = d.waits(1).max().expect("it ran");
        assert!(waited <= longest, "seed {seed}: {waited} > {longest}");
    }
}

#[test]
fn priority_who_was_preferred_is_not_behind_among_equals() {
    let jobs = [job(10, ENDLESS).class(Class::High), job(10, ENDLESS)];
    let mut d = Device::with(Policy::Priority, 1, jobs);
    d.wish(5_000, 1, Wishes::default());
    d.until(7_000);
    let used = [1, 2].map(|id| d.used(id, 5_100, 7_000));
    assert!(used[0].abs_diff(used[1]) <= 20, "{used:?}");
}

#[test]
fn priority_what_a_higher_class_gets_puts_nobody_behind() {
    // 3 is not always ready; it must not come back at the time of the first.
    let mut d = Device::with(
        Policy::Priority,
        1,
        [
            job(10, 500).gap(10).class(Class::High),
            job(10, ENDLESS),
            job(10, ENDLESS).gap(5),
        ],
    );
    d.until(20_000);
    let longest = d.waits(3).max().expect("it ran");
    assert!(longest <= 100 * MS, "{longest}");
}

// The least attained service first.

#[test]
fn las_a_newcomer_goes_before_one_that_had_much() {
    let mut d = Device::with(Policy::Las, 1, [job(50, 20), job(50, 2).from(410)]);
    d.run_out();
    // One runs when it comes, and one was handed over.
    assert_eq!((d.done_at(2), d.done_at(1)), (600, 1_100));
}

#[test]
fn las_jobs_of_one_level_run_in_order_of_arrival() {
    check(
        &mut Device::with(Policy::Las, 1, [job(10, 5), job(10, 4)]),
        "
            1 #####....
            2 -----####
        ",
    );
}

// Deadlines.

#[test]
fn deadline_latency_goes_before_throughput() {
    check(
        &mut Device::with(
            Policy::Deadline,
            1,
            [job(10, 10), job(10, 3).gap(25).latency(20).from(15)],
        ),
        "
            1 ###-###-###-#
            2 .--#..-#..-#.
        ",
    );
}

#[test]
fn deadline_the_earliest_is_first_whoever_asked_first() {
    // 2 asks earlier and has more time than 3, but less than 4.
    check(
        &mut Device::with(
            Policy::Deadline,
            1,
            [
                job(30, 2),
                job(10, 1).latency(100).from(5),
                job(10, 1).latency(30).from(10),
                job(10, 1).latency(99).from(15),
            ],
        ),
        "
            1 ######...
            2 -------#.
            3 .-----#..
            4 .-------#
        ",
    );
}

#[test]
fn deadline_a_tighter_one_waits_for_one_iteration_only() {
    // 3 has time, so it is not handed over while 2 runs: 1 could ask again, and does.
    check(
        &mut Device::with(
            Policy::Deadline,
            1,
            [
                job(10, 2).latency(40).gap(10),
                job(30, 1).latency(200),
                job(30, 1).latency(100).from(15),
            ],
        ),
        "
            1 #.--#...
            2 -###....
            3 .----###
        ",
    );
}

#[test]
fn deadline_what_is_left_is_shared() {
    check(
        &mut Device::with(
            Policy::Deadline,
            1,
            [
                job(10, 4),
                job(10, 4),
                job(10, 2).latency(10).gap(30).from(35),
            ],
        ),
        "
            1 ##--#--#..
            2 --##--#-#.
            3 ...--#...#
        ",
    );
}

// Pausing, changing, ageing: under every policy.

#[test]
fn who_was_paused_did_not_wait() {
    let jobs = [
        job(10, ENDLESS).class(Class::High),
        job(10, 5).class(Class::Low),
    ];
    let mut d = Device::with(Policy::Priority, 1, jobs);
    d.pause(5, 2);
    d.resume(40_000, 2);
    d.until(80_000);
    let first = d.runs.iter().find(|run| run.job == 2).expect("it ran");
    let waited = first.began - 40_000 * MS;
    assert!((PATIENCE..PATIENCE + 20 * MS).contains(&waited), "{waited}");
}

#[test]
fn a_pause_takes_effect_at_the_next_boundary() {
    for policy in Policy::ALL {
        let mut d = Device::with(policy, 1, [job(10, 8)]);
        d.pause(25, 1);
        d.resume(80, 1);
        d.until(60);
        assert_eq!(d.engine.why(session(1)), Some(Why::Paused), "{policy:?}");
        // One runs, and one was handed over.
        check(
            &mut d,
            "
            1 ####----####
        ",
        );
    }
}

#[test]
fn others_run_during_a_pause() {
    for policy in Policy::ALL {
        let mut d = Device::with(policy, 1, [job(10, 8), job(10, 8)]);
        d.pause(5, 1);
        d.resume(305, 1);
        d.run_out();
        assert_eq!((d.done_at(2), d.done_at(1)), (100, 365), "{policy:?}");
    }
}

#[test]
fn the_policy_may_change_at_any_time() {
    let mut d = Device::with(Policy::Fifo, 1, [job(10, 8), job(10, 8)]);
    d.order(25, Policy::Fair);
    d.order(85, Policy::Exclusive);
    check(
        &mut d,
        "
            1 ####--#-#-##....
            2 ----##-#-#--####
        ",
    );
}

#[test]
fn what_one_policy_gave_another_does_not_take_back() {
    let mut d = Device::with(Policy::Fifo, 1, [job(10, ENDLESS), job(10, ENDLESS)]);
    d.order(5_000, Policy::Fair);
    d.until(7_000);
    let used = [1, 2].map(|id| d.used(id, 5_100, 7_000));
    assert!(used[0].abs_diff(used[1]) <= 20, "{used:?}");
}

#[test]
fn whoever_has_waited_for_long_goes_first_once() {
    // In front of each there is always one that the policy prefers.
    let rivals = [
        (Policy::Fifo, job(50, ENDLESS)),
        (
            Policy::Srtf,
            job(50, ENDLESS).work(Work::Iterations(u64::MAX / (100 * MS))),
        ),
        (Policy::Priority, job(50, ENDLESS).class(Class::High)),
        (Policy::Deadline, job(50, ENDLESS).latency(1)),
    ];
    for (policy, rival) in rivals {
        let day = Work::Time(Duration(u64::MAX));
        let mut d = Device::with(policy, 1, [rival, job(50, ENDLESS).work(day).from(1)]);
        d.until(200_000);
        let waits: Vec<u64> = d.waits(2).collect();
        assert_eq!(waits.len(), 6, "{policy:?}: {waits:?}");
        for waited in waits {
            // Two are handed over before it.
            let within = PATIENCE..=PATIENCE + 150 * MS;
            assert!(within.contains(&waited), "{policy:?}: {waited}");
        }
    }
}

#[test]
fn las_whoever_has_waited_for_long_goes_first() {
    // Short jobs come without end.
    let short = (0..400).map(|nth| job(50, 4).from(1_000 + 200 * nth));
    let mut d = Device::with(Policy::Las, 1, [job(50, 1_000)].into_iter().chain(short));
    d.until(70_000);
    let longest = d.waits(1).max().expect("it ran");
    assert!(longest <= PATIENCE + 150 * MS, "{longest}");
    assert!(longest >= PATIENCE, "{longest}");
}

impl Random {
    /// An endless job whose iterations take between so many ms, always the same.
    fn always_ready(&mut self, from_ms: u64, to_ms: u64) -> Job {
        let program = self.next();
        job(from_ms + self.below(to_ms - from_ms), ENDLESS).runs(program)
    }
}

// Promises, on random jobs.

/// Jobs that become ready, in a random order, while two iterations of another one run: so that all
/// are there when it is decided who is next. Those are job 1; the jobs are 2, 3, … and what each of
/// their programs takes is known.
fn all_at_once(policy: Policy, jobs: Vec<Job>) -> Device {
    let mut device = Device::new(policy, 1);
    device.add(1, job(100, 2).from(100_000));
    for (id, job) in (2..).zip(jobs) {
        let before = Job {
            iterations: 3,
            wishes: Wishes::default(),
            ..job.clone()
        };
        device.add(1_000 + id, before);
        device.add(id, job.from(arrives_at(id)));
    }
    device
}

/// In ms: before the first of the two iterations has ended.
fn arrives_at(id: u64) -> u64 {
    let at = 100_000 + 12 * id;
    assert!(at < 100_100, "too many jobs");
    at
}

/// When the jobs have the device for themselves, in ns.
const ALL_THERE: u64 = 100_200 * MS;

#[test]
fn fair_is_within_one_iteration_of_the_ideal_share_over_any_time() {
    let mut worst: f64 = 0.0;
    for seed in 0..300 {
        let mut random = Random::new(seed);
        let equal = seed % 2 == 0;
        let jobs: Vec<Job> = (0..2 + random.below(6))
            .map(|_| {
                let weight = if equal { 1 } else { 1 + random.below(5) as u32 };
                random.always_ready(1, 50).weight(weight)
            })
            .collect();
        let weights = jobs.iter().map(|job| f64::from(job.wishes.weight.0.get()));
        let weights: Vec<f64> = weights.collect();
        // Virtual time of one iteration of each.
        let steps = jobs.iter().zip(&weights);
        let steps: Vec<f64> = steps.map(|(job, w)| job.longest() as f64 / w).collect();
        let longest = jobs.iter().map(Job::longest).max().expect("two or more") as f64;
        let mut d = all_at_once(Policy::Fair, jobs);
        d.until(110_000);
        let n = weights.len();
        let mut times = vec![0.0; n];
        let mut extremes = vec![vec![(0.0_f64, 0.0_f64); n]; n];
        for run in d.runs.iter().filter(|run| run.began >= ALL_THERE) {
            let i = run.job as usize - 2;
            times[i] += (run.ended - run.began) as f64 / weights[i];
            for j in 0..n {
                for (i, j) in [(i, j), (j, i)] {
                    let ahead: f64 = times[i] - times[j];
                    let (least, most) = &mut extremes[i][j];
                    (*least, *most) = (least.min(ahead), most.max(ahead));
                }
            }
            // Since all are there, with equal weights.
            let ideal = (run.ended - ALL_THERE) as f64 / n as f64;
            let off = times
                .iter()
                .map(|time| (time - ideal).abs())
                .fold(0.0, f64::max);
            assert!(
                !equal || off <= longest + 1.0,
                "seed {seed}: {off}, {longest}"
            );
        }
        for (i, row) in extremes.iter().enumerate() {
            for (j, (least, most)) in row.iter().enumerate() {
                // Between any two moments one gets ahead of the other by so much.
                let (gained, bound) = (most - least, steps[i] + steps[j]);
                worst = worst.max(gained / bound);
                assert!(gained <= bound + 1.0, "seed {seed}: {gained} > {bound}");
            }
        }
    }
    eprintln!("fair: at worst {worst:.2} of one iteration of each");
}

#[test]
fn fair_holds_also_where_iterations_vary() {
    let mut worst: f64 = 0.0;
    for seed in 0..100 {
        let mut random = Random::new(seed);
        let jobs: Vec<Job> = (0..2 + random.below(4))
            .map(|_| {
                let job = random.always_ready(10, 50);
                let length = job.lengths[0];
                let vary = |_| length / 2 + random.below(length);
                let lengths = (0..101).map(vary).collect();
                Job { lengths, ..job }
            })
            .collect();
        let longest: Vec<u64> = jobs.iter().map(Job::longest).collect();
        let mut d = all_at_once(Policy::Fair, jobs);
        d.until(160_000);
        let used: Vec<u64> = (0..longest.len() as u64)
            .map(|n| d.used(2 + n, 100_200, 160_000) * MS)
            .collect();
        for i in 0..used.len() {
            for j in 0..i {
                let bound = 2 * (longest[i] + longest[j]);
                let off = used[i].abs_diff(used[j]);
                worst = worst.max(off as f64 / bound as f64);
                assert!(off <= bound, "seed {seed}: {off} > {bound}");
            }
        }
    }
    eprintln!("fair, where iterations vary: at worst {worst:.2} of two iterations of each");
}

#[test]
fn srtf_is_optimal_on_one_lane_with_true_estimates() {
    for seed in 0..400 {
        let mut random = Random::new(seed);
        let jobs: Vec<Job> = (0..2 + random.below(3))
            .map(|_| {
                let iterations = 1 + random.below(4);
                let job = random.always_ready(1, 40);
                Job { iterations, ..job }.said(100)
            })
            .collect();
        let best = best_sum(&jobs, &mut vec![0; jobs.len()], 0, &mut BTreeMap::new());
        let ids = 2..2 + jobs.len() as u64;
        let mut d = all_at_once(Policy::Srtf, jobs);
        d.run_out();
        let sum: u64 = ids
            .map(|id| d.jobs[&id].done_at.expect("ended") - ALL_THERE)
            .sum();
        assert_eq!(sum, best, "seed {seed}");
    }
}

/// The least that the times at which jobs end can add up to, over all orders of their iterations.
fn best_sum(
    jobs: &[Job],
    done: &mut Vec<u64>,
    now: u64,
    known: &mut BTreeMap<Vec<u64>, u64>,
) -> u64 {
    if let Some(sum) = known.get(done) {
        return *sum;
    }
    let mut best = None;
    for nth in 0..jobs.len() {
        let job = &jobs[nth];
        if done[nth] < job.iterations {
            let end = now + job.length(done[nth]);
            done[nth] += 1;
            let own = if done[nth] == job.iterations { end } else { 0 };
            let sum = own + best_sum(jobs, done, end, known);
            done[nth] -= 1;
            best = Some(best.map_or(sum, |best: u64| best.min(sum)));
        }
    }
    let best = best.unwrap_or(0);
    known.insert(done.clone(), best);
    best
}

#[test]
fn srtf_is_within_one_iteration_of_the_best_also_if_jobs_come_later() {
    // All iterations take 10 ms. Who knew what comes could start a newcomer at the next boundary;
    // here one iteration was handed over before.
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let mut jobs = vec![job(10, 12).said(100)];
        for _ in 0..2 + random.below(2) {
            let newcomer = job(10, 1 + random.below(4)).said(100);
            jobs.push(newcomer.from(5 + 10 * random.below(8)));
        }
        jobs.sort_by_key(|job| job.from);
        let arrivals: Vec<u64> = jobs.iter().map(|job| job.from.div_ceil(10 * MS)).collect();
        let left: Vec<u64> = jobs.iter().map(|job| job.iterations).collect();
        let best = 10 * MS * best_with_arrivals(&arrivals, &left, 0, &mut BTreeMap::new());
        let n = jobs.len() as u64;
        let mut d = Device::with(Policy::Srtf, 1, jobs);
        d.run_out();
        let sum: u64 = d.jobs.values().filter_map(|job| job.done_at).sum();
        assert!(sum <= best + n * 10 * MS, "seed {seed}: {sum}, {best}");
    }
}

/// The same with equal iterations and jobs that come later, in iterations.
fn best_with_arrivals(
    arrivals: &[u64],
    left: &[u64],
    now: u64,
    known: &mut BTreeMap<(u64, Vec<u64>), u64>,
) -> u64 {
    if left.iter().all(|left| *left == 0) {
        return 0;
    }
    if let Some(sum) = known.get(&(now, left.to_vec())) {
        return *sum;
    }
    let there = (0..left.len()).filter(|&nth| left[nth] > 0 && arrivals[nth] <= now);
    let sums = there.map(|nth| {
        let mut left = left.to_vec();
        left[nth] -= 1;
        let own = if left[nth] == 0 { now + 1 } else { 0 };
        own + best_with_arrivals(arrivals, &left, now + 1, known)
    });
    // If nobody is there, time passes.
    let best = sums.min();
    let best = best.unwrap_or_else(|| best_with_arrivals(arrivals, left, now + 1, known));
    known.insert((now, left.to_vec()), best);
    best
}

#[test]
fn deadline_meets_all_that_any_order_meets_on_one_lane() {
    let (mut could, mut could_not) = (0, 0);
    for seed in 0..1_000 {
        let mut random = Random::new(seed);
        // Of each: what it takes, and how long after all are there it must have ended.
        let drawn = |_| (1 + random.below(20), random.below(80));
        let drawn: Vec<(u64, u64)> = (0..2 + seed % 5).map(drawn).collect();
        let feasible = any_order_meets(&drawn, 0);
        match feasible {
            true => could += 1,
            false => could_not += 1,
        }
        // Those of class 2 are there as well, and always ready.
        let mut jobs = vec![job(30, 20).runs(99)];
        for (nth, (length, due)) in (0..).zip(&drawn) {
            let latency = 100_200 + due - arrives_at(3 + nth);
            jobs.push(job(*length, 1).runs(nth).latency(latency));
        }
        let mut d = all_at_once(Policy::Deadline, jobs);
        d.run_out();
        let met = (3..)
            .zip(&drawn)
            .all(|(id, (_, due))| d.done_at(id) <= 100_200 + due);
        assert_eq!(met, feasible, "seed {seed}: {drawn:?}");
    }
    assert!(could > 100 && could_not > 100, "{could}, {could_not}");
}

fn any_order_meets(jobs: &[(u64, u64)], now: u64) -> bool {
    jobs.is_empty()
        || (0..jobs.len()).any(|first| {
            let mut rest = jobs.to_vec();
            let (length, due) = rest.remove(first);
            now + length <= due && any_order_meets(&rest, now + length)
        })
}

/// Jobs of all kinds, some of them endless, and wishes of all kinds.
fn mixed_jobs(random: &mut Random) -> Vec<Job> {
    let count = 3 + random.below(5);
    let draw = |_| {
        let mut job = random.always_ready(5, 80);
        job.from = random.below(2_000) * MS;
        job.gap = (random.below(3) == 0).then(|| random.below(60) * MS);
        if random.below(3) > 0 {
            job.iterations = 1 + random.below(60);
        }
        job.wishes = Wishes {
            class: [Class::High, Class::Normal, Class::Low][random.below(3) as usize],
            latency: (random.below(3) == 0).then(|| Duration(random.below(100) * MS)),
            work: (random.below(2) == 0).then(|| Work::Iterations(random.below(100))),
            ..job.wishes
        };
        job.weight(1 + random.below(4) as u32)
    };
    (0..count).map(draw).collect()
}

#[test]
fn nobody_starves_and_no_lane_is_idle_while_somebody_waits() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let lanes = 1 + random.below(3) as u32;
        let jobs = mixed_jobs(&mut random);
        let longest = jobs.iter().map(Job::longest).max().expect("there are some");
        let turns = jobs.len() as u64 * 5 * longest;
        for policy in Policy::ALL {
            if policy == Policy::Exclusive {
                continue;
            }
            let shares = matches!(policy, Policy::Fair | Policy::Pack);
            let bound = if shares { 2 * turns } else { PATIENCE + turns };
            let mut d = Device::with(policy, lanes, jobs.clone());
            d.until(100_000);
            let now = d.now;
            for (id, job) in &d.jobs {
                let still = job.asked_at.map(|asked_at| now - asked_at);
                let waited = d.waits(*id).chain(still).max().expect("it asked");
                assert!(
                    waited <= bound,
                    "seed {seed}, {policy:?}: job {id} waited {waited} ns, {bound} is the bound"
                );
                let ends = job.iterations != ENDLESS;
                assert!(
                    !shares || !ends || job.done_at.is_some(),
                    "job {id} never ended"
                );
            }
            // Where lanes run side by side only if that helps, they are also measured alone.
            if policy != Policy::Pack || lanes == 1 {
                d.check_work_is_conserved();
            }
        }
    }
}

impl Device {
    /// Whenever a lane was idle, nobody had asked who ran there later.
    fn check_work_is_conserved(&self) {
        for lane in 0..self.lanes.len() {
            let runs: Vec<&Run> = self.runs.iter().filter(|run| run.lane == lane).collect();
            let mut asked_first = u64::MAX;
            for pair in runs.windows(2).rev() {
                let (before, next) = (pair[0], pair[1]);
                asked_first = asked_first.min(next.asked_at);
                let idle = before.ended < next.began;
                assert!(!idle || asked_first >= next.began, "{before:?}, {next:?}");
            }
        }
    }
}

// Estimates that are wrong.

/// Jobs whose lengths differ much, of which the device has nearly as much as it can do.
fn workload(random: &mut Random) -> Vec<Job> {
    let mut now = 0;
    let draw = |nth: u64| {
        // Equally many of each order of magnitude, from half a second to half a minute.
        let length = 10 + random.below(80);
        let total = 500 << random.below(7);
        now += random.below(16_000);
        job(length, total / length).runs(nth).from(now)
    };
    (0..40).map(draw).collect()
}

#[test]
fn srtf_with_wrong_estimates_is_still_better_than_without() {
    const SEEDS: u64 = 12;
    let run = |policy: Policy, change: &dyn Fn(&mut Random, Job) -> Job| {
        let times = (0..SEEDS).map(|seed| {
            let jobs = workload(&mut Random::new(seed));
            let mut random = Random::new(seed + 100);
            let jobs = jobs.into_iter().map(|job| change(&mut random, job));
            let mut d = Device::with(policy, 1, jobs);
            d.run_out();
            d.average_time() as f64
        });
        times.sum::<f64>() / SEEDS as f64
    };
    let best = run(Policy::Srtf, &|_, job| job.said(100));
    // Each estimate is off by a factor of its own, up to this one, too low or too high.
    let off = |most: u64| {
        move |random: &mut Random, job: Job| {
            let factor = 100 + random.below(100 * (most - 1) + 1);
            match random.below(2) {
                0 => job.said(factor),
                _ => job.said(10_000 / factor),
            }
        }
    };
    let rows = [
        ("srtf, true", 1.0),
        ("srtf, off by up to 2", run(Policy::Srtf, &off(2)) / best),
        ("srtf, off by up to 3", run(Policy::Srtf, &off(3)) / best),
        ("srtf, off by up to 5", run(Policy::Srtf, &off(5)) / best),
        (
            "srtf, all 0.2 x",
            run(Policy::Srtf, &|_, job| job.said(20)) / best,
        ),
        (
            "srtf, all 5 x",
            run(Policy::Srtf, &|_, job| job.said(500)) / best,
        ),
        ("srtf, unknown", run(Policy::Srtf, &|_, job| job) / best),
        ("las", run(Policy::Las, &|_, job| job) / best),
        ("fair", run(Policy::Fair, &|_, job| job) / best),
        ("fifo", run(Policy::Fifo, &|_, job| job) / best),
    ];
    let mut times = BTreeMap::new();
    eprintln!("average completion time, relative to that with true estimates");
    for (what, time) in rows {
        eprintln!("  {what:22} {time:5.2}");
        times.insert(what, time);
    }
    // Errors that differ cost a third; if all are wrong alike, as much as if nothing were known.
    assert!(times["srtf, off by up to 5"] <= 1.5);
    assert!(times["srtf, off by up to 2"] <= 1.15);
    for (what, time) in &times {
        assert!(*time >= 0.99, "{what} is better than the best");
        let worst = what.starts_with("srtf") && *time > times["fair"] * 0.95;
        assert!(!worst, "{what} is no better than fair");
    }
    assert!(times["srtf, off by up to 5"] < times["las"]);
}
