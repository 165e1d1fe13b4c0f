//! Several jobs on a service of the bench's own, which can be told what `salus job` and `salus
//! policy` tell it.

use std::time::Duration;

use salus_daemon::config::Problem;
use salus_wire::{Change, Recording, Request};
use serde_json::{Value, json};

use crate::contenders::Side;
use crate::contenders::service::{Memory, PrivateService};
use crate::contenders::sessions::Session;
use crate::contenders::setup::{Route, Setup};

/// Import, compilation and the first step of many processes on few cores.
pub(crate) const PREPARE_TIME: Duration = Duration::from_secs(600);
pub(crate) const RUN_TIME: Duration = Duration::from_secs(600);

pub(crate) struct Jobs {
    pub(crate) all: Vec<Side>,
    /// After the jobs, so that it outlives them: a job whose service ends first complains.
    service: PrivateService,
}

impl Jobs {
    /// None yet, on a service with these options.
    pub(crate) fn start(setup: &Setup, options: &[&str]) -> Result<Self, Problem> {
        Ok(Self {
            all: Vec::new(),
            service: PrivateService::start_with(setup, options)?,
        })
    }

    /// One more, which connects when it prepares its first row. `variables` are added to its
    /// environment.
    pub(crate) fn add(
        &mut self,
        setup: &Setup,
        variables: &[(&'static str, String)],
    ) -> Result<&mut Side, Problem> {
        let route = Route::Salus(self.service.socket().to_owned(), variables.to_vec());
        self.all.push(Side::start(setup, "job", &route)?);
        Ok(self.all.last_mut().expect("just added"))
    }

    /// One more that has prepared its row; returns its session's number.
    pub(crate) fn add_prepared(
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
    pub(crate) fn each(&mut self, command: &Value, time: Duration) -> Result<(), Problem> {
        for job in &mut self.all {
            job.tell(command)?;
        }
        for job in &mut self.all {
            job.hear(command, time)?;
        }
        Ok(())
    }

    /// A session without a job.
    pub(crate) fn session(&self) -> Result<Session, Problem> {
        Session::open(self.service.socket())
    }

    pub(crate) fn device_host_memory(&self) -> Result<Memory, Problem> {
        self.service.device_host_memory()
    }

    pub(crate) fn report(&self) -> Result<Value, Problem> {
        self.service.report()
    }

    /// What ran where and when, as far back as the service remembers.
    pub(crate) fn recording(&self) -> Result<Recording, Problem> {
        self.service.recording(0)
    }

    pub(crate) fn change(&self, session: u64, change: Change) -> Result<(), Problem> {
        self.service
            .ask(Request::Change { session, change })
            .map(drop)
    }

    pub(crate) fn set_policy(&self, name: &str) -> Result<(), Problem> {
        self.service
            .ask(Request::Policy {
                name: name.into(),
                device: String::new(),
            })
            .map(drop)
    }
}

/// A session's number in a report, by key.
pub(crate) fn of_session(report: &Value, session: u64, key: &str) -> f64 {
    let sessions = report["sessions"].as_array().into_iter().flatten();
    let mut found = sessions.filter(|s| s["id"].as_u64() == Some(session));
    found.find_map(|s| s[key].as_f64()).unwrap_or(f64::NAN)
}
