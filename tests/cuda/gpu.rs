//! A GPU that is not there, and the programs that `lower.py` has JAX lower for it.

use std::path::PathBuf;

use salus_device::{Description, Memory, Value, discover};

/// A directory of `lower.py`'s.
const PROGRAMS: &str = "SALUS_TEST_CUDA_PROGRAMS";
/// The `site-packages` that the wheels are installed in.
const SITE: &str = "SALUS_TEST_CUDA_SITE_PACKAGES";

fn variable(name: &str) -> PathBuf {
    let set = std::env::var_os(name).map(PathBuf::from);
    set.unwrap_or_else(|| panic!("{name} is not set: run `make test-cuda`"))
}

pub(crate) fn plugin() -> PathBuf {
    let found = discover::find_plugin("cuda", &[variable(SITE)]);
    found.unwrap_or_else(|error| panic!("{error}"))
}

/// As a device host would describe such a GPU to its compilers.
pub(crate) fn description(target: &str) -> Description {
    let memory = |id, kind: &str| Memory {
        id,
        kind: kind.into(),
        kind_id: id,
        debug_string: kind.into(),
        display_string: kind.into(),
    };
    let plugin = plugin();
    let opened = salus_pjrt::Plugin::open(&plugin).expect("the wheel's plugin opens");
    Description {
        platform_name: "cuda".into(),
        platform_version: "cuda 12090".into(),
        kind: "a GPU that is not there".into(),
        debug_string: String::new(),
        display_string: String::new(),
        local_hardware_id: 0,
        plugin_attributes: Vec::new(),
        device_attributes: Vec::new(),
        memories: vec![memory(0, "device"), memory(1, "pinned_host")],
        default_memory: 0,
        lanes: 1,
        capacity_bytes: 1 << 34,
        on_host: false,
        api_version: opened.api_version(),
        plugin_path: plugin.display().to_string(),
        serialized_topology: None,
        topology_attributes: vec![("target_config".into(), Value::Text(target.into()))],
    }
}

/// A program of `lower.py`'s, and JAX's own options for it.
pub(crate) fn lowered(name: &str) -> (Vec<u8>, Vec<u8>) {
    let read = |end: &str| {
        let path = variable(PROGRAMS).join(format!("{name}.{end}"));
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    (read("mlirbc"), read("options"))
}
