//! The cache on disk: one file per program, bounded, written whole or not at all.
//!
//! Promise: a damaged or half-written entry is a miss, never a program; a full or unwritable disk
//! costs compilations, never a job.
//! Not here: trust in what is found. The directory must belong to the service's user and be closed
//! to others, because loading an executable runs its machine code.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::SystemTime;

use salus_channel::lock;
use salus_wire::{Reader, StoredProgram, Wire};
use sha2::{Digest, Sha256};

use super::Key;
use crate::log;

const MAGIC: &[u8; 16] = b"salus-compiled1\n";
const DIGEST_BYTES: usize = 32;

#[derive(Debug)]
pub(crate) struct Disk {
    directory: Option<PathBuf>,
    limit_bytes: u64,
    usage: Mutex<DiskUsage>,
}

#[derive(Debug, Default)]
struct DiskUsage {
    bytes: u64,
    /// That the disk cannot be written is logged once, not for every program.
    warned: bool,
}

impl Disk {
    /// Opens the directory, making it if needed. If that fails, logs why and goes on without a disk.
    pub(crate) fn open(directory: &Path, limit_bytes: u64) -> Self {
        let prepared = prepare(directory);
        let directory = match prepared {
            Ok(()) => Some(directory.to_owned()),
            Err(e) => {
                log::warn(format_args!(
                    "compiled programs are not kept on disk: {}: {e}",
                    directory.display()
                ));
                None
            }
        };
        let disk = Self {
            directory,
            limit_bytes,
            usage: Mutex::default(),
        };
        let bytes = disk.entries().iter().map(|entry| entry.bytes).sum();
        lock(&disk.usage).bytes = bytes;
        disk.shrink();
        disk
    }

    pub(crate) fn get(&self, key: &Key) -> Option<StoredProgram> {
        let path = self.path(key)?;
        let bytes = fs::read(&path).ok()?;
        let program = decode(&bytes);
        if program.is_none() {
            let at = path.display();
            log::warn(format_args!("{at} is damaged and is compiled anew"));
            let _ = fs::remove_file(&path);
        } else if let Ok(file) = fs::File::open(&path) {
            // The time of change is the time of the last use: the oldest is removed first.
            let _ = file.set_modified(SystemTime::now());
        }
        program
    }

    pub(crate) fn put(&self, key: &Key, program: &StoredProgram) {
        let Some(path) = self.path(key) else { return };
        let bytes = encode(program);
        if bytes.len() as u64 > self.limit_bytes {
            return;
        }
        match write_whole(&path, &bytes) {
            Ok(()) => {
                let mut usage = lock(&self.usage);
                usage.bytes += bytes.len() as u64;
                let over = usage.bytes > self.limit_bytes;
                drop(usage);
                if over {
                    self.shrink();
                }
            }
            Err(e) => self.warn(&path, &e),
        }
    }

    fn warn(&self, path: &Path, error: &io::Error) {
        let mut usage = lock(&self.usage);
        if !std::mem::replace(&mut usage.warned, true) {
            log::warn(format_args!(
                "a compiled program could not be kept at {}: {error}; jobs go on, and later ones \
                 compile again. Free some space or set [cache] directory",
                path.display()
            ));
        }
    }

    /// Removes the least recently used entries until nine tenths of the limit are left.
    fn shrink(&self) {
        let mut entries = self.entries();
        let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        if bytes > self.limit_bytes {
            entries.sort_by_key(|entry| entry.used);
            for entry in entries {
                if bytes <= self.limit_bytes / 10 * 9 {
                    break;
                }
                if fs::remove_file(&entry.path).is_ok() {
                    bytes -= entry.bytes;
                }
            }
        }
        lock(&self.usage).bytes = bytes;
    }

    fn entries(&self) -> Vec<Entry> {
        let Some(directory) = &self.directory else {
            return Vec::new();
        };
        let Ok(listing) = fs::read_dir(directory) else {
            return Vec::new();
        };
        listing
            .flatten()
            .filter_map(|item| {
                let meta = item.metadata().ok()?;
                let used = meta.modified().ok()?;
                meta.is_file().then(|| Entry {
                    path: item.path(),
                    bytes: meta.len(),
                    used,
                })
            })
            .collect()
    }

