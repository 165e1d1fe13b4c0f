//! Runs modules, one after another, and says what became of each and of the service.
//!
//! A module that ends the device host is a finding, with its text, and so is one that is not refused
//! the second time, and a canary that no longer sings. One that is not done in time is not: programs
//! may be long, and the service has a way to end them, which is then used (`salus job kill --now`).

use std::time::Duration;

use fastrand::Rng;
use salus_harness::{Client, Loss, Service};
use salus_wire::{Change, Request};

use crate::Problem;
use crate::canary::{self, Canary};
use crate::iteration::{self, Ran};
use crate::setup::footprint;
use crate::tally::Tally;

const COMPILE_TIME: Duration = Duration::from_secs(20);
const RUN_TIME: Duration = Duration::from_secs(10);
/// The canary is asked after this many modules.
const CANARY_EVERY: u64 = 16;
/// A session is kept for this many modules, so that both long and short ones are seen.
const SESSION_EVERY: u64 = 64;

pub(crate) struct Module {
    /// How to make it again.
    pub(crate) origin: String,
    pub(crate) code: Vec<u8>,
    pub(crate) options: Vec<u8>,
    pub(crate) seed: u64,
}

pub(crate) struct Runs<'a> {
    service: &'a Service,
    session: Option<Client>,
    canary: Option<Canary>,
    restarts: u64,
    done: u64,
    pub(crate) tally: Tally,
}

enum Outcome {
    RefusedAtCompile,
    FailedAtRun,
    Ran,
    NotFed,
}

impl<'a> Runs<'a> {
    pub(crate) fn new(service: &'a Service, attack: &'static str) -> Result<Self, Problem> {
        let mut tally = Tally::new(attack);
        tally.note("before", footprint(service)?);
        Ok(Self {
            service,
            session: None,
            canary: Some(Canary::new(service)?),
            restarts: service.restarts()?,
            done: 0,
            tally,
        })
    }

    pub(crate) fn finish(mut self) -> Result<Tally, Problem> {
        self.check_canary("the end");
        self.session = None;
        self.canary = None;
        self.service.wait_until_idle()?;
        self.tally.note("after", footprint(self.service)?);
        Ok(self.tally)
    }

    pub(crate) fn module(&mut self, module: &Module) -> Result<(), Problem> {
        self.done += 1;
        if self.done.is_multiple_of(SESSION_EVERY) {
            self.session = None;
        }
        match self.attempt(module) {
            Ok(outcome) => self.tally.count(match outcome {
                Outcome::RefusedAtCompile => "refused at compile",
                Outcome::FailedAtRun => "failed at run",
                Outcome::Ran => "ran",
                Outcome::NotFed => "compiled, too large to feed",
            }),
            Err(Loss::Refused(why)) => {
                self.session = None;
                self.tally.count("session refused");
                self.tally
                    .finding(format!("{}: the session was refused: {why}", module.origin));
            }
            Err(Loss::Late) => {
                self.tally.count("not done in time");
                eprintln!("not done in time: {}", module.origin);
                self.end_what_runs()?;
            }
            Err(Loss::Gone) => self.after_a_loss(module)?,
        }
        // A death that the session itself did not notice: the module ended well before it.
        if self.done.is_multiple_of(CANARY_EVERY) {
            self.check_canary(&module.origin);
        }
        Ok(())
    }

    fn attempt(&mut self, module: &Module) -> Result<Outcome, Loss> {
        let session = match &mut self.session {
            Some(session) => session,
            none => none.insert(Client::open(self.service.socket(), "hostile")?),
        };
        let made = session.compile("mlir", &module.code, &module.options, COMPILE_TIME)?;
        let (program, signature) = match made {
            Ok(made) => made,
            Err(error) => {
                self.tally.reason(&error.message);
                return Ok(Outcome::RefusedAtCompile);
            }
        };
        let mut random = Rng::with_seed(module.seed);
        let random = random.bool().then_some(&mut random);
        let ran = iteration::run(session, program, &signature, random, RUN_TIME)?;
        session.drop_program(program);
        Ok(match ran {
            Ran::Well(results) => {
                if results.iter().any(|bytes| canary::is_stolen(bytes)) {
                    self.tally.count("returned what was the canary's");
                    let text = String::from_utf8_lossy(&module.code);
                    self.tally.finding(format!(
                        "{}: returned what was the canary's\n{text}",
                        module.origin
                    ));
                }
                Outcome::Ran
            }
            Ran::Failed(message) => {
                self.tally.reason(&format!("at run: {message}"));
                Outcome::FailedAtRun
            }
            Ran::NotFed => Outcome::NotFed,
        })
    }

    /// The session is gone. If the device host died, the module must be refused from now on.
    fn after_a_loss(&mut self, module: &Module) -> Result<(), Problem> {
        self.session = None;
        self.service.wait_until_up()?;
        let restarts = self.service.restarts()?;
        if restarts == self.restarts {
            self.tally.count("connection lost");
            self.tally.finding(format!(
                "{}: the connection ended, and nobody said why",
                module.origin
            ));
            return Ok(());
        }
        self.restarts = restarts;
        self.canary = None;
        self.tally.count("device host died");
        self.tally.finding(format!(
            "{}: the device host died\n{}",
            module.origin,
            String::from_utf8_lossy(&module.code)
        ));
        match self.attempt(module) {
            Ok(Outcome::RefusedAtCompile | Outcome::FailedAtRun) => {
                self.tally
                    .count("device host died, refused the second time");
            }
            again => {
                self.session = None;
                let how = match again {
                    Err(loss) => loss.to_string(),
                    Ok(_) => "it ran".into(),
                };
                self.tally.finding(format!(
                    "{}: not refused the second time: {how}",
                    module.origin
                ));
                self.service.wait_until_up()?;
                self.restarts = self.service.restarts()?;
            }
        }
        self.canary = Some(Canary::new(self.service)?);
        Ok(())
    }

    /// Lets the service end the session that is not done, if it holds up others.
    fn end_what_runs(&mut self) -> Result<(), Problem> {
        let id = self.session.take().map(|session| session.session());
        let sings = self.canary.as_mut().map(Canary::sings);
        if let Some(Ok(true)) = sings {
            return Ok(());
        }
        self.tally.count("held the device, ended by `kill --now`");
        if let Some(session) = id {
            let change = Change::KillNow;
            // It may have come to its end meanwhile.
            let _ = self.service.ask(Request::Change { session, change });
        }
        self.service.wait_until_up()?;
        self.restarts = self.service.restarts()?;
        self.canary = Some(Canary::new(self.service)?);
        Ok(())
    }

    fn check_canary(&mut self, origin: &str) {
        let sings = match &mut self.canary {
            Some(canary) => canary.sings(),
            None => return,
        };
        let what = match sings {
            Ok(true) => return,
            Ok(false) => "the canary's bits are wrong".to_owned(),
            Err(loss) => format!("the canary is gone ({loss})"),
        };
        self.tally.count("canary lost");
        self.tally.finding(format!(
            "{origin}, or one of the {CANARY_EVERY} before: {what}\n{}",
            self.service.log_tail()
        ));
        let again = self.service.wait_until_up();
        self.session = None;
        self.restarts = self.service.restarts().unwrap_or(self.restarts);
        self.canary = again.ok().and_then(|()| Canary::new(self.service).ok());
    }
}
