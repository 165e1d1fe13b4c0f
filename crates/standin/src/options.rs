//! Create options: those that CUDA's plugin knows, with its defaults.

use crate::c_api::error::Error;
use crate::c_api::named::Value;
use crate::config::Config;
use crate::pool::Allocator;

/// The names of xla/pjrt/c/pjrt_c_api_gpu_internal.cc (`PJRT_Client_Create`), and `standin`, ours.
const KNOWN: &[&str] = &[
    "platform_name",
    "allocator",
    "memory_fraction",
    "preallocate",
    "collective_memory_size",
    "visible_devices",
    "node_id",
    "num_nodes",
    "should_stage_host_to_device_transfers",
    "enable_mock_nccl",
    "mock_gpu_topology",
    "partition_index",
    "use_tfrt_gpu_client",
    "abort_collectives_on_failure",
    "standin",
];

pub(crate) struct Options {
    pub(crate) config: Config,
    pub(crate) allocator: Allocator,
    /// xla_gpu_allocator_config.h:47.
    pub(crate) memory_fraction: f64,
    /// xla_gpu_allocator_config.h:59.
    pub(crate) preallocate: bool,
    /// Numbers of devices on the machine.
    pub(crate) visible: Vec<usize>,
}

impl Options {
    pub(crate) fn read(given: &[(String, Value)]) -> Result<Options, Error> {
        let text = |wanted: &str| {
            given.iter().find_map(|(name, value)| match value {
                Value::Text(text) if name == wanted => Some(&**text),
                _ => None,
            })
        };
        let config = Config::read(text("standin").unwrap_or(""));
        let config = config.map_err(Error::invalid)?;
        let mut options = Options {
            allocator: Allocator::Bfc,
            memory_fraction: 0.75,
            preallocate: true,
            visible: (0..config.devices).collect(),
            config,
        };
        for (name, value) in given {
            options.set(name, value)?;
        }
        if options.visible.is_empty() {
            return Err(Error::new(9, "No visible GPU devices."));
        }
        Ok(options)
    }

    fn set(&mut self, name: &str, value: &Value) -> Result<(), Error> {
        if !KNOWN.contains(&name) {
            return match self.config.options {
                true => Err(Error::invalid(format!("Unknown option name: {name}"))),
                false => Ok(()),
            };
        }
        let bad = || Error::invalid(format!("option {name} has the unexpected value {value:?}"));
        match (name, value) {
            ("platform_name", Value::Text(text)) if !text.eq_ignore_ascii_case("cuda") => {
                return Err(Error::invalid(format!("no platform {text}")));
            }
            ("allocator", Value::Text(text)) => {
                self.allocator = match &**text {
                    "default" | "bfc" => Allocator::Bfc,
                    "cuda_async" => Allocator::CudaAsync,
                    "platform" | "vmm" => Allocator::Platform,
                    _ => {
                        return Err(Error::new(
                            12,
                            format!(
                                "Allocator {text} not supported for PJRT GPU plugin. Supported \
                                 allocator options are: 'default', 'platform', 'bfc', 'cuda_async' \
                                 and 'vmm'."
                            ),
                        ));
                    }
                }
            }
            ("allocator", _) => return Err(bad()),
            ("memory_fraction", Value::Float(fraction)) => {
                self.memory_fraction = f64::from(*fraction);
            }
            ("memory_fraction", _) => return Err(bad()),
            ("preallocate", Value::Bool(preallocate)) => self.preallocate = *preallocate,
            ("preallocate", _) => return Err(bad()),
            ("visible_devices", Value::Ints(devices)) => {
                let there = |device: &i64| usize::try_from(*device).ok();
                let visible: Option<Vec<usize>> = devices.iter().map(there).collect();
                self.visible = visible.ok_or_else(bad)?;
                if self
                    .visible
                    .iter()
                    .any(|&device| device >= self.config.devices)
                {
                    return Err(bad());
                }
            }
            ("visible_devices", _) => return Err(bad()),
            _ => {}
        }
        Ok(())
    }
}
