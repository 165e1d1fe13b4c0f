//! Finds a vendor's plugin, and LAPACK, among the Python packages that carry them.
//!
//! Plugins come as wheels. A user says `cpu`, `cuda`, `rocm` or `tpu`, or a path; this module knows
//! where each wheel puts its library, and where the `site-packages` directories are. LAPACK is the
//! one in SciPy's wheel, which JAX itself calls and requires.
//! Not here: opening what is found.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Error;
use crate::failure::{INVALID_ARGUMENT, NOT_FOUND, error};

/// A plugin that a user can name.
struct Known {
    name: &'static str,
    /// Below `site-packages`; a `*` stands for any part of a name.
    places: &'static [&'static str],
    install: &'static str,
}

const KNOWN: &[Known] = &[
    Known {
        name: "cpu",
        places: &["xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so"],
        install: "pip install xla-cpu-pjrt",
    },
    Known {
        name: "cuda",
        places: &[
            "jax_plugins/xla_cuda13/xla_cuda_plugin.so",
            "jax_plugins/xla_cuda12/xla_cuda_plugin.so",
        ],
        install: "pip install 'jax[cuda12]'",
    },
    Known {
        name: "rocm",
        places: &["jax_plugins/xla_rocm*/xla_rocm_plugin.so"],
        install: "pip install jax-rocm7-pjrt",
    },
    Known {
        name: "tpu",
        places: &["libtpu/libtpu.so"],
        install: "pip install libtpu",
    },
];

/// The library of a plugin that is named, or given by its path.
pub fn find_plugin(name_or_path: &str, site_packages: &[PathBuf]) -> Result<PathBuf, Error> {
    if name_or_path.contains('/') || name_or_path.ends_with(".so") {
        let path = PathBuf::from(name_or_path);
        if path.is_file() {
            return Ok(path);
        }
        return Err(error(
            NOT_FOUND,
            format!("there is no plugin at {name_or_path}; give the path of a PJRT plugin (.so)"),
        ));
    }
    let Some(known) = KNOWN.iter().find(|known| known.name == name_or_path) else {
        let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        return Err(error(
            INVALID_ARGUMENT,
            format!(
                "no plugin is called `{name_or_path}`; there are {}, or give the path of a .so",
                names.join(", ")
            ),
        ));
    };
    let mut looked = String::new();
    for place in known.places {
        for directory in site_packages {
            if let Some(found) = resolve(directory, place) {
                return Ok(found);
            }
            looked.push_str(&format!("\n  {}", directory.join(place).display()));
        }
    }
    if looked.is_empty() {
        looked.push_str(" nowhere: no site-packages directory is known");
    }
    Err(error(
        NOT_FOUND,
        format!("the `{name_or_path}` plugin is not installed. Looked for it at{looked}"),
    )
    .hint(install_hint(known.name)))
}

/// How to get the plugin of that name.
pub(crate) fn install_hint(name: &str) -> String {
    let known = KNOWN.iter().find(|known| known.name == name);
    let install = known.map_or("", |known| known.install);
    format!("`{install}` in the environment that Salus is in, or set SALUS_SITE_PACKAGES")
}

/// Where SciPy's wheels have it: since 1.13, and before.
const LAPACK: &[&str] = &[
    "scipy.libs/libscipy_openblas-*.so",
    "scipy.libs/libopenblasp-*.so",
];

/// LAPACK's library for the plugin at `plugin`: beside it, else wherever plugins may be.
pub fn find_lapack(plugin: &Path, site_packages: &[PathBuf]) -> Result<PathBuf, Error> {
    let beside = plugin.ancestors().find(|directory| {
        directory
            .file_name()
            .is_some_and(|name| name == "site-packages")
    });
    let mut looked = String::new();
    for directory in beside.into_iter().chain(site_packages.iter().map(|d| &**d)) {
        let found = LAPACK.iter().find_map(|place| resolve(directory, place));
        if let Some(found) = found {
            return Ok(found);
        }
        looked.push_str(&format!("\n  {}", directory.join("scipy.libs").display()));
    }
    Err(error(
        NOT_FOUND,
        format!("`jnp.linalg` needs LAPACK, and there is none. Looked for SciPy's at{looked}"),
    )
    .hint(
        "`pip install scipy` in the environment that the plugin is in, or set `lapack` in the \
         configuration",
    ))
}

