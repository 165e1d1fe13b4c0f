//! What a job is told when it asks for more than it can have, with the numbers that are compared.

use salus_device::Device;
use salus_engine::Refusal;
use salus_units::Bytes;
use salus_wire::Error;

use crate::device_host::errors::resource_exhausted;
use crate::device_host::programs::Program;
use crate::device_host::session::SharedSession;

/// The engine's refusal of an operation in words.
pub(crate) fn refusal<D: Device>(session: &SharedSession<D>, why: Refusal) -> Error {
    let name = &session.identity.name;
    let (message, hint): (_, String) = match why {
        Refusal::TooLarge {
            needs_bytes,
            room_bytes,
        } => (
            format!(
                "`{name}` needs {} at once (arguments, outputs and scratch), and the device has \
                     {} to share: it can never run here",
                Bytes(needs_bytes).beside(room_bytes),
                Bytes(room_bytes).beside(needs_bytes)
            ),
            "smaller batches or models need less; `salus serve --memory` sets the device's share"
                .into(),
        ),
        Refusal::BeyondLimit {
            needs_bytes,
            memory_max,
        } => (
            format!(
                "`{name}` would hold {}, and its limit is {}",
                Bytes(needs_bytes).beside(memory_max),
                Bytes(memory_max).beside(needs_bytes)
            ),
            format!(
                "`salus job {} memory-max` changes the limit while it runs",
                session.id.0
            ),
        ),
        Refusal::BeyondUserLimit {
            needs_bytes,
            user_max,
        } => (
            format!(
                "{}'s sessions would hold {} together, and the limit for a user is {}",
                session.identity.user,
                Bytes(needs_bytes).beside(user_max),
                Bytes(user_max).beside(needs_bytes)
            ),
            "`salus ps` shows what they hold; `[limits] memory_per_user` of salus.toml sets the \
                 limit"
                .into(),
        ),
        Refusal::NoHostRoom {
            needs_bytes,
            free_bytes,
            room_bytes,
        } => (
            format!(
                "`{name}` needs {} more in host memory, and {} of the {:.2} that all sessions' pages \
                     and arrays there may take are free",
                Bytes(needs_bytes).beside(free_bytes),
                Bytes(free_bytes).beside(needs_bytes),
                Bytes(room_bytes)
            ),
            "`salus ps` shows who holds what; `salus serve --host-memory` gives more room".into(),
        ),
        Refusal::NoRoom {
            needs_bytes,
            free_bytes,
            host_free_bytes,
        } => (
            format!(
                "`{name}` needs {:.2} more, {:.2} of the device are free, and nothing can make room: \
                     the host has {:.2} left for pages",
                Bytes(needs_bytes),
                Bytes(free_bytes),
                Bytes(host_free_bytes)
            ),
            "`salus ps` shows who holds what; `salus serve --host-memory` gives more room".into(),
        ),
    };
    resource_exhausted(message).hint(hint)
}

/// Why no launch of the program could ever be granted to the session, if that is certain. The job is
/// told when the program is compiled, before it has prepared everything for it. What depends on the
/// arrays of a launch is left to the launch.
pub(crate) fn never_fits<D: Device>(
    session: &SharedSession<D>,
    program: &Program<D>,
) -> Option<Error> {
    let (arguments, outputs) = program.least_bytes(session.host.device.description());
    let scratch = program.scratch_bytes();
    let (room, memory_max) = session.host.engine.look(|engine, _| {
        let ledger = engine.ledger();
        let memory_max = engine.settings(session.id).and_then(|s| s.memory_max);
        (ledger.room(), memory_max.map(|max| max.get()))
    });
    let held = arguments.saturating_add(outputs);
    let at_once = held.saturating_add(scratch);
    let what = format!(
        "`{}` of `{}`",
        program.signature.name, session.identity.name
    );
    let numbers = |least: u64, limit: u64| (Bytes(least).beside(limit), Bytes(limit).beside(least));
    let parts = format!(
        "{:.2} of arguments, {:.2} of further outputs",
        Bytes(arguments),
        Bytes(outputs)
    );
    let (message, hint): (_, String) = if at_once > room.device_bytes {
        let (least, has) = numbers(at_once, room.device_bytes);
        (
            format!(
                "{what} needs at least {least} at once ({parts}, {:.2} of scratch), and the device has \
                 {has} to share: it can never run here",
                Bytes(scratch)
            ),
            "smaller batches or models need less; `salus serve --memory` sets the device's share"
                .into(),
        )
    } else if let Some(max) = memory_max.filter(|max| held > *max) {
        let (least, limit) = numbers(held, max);
        (
            format!(
                "{what} needs arrays of at least {least} ({parts}), and the session's limit is \
                 {limit}: it cannot run"
            ),
            format!(
                "`salus job {} memory-max` changes the limit while it runs, `salus run --memory-max` \
                 sets it",
                session.id.0
            ),
        )
    } else if let Some(max) = room.user_max.filter(|max| held > *max) {
        let (least, limit) = numbers(held, max);
        (
            format!(
                "{what} needs arrays of at least {least} ({parts}), and the limit for a user is \
                 {limit}: it cannot run"
            ),
            "`[limits] memory_per_user` of salus.toml sets the limit".into(),
        )
    } else {
        return None;
    };
    Some(resource_exhausted(message).hint(hint))
}
