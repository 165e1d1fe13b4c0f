//! Compiles for a device that another process has, without a client and without touching the device.
//!
//! A GPU's plugin compiles for any GPU whose *target config* it is given: the device's numbers, and the
//! versions of driver and libraries. The process that has the device reads it from its client's topology;
//! plugins of other devices deserialize the topology itself.
//!
//! Cost: nothing of the device's memory, and no driver context. Programs are not tuned on the device.

use std::path::Path;

use salus_formats::options::{self, Override};
use salus_pjrt::{Topology, Value};

use super::compile::{Compilation, With};
use super::open::open_plugin;
use crate::failure::{UNIMPLEMENTED, error, vendor, vendor_values};
use crate::{Compiled, Description, Error, Source};

/// The attribute, and option, that describes a GPU.
const TARGET: &str = "target_config";
/// The same of the host beside it, where there is one.
const HOST_TARGET: &str = "host_target_machine_options";
/// One process with one device.
const ONE_DEVICE: &str = "1x1x1";

/// Options of programs that are compiled without a device. CUB is asked on the device how much scratch a
/// large sort takes.
const WITHOUT_DEVICE: &[(&str, Override<'_>)] =
    &[("xla_gpu_enable_cub_radix_sort", Override::Flag(false))];

pub struct TargetCompiler {
    topology: Topology,
    description: Description,
    is_gpu: bool,
}

impl TargetCompiler {
    /// Prepares to compile for the device that is described, with the plugin at `plugin`.
    pub fn open(plugin: &Path, description: &Description) -> Result<TargetCompiler, Error> {
        let plugin = open_plugin(plugin)?;
        let target: Vec<_> = vendor_values(&description.topology_attributes)
            .into_iter()
            .filter(|(name, _)| name == TARGET || name == HOST_TARGET)
            .collect();
        let is_gpu = target.iter().any(|(name, _)| name == TARGET);
        let topology = match (is_gpu, &description.serialized_topology) {
            (true, _) => {
                let mut options = target;
                let one = Value::Text(ONE_DEVICE.to_owned());
                options.push(("topology".to_owned(), one));
                plugin.create_topology("", &options)
            }
            (false, Some(serialized)) => plugin.deserialize_topology(serialized),
            (false, None) => {
                return Err(error(
                    UNIMPLEMENTED,
                    format!(
                        "the plugin {} says nothing of its device by which one could compile for it \
                         in another process",
                        description.plugin_path
                    ),
                ));
            }
        };
        Ok(TargetCompiler {
            topology: topology.map_err(vendor)?,
            description: description.clone(),
            is_gpu,
        })
    }

    pub fn compile(&self, source: &Source<'_>) -> Result<Compiled, Error> {
        let compilation = Compilation {
            with: With::Topology(&self.topology),
            description: &self.description,
        };
        if !self.is_gpu {
            return compilation.run(source);
        }
        let options = options::with_overrides(source.options, WITHOUT_DEVICE);
        compilation.run(&Source {
            options: &options,
            ..*source
        })
    }
}
