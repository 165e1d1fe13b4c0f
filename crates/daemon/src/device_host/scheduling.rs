//! The engine with a clock, an alarm and a lock around it, and the sessions that its decisions name.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant, SystemTime};

use salus_device::Device;
use salus_engine::{Account, Decision, Engine, Event, Program, SessionId, Time, User, Wishes};
use salus_wire::Profile;

use super::session::Session;
use super::trace::{Copied, Own, Recorder};

pub(crate) struct Scheduling<D: Device> {
    began: Instant,
    state: Mutex<State<D>>,
    /// The engine wants to be woken at another time than before.
    alarm: Condvar,
}

struct State<D: Device> {
    engine: Engine,
    sessions: BTreeMap<SessionId, Arc<Session<D>>>,
    /// When the alarm's thread wakes; `None` while it sleeps until it is told.
    wakes_at: Option<Time>,
    trace: Recorder,
}

impl<D: Device> Scheduling<D> {
    pub(super) fn new(engine: Engine) -> Self {
        let state = State {
            engine,
            sessions: BTreeMap::new(),
            wakes_at: None,
            trace: Recorder::default(),
        };
        Self {
            began: Instant::now(),
            state: Mutex::new(state),
            alarm: Condvar::new(),
        }
    }

    /// Wakes the engine when it wants to be woken, for ever.
    pub(super) fn keep_time(&self) {
        let mut state = self.lock();
        loop {
            let now = self.now();
            state = match state.engine.wake_at() {
                None => {
                    state.wakes_at = None;
                    self.alarm.wait(state).expect("no panic under this lock")
                }
                Some(at) if at > now => {
                    state.wakes_at = Some(at);
                    let wait = Duration::from_nanos((at - now).0);
                    let woken = self.alarm.wait_timeout(state, wait);
                    woken.expect("no panic under this lock").0
                }
                Some(_) => {
                    self.decide(&mut state, Event::Woke, None);
                    state
                }
            };
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<D>> {
        self.state.lock().expect("no panic under this lock")
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn open(&self, session: &Arc<Session<D>>) {
        let mut state = self.lock();
        state.sessions.insert(session.id, Arc::clone(session));
        let who = &session.identity;
        let now = self.now();
        state.trace.opened(now, session.id, who);
        self.decide(
            &mut state,
            Event::Opened {
                session: session.id,
                user: User(session.identity.uid),
                memory_max: session.memory_max,
                wishes: session.wishes,
            },
            None,
        );
    }

    pub(super) fn close(&self, id: SessionId) {
        let mut state = self.lock();
        self.decide(&mut state, Event::Closed { session: id }, None);
        state.sessions.remove(&id);
    }

    /// Tells the engine. `here` is the session whose own thread calls: it looks at its turns next
    /// and need not be woken for them.
    pub(super) fn tell(&self, event: Event, here: Option<SessionId>) {
        let mut state = self.lock();
        self.decide(&mut state, event, here);
    }

    fn decide(&self, state: &mut State<D>, event: Event, here: Option<SessionId>) {
        let now = self.now();
        let decisions = state.engine.on(now, event);
        for &decision in &decisions {
            let session = match decision {
                Decision::Start { session, .. }
                | Decision::PageOut { session, .. }
                | Decision::Refuse { session, .. } => session,
            };
            if let Some(chosen) = state.sessions.get(&session) {
                chosen.decided(decision, Some(session) != here);
            }
        }
        // Last, because those who were woken need not wait for it.
        let (trace, engine) = (&mut state.trace, &state.engine);
        trace.note(now, &event, &decisions, engine);
        let wanted = state.engine.wake_at();
        if wanted.is_some_and(|at| state.wakes_at.is_none_or(|planned| at < planned)) {
            self.alarm.notify_one();
        }
    }

    /// Tells the engine something about a session that may be gone meanwhile.
    pub(super) fn tell_of(&self, session: SessionId, event: Event) {
        let mut state = self.lock();
        if state.sessions.contains_key(&session) {
            self.decide(&mut state, event, None);
        }
    }

    /// Changes what a session's user asks for.
    pub(super) fn wish(&self, session: SessionId, set: &dyn Fn(&mut Wishes)) {
        let mut state = self.lock();
        if let Some(mut wishes) = state.engine.wishes(session).copied() {
            set(&mut wishes);
            self.decide(&mut state, Event::Wished { session, wishes }, None);
        }
    }

    /// Ends a session.
    pub(super) fn kill(&self, session: SessionId) {
        if let Some(session) = self.lock().sessions.get(&session) {
            session.kill();
        }
    }

    /// Notes a program's name for the trace.
    pub(super) fn name_program(&self, program: Program, name: &str) {
        self.lock().trace.named(program, name);
    }

    /// Notes for the trace that arrays of the session came back just now, which took so long.
    pub(super) fn note_return(&self, session: SessionId, bytes: u64, took: u64) {
        let mut state = self.lock();
        let now = self.now();
        let began = Time(now.0.saturating_sub(took));
        state.trace.brought_back(now, session, bytes, began);
    }

    /// What the trace has. In small parts, so that no iteration waits for it.
    pub(super) fn recorded(&self) -> Copied {
        let mut copied = Copied::with_room();
        loop {
            let state = self.lock();
            if !state.trace.copy_part(&mut copied) {
                let now = self.now();
                state.trace.copy_rest(now, &state.engine, &mut copied);
                return copied;
            }
        }
    }

    /// When launches of the session ran since a time that its job names. In small parts, too.
    pub(super) fn profile(&self, session: SessionId, since_unix_ns: u64) -> Profile {
        let began = self.began_unix_ns();
        let since = Time(since_unix_ns.saturating_sub(began));
        let mut own = Own::new(session, since);
        loop {
            own.reserve();
            let state = self.lock();
            if !state.trace.look_through(self.now(), &mut own) {
                break;
            }
        }
        own.profile(|time| began.saturating_add(time.0))
    }

    /// When time began, by the clock that the machine's processes share.
    fn began_unix_ns(&self) -> u64 {
        // Both clocks are wanted at one moment: whoever was interrupted between them tries again.
        let pairs = (0..3).map(|_| {
            let before = self.now();
            let unix = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            let took = self.now() - before;
            let unix = unix.map_or(0, |unix| u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX));
            (took, unix.saturating_sub(before.0))
        });
        pairs.min().map_or(0, |(_, began)| began)
    }

    /// Looks at the engine and its sessions.
    pub(super) fn look<R>(&self, look: impl FnOnce(&Engine, Time) -> R) -> R {
        let state = self.lock();
        look(&state.engine, self.now())
    }

    /// Shows each session and then the whole, all as of one moment.
    pub(super) fn survey<R>(
        &self,
        mut show: impl FnMut(&Session<D>, &Account, &Engine, Time),
        whole: impl FnOnce(&Engine) -> R,
    ) -> R {
        let state = self.lock();
        let now = self.now();
        for session in state.sessions.values() {
            if let Some(account) = state.engine.account(session.id) {
                show(session, account, &state.engine, now);
            }
        }
        whole(&state.engine)
    }

    #[cfg(test)]
    pub(super) fn each(&self, show: impl FnMut(&Session<D>, &Account, &Engine, Time)) {
        self.survey(show, |_| ());
    }
}