/// The file at `place` below `directory`; of several that match a `*`, the last by name.
fn resolve(directory: &Path, place: &str) -> Option<PathBuf> {
    let Some((before, after)) = place.split_once('*') else {
        return Some(directory.join(place)).filter(|path| path.is_file());
    };
    let (parent, prefix) = before.rsplit_once('/')?;
    let (suffix, below) = after.split_once('/').unwrap_or((after, ""));
    let matches = |name: &str| name.starts_with(prefix) && name.ends_with(suffix);
    let mut matches: Vec<PathBuf> = std::fs::read_dir(directory.join(parent))
        .ok()?
        .flatten()
        .filter(|entry| matches(&entry.file_name().to_string_lossy()))
        .map(|entry| match below {
            "" => entry.path(),
            _ => entry.path().join(below),
        })
        .filter(|path| path.is_file())
        .collect();
    matches.sort();
    matches.pop()
}

/// Directories in which plugins may be, the most specific first.
///
/// `SALUS_SITE_PACKAGES` lists them. Without it: the active virtual environment, the one that the
/// running executable belongs to, a checkout's `.venv`, and if none of these exists, what the
/// `python3` on the PATH uses.
pub fn site_packages_candidates() -> Vec<PathBuf> {
    if let Some(directories) = std::env::var_os(salus_wire::env::SITE_PACKAGES) {
        return std::env::split_paths(&directories).collect();
    }
    let mut found = Vec::new();
    if let Some(venv) = std::env::var_os("VIRTUAL_ENV") {
        add_venv(Path::new(&venv), &mut found);
    }
    if let Ok(executable) = std::env::current_exe() {
        for directory in around_executable(&executable) {
            add(directory, &mut found);
        }
    }
    if found.is_empty() {
        for directory in ask_python() {
            add(directory, &mut found);
        }
    }
    found
}

/// Directories that the place of the executable suggests.
fn around_executable(executable: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for parent in executable.ancestors().skip(1) {
        // site-packages/salus/bin/salus: the wheel's own copy.
        if parent
            .file_name()
            .is_some_and(|name| name == "site-packages")
        {
            found.push(parent.to_owned());
        }
        // <venv>/bin/salus, and target/release/salus in a checkout that has a .venv.
        if parent.join("pyvenv.cfg").is_file() {
            add_venv(parent, &mut found);
        }
        add_venv(&parent.join(".venv"), &mut found);
    }
    found
}

fn add_venv(venv: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(venv.join("lib")) else {
        return;
    };
    let mut pythons: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    pythons.sort();
    for python in pythons {
        let name = python
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        if name.is_some_and(|name| name.starts_with("python3")) {
            add(python.join("site-packages"), found);
        }
    }
}

fn add(directory: PathBuf, found: &mut Vec<PathBuf>) {
    if directory.is_dir() && !found.contains(&directory) {
        found.push(directory);
    }
}