    fn path(&self, key: &Key) -> Option<PathBuf> {
        Some(self.directory.as_ref()?.join(format!("{key}.program")))
    }
}

struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

fn prepare(directory: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)?;
    let meta = fs::metadata(directory)?;
    let ours = rustix::process::geteuid().as_raw();
    if meta.uid() != ours {
        return Err(io::Error::other(format!(
            "it belongs to user {}, and the service runs as user {ours}",
            meta.uid()
        )));
    }
    if meta.permissions().mode() & 0o022 != 0 {
        return Err(io::Error::other("others may write to it; `chmod go-w` it"));
    }
    Ok(())
}

/// Writes under another name first, so that neither a reader nor a crash leaves half a file.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.part", std::process::id()));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn encode(program: &StoredProgram) -> Vec<u8> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&[0; DIGEST_BYTES]);
    program.put(&mut out);
    let digest = Sha256::digest(&out[MAGIC.len() + DIGEST_BYTES..]);
    out[MAGIC.len()..MAGIC.len() + DIGEST_BYTES].copy_from_slice(&digest);
    out
}

fn decode(bytes: &[u8]) -> Option<StoredProgram> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (digest, body) = rest.split_at_checked(DIGEST_BYTES)?;
    if digest != Sha256::digest(body).as_slice() {
        return None;
    }
    StoredProgram::take(&mut Reader::new(body), 0).ok()
}

#[cfg(test)]
mod tests {
    use super::super::Platform;
    use super::*;

    fn program(fill: u8) -> StoredProgram {
        StoredProgram {
            signature: Default::default(),
            executable: vec![fill; 1000],
        }
    }

    fn key(n: u8) -> Key {
        let description = salus_wire::Description {
            platform_name: "test".into(),
            platform_version: String::new(),
            kind: String::new(),
            debug_string: String::new(),
            display_string: String::new(),
            local_hardware_id: 0,
            plugin_attributes: vec![],
            device_attributes: vec![],
            memories: vec![],
            default_memory: 0,
            lanes: 1,
            capacity_bytes: 0,
            on_host: true,
            plugin_path: String::new(),
            api_version: (0, 81),
            serialized_topology: None,
            topology_attributes: Vec::new(),
        };
        Key::of(&Platform::of(&description), "mlir", &[n], b"")
    }

    #[test]
    fn what_was_put_is_found_by_another_start() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Disk::open(dir.path(), 1 << 20).put(&key(1), &program(7));
        let again = Disk::open(dir.path(), 1 << 20);
        assert_eq!(again.get(&key(1)), Some(program(7)));
        assert_eq!(again.get(&key(2)), None);
    }

    #[test]
    fn a_damaged_entry_is_a_miss_and_is_removed() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::open(dir.path(), 1 << 20);
        disk.put(&key(1), &program(7));
        let path = disk.path(&key(1)).expect("a directory");
        let mut bytes = fs::read(&path).expect("the entry");
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        fs::write(&path, &bytes).expect("writable");
        assert_eq!(disk.get(&key(1)), None);
        assert!(!path.exists());
    }

    #[test]
    fn the_least_recently_used_goes_first() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let disk = Disk::open(dir.path(), 3500);
        for n in 1..=3 {
            disk.put(&key(n), &program(n));
            let file = fs::File::open(disk.path(&key(n)).expect("a directory")).expect("there");
            let age = std::time::Duration::from_secs(100 - u64::from(n));
            file.set_modified(SystemTime::now() - age)
                .expect("settable");
        }
        assert!(disk.get(&key(1)).is_some(), "a use makes it the youngest");
        disk.put(&key(4), &program(4));
        assert!(disk.get(&key(2)).is_none(), "the oldest use is gone");
        assert!(disk.get(&key(1)).is_some() && disk.get(&key(4)).is_some());
    }

    #[test]
    fn a_directory_that_others_may_write_to_is_not_trusted() {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        let disk = Disk::open(dir.path(), 1 << 20);
        disk.put(&key(1), &program(7));
        assert_eq!(disk.get(&key(1)), None);
    }
}
