//! What a plugin needs to be right: compile options that the service sets for every program.
//!
//! A row is added when a plugin is found to compute something wrong and an option cures it. The
//! service puts the options into every program that it compiles, so no option of a job can undo
//! them. Tests and benches set them on the direct side too, which is then compared like with like.
//!
//! Not here: options that are a matter of taste or speed.

use std::ops::RangeInclusive;

use salus_wire::Description;

/// One fault of a plugin, and what avoids it.
#[derive(Debug)]
pub struct Requirement {
    /// The plugin's platform name.
    pub platform: &'static str,
    /// PJRT API versions of the plugins concerned. A plugin's own version is not in its ABI.
    pub api: RangeInclusive<(i32, i32)>,
    /// Compile options by name.
    pub options: &'static [(&'static str, bool)],
    pub why: &'static str,
    /// Where the fault shows if the options are taken away.
    pub shown_by: &'static str,
}

pub const REQUIREMENTS: &[Requirement] = &[Requirement {
    platform: "cpu",
    // Found in 0.81 (`xla-cpu-pjrt` 0.0.1); open above until a newer plugin is shown to be right.
    api: (0, 0)..=(0, i32::MAX),
    options: &[("xla_cpu_use_xnnpack", false)],
    why: "its matrix products keep the packed right-hand side by address, so new weights at an old \
          address, or donated weights updated in place, are multiplied with stale values",
    shown_by: "tests/e2e/test_isolation.py",
}];

/// The options that every program of this plugin gets.
pub fn required_options(description: &Description) -> Vec<(&'static str, bool)> {
    let rows = REQUIREMENTS.iter();
    let rows = rows.filter(|row| {
        row.platform == description.platform_name && row.api.contains(&description.api_version)
    });
    rows.flat_map(|row| row.options).copied().collect()
}

/// The same for a process that uses the CPU plugin without the service, as its `XLA_FLAGS`.
pub fn cpu_flags() -> String {
    let rows = REQUIREMENTS.iter().filter(|row| row.platform == "cpu");
    let options = rows.flat_map(|row| row.options);
    let flags: Vec<String> = options
        .map(|(name, value)| format!("--{name}={value}"))
        .collect();
    flags.join(" ")
}
