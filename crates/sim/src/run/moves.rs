//! How arrays move: between the device and the host, when a session uploads, pages out or pages in.

use salus_engine::{Duration, Time};

use super::{Action, Run};
use crate::job::Move;

/// The way between device and host.
#[derive(Debug)]
pub(super) struct Link {
    bytes_per_second: u64,
    /// When it has moved to the device, and to the host, all that it was given. `None` where it moves
    /// whatever it is given at the same time, each at the full rate.
    free_at: Option<[Time; 2]>,
}

impl Link {
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second,
            free_at: None,
        }
    }

    pub(super) fn move_one_at_a_time(&mut self) {
        self.free_at = Some([Time(0); 2]);
    }

    /// When what is given to it now has moved.
    fn arrives(&mut self, now: Time, what: Move, bytes: u64) -> Time {
        let took = u128::from(bytes) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let took = Duration(u64::try_from(took).unwrap_or(u64::MAX));
        let Some(free_at) = &mut self.free_at else {
            return now + took;
        };
        let direction = match what {
            Move::Upload | Move::In(_) => 0,
            Move::Out { .. } => 1,
        };
        free_at[direction] = free_at[direction].max(now) + took;
        free_at[direction]
    }
}

impl Run {
    pub(super) fn page_out(&mut self, index: usize, asked_bytes: u64) {
        match self.actors[index].moves {
            // Its session is busy with something else.
            Some(_) => self.actors[index].to_page_out = Some(asked_bytes),
            None => self.begin_move(index, Move::Out { asked_bytes }, asked_bytes),
        }
    }

    pub(super) fn begin_move(&mut self, index: usize, what: Move, bytes: u64) {
        self.actors[index].moves = Some(what);
        let arrives = self.link.arrives(self.now(), what, bytes);
        self.agenda.plan(arrives, Action::Moved(index));
    }

    pub(super) fn moved(&mut self, index: usize) {
        let actor = &mut self.actors[index];
        match actor.moves.take() {
            Some(Move::Upload) => actor.is_uploaded(),
            Some(Move::In(lane)) => self.hand_over(index, lane),
            Some(Move::Out { asked_bytes }) => self.paged_out(index, asked_bytes),
            None => {}
        }
        if let Some(bytes) = self.actors[index].to_page_out.take() {
            self.page_out(index, bytes);
        }
        self.go_on(index);
    }

    fn paged_out(&mut self, index: usize, asked_bytes: u64) {
        let host_free = self.simulation.ledger().host_free_bytes();
        let Some(id) = self.actors[index].session else {
            return;
        };
        let session = self.simulation.session(id);
        let bytes = asked_bytes.min(session.resident_bytes).min(host_free);
        let paged_bytes = self.actors[index].paged_out(session.paged_bytes + bytes);
        self.moved_bytes += bytes;
        let decided = self.simulation.paged_out(id, bytes, paged_bytes);
        self.carry_out(decided);
    }
}
