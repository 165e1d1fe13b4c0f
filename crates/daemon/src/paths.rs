//! Where things lie: the socket, the private directory of a user, the cache, the configuration.
//!
//! Every command asks here, and the job's side (adaptor and Python module) looks in the same order,
//! so that a job finds the service that was started for it.
//!
//! Promise: a directory that we use under the shared temporary directory is a real one, belongs to
//! this user and is open to nobody else; a socket that was not named by the user is only taken from
//! this user or from root.
//! Not here: creating or locking the socket (`supervisor/endpoint.rs`).

use std::env;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::config::Problem;

/// The socket of a service for the whole machine.
pub const SYSTEM_SOCKET: &str = "/run/salus/salus.sock";
/// The socket's name inside its directory.
const SOCKET_NAME: &str = "salus.sock";
/// The kernel's limit for a socket's path (`sun_path`), its closing zero not counted.
pub const SOCKET_PATH_BYTES: usize = 107;

/// What the environment says about places. Read once, so that tests can make it up.
#[derive(Debug, Clone, Default)]
pub struct Places {
    pub uid: u32,
    /// `SALUS_SOCKET`.
    pub socket: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`.
    pub runtime: Option<PathBuf>,
    /// `TMPDIR`, else `/tmp`.
    pub temporary: PathBuf,
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
        // An empty variable counts as unset, as the XDG specification has it.
        let var = |name| {
            env::var_os(name)
                .filter(|v| !v.is_empty())
                .map(PathBuf::from)
        };
        let in_home = |below: &str| var("HOME").map(|home| home.join(below));
        Self {
            uid: rustix::process::geteuid().as_raw(),
            socket: var("SALUS_SOCKET"),
            runtime: var("XDG_RUNTIME_DIR"),
            temporary: var("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp")),
            cache: var("SALUS_CACHE_DIR"),
            user_cache: var("XDG_CACHE_HOME").or_else(|| in_home(".cache")),
            config: var("SALUS_CONFIG"),
            user_config: var("XDG_CONFIG_HOME").or_else(|| in_home(".config")),
        }
    }

    /// This user's own directory for what lives as long as a login: socket, log, lock.
    pub fn private_dir(&self) -> PathBuf {
        match &self.runtime {
            Some(runtime) => runtime.join("salus"),
            None => self.private_temporary(),
        }
    }

    fn private_temporary(&self) -> PathBuf {
        self.temporary.join(format!("salus-{}", self.uid))
    }

    /// Where a service of this user listens if nothing else is said.
    pub fn default_socket(&self) -> PathBuf {
        self.private_dir().join(SOCKET_NAME)
    }

    /// Where a command or a job looks for a service, in this order.
    pub fn candidates(&self) -> Vec<PathBuf> {
        if let Some(named) = &self.socket {
            return vec![named.clone()];
        }
        let mut all = vec![
            self.default_socket(),
            self.private_temporary().join(SOCKET_NAME),
            PathBuf::from(SYSTEM_SOCKET),
        ];
        all.dedup();
        all
    }

    /// The socket to speak to: the one that was named, else the first that exists and is ours or
    /// root's. Somebody else's in a shared directory is passed over: a stranger must not be offered
    /// a job's data.
    pub fn socket_to_use(&self, named: Option<&Path>) -> Option<PathBuf> {
        if let Some(path) = named.or(self.socket.as_deref()) {
            return Some(path.to_owned());
        }
        self.candidates()
            .into_iter()
            .find(|path| self.is_ours(path))
    }

    /// Whether a socket is there that belongs to this user or to root.
    pub fn is_ours(&self, socket: &Path) -> bool {
        fs::metadata(socket).is_ok_and(|found| {
            found.file_type().is_socket() && [0, self.uid].contains(&found.uid())
        })
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
            (None, None) => self.private_temporary().join("cache"),
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
        // Ours, so it may be closed to the others; the umask of whoever made it let them in.
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
    let bytes = path.as_os_str().len();
    if bytes <= SOCKET_PATH_BYTES {
        return Ok(());
    }
    Err(Problem::new(format!(
        "the socket's path has {bytes} bytes, and {SOCKET_PATH_BYTES} is the system's limit: `{}`",
        path.display()
    ))
    .hint("name a shorter one with `--socket` or SALUS_SOCKET"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places() -> Places {
        Places {
            uid: 1000,
            temporary: PathBuf::from("/tmp"),
            ..Places::default()
        }
    }

    fn strings(paths: Vec<PathBuf>) -> Vec<String> {
        paths
            .into_iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    /// A directory of this test alone.
    fn scratch(name: &str) -> PathBuf {
        let dir = env::temp_dir().join(format!("salus-paths-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("the temporary directory can be written");
        dir
    }

    #[test]
    fn a_service_is_looked_for_with_this_user_first_and_the_system_last() {
        assert_eq!(
            strings(places().candidates()),
            ["/tmp/salus-1000/salus.sock", "/run/salus/salus.sock"]
        );
        let with_runtime = Places {
            runtime: Some("/run/user/1000".into()),
            ..places()
        };
        assert_eq!(
            strings(with_runtime.candidates()),
            [
                "/run/user/1000/salus/salus.sock",
                "/tmp/salus-1000/salus.sock",
                "/run/salus/salus.sock"
            ]
        );
    }

    #[test]
    fn a_named_socket_is_the_only_candidate() {
        let named = Places {
            socket: Some("/srv/s.sock".into()),
            runtime: Some("/run/user/1000".into()),
            ..places()
        };
        assert_eq!(strings(named.candidates()), ["/srv/s.sock"]);
        assert_eq!(named.socket_to_use(None), Some("/srv/s.sock".into()));
        assert_eq!(
            named.socket_to_use(Some(Path::new("/x"))),
            Some("/x".into())
        );
    }

    #[test]
    fn a_file_that_is_no_socket_is_not_taken_for_a_service() {
        let dir = scratch("file");
        let here = Places {
            uid: rustix::process::geteuid().as_raw(),
            runtime: Some(dir.clone()),
            temporary: dir.clone(),
            ..Places::default()
        };
        fs::create_dir(dir.join("salus")).expect("made");
        fs::write(here.default_socket(), "").expect("written");
        let found = here.socket_to_use(None);
        assert!(found.is_none_or(|path| path == Path::new(SYSTEM_SOCKET)));
        fs::remove_dir_all(dir).expect("removed");
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
    fn a_socket_path_that_the_kernel_would_cut_is_refused_with_both_numbers() {
        let long = PathBuf::from(format!("/tmp/{}", "x".repeat(120)));
        let refused = check_socket_length(&long).expect_err("too long");
        assert!(
            refused
                .what
                .starts_with("the socket's path has 125 bytes, and 107 is the system's limit"),
            "{}",
            refused.what
        );
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
