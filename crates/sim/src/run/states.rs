//! What each job does at a moment, for its timeline, and why jobs are left when a run ends.

use salus_engine::{Lane, Time, Why};

use super::Run;
use crate::job::Actor;
use crate::output::timeline::State;
use crate::simulation::Simulation;

impl Run {
    pub(super) fn note_states(&mut self) {
        let now = self.now();
        let mut lanes = vec![None; self.actors.len()];
        for (lane, index) in self.device.running() {
            lanes[index] = Some(lane);
        }
        for (actor, lane) in self.actors.iter_mut().zip(lanes) {
            let state = state(&self.simulation, actor, lane);
            actor.timeline.enter(now, state);
        }
    }

    /// The run ends, and jobs are left.
    pub(super) fn cut(&mut self, end: Time) {
        if self.next().is_some() {
            self.simulation.at(end);
            self.device.advance(end);
            return;
        }
        // Nothing will happen any more.
        for actor in self.actors.iter().filter(|actor| actor.session.is_some()) {
            let why = match state(&self.simulation, actor, None) {
                State::Paused => "is paused",
                State::Memory => "waits for memory",
                _ => "waits for its turn",
            };
            let name = &actor.job.name;
            self.notes
                .push(format!("{name} {why}, and nothing will change that"));
        }
    }
}

fn state(simulation: &Simulation, actor: &Actor, runs_in: Option<Lane>) -> State {
    let Some(id) = actor.session else {
        return State::Away;
    };
    if let Some(lane) = runs_in {
        State::Runs(lane)
    } else if actor.moves.is_some() {
        State::Moves
    } else if actor.in_flight > 0 {
        State::Turn
    } else if actor.paused {
        State::Paused
    } else if actor.waits_for.is_some() {
        match simulation.why(id) {
            Some(Why::Memory { .. } | Why::HostMemory { .. } | Why::Reserved { .. }) => {
                State::Memory
            }
            _ => State::Turn,
        }
    } else {
        State::Away
    }
}
