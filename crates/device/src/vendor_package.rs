//! Finds the Python package that a vendor's plugin has its handlers in, and the Python to load it with.
//!
//! A plugin's wheel and its package are installed side by side: `jax_plugins/xla_cuda12` and
//! `jax_cuda12_plugin`. The package has extension modules, so the Python must be of the version that
//! they were installed for, which the directory's name tells.
//!
//! Not here: loading it (`python/salus/child_launcher.py`).

use std::path::{Path, PathBuf};

/// A package with handlers, and a Python that can load it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VendorPackage {
    pub name: String,
    pub site_packages: PathBuf,
    pub python: PathBuf,
}

/// What was looked for, and why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Missing {
    /// The plugin has no such package: it is no GPU's.
    NotNeeded,
    Package(String),
    /// The package is there, and no Python of its version is.
    Python {
        package: String,
        wanted: String,
    },
}

/// The package of the plugin at `plugin`: beside it, else wherever plugins may be. `path` is where
/// programs are looked for.
pub fn find(
    plugin: &Path,
    site_packages: &[PathBuf],
    path: &[PathBuf],
) -> Result<VendorPackage, Missing> {
    let name = name_for(plugin).ok_or(Missing::NotNeeded)?;
    let own = plugin.ancestors().nth(3);
    let mut places = own.into_iter().chain(site_packages.iter().map(|d| &**d));
    let found = places.find(|directory| directory.join(&name).is_dir());
    let Some(directory) = found else {
        return Err(Missing::Package(name));
    };
    match python_of(directory, path) {
        Ok(python) => Ok(VendorPackage {
            name,
            site_packages: directory.to_owned(),
            python,
        }),
        Err(wanted) => Err(Missing::Python {
            package: name,
            wanted,
        }),
    }
}

/// `jax_cuda12_plugin` for `…/jax_plugins/xla_cuda12/xla_cuda_plugin.so`.
fn name_for(plugin: &Path) -> Option<String> {
    let directory = plugin.parent()?.file_name()?.to_str()?;
    let version = directory.strip_prefix("xla_")?;
    let known = version.starts_with("cuda") || version.starts_with("rocm");
    known.then(|| format!("jax_{version}_plugin"))
}

/// The Python whose `site-packages` that is: of the same environment, else by its name on the path.
fn python_of(site_packages: &Path, path: &[PathBuf]) -> Result<PathBuf, String> {
    // <prefix>/lib/python3.11/site-packages
    let mut above = site_packages.ancestors().skip(1);
    let version = above.next().and_then(Path::file_name);
    let version = version.map_or("python3".into(), |name| name.to_string_lossy());
    let prefix = above.nth(1);
    let own = prefix.into_iter().flat_map(|prefix| {
        [&*version, "python3", "python"].map(|name| prefix.join("bin").join(name))
    });
    let named = path.iter().map(|directory| directory.join(&*version));
    let mut candidates = own.chain(named);
    candidates
        .find(|python| python.is_file())
        .ok_or_else(|| version.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::tests::Scratch;

    const PLUGIN: &str = "venv/lib/python3.11/site-packages/jax_plugins/xla_cuda12/x.so";

    #[test]
    fn a_plugins_package_is_beside_it_with_its_environments_python() {
        let scratch = Scratch::new("package");
        let plugin = scratch.file(PLUGIN);
        let look = || find(&plugin, &[], &[]);
        assert_eq!(look(), Err(Missing::Package("jax_cuda12_plugin".into())));
        let site = "venv/lib/python3.11/site-packages";
        scratch.file(&format!("{site}/jax_cuda12_plugin/__init__.py"));
        let without_python = Err(Missing::Python {
            package: "jax_cuda12_plugin".into(),
            wanted: "python3.11".into(),
        });
        assert_eq!(look(), without_python);
        let python = scratch.file("venv/bin/python3");
        let found = |python| {
            Ok(VendorPackage {
                name: "jax_cuda12_plugin".into(),
                site_packages: scratch.path().join(site),
                python,
            })
        };
        assert_eq!(look(), found(python));
        let exact = scratch.file("venv/bin/python3.11");
        assert_eq!(look(), found(exact), "the one of that version first");
    }

    #[test]
    fn a_package_elsewhere_has_a_python_on_the_path() {
        let scratch = Scratch::new("package-elsewhere");
        let plugin = scratch.file(PLUGIN);
        scratch.file("home/.local/lib/python3.12/site-packages/jax_cuda12_plugin/__init__.py");
        let site = scratch
            .path()
            .join("home/.local/lib/python3.12/site-packages");
        // Of another version.
        scratch.file("bin/python3.11");
        let path = [scratch.path().join("bin")];
        let places = std::slice::from_ref(&site);
        assert!(matches!(
            find(&plugin, places, &path),
            Err(Missing::Python { .. })
        ));
        let python = scratch.file("bin/python3.12");
        let found = find(&plugin, places, &path).expect("all are there");
        assert_eq!((found.site_packages, found.python), (site, python));
    }

    #[test]
    fn plugins_of_other_devices_have_none() {
        for plugin in [
            "/x/site-packages/xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so",
            "/x/site-packages/libtpu/libtpu.so",
            "own.so",
        ] {
            let found = find(Path::new(plugin), &[], &[]);
            assert_eq!(found, Err(Missing::NotNeeded), "{plugin}");
        }
        let rocm = find(Path::new("/x/jax_plugins/xla_rocm7/y.so"), &[], &[]);
        assert_eq!(rocm, Err(Missing::Package("jax_rocm7_plugin".into())));
    }
}
