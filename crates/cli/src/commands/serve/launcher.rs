//! How the service's processes are started: by our own binary, or by the Python that has the vendor's
//! handlers for linear algebra.

use std::path::{Path, PathBuf};

use salus_daemon::supervisor::Launcher;
use salus_device::discover;
use salus_device::vendor_package::{self, Missing, VendorPackage};

use crate::library;

/// Beside the library that jobs load.
const CHILD_LIBRARY: &str = "libsalus_child.so";

/// How processes of a service of this plugin are started, and if without handlers that there could
/// be, why and what to do about it.
pub(crate) fn launcher(plugin: &Path) -> (Launcher, Option<String>) {
    match handlers(plugin) {
        Ok((package, library)) => (Launcher::through_python(&package, &library), None),
        Err(why) => (Launcher::default(), why),
    }
}

/// The vendor's package and our library for it; else what is missing, if anything should be there.
pub(crate) fn handlers(plugin: &Path) -> Result<(VendorPackage, PathBuf), Option<String>> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = std::env::split_paths(&path).collect();
    let package = vendor_package::find(plugin, &discover::site_packages_candidates(), &path);
    let package = package.map_err(|missing| match missing {
        Missing::NotNeeded => None,
        Missing::Package(name) => Some(format!(
            "the package `{name}` is not installed; `pip install {}` beside the plugin",
            name.replace('_', "-")
        )),
        Missing::Python { package, wanted } => Some(format!(
            "`{package}` is installed for a `{wanted}` that is neither in its environment nor on the \
             PATH"
        )),
    })?;
    let library = library::find().map_err(|problem| Some(problem.what))?;
    let library = library.with_file_name(CHILD_LIBRARY);
    if library.is_file() {
        return Ok((package, library));
    }
    Err(Some(format!(
        "`{}` is missing; install the package `salus` again",
        library.display()
    )))
}
