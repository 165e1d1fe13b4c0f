//! Protocol versions: each is a named feature; each end states a window.

/// What each version brought, oldest first. `docs/protocol.md` has the same table.
pub const FEATURES: &[(u32, &str)] = &[(
    1,
    "sessions: upload, compile, launch, read, drop, usage; callbacks; profiles; reports, changes, policies, traces, hold and stop",
)];

/// The oldest and the newest version that this build speaks.
pub const MIN: u32 = FEATURES[0].0;
pub const MAX: u32 = FEATURES[FEATURES.len() - 1].0;

/// The version that both ends speak, or why there is none.
pub fn choose(ours: (u32, u32), theirs: (u32, u32)) -> Result<u32, String> {
    let version = ours.1.min(theirs.1);
    if theirs.0 <= theirs.1 && version >= ours.0 && version >= theirs.0 {
        Ok(version)
    } else {
        Err(format!(
            "the service speaks protocol versions {} to {}, the job's library {} to {}",
            ours.0, ours.1, theirs.0, theirs.1
        ))
    }
}
