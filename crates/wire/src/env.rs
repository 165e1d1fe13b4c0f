//! The environment variables that Salus reads and writes, by name.
//!
//! `python/salus/jax_plugin.py` has those that it needs as constants of the same names; a test of the
//! command line compares the two.

/// The socket of the service to use, of any user.
pub const SOCKET: &str = "SALUS_SOCKET";
/// What `salus ps` calls the job.
pub const NAME: &str = "SALUS_NAME";
/// What a job's user asks for, as `salus run` writes it.
pub const MEMORY_MAX: &str = "SALUS_MEMORY_MAX";
pub const WEIGHT: &str = "SALUS_WEIGHT";
pub const PRIORITY: &str = "SALUS_PRIORITY";
pub const DEADLINE_US: &str = "SALUS_DEADLINE_US";
pub const ITERATIONS: &str = "SALUS_ITERATIONS";
pub const EXPECT_US: &str = "SALUS_EXPECT_US";
/// Which `salus run` started the job.
pub const RUN: &str = "SALUS_RUN";
/// The file in which a job's processes leave word for their `salus run`.
pub const RUN_NOTES: &str = "SALUS_RUN_NOTES";
/// How long a job waits for a session.
pub const CONNECT_SECONDS: &str = "SALUS_CONNECT_SECONDS";
/// The library that a job loads.
pub const LIBRARY: &str = "SALUS_LIBRARY";
/// The configuration of a service.
pub const CONFIG: &str = "SALUS_CONFIG";
/// Where compiled programs are kept.
pub const CACHE_DIR: &str = "SALUS_CACHE_DIR";
/// How long a service that `salus run` started stays without a job.
pub const IDLE_SECONDS: &str = "SALUS_IDLE_SECONDS";
/// Where else plugins are looked for.
pub const SITE_PACKAGES: &str = "SALUS_SITE_PACKAGES";
/// The Python that `salus bench` runs jobs with.
pub const PYTHON: &str = "SALUS_PYTHON";
/// How the stand-in for an accelerator behaves, a plugin for tests.
pub const STANDIN: &str = "SALUS_STANDIN";
/// The settings of a device host or compiler, from its supervisor.
pub const CHILD_SETTINGS: &str = "SALUS_CHILD_SETTINGS";
/// Set for the first compiler of a service.
pub const CHILD_FIRST: &str = "SALUS_CHILD_FIRST";
/// What a Python runs that is a device host or a compiler, and how many handlers it has registered.
pub const CHILD_LAUNCHER: &str = "SALUS_CHILD_LAUNCHER";
pub const CHILD_HANDLERS: &str = "SALUS_CHILD_HANDLERS";

/// Not ours: directories of this user, as the XDG specification has them.
pub const XDG_RUNTIME_DIR: &str = "XDG_RUNTIME_DIR";
pub const XDG_CACHE_HOME: &str = "XDG_CACHE_HOME";
pub const XDG_CONFIG_HOME: &str = "XDG_CONFIG_HOME";
