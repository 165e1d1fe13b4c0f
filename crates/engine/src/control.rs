//! Changes made at run time by users and operators: settings, pause and resume, policy; and which
//! sessions are held because of them.

use salus_wire::JobSettings;

use crate::engine::Engine;
use crate::event::SessionId;
use crate::policies::Policy;
use crate::session::Session;

impl Engine {
    pub(crate) fn change_settings(&mut self, id: SessionId, settings: JobSettings) {
        let session = self.session(id);
        let before = self.queues.clock(session.lane, &session.settings);
        let clock = self.queues.clock(session.lane, &settings);
        let session = self.touch(id);
        let limited = JobSettings {
            memory_max: settings.memory_max,
            ..session.settings
        };
        session.rerank = settings != limited;
        session.settings = settings;
        session.virtual_time.moved(before, clock);
    }

    pub(crate) fn pause(&mut self, id: SessionId) {
        self.touch(id).paused = true;
    }

    /// The request counts as made now: while its user had paused it, nobody let it wait.
    pub(crate) fn resume(&mut self, id: SessionId) {
        if !self.session(id).paused {
            return;
        }
        self.rejoin(id);
        let (now, number) = (self.now, self.next_request());
        let session = self.touch(id);
        session.paused = false;
        if let Some(request) = &mut session.request {
            request.order.number = number;
            request.ready_at = now;
            request.aged = false;
            request.lacks_host_since = request.lacks_host_since.map(|_| now);
        }
    }

    pub(crate) fn change_policy(&mut self, policy: Policy) {
        self.queues.set_policy(policy);
        let ids: Vec<SessionId> = self.sessions.iter().map(|(id, _)| id).collect();
        for id in ids {
            // Nobody is owed for what another policy gave to others.
            let session = self.touch(id);
            session.virtual_time.restart();
            session.rerank = true;
        }
    }

    /// Under a policy that serves one session alone, which one that is: the first that is not paused.
    /// This one was opened, closed, paused or resumed, or the policy was changed.
    pub(crate) fn update_owner(&mut self, id: SessionId) {
        if !self.queues.arrangement().one_owner && self.owner.is_none() {
            return;
        }
        let is_paused = |id| self.sessions.get(id).is_none_or(|s: &Session| s.paused);
        let owner = match self.owner {
            _ if !self.queues.arrangement().one_owner => None,
            Some(owner) if !is_paused(owner) && (owner < id || is_paused(id)) => Some(owner),
            _ if !is_paused(id) && self.owner.is_none_or(|owner| id <= owner) => Some(id),
            _ => {
                let mut sessions = self.sessions.iter();
                sessions.find(|(_, s)| !s.paused).map(|(id, _)| id)
            }
        };
        let before = std::mem::replace(&mut self.owner, owner);
        if before != owner {
            self.touched.extend(before);
            self.touched.extend(owner);
        }
    }

    /// Whether nothing of the session may be started now.
    pub(crate) fn is_held(&self, id: SessionId, session: &Session) -> bool {
        let one_owner = self.queues.arrangement().one_owner;
        session.paused || (one_owner && self.owner != Some(id))
    }
}
