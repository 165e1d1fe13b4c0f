//! The engine with a clock, an alarm and a lock around it, and the sessions that its decisions name.
//!
//! A session's own thread tells the engine something and gets the decisions about that session back
//! ([`ClockedEngine::tell_from`]). Decisions about other sessions go to their mailboxes, and their
//! threads are woken. All other threads use [`ClockedEngine::tell`].

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use salus_channel::{lock, wait, wait_timeout};
use salus_device::Device;
use salus_engine::{
    Account, Calling, Decision, Demand, Engine, Event, JobSettings, Kind, Lane, Policy, Program,
    Refusal, SessionId, Time, User,
};
use salus_wire::Profile;

use crate::device_host::observe::trace::{Copied, Own, Recorder};
use crate::device_host::session::{Identity, SharedSession};

pub(crate) struct ClockedEngine<D: Device> {
    began: Instant,
    locked: Mutex<Locked<D>>,
    /// The engine wants to be woken at another time than before.
    alarm: Condvar,
    /// The engine has decided about the service's own request.
    own_decided: Condvar,
}

/// The session under which the service itself takes turns; those of jobs begin at 1.
pub(crate) const OWN: SessionId = SessionId(0);
/// What such a turn is in traces.
const OWN_NAME: &str = "measuring on the device";
/// Every request that calls back is served after the aging limit. One that is not, waits for a session
/// that has the device for itself and may wait for us.
const OWN_WAIT: Duration = Duration::from_nanos(2 * salus_engine::AGING_LIMIT.0);

struct Locked<D: Device> {
    engine: Engine,
    sessions: BTreeMap<SessionId, Arc<SharedSession<D>>>,
    /// When the alarm's thread wakes; `None` while it sleeps until it is notified.
    wakes_at: Option<Time>,
    trace: Recorder,
    /// About the service's own request.
    own: Decided,
}

/// What the engine has decided about one session and the session has not yet acted on.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decided {
    pub(crate) verdict: Option<Verdict>,
    /// The lane in which the session must page in what its operation needs, before anything else.
    pub(crate) page_in: Option<Lane>,
    /// Bytes of its arrays that the session must page out.
    pub(crate) page_out: Option<u64>,
}

/// The engine's answer to the operation at the head of a session's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Start(Lane),
    Refuse(Refusal),
}

impl Decided {
    pub(crate) fn add(&mut self, decision: Decision) {
        match decision {
            Decision::Start { lane, .. } => self.verdict = Some(Verdict::Start(lane)),
            Decision::Refuse { why, .. } => self.verdict = Some(Verdict::Refuse(why)),
            Decision::PageIn { lane, .. } => self.page_in = Some(lane),
            Decision::PageOut { bytes, .. } => self.page_out = Some(bytes),
        }
    }

    pub(crate) fn merge(&mut self, later: Self) {
        self.verdict = later.verdict.or(self.verdict);
        self.page_in = later.page_in.or(self.page_in);
        self.page_out = later.page_out.or(self.page_out);
    }
}

impl<D: Device> ClockedEngine<D> {
    pub(crate) fn new(engine: Engine) -> Self {
        let locked = Locked {
            engine,
            sessions: BTreeMap::new(),
            wakes_at: None,
            trace: Recorder::default(),
            own: Decided::default(),
        };
        Self {
            began: Instant::now(),
            locked: Mutex::new(locked),
            alarm: Condvar::new(),
            own_decided: Condvar::new(),
        }
    }

