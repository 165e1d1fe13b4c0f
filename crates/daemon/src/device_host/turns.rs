//! The engine with a clock and a lock around it, and the sessions that its decisions name.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use salus_device::Device;
use salus_engine::{Account, Decision, Event, SessionId, Time, Turns};

use super::session::Session;

pub(crate) struct Scheduling<D: Device> {
    began: Instant,
    state: Mutex<State<D>>,
}

struct State<D: Device> {
    turns: Turns,
    sessions: BTreeMap<SessionId, Arc<Session<D>>>,
}

impl<D: Device> Scheduling<D> {
    pub(super) fn new(lanes: u32) -> Self {
        let state = State {
            turns: Turns::new(lanes),
            sessions: BTreeMap::new(),
        };
        Self {
            began: Instant::now(),
            state: Mutex::new(state),
        }
    }

    fn now(&self) -> Time {
        Time(u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    pub(super) fn open(&self, session: &Arc<Session<D>>) {
        let mut state = self.state.lock().expect("no panic under this lock");
        state.sessions.insert(session.id, Arc::clone(session));
        self.decide(
            &mut state,
            Event::Opened {
                session: session.id,
            },
            None,
        );
    }

    pub(super) fn close(&self, id: SessionId) {
        let mut state = self.state.lock().expect("no panic under this lock");
        self.decide(&mut state, Event::Closed { session: id }, None);
        state.sessions.remove(&id);
    }

    /// Tells the engine. `here` is the session whose own thread calls: it looks at its turns next
    /// and need not be woken for them.
    pub(super) fn tell(&self, event: Event, here: Option<SessionId>) {
        let mut state = self.state.lock().expect("no panic under this lock");
        self.decide(&mut state, event, here);
    }

    fn decide(&self, state: &mut State<D>, event: Event, here: Option<SessionId>) {
        for Decision::Start { session, lane } in state.turns.on(self.now(), event) {
            if let Some(chosen) = state.sessions.get(&session) {
                chosen.grant(lane, Some(session) != here);
            }
        }
    }

    pub(super) fn each(&self, mut show: impl FnMut(&Session<D>, &Account, Time)) {
        let state = self.state.lock().expect("no panic under this lock");
        let now = self.now();
        for session in state.sessions.values() {
            if let Some(account) = state.turns.account(session.id) {
                show(session, account, now);
            }
        }
    }
}
