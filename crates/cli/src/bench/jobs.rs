//! Several jobs on a service of the bench's own, which can be told what `salus job` and `salus
//! policy` tell it.

use std::time::Duration;

use salus_daemon::config::Problem;
use salus_wire::{Change, Recording, Request};
use serde_json::{Value, json};

use super::daemon::{Daemon, Memory};
use super::sessions::Session;
use super::setup::{Route, Setup};
use super::side::Side;
use crate::ask;

/// Import, compilation and the first step of many processes on few cores.
pub(super) const PREPARE_TIME: Duration = Duration::from_secs(600);
pub(super) const RUN_TIME: Duration = Duration::from_secs(600);

pub(super) struct Jobs {
    pub(super) all: Vec<Side>,
    /// After the jobs, so that it outlives them: a job whose service ends first complains.
    daemon: Daemon,
}

impl Jobs {
    /// None yet, on a service with these options.
    pub(super) fn start(setup: &Setup, options: &[&str]) -> Result<Self, Problem> {
        Ok(Self {
            all: Vec::new(),
            daemon: Daemon::start_with(setup, options)?,
        })
    }

    /// One more, which connects when it prepares its first row. `variables` are added to its
    /// environment.
    pub(super) fn add(
        &mut self,
        setup: &Setup,
        variables: &[(&'static str, String)],
    ) -> Result<&mut Side, Problem> {
        let route = Route::Salus(self.daemon.socket().to_owned(), variables.to_vec());
        self.all.push(Side::start(setup, "job", &route)?);
        Ok(self.all.last_mut().expect("just added"))
    }

    /// One more that has prepared its row; returns its session's number.
    pub(super) fn add_prepared(
        &mut self,
        setup: &Setup,
        row: &str,
        variables: &[(&'static str, String)],
    ) -> Result<u64, Problem> {
        let command = json!({ "do": "prepare", "row": row });
        self.add(setup, variables)?.ask(&command, PREPARE_TIME)?;
        let report = self.report()?;
        let sessions = report["sessions"].as_array().into_iter().flatten();
        let newest = sessions.filter_map(|s| s["id"].as_u64()).max();
        newest.ok_or_else(|| Problem::new("a job of the bench has no session"))
    }

    /// Asks all at once and waits for all.
    pub(super) fn each(&mut self, command: &Value, patience: Duration) -> Result<(), Problem> {
        for job in &mut self.all {
            job.tell(command)?;
        }
        for job in &mut self.all {
            job.hear(command, patience)?;
        }
        Ok(())
    }

    /// A session without a job.
    pub(super) fn session(&self) -> Result<Session, Problem> {
        Session::open(self.daemon.socket())
    }

    pub(super) fn device_host_memory(&self) -> Result<Memory, Problem> {
        self.daemon.device_host_memory()
    }

    pub(super) fn report(&self) -> Result<Value, Problem> {
        self.request(Request::Report)
    }

    /// What ran where and when, as far back as the service remembers.
    pub(super) fn recording(&self) -> Result<Recording, Problem> {
        let told = ask::ask_trace(self.daemon.socket(), 0)?;
        told.ok_or_else(|| Problem::new("the bench's service is gone"))
    }

    pub(super) fn change(&self, session: u64, change: Change) -> Result<(), Problem> {
        self.request(Request::Change { session, change }).map(drop)
    }

    pub(super) fn set_policy(&self, name: &str) -> Result<(), Problem> {
        self.request(Request::Policy { name: name.into() })
            .map(drop)
    }

    fn request(&self, request: Request) -> Result<Value, Problem> {
        let answered = ask::ask(self.daemon.socket(), request)?;
        answered
            .map(|answered| answered.json)
            .ok_or_else(|| Problem::new("the bench's service is gone"))
    }
}

/// A session's number in a report, by key.
pub(super) fn of_session(report: &Value, session: u64, key: &str) -> f64 {
    let sessions = report["sessions"].as_array().into_iter().flatten();
    let mut found = sessions.filter(|s| s["id"].as_u64() == Some(session));
    found.find_map(|s| s[key].as_f64()).unwrap_or(f64::NAN)
}
