//! Finds `libpjrt_salus.so`, the part of Salus that a job loads.

use std::path::{Path, PathBuf};

use salus_channel::endpoint::path_in;
use salus_daemon::config::Problem;
use salus_device::discover;
use salus_wire::env;

pub const LIBRARY: &str = "libpjrt_salus.so";

/// The library that belongs to this binary, or the one that `SALUS_LIBRARY` names.
pub fn find() -> Result<PathBuf, Problem> {
    if let Some(named) = path_in(env::LIBRARY) {
        let path = salus_daemon::paths::absolute(&named);
        if path.is_file() {
            return Ok(path);
        }
        return Err(Problem::new(format!(
            "SALUS_LIBRARY names `{}`, and there is no such file",
            path.display()
        ))
        .hint("unset it, or set it to the path of the library"));
    }
    let binary = std::env::current_exe()
        .map_err(|e| Problem::new(format!("the path of this program is not known: {e}")))?;
    let site_packages = discover::site_packages_candidates();
    let places = places(&binary, &site_packages);
    places
        .iter()
        .find(|path| path.is_file())
        .cloned()
        .ok_or_else(|| {
            let looked: String = places
                .iter()
                .map(|path| format!("\n  {}", path.display()))
                .collect();
            Problem::new(format!("`{LIBRARY}` is missing. Looked for it at{looked}"))
                .hint("`pip install --force-reinstall salus`, or set SALUS_LIBRARY to its path")
        })
}

/// Beside the binary (a build), in `../lib` (an installation), in the package of the environment
/// that the binary belongs to.
fn places(binary: &Path, site_packages: &[PathBuf]) -> Vec<PathBuf> {
    let mut places = Vec::new();
    if let Some(dir) = binary.parent() {
        places.push(dir.join(LIBRARY));
        if let Some(prefix) = dir.parent() {
            places.push(prefix.join("lib").join(LIBRARY));
            places.extend(packages_below(&prefix.join("lib")));
        }
    }
    places.extend(site_packages.iter().map(in_package));
    let mut seen = std::collections::BTreeSet::new();
    places.retain(|path| seen.insert(path.clone()));
    places
}

fn in_package(site_packages: impl AsRef<Path>) -> PathBuf {
    site_packages.as_ref().join("salus").join(LIBRARY)
}

/// `<lib>/python3.11/site-packages/salus/…`, the newest Python first.
fn packages_below(lib: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(lib) else {
        return Vec::new();
    };
    let mut pythons: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"))
        .map(|entry| entry.path().join("site-packages"))
        .collect();
    pythons.sort();
    pythons.iter().rev().map(in_package).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_of_the_same_build_comes_first() {
        let site = [PathBuf::from("/venv/lib/python3.11/site-packages")];
        let found = places(Path::new("/src/target/release/salus"), &site);
        assert_eq!(
            found,
            [
                Path::new("/src/target/release/libpjrt_salus.so"),
                Path::new("/src/target/lib/libpjrt_salus.so"),
                Path::new("/venv/lib/python3.11/site-packages/salus/libpjrt_salus.so"),
            ]
        );
    }
}
