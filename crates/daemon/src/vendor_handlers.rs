//! Whether programs of this device can call the vendor's libraries for linear algebra, and how jobs
//! learn it.
//!
//! On GPUs, JAX lowers `jnp.linalg` to custom calls whose handlers are in the vendor's Python package.
//! Where the service's processes have them, jobs leave JAX as it is; where they have not, a job lowers
//! linear algebra to plain operations instead, which any plugin compiles
//! (`python/salus/jax_plugin.py`). A session is told by an attribute of its device.

use salus_wire::{Description, Value, env};

/// The attribute by which a job's Python knows.
const ATTRIBUTE: &str = "salus_linalg";

/// Platforms on which JAX counts on a vendor's package. On a CPU, handlers are ours.
const PLATFORMS: [&str; 2] = ["cuda", "rocm"];

/// Whether the Python that this process is has registered any (`python/salus/child_launcher.py`).
fn are_registered() -> bool {
    let registered = std::env::var(env::CHILD_HANDLERS);
    registered.is_ok_and(|number| number != "0")
}

/// What a session is told of the device.
pub(crate) fn describe(device: &Description) -> Description {
    let mut description = device.clone();
    if PLATFORMS.contains(&description.platform_name.as_str()) {
        let value = if are_registered() { "vendor" } else { "plain" };
        let value = Value::Text(value.into());
        description
            .device_attributes
            .push((ATTRIBUTE.into(), value));
    }
    description
}
