//! The socket that jobs and commands connect to, and the lock that makes it one service's own.
//!
//! The lock is an advisory one on a file beside the socket. It ends with the process that holds it,
//! however that ends, so that a socket found under the lock is a dead service's and is removed.
//!
//! Promise: two services never listen on one path; the socket is gone after a clean end; nothing
//! but a socket is ever removed.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::closing::keep_descriptors_out;
use crate::config::Problem;
use crate::paths::check_socket_length;

/// Connections that the kernel keeps for us while we are busy; it caps this to its own limit.
const BACKLOG: i32 = 1024;

/// A listening socket under its lock.
#[derive(Debug)]
pub(super) struct Endpoint {
    path: PathBuf,
    listener: UnixListener,
    /// Device and inode of our socket: only that one is removed.
    identity: (u64, u64),
    _lock: File,
}

impl Endpoint {
    /// Listens at `path`. Credentials decide who is served; `wide` says that the file's mode may
    /// let everybody connect.
    pub(super) fn open(path: &Path, wide: bool) -> Result<Self, Problem> {
        check_socket_length(path)?;
        if let Some(dir) = path.parent() {
            let made = fs::DirBuilder::new()
                .mode(if wide { 0o755 } else { 0o700 })
                .recursive(true)
                .create(dir);
            made.map_err(|e| cannot("make the directory", dir, &e))?;
        }
        let lock = lock(path)?;
        remove_stale(path)?;
        let listener = bind(path).map_err(|e| cannot("listen at", path, &e))?;
        // Older kernels cannot; then the closer has more to do.
        let _ = keep_descriptors_out(&listener);
        let mode = if wide { 0o666 } else { 0o600 };
        let identity = fs::set_permissions(path, Permissions::from_mode(mode))
            .and_then(|()| listener.set_nonblocking(true))
            .and_then(|()| fs::symlink_metadata(path))
            .map(|found| (found.dev(), found.ino()))
            .map_err(|e| cannot("listen at", path, &e))?;
        Ok(Self {
            path: path.to_owned(),
            listener,
            identity,
            _lock: lock,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The next connection, if one waits.
    pub(super) fn accept(&self) -> io::Result<Option<UnixStream>> {
        match self.listener.accept() {
            Ok((stream, _)) => Ok(Some(stream)),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(None),
            // The peer went away while it waited, or a signal came: not the listener's trouble.
            Err(e)
                if matches!(
                    e.kind(),
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                ) =>
            {
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }
}

impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|found| (found.dev(), found.ino()) == self.identity);
        if ours {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The lock's file: beside the socket, and left there, because removing a lock that another process
/// is about to take would give two of them out.
fn lock_path(socket: &Path) -> PathBuf {
    let mut name = socket.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn lock(socket: &Path) -> Result<File, Problem> {
    let path = lock_path(socket);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(&path)
        .map_err(|e| cannot("open the lock", &path, &e))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(taken(socket, &mut file)),
        Err(TryLockError::Error(e)) => return Err(cannot("lock", &path, &e)),
    }
    // For the message above; the lock itself does not need it.
    let _ = file.set_len(0);
    let _ = writeln!(file, "{}", std::process::id());
    Ok(file)
}

fn taken(socket: &Path, lock: &mut File) -> Problem {
    // A process id has few digits; anything else in the file is not printed.
    let mut text = String::new();
    let _ = lock.take(32).read_to_string(&mut text);
    let holder = match text.trim().parse::<u32>() {
        Ok(pid) => format!("a service (pid {pid})"),
        Err(_) => "a service".into(),
    };
    let at = socket.display();
    Problem::new(format!("{holder} runs already at `{at}`")).hint(format!(
        "`salus stop --socket {at}` ends it; `--socket` chooses another place"
    ))
}

/// Whether a service holds the lock of this socket, listening already or about to.
pub fn is_locked(socket: &Path) -> bool {
    File::open(lock_path(socket))
        .is_ok_and(|file| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// Called under the lock, so that whatever socket is there has no owner.
fn remove_stale(path: &Path) -> Result<(), Problem> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(cannot("look at", path, &e)),
        Ok(found) if found.file_type().is_socket() => {
            fs::remove_file(path).map_err(|e| cannot("remove the stale socket", path, &e))
        }
        Ok(_) => Err(
            Problem::new(format!("`{}` is there and is not a socket", path.display()))
                .hint("remove it, or choose another place with `--socket`"),
        ),
    }
}

fn bind(path: &Path) -> io::Result<UnixListener> {
    let socket = net::socket_with(
        AddressFamily::UNIX,
        SocketType::STREAM,
        SocketFlags::CLOEXEC,
        None,
    )?;
    // Linux gives the file the socket's own mode: there is no moment at which others could connect
    // to a service that is not for them, and the umask of the whole process stays as it is.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(0o600))?;
    net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn cannot(verb: &str, path: &Path, error: &io::Error) -> Problem {
    Problem::new(format!("cannot {verb} `{}`: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("salus-end-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir(&dir).expect("the temporary directory can be written");
        dir
    }

    #[test]
    fn a_second_service_is_told_who_runs_and_how_to_stop_it() {
        let dir = scratch("two");
        let path = dir.join("s.sock");
        let first = Endpoint::open(&path, false).expect("nobody is there");
        assert!(is_locked(&path));
        let problem = Endpoint::open(&path, false).expect_err("it is taken");
        let pid = std::process::id();
        let at = path.display();
        assert_eq!(
            problem.what,
            format!("a service (pid {pid}) runs already at `{at}`")
        );
        assert_eq!(
            problem.hint,
            Some(format!(
                "`salus stop --socket {at}` ends it; `--socket` chooses another place"
            ))
        );
        UnixStream::connect(&path).expect("the first one still listens");
        drop(first);
        assert!(!path.exists() && !is_locked(&path));
        fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn a_dead_services_socket_is_replaced_and_a_file_is_not() {
        let dir = scratch("stale");
        let path = dir.join("s.sock");
        drop(UnixListener::bind(&path).expect("bound"));
        assert!(
            path.exists(),
            "std leaves the file, as a killed service does"
        );
        let live = Endpoint::open(&path, true).expect("the stale one is removed");
        UnixStream::connect(&path).expect("it listens");
        let mode = fs::metadata(&path).expect("there").mode() & 0o777;
        assert_eq!(mode, 0o666);
        drop(live);
        fs::write(&path, "precious").expect("written");
        let problem = Endpoint::open(&path, false).expect_err("not a socket");
        assert_eq!(
            problem.what,
            format!("`{}` is there and is not a socket", path.display())
        );
        fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn only_our_own_socket_is_removed_at_the_end() {
        let dir = scratch("other");
        let path = dir.join("s.sock");
        let endpoint = Endpoint::open(&path, false).expect("nobody is there");
        fs::remove_file(&path).expect("somebody tidies up");
        let other = UnixListener::bind(&path).expect("and listens there");
        drop(endpoint);
        assert!(path.exists());
        drop(other);
        fs::remove_dir_all(dir).expect("removed");
    }
}
