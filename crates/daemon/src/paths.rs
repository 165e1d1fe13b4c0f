//! Where things are: the private directory of a user, the cache, the configuration.
//!
//! Promise: a directory that we use under the shared temporary directory is a real one, belongs to
//! this user and is open to nobody else.
//! Not here: where a service's socket is looked for (`salus_channel::endpoint`), creating or locking it
//! (`supervisor/endpoint.rs`).

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use salus_channel::endpoint::{self, Search, path_in};
use salus_wire::env;

use crate::config::Problem;

/// What the environment says about places. Read once, so that tests can make it up.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// Where sockets are looked for, and this user's own directory for them.
    pub sockets: Search,
    /// `SALUS_CACHE_DIR`.
    pub cache: Option<PathBuf>,
    /// `XDG_CACHE_HOME`, else `~/.cache`.
    pub user_cache: Option<PathBuf>,
    /// `SALUS_CONFIG`.
    pub config: Option<PathBuf>,
    /// `XDG_CONFIG_HOME`, else `~/.config`.
    pub user_config: Option<PathBuf>,
}

impl Places {
    pub fn of_this_process() -> Self {
        let in_home = |below: &str| path_in("HOME").map(|home| home.join(below));
        Self {
            sockets: Search::of_this_process(),
            cache: path_in(env::CACHE_DIR),
            user_cache: path_in(env::XDG_CACHE_HOME).or_else(|| in_home(".cache")),
            config: path_in(env::CONFIG),
            user_config: path_in(env::XDG_CONFIG_HOME).or_else(|| in_home(".config")),
        }
    }

    /// This user's own directory for what lives as long as a login: socket, log, lock.
    pub fn private_dir(&self) -> PathBuf {
        self.sockets.private_dir()
    }

    /// Where the configuration is looked for if it was not named, in this order.
    pub fn config_files(&self) -> Vec<PathBuf> {
        let user = self.user_config.iter().map(|d| d.join("salus/salus.toml"));
        user.chain([PathBuf::from("/etc/salus/salus.toml")])
            .collect()
    }

    pub fn default_cache_dir(&self) -> PathBuf {
        match (&self.cache, &self.user_cache) {
            (Some(named), _) => named.clone(),
            (None, Some(user)) => user.join("salus"),
            // No home directory: the cache lasts as long as the temporary directory does.
            (None, None) => self.sockets.private_temporary().join("cache"),
        }
    }
}

/// Makes `dir` if it is missing, and refuses it unless it is ours alone.
pub fn ensure_private_dir(dir: &Path, uid: u32) -> Result<(), Problem> {
    match fs::DirBuilder::new()
        .mode(0o700)
        .recursive(false)
        .create(dir)
    {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        Err(e) => {
            return Err(Problem::new(format!(
                "the directory `{}` cannot be made: {e}",
                dir.display()
            ))
            .hint("name a socket elsewhere with `--socket` or SALUS_SOCKET"));
        }
    }
    // Not followed: in a shared directory a symbolic link may be somebody else's trap.
    let found = fs::symlink_metadata(dir)
        .map_err(|e| Problem::new(format!("`{}` cannot be looked at: {e}", dir.display())))?;
    let why = if !found.is_dir() {
        "is not a directory".to_owned()
    } else if found.uid() != uid {
        format!("belongs to user {}, and this is user {uid}", found.uid())
    } else {
        // Ours, so it may be closed to the others; the umask under which it was made let them in.
        if found.mode() & 0o077 != 0 {
            fs::set_permissions(dir, fs::Permissions::from_mode(0o700)).map_err(|e| {
                Problem::new(format!(
                    "`{}` cannot be closed to other users: {e}",
                    dir.display()
                ))
            })?;
        }
        return Ok(());
    };
    Err(Problem::new(format!("`{}` {why}", dir.display()))
        .hint("remove it if you can, or name a socket elsewhere with `--socket` or SALUS_SOCKET"))
}

/// A path that stays right after a change of directory.
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Refuses a path that the kernel would cut off.
pub fn check_socket_length(path: &Path) -> Result<(), Problem> {
    endpoint::check_length(path).map_err(|why| {
        Problem::new(format!("no socket can be at `{}`: {why}", path.display()))
            .hint("name a shorter one with `--socket` or SALUS_SOCKET")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places {
            sockets: Search {
                uid: 1000,
                temporary: PathBuf::from("/tmp"),
                ..Search::default()
            },
            ..Places::default()
        }
    }

    /// A directory of this test alone.
    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("salus-paths-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("the temporary directory can be written");
        dir
    }

    #[test]
    fn a_private_directory_is_made_closed_and_a_link_refused() {
        let uid = rustix::process::geteuid().as_raw();
        let dir = scratch("private");
        let made = dir.join("made");
        ensure_private_dir(&made, uid).expect("it is ours");
        fs::set_permissions(&made, fs::Permissions::from_mode(0o755)).expect("ours");
        ensure_private_dir(&made, uid).expect("it is ours still");
        let mode = fs::metadata(&made).expect("there").mode();
        assert_eq!(mode & 0o777, 0o700);

        let link = dir.join("link");
        std::os::unix::fs::symlink(&made, &link).expect("made");
        let refused = ensure_private_dir(&link, uid).expect_err("a link is a trap");
        assert_eq!(
            refused.what,
            format!("`{}` is not a directory", link.display())
        );
        let refused = ensure_private_dir(&made, uid + 1).expect_err("somebody else's");
        assert!(refused.what.contains("belongs to user"), "{}", refused.what);
        fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn the_cache_goes_where_it_was_told_or_into_the_users_own() {
        let home = Places {
            user_cache: Some("/home/anna/.cache".into()),
            ..places()
        };
        assert_eq!(
            home.default_cache_dir(),
            Path::new("/home/anna/.cache/salus")
        );
        let told = Places {
            cache: Some("/fast/salus".into()),
            ..home
        };
        assert_eq!(told.default_cache_dir(), Path::new("/fast/salus"));
        assert_eq!(
            places().default_cache_dir(),
            Path::new("/tmp/salus-1000/cache")
        );
    }
}
