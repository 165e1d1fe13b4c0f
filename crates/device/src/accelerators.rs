//! Which device a service serves where nobody named one.
//!
//! An accelerator is *seen* if its driver has made a device file that this process could use, and
//! nothing hides it. One that is seen and has its plugin installed is served; on a machine where none
//! is seen, the CPU is. One that is seen without a plugin is neither: a job would run on the CPU,
//! slowly, and nobody would know why.
//!
//! Promise: looks at files and variables only; opens no plugin and no device.
//! Not here: whether the device works (`salus doctor` tries it), TPUs, which are served by name.

use std::path::{Path, PathBuf};

use crate::Error;
use crate::discover::{find_plugin, install_hint};
use crate::failure::{NOT_FOUND, error};

/// An accelerator that can be seen without its plugin.
struct Known {
    name: &'static str,
    called: &'static str,
    /// Device files, each with what else must be there for it to be such an accelerator. A `#` at
    /// the end stands for a number.
    files: &'static [(&'static str, Option<&'static str>)],
    /// Variables by which its driver hides devices.
    hides: &'static [&'static str],
}

const KNOWN: &[Known] = &[
    Known {
        name: "cuda",
        called: "an NVIDIA GPU",
        files: &[
            ("dev/nvidia#", None),
            // Windows' Linux has this file for any GPU, and the library for NVIDIA's.
            ("dev/dxg", Some("usr/lib/wsl/lib/libcuda.so.1")),
        ],
        hides: &["CUDA_VISIBLE_DEVICES"],
    },
    Known {
        name: "rocm",
        called: "an AMD GPU",
        files: &[("dev/kfd", Some("dev/dri"))],
        hides: &["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"],
    },
];

/// Where it is looked.
pub struct Surroundings<'a> {
    /// `/`; tests have one of their own.
    pub root: &'a Path,
    pub site_packages: &'a [PathBuf],
    /// The value of an environment variable.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

/// A device to serve, and why this one.
#[derive(Debug, PartialEq, Eq)]
pub struct Chosen {
    pub name: &'static str,
    pub because: String,
}

impl Surroundings<'_> {
    /// The device to serve, or why none is served unasked.
    pub fn choose(&self) -> Result<Chosen, Error> {
        let mut because = "no GPU is visible".to_owned();
        let mut without_plugin = None;
        for known in KNOWN {
            let Some(file) = known.files.iter().find_map(|file| self.seen(file)) else {
                continue;
            };
            if let Some(variable) = known.hides.iter().find(|name| self.hides(name)) {
                because = format!("{variable} hides `{file}`");
            } else if find_plugin(known.name, self.site_packages).is_ok() {
                let because = format!("`{file}` is there");
                return Ok(Chosen {
                    name: known.name,
                    because,
                });
            } else {
                without_plugin.get_or_insert((known, file));
            }
        }
        match without_plugin {
            None => Ok(Chosen {
                name: "cpu",
                because,
            }),
            Some((known, file)) => Err(refusal(known, &file)),
        }
    }

    /// The device file, if it is there and means what it should.
    fn seen(&self, (file, and): &(&str, Option<&str>)) -> Option<String> {
        if and.is_some_and(|and| !self.root.join(and).exists()) {
            return None;
        }
        let Some(prefix) = file.strip_suffix('#') else {
            return self.root.join(file).exists().then(|| format!("/{file}"));
        };
        let (directory, start) = prefix.rsplit_once('/')?;
        let entries = std::fs::read_dir(self.root.join(directory)).ok()?;
        let number = |name: &str| name.strip_prefix(start)?.parse::<u32>().ok();
        let numbers = entries
            .flatten()
            .filter_map(|entry| number(&entry.file_name().to_string_lossy()));
        Some(format!("/{prefix}{}", numbers.min()?))
    }

    /// Whether a variable says that no device may be used: by an empty list or one that begins with
    /// no device.
    fn hides(&self, variable: &str) -> bool {
        (self.variable)(variable).is_some_and(|list| {
            let first = list.split(',').next().unwrap_or_default().trim();
            first.is_empty() || first.starts_with('-')
        })
    }
}

