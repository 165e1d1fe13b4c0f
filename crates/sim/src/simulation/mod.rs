//! The engine under a virtual clock, with a record of what its sessions hold, ask for and run.
//!
//! Its user plays the jobs and the device: it opens sessions, makes them ready, ends iterations,
//! answers page-outs or withholds the answer. `run.rs` does so for scenarios, and every
//! test of the engine does so for itself.
//!
//! Promise: the engine gets the events that the device host would send it. After each event
//! of a debug build everything in `invariants.rs` holds, or it panics.
//! Cost: O(sessions) per event in debug builds, else the engine's.
//! Not here: jobs that act by themselves (`run.rs`, `job.rs`).

mod demands;
mod questions;

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use salus_engine::{
    Calling, Decision, Demand, Duration, Engine, Event, JobSettings, Kind, Lane, Policy, Refusal,
    Room, SessionId, Time, User,
};

pub use demands::{Needs, lacks, launch, launch_with_callbacks, upload, upload_to_host};

#[derive(Debug)]
pub struct Simulation {
    pub(crate) engine: Engine,
    pub(crate) now: Time,
    pub(crate) policy: Policy,
    pub(crate) room: Room,
    /// The open ones, in order of arrival.
    pub(crate) sessions: BTreeMap<u64, Session>,
    /// How many iterations have left each lane for a callback and were not replaced.
    pub(crate) vacated: BTreeMap<Lane, u64>,
    /// When each lane has run what [`Self::ends_at`] was asked about.
    free_at: BTreeMap<Lane, Time>,
    started: u64,
    /// Whether a session was ever paused: else nobody is looked for who was.
    has_paused: bool,
}

/// What the engine decided, with the number of the session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decided {
    Start(u64),
    /// At least this many bytes.
    PageOut(u64, u64),
    PageIn(u64),
    Refuse(u64, Refusal),
}

/// What a session is opened with.
#[derive(Debug, Clone, Copy, Default)]
pub struct Opening {
    pub user: u32,
    pub settings: JobSettings,
}

/// An open session as seen from outside the engine.
#[derive(Debug)]
pub struct Session {
    pub(crate) user: u32,
    pub(crate) settings: JobSettings,
    pub(crate) opened_at: Time,
    pub resident_bytes: u64,
    pub paged_bytes: u64,
    /// In host memory, and no pages.
    pub host_bytes: u64,
    /// What it asked for and was not answered, and since when it could be served: when it asked, or
    /// was no longer held back.
    pub request: Option<(Demand, Time)>,
    /// Started and not ended, in that order.
    pub running: Vec<Iteration>,
    /// It was asked to page out, and has not answered.
    pub pages_out: bool,
    /// It was asked to page in before its turn, and has not answered.
    pub pages_in: bool,
    pub paused: bool,
}

#[derive(Debug, Clone, Copy)]
pub struct Iteration {
    pub lane: Lane,
    pub scratch_bytes: u64,
    /// If it calls back.
    pub calling: Option<Calling>,
    /// It has left its lane and waits for a callback.
    pub in_callback: bool,
    /// Grows with each that is started.
    number: u64,
}

impl Session {
    /// What it asks for is paged in, before it is its turn.
    fn page_in(&mut self) {
        self.pages_in = true;
        let (demand, _) = self.request.as_mut().expect("only those that ask");
        let bytes = std::mem::take(&mut demand.paged_bytes);
        self.resident_bytes += bytes;
        self.paged_bytes -= bytes;
    }

    pub fn settings(&self) -> JobSettings {
        self.settings
    }
}

impl Simulation {
    pub fn new(policy: Policy, room: Room, lanes: u32, width: u32) -> Self {
        Self {
            engine: Engine::new(policy, room, lanes, width),
            now: Time(0),
            policy,
            room,
            sessions: BTreeMap::new(),
            vacated: BTreeMap::new(),
            free_at: BTreeMap::new(),
            started: 0,
            has_paused: false,
        }
    }

    /// On a device with memory of its own.
    #[must_use]
    pub fn with_own_memory(mut self) -> Self {
        self.engine = self.engine.with_own_memory();
        self
    }

    // What happens. Each returns what the engine decided, which is in the record already.

    /// What follows happens at this time.
    pub fn at(&mut self, now: Time) -> &mut Self {
        assert!(now >= self.now, "time does not go back");
        self.now = now;
        self
    }

    /// Opens session `id`; ids grow with the order of arrival.
    pub fn open(&mut self, id: u64, opening: Opening) -> Vec<Decided> {
        let Opening { user, settings } = opening;
        let session = Session {
            user,
            settings,
            opened_at: self.now,
            resident_bytes: 0,
            paged_bytes: 0,
            host_bytes: 0,
            request: None,
            running: Vec::new(),
            pages_out: false,
            pages_in: false,
            paused: false,
        };
        self.sessions.insert(id, session);
        self.tell(Event::Opened {
            session: SessionId(id),
            user: User(user),
            settings,
        })
    }

