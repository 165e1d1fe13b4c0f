//! The cache's key: two programs are the same if source (wherever it was written), options, plugin,
//! kind of device and, where the plugin says so, versions of its driver and libraries are equal.

use std::fmt;
use std::path::Path;

use salus_formats::mlir;
use salus_wire::{Description, Wire};
use sha2::{Digest, Sha256};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key([u8; 32]);

/// What a compiled program depends on besides its source: the plugin's file and the device's kind.
#[derive(Debug, Clone)]
pub(crate) struct Platform(Vec<u8>);

impl Platform {
    pub(crate) fn of(description: &Description) -> Self {
        // Content hashing a plugin of several hundred MB at each start would cost seconds; size and
        // time of change tell two builds apart, and a wrong "different" costs one compilation.
        let file = std::fs::metadata(Path::new(&description.plugin_path)).ok();
        let size = file.as_ref().map_or(0, std::fs::Metadata::len);
        let changed = file
            .and_then(|file| file.modified().ok())
            .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok())
            .map_or(0, |since| since.as_nanos());
        let (major, minor) = description.api_version;
        let mut text = format!(
            "{}\0{}\0{}\0{major}.{minor}\0{size}\0{changed}",
            description.platform_name, description.platform_version, description.kind
        )
        .into_bytes();
        // On GPUs the target config, with numbers of the device and versions of what runs on it.
        let mut attributes = description.topology_attributes.clone();
        attributes.sort_by(|one, other| one.0.cmp(&other.0));
        attributes.put(&mut text);
        Self(text)
    }
}

impl Key {
    /// A program in MLIR is identified by its meaning, without the locations in it, if it can be parsed;
    /// any other by its bytes.
    pub(crate) fn of(platform: &Platform, format: &str, code: &[u8], options: &[u8]) -> Self {
        let meaning = (format == "mlir").then(|| mlir::digest(code)).flatten();
        // The form is part of the key, so that bytes that look like a digest are not taken for one.
        let (form, code) = match &meaning {
            Some(digest) => (b"meaning".as_slice(), digest.as_slice()),
            None => (b"bytes".as_slice(), code),
        };
        Self(Self::digest(&[
            b"salus program 5",
            &platform.0,
            format.as_bytes(),
            options,
            form,
            code,
        ]))
    }

    /// SHA-256 of a list of parts, each with its length before it.
    pub(crate) fn digest(parts: &[&[u8]]) -> [u8; 32] {
        let mut hash = Sha256::new();
        for part in parts {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.finalize().into()
    }

    /// Its first bytes: enough where a collision costs no more than a wrong guess.
    pub(crate) fn number(&self) -> u64 {
        self.0.iter().take(8).fold(0, |n, &b| n << 8 | u64::from(b))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_counts_and_none_runs_into_the_next() {
        let platform = Platform(b"cpu".to_vec());
        let key = |format, code, options| Key::of(&platform, format, code, options);
        let one = key("mlir", b"ab", b"c");
        assert_eq!(one, key("mlir", b"ab", b"c"));
        assert_ne!(one, key("mlir", b"a", b"bc"));
        assert_ne!(one, key("hlo", b"ab", b"c"));
        assert_ne!(
            one,
            Key::of(&Platform(b"cuda".to_vec()), "mlir", b"ab", b"c")
        );
    }

    #[test]
    fn what_the_device_says_of_itself_counts_in_whatever_order() {
        use salus_device::{Clock, Device, ScriptedConfig, ScriptedDevice};
        let device = ScriptedDevice::open(&ScriptedConfig {
            lanes: 1,
            capacity_bytes: 1 << 20,
            clock: Clock::Manual,
            on_host: false,
        });
        let key = |attributes: &[(&str, &str)]| {
            let attribute = |(name, text): &(&str, &str)| {
                ((*name).into(), salus_wire::Value::Text((*text).into()))
            };
            let mut description = device.description().clone();
            description.topology_attributes = attributes.iter().map(attribute).collect();
            Key::of(&Platform::of(&description), "mlir", b"ab", b"c")
        };
        let one = key(&[("target_config", "cuDNN 9.10"), ("x", "y")]);
        assert_ne!(one, key(&[("target_config", "cuDNN 9.11"), ("x", "y")]));
        assert_eq!(one, key(&[("x", "y"), ("target_config", "cuDNN 9.10")]));
    }

    #[test]
    fn where_a_program_was_written_counts_only_if_it_is_not_mlir() {
        let here = include_bytes!("../../../../../formats/corpus/mlir/scale.mlirbc");
        let there = include_bytes!("../../../../../formats/corpus/mlir/scale_moved.mlirbc");
        let other = include_bytes!("../../../../../formats/corpus/mlir/loop.mlirbc");
        let platform = Platform(b"cpu".to_vec());
        let key = |format, code: &[u8]| Key::of(&platform, format, code, b"");
        assert_eq!(key("mlir", here), key("mlir", there));
        assert_ne!(key("mlir", here), key("mlir", other));
        assert_ne!(key("hlo", here), key("hlo", there));
        let meaning = mlir::digest(here).expect("understood");
        assert_ne!(key("mlir", here), key("mlir", &meaning));
    }
}
