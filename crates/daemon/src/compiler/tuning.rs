//! What was measured on the device is kept below the cache directory, so that no fusion is measured twice,
//! whichever program it is in.
//!
//! Promise: the directory stays small; a directory that cannot be used costs time, never a job.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use salus_device::{Compiled, Device, Source};
use salus_formats::options::{self, Override};
use salus_wire::Error;

use crate::log;

/// XLA's option for it. No job may set it: it is a path.
const OPTION: &str = "xla_gpu_per_fusion_autotune_cache_dir";
/// Files of some hundred bytes; a large model has some hundred fusions.
const FILES_MAX: usize = 16384;

pub(super) struct Results {
    directory: Option<PathBuf>,
}

impl Results {
    pub(super) fn open(cache: &Path) -> Self {
        let directory = cache.join("autotune");
        let made = DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory);
        if let Err(e) = &made {
            log::warn(format_args!(
                "what is measured on the device is not kept: {}: {e}",
                directory.display()
            ));
        }
        Self {
            directory: made.ok().map(|()| directory),
        }
    }

    /// Compiles with what is known, and keeps what is found out.
    pub(super) fn compile<D: Device>(
        &self,
        device: &D,
        source: &Source<'_>,
    ) -> Result<Compiled, Error> {
        let path = self.directory.as_deref().and_then(Path::to_str);
        let Some(path) = path else {
            return device.compile(source);
        };
        bound(Path::new(path), FILES_MAX);
        let options = options::with_overrides(source.options, &[(OPTION, Override::Text(path))]);
        device.compile(&Source {
            options: &options,
            ..*source
        })
    }
}

/// Begins anew when there are too many: which of them are still used, nobody knows.
fn bound(directory: &Path, most: usize) {
    let files = || std::fs::read_dir(directory).into_iter().flatten().flatten();
    if files().count() > most {
        for file in files() {
            let _ = std::fs::remove_file(file.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_is_emptied_when_it_has_grown_too_large() {
        let cache = tempfile::tempdir().expect("a temporary directory");
        let results = Results::open(cache.path());
        let directory = results.directory.expect("it can be made");
        assert_eq!(directory, cache.path().join("autotune"));
        for n in 0..3 {
            std::fs::write(directory.join(n.to_string()), "").expect("writable");
        }
        let count = || std::fs::read_dir(&directory).expect("there").count();
        bound(&directory, 3);
        assert_eq!(count(), 3);
        bound(&directory, 2);
        assert_eq!(count(), 0);
        assert!(Results::open(Path::new("/proc/none")).directory.is_none());
    }
}