fn refusal(known: &Known, file: &str) -> Error {
    let Known { name, called, .. } = known;
    let what = format!(
        "this machine has {called} (`{file}`), and no `{name}` plugin is installed; the CPU is not \
         served in its place unless it is asked for"
    );
    error(NOT_FOUND, what).hint(format!(
        "{}; or serve the CPU: `salus serve --device cpu --background`, or `device = \"cpu\"` in the \
         configuration",
        install_hint(name)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discover::tests::Scratch;

    /// A machine with these files, and a `cuda` and a `rocm` plugin where asked.
    fn choose(name: &str, files: &[&str], variables: &[(&str, &str)]) -> Result<Chosen, Error> {
        let scratch = Scratch::new(&format!("accelerators-{name}"));
        for file in files {
            scratch.file(file);
        }
        let variable = |name: &str| {
            let mut all = variables.iter();
            all.find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Surroundings {
            root: scratch.path(),
            site_packages: &[scratch.path().join("site")],
            variable: &variable,
        }
        .choose()
    }

    fn chosen(name: &'static str, because: &str) -> Result<Chosen, Error> {
        Ok(Chosen {
            name,
            because: because.into(),
        })
    }

    const CUDA: &str = "site/jax_plugins/xla_cuda12/xla_cuda_plugin.so";
    const ROCM: &str = "site/jax_plugins/xla_rocm7/xla_rocm_plugin.so";
    const LIBCUDA: &str = "usr/lib/wsl/lib/libcuda.so.1";

    #[test]
    fn an_accelerator_that_is_seen_and_installed_is_served() {
        let found = choose("nvidia", &["dev/nvidia3", "dev/nvidia7", CUDA], &[]);
        assert_eq!(found, chosen("cuda", "`/dev/nvidia3` is there"));
        let found = choose("wsl", &["dev/dxg", LIBCUDA, CUDA], &[]);
        assert_eq!(found, chosen("cuda", "`/dev/dxg` is there"));
        let found = choose("amd", &["dev/kfd", "dev/dri/renderD128", ROCM], &[]);
        assert_eq!(found, chosen("rocm", "`/dev/kfd` is there"));
        let both = ["dev/nvidia0", "dev/kfd", "dev/dri/renderD128", ROCM];
        assert_eq!(
            choose("both", &both, &[]),
            chosen("rocm", "`/dev/kfd` is there"),
            "the one that has a plugin"
        );
    }

    #[test]
    fn a_machine_without_one_has_its_cpu_served() {
        let none = chosen("cpu", "no GPU is visible");
        assert_eq!(choose("bare", &[], &[]), none);
        // A driver without a device, a plugin without a driver, and Windows' Linux without NVIDIA.
        assert_eq!(choose("driver", &["dev/nvidiactl", CUDA], &[]), none);
        assert_eq!(choose("plugin", &[CUDA, ROCM], &[]), none);
        assert_eq!(choose("intel", &["dev/dxg", CUDA], &[]), none);
    }

    #[test]
    fn what_is_hidden_is_not_there() {
        let hidden = chosen("cpu", "CUDA_VISIBLE_DEVICES hides `/dev/nvidia0`");
        for list in ["", "-1", "-1,0"] {
            let variables = [("CUDA_VISIBLE_DEVICES", list)];
            assert_eq!(choose("hidden", &["dev/nvidia0", CUDA], &variables), hidden);
            assert_eq!(choose("hidden", &["dev/nvidia0"], &variables), hidden);
        }
        let shown = [("CUDA_VISIBLE_DEVICES", "1")];
        let found = choose("shown", &["dev/nvidia0", CUDA], &shown);
        assert_eq!(found, chosen("cuda", "`/dev/nvidia0` is there"));
    }

    #[test]
    fn one_without_its_plugin_is_not_replaced_by_the_cpu() {
        let refused = choose("refused", &["dev/nvidia0"], &[]).expect_err("nothing is guessed");
        for part in [
            "`/dev/nvidia0`",
            "pip install 'jax[cuda12]'",
            "--device cpu",
        ] {
            assert!(refused.to_string().contains(part), "{refused}");
        }
        let files = ["dev/kfd", "dev/dri/renderD128", CUDA];
        let refused = choose("amd-refused", &files, &[]).expect_err("nothing is guessed");
        assert!(refused.to_string().contains("jax-rocm"), "{refused}");
    }
}
