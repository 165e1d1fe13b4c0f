//! What can be seen of a run: its jobs by name, what they used, and how long they waited.

use salus_engine::{Duration, Time, Why};

use crate::history::Ran;
use crate::output::report::Fate;
use crate::simulation::Simulation;

use super::Run;

impl Run {
    pub fn now(&self) -> Time {
        self.simulation.now()
    }

    pub fn simulation(&self) -> &Simulation {
        &self.simulation
    }

    /// The session of a job, while it is open.
    pub fn session(&self, job: &str) -> Option<u64> {
        self.actor(job).session
    }

    /// Why the job waits.
    pub fn why(&self, job: &str) -> Option<Why> {
        self.simulation.why(self.session(job)?)
    }

    /// When the job's last iteration ended.
    pub fn finished_at(&self, job: &str) -> Option<Time> {
        match self.actor(job).fate {
            Fate::Finished(at) => Some(at),
            _ => None,
        }
    }

    /// Iterations that have ended, in that order.
    pub fn history(&self) -> &[Ran] {
        self.history.as_deref().expect("the run is recorded")
    }

    /// Those of one job.
    pub fn history_of(&self, job: &str) -> impl Iterator<Item = &Ran> {
        let index = self.scenario.position(job);
        self.history().iter().filter(move |ran| ran.job == index)
    }

    /// Device time of a job between two times.
    pub fn used(&self, job: &str, from: Time, to: Time) -> Duration {
        let parts = self.history_of(job).map(|ran| ran.time_within(from, to));
        parts.fold(Duration(0), |sum, part| sum + part)
    }

    /// The longest that one of the job's iterations waited, or that what it asks for waits by now.
    pub fn longest_wait(&self, job: &str) -> Duration {
        let ended = self.history_of(job).map(Ran::waited);
        let waits = self.actor(job).waits_since();
        let waits = waits.map(|since| self.now() - since);
        ended.chain(waits).max().unwrap_or_default()
    }
}
