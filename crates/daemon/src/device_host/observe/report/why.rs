//! What keeps a session from running, in words.

use salus_device::Device;
use salus_engine::{Engine, SessionId, Why};
use salus_units::Bytes;

use crate::device_host::clocked_engine::OWN;
use crate::device_host::observe::overdue::Overdue;
use crate::device_host::session::SharedSession;

/// What keeps the session from running, in one sentence with the numbers.
pub(super) fn why<D: Device>(
    session: &SharedSession<D>,
    engine: &Engine,
    late: &[Overdue],
) -> String {
    if session.is_killed() || session.is_ending() {
        return ending(session, late);
    }
    match engine.why(session.id) {
        None => "it is gone".into(),
        Some(Why::Idle) => "idle: the job is running on its host".into(),
        Some(Why::Running) => match late_of(session.id, late) {
            Some(one) => format!("an iteration of it {}", one.text()),
            None => "an iteration of it runs".into(),
        },
        Some(Why::Callback) => {
            "its iteration waits for a callback that its own process runs".into()
        }
        Some(Why::Compiling) => "a program of it is being compiled or loaded".into(),
        Some(Why::Paused) => format!(
            "it is paused; `salus job {} resume` lets it go on",
            session.id.0
        ),
        Some(Why::Exclusive { owner }) => format!(
            "{} has the device until it ends, because the policy is exclusive",
            named(owner)
        ),
        Some(Why::Turn { ahead, runs }) => turn(engine.policy().name(), ahead, runs, late),
        Some(Why::Interference) => {
            "it waits for another lane: side by side, both would be slower".into()
        }
        Some(Why::Reserved { holder }) => format!(
            "it has had its time on the device: memory is reserved for session {}, which is served first",
            holder.0
        ),
        Some(Why::Memory {
            needs_bytes,
            free_bytes,
            holder,
        }) => {
            let before = match holder {
                Some(id) => format!(", and session {} is served first", id.0),
                None => ": others are paged out for it when their minimum residency is over".into(),
            };
            format!(
                "it waits for memory: it needs {:.2} more and {:.2} of the device are free{before}",
                Bytes(needs_bytes),
                Bytes(free_bytes)
            )
        }
        Some(Why::HostMemory {
            needs_bytes,
            free_bytes,
        }) => format!(
            "it waits for host memory: it needs {:.2} there and {:.2} are free; pages and arrays of \
             others are in the rest",
            Bytes(needs_bytes),
            Bytes(free_bytes)
        ),
        Some(Why::Evicting { holder }) => {
            format!(
                "its arrays are paged out to make room for {}",
                named(holder)
            )
        }
    }
}

fn late_of(session: SessionId, late: &[Overdue]) -> Option<&Overdue> {
    late.iter().find(|one| one.session == session)
}

fn named(session: Option<SessionId>) -> String {
    match session {
        Some(OWN) => "a compiler of the service, which measures on the device,".into(),
        Some(id) => format!("session {}", id.0),
        None => "another session".into(),
    }
}

/// The job is gone, or was killed.
fn ending<D: Device>(session: &SharedSession<D>, late: &[Overdue]) -> String {
    let what = match session.is_killed() {
        true => "it was ended with `salus job`",
        false => "its job is gone",
    };
    match late_of(session.id, late) {
        Some(one) => format!(
            "{what}, and its iteration {}; `salus job {} kill --now` ends it, and with it the state \
             of all sessions",
            one.text(),
            session.id.0
        ),
        None => format!("{what}, and waits for its last iteration to end"),
    }
}

/// It waits for its turn.
fn turn(policy: &str, ahead: u32, runs: Option<SessionId>, late: &[Overdue]) -> String {
    let count = match ahead {
        1 => "1 iteration is".into(),
        n => format!("{n} iterations are"),
    };
    let waits = format!(
        "it waits for its turn under `{}`: {count} before it in its lane, and {} runs",
        policy,
        named(runs)
    );
    match runs.and_then(|id| late_of(id, late)) {
        Some(one) => format!(
            "{waits}, whose iteration {}; `salus job {} kill --now` ends it, and with it the \
                     state of all sessions",
            one.text(),
            one.session.0
        ),
        None => waits,
    }
}