    /// Wakes the engine whenever it wants to be woken. Never returns.
    pub(crate) fn keep_time(&self) {
        let mut locked = self.lock();
        loop {
            let now = self.now();
            locked = match locked.engine.wake_at() {
                None => {
                    locked.wakes_at = None;
                    wait(&self.alarm, locked)
                }
                Some(at) if at > now => {
                    locked.wakes_at = Some(at);
                    let left = Duration::from_nanos((at - now).0);
                    wait_timeout(&self.alarm, locked, left).0
                }
                Some(_) => {
                    self.decide(&mut locked, Event::Woke, None);
                    locked
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, Locked<D>> {
        lock(&self.locked)
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(crate) fn open(&self, session: &Arc<SharedSession<D>>, settings: JobSettings) {
        let mut locked = self.lock();
        locked.sessions.insert(session.id, Arc::clone(session));
        let now = self.now();
        locked.trace.opened(now, session.id, &session.identity);
        let opened = Event::Opened {
            session: session.id,
            user: User(session.identity.uid),
            settings,
        };
        self.decide(&mut locked, opened, None);
    }

    pub(crate) fn close(&self, session: SessionId) {
        let mut locked = self.lock();
        self.decide(&mut locked, Event::Closed { session }, None);
        locked.sessions.remove(&session);
    }

    /// Tells the engine something. Every decision goes to the mailbox of its session.
    pub(crate) fn tell(&self, event: Event) {
        self.decide(&mut self.lock(), event, None);
    }

    /// Tells the engine something from a session's own thread. Returns what it decided about this
    /// session; decisions about others go to their mailboxes.
    #[must_use]
    pub(crate) fn tell_from(&self, own: SessionId, event: Event) -> Decided {
        self.decide(&mut self.lock(), event, Some(own))
    }

    fn decide(&self, locked: &mut Locked<D>, event: Event, own: Option<SessionId>) -> Decided {
        let now = self.now();
        let decisions = locked.engine.on(now, event);
        let mut decided = Decided::default();
        for &decision in &decisions {
            let session = match decision {
                Decision::Start { session, .. }
                | Decision::PageIn { session, .. }
                | Decision::PageOut { session, .. }
                | Decision::Refuse { session, .. } => session,
            };
            if own == Some(session) {
                decided.add(decision);
            } else if session == OWN {
                locked.own.add(decision);
                self.own_decided.notify_one();
            } else if let Some(chosen) = locked.sessions.get(&session) {
                chosen.deliver(decision);
            }
        }
        // Last, so that the sessions that were woken do not wait for it.
        let (trace, engine) = (&mut locked.trace, &locked.engine);
        trace.note(now, &event, &decisions, engine);
        let wanted = locked.engine.wake_at();
        if wanted.is_some_and(|at| locked.wakes_at.is_none_or(|planned| at < planned)) {
            self.alarm.notify_one();
        }
        decided
    }

    /// A session that was asked to page out wants to page out this many bytes, which is more. Returns
    /// how many it may.
    pub(crate) fn claim_host(&self, session: SessionId, bytes: u64) -> u64 {
        let mut locked = self.lock();
        let bytes = bytes.min(locked.engine.may_page_out(session));
        self.decide(&mut locked, Event::PagingOut { session, bytes }, None);
        bytes
    }

    /// Does something while no iteration runs on the device, in a turn of the service's own; one at a
    /// time. `None` if no turn came.
    ///
    /// Where one session has the device until it ends, it is not waited for: it may be the one that
    /// waits for this.
    pub(crate) fn in_a_turn<R>(&self, work: impl FnOnce() -> R) -> Option<R> {
        if self.look(|engine, _| engine.policy()) == Policy::Exclusive {
            return Some(work());
        }
        let granted = self.take_own_turn();
        let done = granted.then(work);
        let mut locked = self.lock();
        let (session, calling) = (OWN, Some(Calling(0)));
        let over = match granted {
            true => Event::Ran { session, calling },
            false => Event::Withdrew { session },
        };
        self.decide(&mut locked, over, None);
        self.decide(&mut locked, Event::Closed { session }, None);
        done
    }

    /// Asks for a turn and waits for it. An iteration that calls back has its lane to itself until its
    /// first callback, and this one has none.
    fn take_own_turn(&self) -> bool {
        let mut locked = self.lock();
        locked.own = Decided::default();
        let now = self.now();
        let identity = Identity {
            pid: std::process::id().cast_signed(),
            uid: rustix::process::geteuid().as_raw(),
            user: String::new(),
            name: OWN_NAME.into(),
        };
        locked.trace.opened(now, OWN, &identity);
        locked.trace.named(Program(0), OWN_NAME);
        let opened = Event::Opened {
            session: OWN,
            user: User(identity.uid),
            settings: JobSettings::default(),
        };
        self.decide(&mut locked, opened, None);
        let demand = Demand {
            kind: Kind::CallsBack {
                program: Program(0),
                calling: Calling(0),
            },
            new_bytes: 0,
            new_host_bytes: 0,
            argument_bytes: 0,
            paged_bytes: 0,
        };
        let ready = Event::Ready {
            session: OWN,
            demand,
        };
        self.decide(&mut locked, ready, None);
        let deadline = Instant::now() + OWN_WAIT;
        loop {
            if let Some(verdict) = locked.own.verdict {
                return matches!(verdict, Verdict::Start(_));
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            locked = wait_timeout(&self.own_decided, locked, left).0;
        }
    }

    /// Tells the engine something about a session that may have ended meanwhile.
    pub(crate) fn tell_of(&self, session: SessionId, event: Event) {
        let mut locked = self.lock();
        if locked.sessions.contains_key(&session) {
            self.decide(&mut locked, event, None);
        }
    }

    /// Changes what a session's user asks for.
    pub(crate) fn change_settings(&self, session: SessionId, set: impl Fn(&mut JobSettings)) {
        let mut locked = self.lock();
        if let Some(mut settings) = locked.engine.settings(session).copied() {
            set(&mut settings);
            let changed = Event::SettingsChanged { session, settings };
            self.decide(&mut locked, changed, None);
        }
    }

    /// Ends a session.
    pub(crate) fn kill(&self, session: SessionId) {
        if let Some(session) = self.lock().sessions.get(&session) {
            session.kill();
        }
    }

    /// Notes a program's name for the trace.
    pub(crate) fn name_program(&self, program: Program, name: &str) {
        self.lock().trace.named(program, name);
    }

    /// Notes for the trace that the session's host waits for something.
    pub(crate) fn note_read(&self, session: SessionId) {
        self.lock().trace.reads(session);
    }

    /// Notes for the trace that arrays of the session were paged in just now.
    pub(crate) fn note_page_in(&self, session: SessionId, bytes: u64, took_ns: u64) {
        let mut locked = self.lock();
        let now = self.now();
        let began = Time(now.0.saturating_sub(took_ns));
        locked.trace.paged_in(now, session, bytes, began);
    }

    /// A copy of the trace. Copied in small parts, so that no iteration waits for it.
    pub(crate) fn recorded(&self) -> Copied {
        let mut copied = Copied::with_room();
        loop {
            let locked = self.lock();
            if !locked.trace.copy_part(&mut copied) {
                let now = self.now();
                locked.trace.copy_rest(now, &locked.engine, &mut copied);
                return copied;
            }
        }
    }

    /// When launches of the session ran, from a time that its job names on. Also in small parts.
    pub(crate) fn profile(&self, session: SessionId, since_unix_ns: u64) -> Profile {
        let began = self.began_unix_ns();
        let since = Time(since_unix_ns.saturating_sub(began));
        let mut own = Own::new(session, since);
        loop {
            own.reserve();
            let locked = self.lock();
            if !locked.trace.look_through(self.now(), &mut own) {
                break;
            }
        }
        own.profile(|time| began.saturating_add(time.0))
    }

    /// The engine's time zero by the clock that the machine's processes share.
    pub(crate) fn began_unix_ns(&self) -> u64 {
        // Both clocks should be read at the same moment: of three pairs the quickest was not
        // interrupted.
        let pairs = (0..3).map(|_| {
            let before = self.now();
            let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let took = self.now() - before;
            let unix = unix.map_or(0, |unix| u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX));
            (took, unix.saturating_sub(before.0))
        });
        pairs.min().map_or(0, |(_, began)| began)
    }

    /// Reads the engine.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&Engine, Time) -> R) -> R {
        let locked = self.lock();
        look(&locked.engine, self.now())
    }

    /// Shows each session and then the engine as a whole, all at one moment.
    pub(crate) fn survey<R>(
        &self,
        mut show: impl FnMut(&SharedSession<D>, &Account, &Engine, Time),
        whole: impl FnOnce(&Engine) -> R,
    ) -> R {
        let locked = self.lock();
        let now = self.now();
        for session in locked.sessions.values() {
            if let Some(account) = locked.engine.account(session.id) {
                show(session, account, &locked.engine, now);
            }
        }
        whole(&locked.engine)
    }

    #[cfg(test)]
    pub(crate) fn each(&self, show: impl FnMut(&SharedSession<D>, &Account, &Engine, Time)) {
        self.survey(show, |_| ());
    }
}
