//! Which devices are meant: `cuda`, `cuda:1`, `cuda:0,cuda:1`, `/lib/plugin.so:0`.
//!
//! A name or the path of a plugin, and after a colon the device's number as the plugin counts them.
//! Without a number it is all devices of the plugin that can be seen. All devices of a service are of
//! one plugin: their programs and arrays are alike.

use std::path::Path;

use super::Problem;
use crate::paths::absolute;

/// The device that is always one: what others call its devices are its lanes.
const CPU: &str = "cpu";

/// The option by which the plugins of GPUs open some of their devices.
pub const VISIBLE_DEVICES: &str = "visible_devices";

/// Devices of one plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceNames {
    /// A name (`cuda`) or a path.
    pub plugin: String,
    /// In the order given; empty is all.
    pub indices: Vec<u32>,
}

impl DeviceNames {
    pub fn parse(text: &str) -> Result<Self, Problem> {
        let mut all: Option<Self> = None;
        for one in text.split(',').map(str::trim) {
            let (plugin, index) = split(one);
            if plugin.is_empty() {
                return Err(Problem::new(format!("`{text}` does not name a device"))
                    .hint("`cpu`, `cuda`, `cuda:1`, `cuda:0,cuda:1`, or the path of a plugin"));
            }
            if plugin == CPU && index.is_some_and(|index| index > 0) {
                return Err(Problem::new(format!("there is no device `{one}`")).hint(
                    "the CPU is one device; `--lanes` lets iterations run side by side on it",
                ));
            }
            let all = all.get_or_insert_with(|| Self {
                plugin: plugin.to_owned(),
                indices: Vec::new(),
            });
            let both = text.contains(',');
            match index {
                _ if all.plugin != plugin => {
                    let first = &all.plugin;
                    return Err(Problem::new(format!(
                        "`{text}` names devices of two plugins, `{first}` and `{plugin}`"
                    ))
                    .hint("a service has devices of one plugin; start another for the others"));
                }
                None if both => {
                    return Err(
                        Problem::new(format!("`{one}` in `{text}` has no number")).hint(format!(
                            "`{plugin}` alone is all of its devices, `{plugin}:0` the first"
                        )),
                    );
                }
                Some(index) if all.indices.contains(&index) => {
                    return Err(Problem::new(format!("`{text}` names `{one}` twice")));
                }
                index => all.indices.extend(index),
            }
        }
        let mut all = all.unwrap_or_else(|| Self {
            plugin: CPU.into(),
            indices: Vec::new(),
        });
        if all.plugin == CPU {
            all.indices.clear();
        }
        Ok(all)
    }

    /// The same where another working directory holds: a name stays a name.
    #[must_use]
    pub fn absolute(mut self) -> Self {
        if is_path(&self.plugin) {
            let path = absolute(Path::new(&self.plugin));
            self.plugin = path.display().to_string();
        }
        self
    }
}

impl std::fmt::Display for DeviceNames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plugin = &self.plugin;
        let Some((first, rest)) = self.indices.split_first() else {
            return f.write_str(plugin);
        };
        write!(f, "{plugin}:{first}")?;
        rest.iter()
            .try_for_each(|index| write!(f, ",{plugin}:{index}"))
    }
}

/// Whether a device is given by the path of its plugin.
pub fn is_path(plugin: &str) -> bool {
    plugin.contains('/') || plugin.ends_with(".so")
}

/// The plugin, and the number behind the last colon if it is one.
pub fn split(device: &str) -> (&str, Option<u32>) {
    match device.rsplit_once(':') {
        Some((plugin, index)) => match index.parse() {
            Ok(index) => (plugin, Some(index)),
            Err(_) => (device, None),
        },
        None => (device, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> (String, Vec<u32>) {
        let names = DeviceNames::parse(text).expect("it names devices");
        (names.plugin, names.indices)
    }

    #[test]
    fn devices_are_a_plugin_and_numbers() {
        for (text, plugin, indices) in [
            ("cpu", "cpu", &[][..]),
            ("cpu:0", "cpu", &[]),
            ("cuda", "cuda", &[]),
            ("cuda:1", "cuda", &[1]),
            ("cuda:1, cuda:0", "cuda", &[1, 0]),
            ("/a:b/p.so:2", "/a:b/p.so", &[2]),
            ("/a/p.so", "/a/p.so", &[]),
        ] {
            assert_eq!(
                parsed(text),
                (plugin.to_owned(), indices.to_vec()),
                "{text}"
            );
        }
        let names = DeviceNames::parse("cuda:1,cuda:0").expect("two");
        assert_eq!(names.to_string(), "cuda:1,cuda:0");
        let path = DeviceNames::parse("x/p.so:3").expect("one").absolute();
        assert!(path.plugin.starts_with('/') && path.to_string().ends_with("x/p.so:3"));
    }

    #[test]
    fn what_names_no_devices_says_why() {
        for (text, why) in [
            ("", "`` does not name a device"),
            ("cuda:0,", "`cuda:0,` does not name a device"),
            ("cpu:1", "there is no device `cpu:1`"),
            ("cuda:0,cuda:0", "`cuda:0,cuda:0` names `cuda:0` twice"),
            ("cuda:0,cuda", "`cuda` in `cuda:0,cuda` has no number"),
            (
                "cuda:0,rocm:0",
                "`cuda:0,rocm:0` names devices of two plugins, `cuda` and `rocm`",
            ),
        ] {
            assert_eq!(DeviceNames::parse(text).expect_err(text).what, why);
        }
    }
}