fn ask_python() -> Vec<PathBuf> {
    let script = "import site; print('\\n'.join([*site.getsitepackages(), \
                  site.getusersitepackages()]))";
    let Ok(output) = Command::new("python3").args(["-c", script]).output() else {
        return Vec::new();
    };
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(PathBuf::from)
        .collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A directory that is removed with everything in it.
    pub(crate) struct Scratch(PathBuf);

    impl Scratch {
        pub(crate) fn new(name: &str) -> Scratch {
            let name = format!("salus-discover-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&path).expect("the temporary directory is writable");
            Scratch(path)
        }

        pub(crate) fn path(&self) -> &Path {
            &self.0
        }

        pub(crate) fn file(&self, path: &str) -> PathBuf {
            let file = self.0.join(path);
            std::fs::create_dir_all(file.parent().expect("below a directory")).expect("writable");
            std::fs::write(&file, "").expect("writable");
            file
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            // What is left in the temporary directory does no harm.
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn plugins_are_found_by_name() {
        let scratch = Scratch::new("name");
        let cpu = scratch.file("b/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so");
        let rocm = scratch.file("b/jax_plugins/xla_rocm7/xla_rocm_plugin.so");
        let cuda = scratch.file("a/jax_plugins/xla_cuda12/xla_cuda_plugin.so");
        let places = [scratch.0.join("a"), scratch.0.join("b")];
        assert_eq!(find_plugin("cpu", &places), Ok(cpu));
        assert_eq!(find_plugin("rocm", &places), Ok(rocm));
        assert_eq!(find_plugin("cuda", &places), Ok(cuda));
    }

    #[test]
    fn a_path_is_taken_as_it_is() {
        let scratch = Scratch::new("path");
        let plugin = scratch.file("own.so");
        let text = plugin.to_str().expect("an ASCII path");
        assert_eq!(find_plugin(text, &[]), Ok(plugin.clone()));
        let gone = find_plugin("/nowhere/own.so", &[]).expect_err("there is no such file");
        assert!(gone.message.contains("/nowhere/own.so"), "{gone}");
    }

    #[test]
    fn a_missing_plugin_says_where_it_was_looked_for_and_how_to_get_it() {
        let place = PathBuf::from("/nowhere/site-packages");
        let missing = find_plugin("cpu", &[place]).expect_err("it is not there");
        assert_eq!(
            missing.to_string(),
            "the `cpu` plugin is not installed. Looked for it at\n  \
             /nowhere/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so\n\n\
             hint: `pip install xla-cpu-pjrt` in the environment that Salus is in, or set \
             SALUS_SITE_PACKAGES"
        );
        let unknown = find_plugin("gpu", &[]).expect_err("there is no such name");
        assert!(
            unknown.message.contains("cpu, cuda, rocm, tpu"),
            "{unknown}"
        );
    }

    #[test]
    fn lapack_is_looked_for_beside_the_plugin_first() {
        let scratch = Scratch::new("lapack");
        let plugin = scratch.file("a/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so");
        let elsewhere = [scratch.0.join("b")];
        let missing = find_lapack(&plugin, &elsewhere).expect_err("there is none");
        for part in ["a/site-packages/scipy.libs", "b/scipy.libs", "pip install"] {
            assert!(missing.to_string().contains(part), "{missing}");
        }
        let old = scratch.file("b/scipy.libs/libopenblasp-r0-23e5df77.3.21.dev.so");
        scratch.file("b/scipy.libs/libgfortran-8f1e9814.so.5.0.0");
        assert_eq!(find_lapack(&plugin, &elsewhere), Ok(old));
        let beside = scratch.file("a/site-packages/scipy.libs/libscipy_openblas-6cdc3b4a.so");
        assert_eq!(find_lapack(&plugin, &elsewhere), Ok(beside));
    }

    #[test]
    fn the_executables_place_suggests_directories() {
        let scratch = Scratch::new("place");
        scratch.file("venv/pyvenv.cfg");
        scratch.file("venv/lib/python3.11/site-packages/x");
        scratch.file("checkout/.venv/lib/python3.12/site-packages/x");
        let at = |path: &str| around_executable(&scratch.0.join(path));
        let in_venv = scratch.0.join("venv/lib/python3.11/site-packages");
        assert!(at("venv/bin/salus").contains(&in_venv));
        assert!(at("venv/lib/python3.11/site-packages/salus/bin/salus").contains(&in_venv));
        let in_checkout = scratch
            .0
            .join("checkout/.venv/lib/python3.12/site-packages");
        assert!(at("checkout/target/release/salus").contains(&in_checkout));
    }
}