    pub fn ready(&mut self, id: u64, demand: Demand) -> Vec<Decided> {
        let now = self.now;
        let before = self.session_mut(id).request.replace((demand, now));
        assert!(before.is_none(), "{id} asks for one thing at a time");
        let session = SessionId(id);
        self.tell(Event::Ready { session, demand })
    }

    /// The oldest iteration of the session has ended, of those that do not call back.
    pub fn ran(&mut self, id: u64) -> Vec<Decided> {
        let running = &mut self.session_mut(id).running;
        let at = running.iter().position(|it| it.calling.is_none());
        running.remove(at.expect("something of it runs"));
        let (session, calling) = (SessionId(id), None);
        self.tell(Event::Ran { session, calling })
    }

    /// The iteration that was started last could not run; what it was to keep is kept.
    pub fn did_not_run(&mut self, id: u64) -> Vec<Decided> {
        let running = &mut self.session_mut(id).running;
        let at = running.iter().rposition(|it| it.calling.is_none());
        running.remove(at.expect("something of it runs"));
        let (session, calling) = (SessionId(id), None);
        self.tell(Event::DidNotRun { session, calling })
    }

    /// One that calls back has ended.
    pub fn returned(&mut self, id: u64, calling: u64) -> Vec<Decided> {
        let (session, calling) = (SessionId(id), Some(self.end_calling(id, calling)));
        self.tell(Event::Ran { session, calling })
    }

    /// One that calls back could not run.
    pub fn did_not_return(&mut self, id: u64, calling: u64) -> Vec<Decided> {
        let (session, calling) = (SessionId(id), Some(self.end_calling(id, calling)));
        self.tell(Event::DidNotRun { session, calling })
    }

    fn end_calling(&mut self, id: u64, calling: u64) -> Calling {
        let calling = Calling(calling);
        let running = &mut self.session_mut(id).running;
        let at = running.iter().position(|it| it.calling == Some(calling));
        running.remove(at.expect("it runs"));
        calling
    }

    pub fn callback_began(&mut self, id: u64, calling: u64) -> Vec<Decided> {
        let calling = Calling(calling);
        let iteration = self.calling_mut(id, calling);
        iteration.in_callback = true;
        let lane = iteration.lane;
        *self.vacated.entry(lane).or_default() += 1;
        let session = SessionId(id);
        self.tell(Event::CallbackBegan { session, calling })
    }

    pub fn callback_ended(&mut self, id: u64, calling: u64) -> Vec<Decided> {
        let calling = Calling(calling);
        self.calling_mut(id, calling).in_callback = false;
        let session = SessionId(id);
        self.tell(Event::CallbackEnded { session, calling })
    }

    fn calling_mut(&mut self, id: u64, calling: Calling) -> &mut Iteration {
        let mut running = self.session_mut(id).running.iter_mut();
        let found = running.find(|it| it.calling == Some(calling));
        found.expect("it runs")
    }

    /// What it asked for is no longer wanted.
    pub fn withdraw(&mut self, id: u64) -> Vec<Decided> {
        self.session_mut(id).request = None;
        let session = SessionId(id);
        self.tell(Event::Withdrew { session })
    }

