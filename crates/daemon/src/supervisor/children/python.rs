//! Children that are Pythons, with the vendor's handlers for linear algebra.

use std::ffi::OsString;
use std::path::Path;

use salus_device::vendor_package::VendorPackage;
use salus_wire::env;

use super::process::Launcher;

/// What such a Python runs.
const SCRIPT: &str = include_str!("../../../../../python/salus/child_launcher.py");
/// The script is in a variable, so that `ps` shows a command that can be read.
const RUN_SCRIPT: &str = "import os; exec(os.environ.pop('SALUS_CHILD_LAUNCHER'))";

impl Launcher {
    /// Starts children by the Python of a vendor's package; `library` is `libsalus_child.so`.
    pub fn through_python(package: &VendorPackage, library: &Path) -> Self {
        let command = |role: &str| -> Vec<OsString> {
            vec![
                // Alone: no variables, directories and start-up files of its user.
                "-I".into(),
                "-S".into(),
                "-c".into(),
                RUN_SCRIPT.into(),
                role.into(),
                library.into(),
                env!("CARGO_PKG_VERSION").into(),
                package.site_packages.clone().into(),
                package.name.clone().into(),
            ]
        };
        Self {
            program: package.python.clone(),
            device_host: command("device-host"),
            compiler: command("compiler"),
            environment: vec![(env::CHILD_LAUNCHER.into(), SCRIPT.into())],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_has_the_names_of_environment_variables_that_rust_has() {
        for name in [env::CHILD_SETTINGS, env::CHILD_HANDLERS] {
            assert!(SCRIPT.contains(&format!("= \"{name}\"")), "{name}");
        }
        assert!(RUN_SCRIPT.contains(env::CHILD_LAUNCHER));
    }
}
