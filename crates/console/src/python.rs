//! Finds the Python that a job would be run with.

use std::path::{Path, PathBuf};

use salus_channel::endpoint::path_in;
use salus_wire::env;

/// The one that was named, here or by `SALUS_PYTHON`, else that of the active environment, else the
/// one beside this binary, else the first on the `PATH`.
pub fn find(named: Option<&Path>) -> PathBuf {
    if let Some(path) = named.map(PathBuf::from).or_else(|| path_in(env::PYTHON)) {
        return path;
    }
    let active = path_in("VIRTUAL_ENV").map(|environment| environment.join("bin/python"));
    let binary = std::env::current_exe().ok();
    let beside = binary.and_then(|binary| Some(binary.parent()?.join("python")));
    let found = [active, beside].into_iter().flatten();
    let mut found = found.filter(|path| path.is_file());
    found.next().unwrap_or_else(|| "python3".into())
}
