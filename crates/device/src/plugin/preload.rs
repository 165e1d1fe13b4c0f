//! Libraries that a GPU's plugin expects to be in the process already.
//!
//! NVIDIA's wheels put theirs into folders beside the plugin that no loader looks into, and some of them
//! open each other by bare names (cuDNN opens nvrtc). JAX's own plugin package opens them first; whoever
//! opens the plugin without it must do the same. What is not there may be on the system's own path, where
//! the loader finds it.

use std::path::{Path, PathBuf};

use salus_pjrt::Library;

/// In an order in which each finds those that it is linked to.
const NVIDIA: &[&str] = &[
    "cudart",
    "nvrtc",
    "nvJitLink",
    "cublasLt",
    "cublas",
    "cupti",
    "cufft",
    "cusparse",
    "cusolver",
    "cudnn",
    "nccl",
    "nvshmem_host",
];

/// Opens the libraries that are installed beside the plugin. Returns what could not be opened, in words;
/// programs that need none of it run without.
pub fn preload(plugin: &Path) -> Vec<String> {
    let found = beside(plugin);
    found
        .iter()
        .filter_map(|path| Library::open(path, "the library").err())
        .map(|error| error.message)
        .collect()
}

/// `nvidia/*/lib` of the `site-packages` that the plugin is in.
fn beside(plugin: &Path) -> Vec<PathBuf> {
    let plugin = plugin.canonicalize().unwrap_or_else(|_| plugin.to_owned());
    let folders = plugin
        .ancestors()
        .skip(1)
        .find_map(|parent| std::fs::read_dir(parent.join("nvidia")).ok());
    let folders = folders.into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = folders
        .filter_map(|folder| std::fs::read_dir(folder.path().join("lib")).ok())
        .flat_map(|files| files.flatten().map(|file| file.path()))
        .collect();
    files.sort();
    let named = |name: &str| {
        let prefix = format!("lib{name}.so.");
        let is_it = move |path: &&PathBuf| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            file.strip_prefix(&prefix)
                .is_some_and(|version| version.parse::<u32>().is_ok())
        };
        files.iter().find(is_it).cloned()
    };
    NVIDIA.iter().filter_map(|name| named(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_beside_the_plugin_are_found_in_order() {
        let site = std::env::temp_dir().join(format!("salus-preload-{}", std::process::id()));
        let file = |path: &str| {
            let file = site.join(path);
            std::fs::create_dir_all(file.parent().expect("below")).expect("writable");
            std::fs::write(&file, "").expect("writable");
            file
        };
        let plugin = file("jax_plugins/xla_cuda12/xla_cuda_plugin.so");
        let cudnn = file("nvidia/cudnn/lib/libcudnn.so.9");
        file("nvidia/cudnn/lib/libcudnn_graph.so.9");
        let nvrtc = file("nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
        file("nvidia/cuda_nvrtc/lib/libnvrtc.alt.so.12");
        let cublas = file("nvidia/cublas/lib/libcublas.so.12");
        let found = beside(&plugin);
        let failed = preload(&plugin);
        std::fs::remove_dir_all(&site).expect("it is ours");
        assert_eq!(found, [nvrtc.clone(), cublas, cudnn]);
        assert_eq!(failed.len(), 3, "empty files are no libraries: {failed:?}");
        assert!(failed[0].contains(&*nvrtc.to_string_lossy()), "{failed:?}");
        assert!(beside(Path::new("/nowhere/plugin.so")).is_empty());
    }
}