    /// Arrays are gone, also those of a session that is closed.
    pub fn release(&mut self, id: u64, resident_bytes: u64, paged_bytes: u64) -> Vec<Decided> {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.resident_bytes -= resident_bytes;
            session.paged_bytes -= paged_bytes;
        }
        self.tell(Event::Released {
            session: SessionId(id),
            resident_bytes,
            paged_bytes,
            host_bytes: 0,
        })
    }

    /// Arrays in host memory that were no pages are gone.
    pub fn release_host(&mut self, id: u64, host_bytes: u64) -> Vec<Decided> {
        if let Some(session) = self.sessions.get_mut(&id) {
            session.host_bytes -= host_bytes;
        }
        self.tell(Event::Released {
            session: SessionId(id),
            resident_bytes: 0,
            paged_bytes: 0,
            host_bytes,
        })
    }

    /// The answer to `PageIn`.
    pub fn paged_in(&mut self, id: u64) -> Vec<Decided> {
        self.session_mut(id).pages_in = false;
        let session = SessionId(id);
        self.tell(Event::PagedIn { session })
    }

    /// The most that it may page out, beyond what it was asked for.
    pub fn may_page_out(&self, id: u64) -> u64 {
        self.engine.may_page_out(SessionId(id))
    }

    /// It moves more than it was asked for.
    pub fn paging_out(&mut self, id: u64, bytes: u64) -> Vec<Decided> {
        let session = SessionId(id);
        self.tell(Event::PagingOut { session, bytes })
    }

    /// The answer to `PageOut`: what was moved, and how many bytes of the waiting request's arguments
    /// are paged out now. Until it is given, the session's arrays are on their way.
    pub fn paged_out(&mut self, id: u64, bytes: u64, paged_bytes: u64) -> Vec<Decided> {
        let session = self.session_mut(id);
        assert!(session.pages_out, "{id} was not asked to page out");
        session.pages_out = false;
        session.resident_bytes -= bytes;
        session.paged_bytes += bytes;
        if let Some((demand, _)) = &mut session.request {
            demand.paged_bytes = paged_bytes;
        }
        self.tell(Event::PagedOut {
            session: SessionId(id),
            bytes,
            paged_bytes,
        })
    }

    pub fn change_settings(&mut self, id: u64, settings: JobSettings) -> Vec<Decided> {
        self.session_mut(id).settings = settings;
        let session = SessionId(id);
        self.tell(Event::SettingsChanged { session, settings })
    }

    /// Changes the session's memory limit alone.
    pub fn limit(&mut self, id: u64, memory_max: Option<u64>) -> Vec<Decided> {
        let settings = JobSettings {
            memory_max: memory_max.and_then(NonZeroU64::new),
            ..self.session(id).settings
        };
        self.change_settings(id, settings)
    }

    /// Earlier sessions like this one needed this much device time.
    pub fn estimate_from_history(&mut self, id: u64, total: Duration) -> Vec<Decided> {
        let session = SessionId(id);
        self.tell(Event::EstimatedFromHistory { session, total })
    }

    pub fn compiling(&mut self, id: u64, is_compiling: bool) -> Vec<Decided> {
        let session = SessionId(id);
        self.tell(match is_compiling {
            true => Event::CompileStarted { session },
            false => Event::CompileEnded { session },
        })
    }

    pub fn pause(&mut self, id: u64) -> Vec<Decided> {
        self.has_paused = true;
        let session = SessionId(id);
        self.let_go(|this| this.session_mut(id).paused = true);
        self.tell(Event::Paused { session })
    }

    pub fn resume(&mut self, id: u64) -> Vec<Decided> {
        let session = SessionId(id);
        self.let_go(|this| this.session_mut(id).paused = false);
        self.tell(Event::Resumed { session })
    }

    pub fn change_policy(&mut self, policy: Policy) -> Vec<Decided> {
        self.let_go(|this| this.policy = policy);
        self.tell(Event::PolicyChanged { policy })
    }

    pub fn close(&mut self, id: u64) -> Vec<Decided> {
        let session = SessionId(id);
        self.let_go(|this| drop(this.sessions.remove(&id)));
        self.tell(Event::Closed { session })
    }

    /// The time of [`Self::wake_at`] has come.
    pub fn wake(&mut self) -> Vec<Decided> {
        self.tell(Event::Woke)
    }

    /// Makes a change to who is held back; those that no longer are can be served from now on.
    fn let_go(&mut self, change: impl FnOnce(&mut Self)) {
        if self.policy != Policy::Exclusive && !self.has_paused {
            return change(self);
        }
        let before: Vec<u64> = self.held_back().collect();
        change(self);
        let after: Vec<u64> = self.held_back().collect();
        let now = self.now;
        for id in before.into_iter().filter(|id| !after.contains(id)) {
            let session = self.sessions.get_mut(&id);
            if let Some((_, since)) = session.and_then(|session| session.request.as_mut()) {
                *since = now;
            }
        }
    }

    fn tell(&mut self, event: Event) -> Vec<Decided> {
        let decisions = self.engine.on(self.now, event);
        let decided = decisions.into_iter().map(|it| self.note(it)).collect();
        if cfg!(debug_assertions) {
            self.check();
        }
        decided
    }

    /// Keeps in the record what was decided.
    fn note(&mut self, decision: Decision) -> Decided {
        if cfg!(debug_assertions) {
            self.check_decision(&decision);
        }
        match decision {
            Decision::Start { session, lane } => {
                self.started += 1;
                let number = self.started;
                let session = self.session_mut(session.0);
                let (demand, _) = session.request.take().expect("only the ready start");
                session.resident_bytes += demand.new_bytes + demand.paged_bytes;
                session.paged_bytes -= demand.paged_bytes;
                session.host_bytes += demand.new_host_bytes;
                if demand.kind != Kind::Array {
                    session.running.push(Iteration {
                        lane,
                        scratch_bytes: demand.scratch_bytes(),
                        calling: demand.calling(),
                        in_callback: false,
                        number,
                    });
                    if cfg!(debug_assertions) {
                        self.check_lane_had_a_place(lane, demand.calling().is_some());
                    }
                }
            }
            Decision::PageOut { session, .. } => self.session_mut(session.0).pages_out = true,
            Decision::PageIn { session, .. } => self.session_mut(session.0).page_in(),
            Decision::Refuse { session, .. } => self.session_mut(session.0).request = None,
        }
        match decision {
            Decision::Start { session, .. } => Decided::Start(session.0),
            Decision::PageOut { session, bytes } => Decided::PageOut(session.0, bytes),
            Decision::PageIn { session, .. } => Decided::PageIn(session.0),
            Decision::Refuse { session, why } => Decided::Refuse(session.0, why),
        }
    }

    #[track_caller]
    fn session_mut(&mut self, id: u64) -> &mut Session {
        self.sessions.get_mut(&id).expect("it is open")
    }
}
