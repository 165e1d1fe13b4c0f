//! How a service's socket is found: one rule for jobs, commands and JAX's plugin.
//!
//! A socket that somebody named (`SALUS_SOCKET`, `--socket`, a client's option) is used, of
//! any user: they chose whom to trust. Otherwise the first of these is used that is a socket of this
//! user or of root at which somebody listens: `$XDG_RUNTIME_DIR/salus/salus.sock`,
//! `$TMPDIR/salus-<uid>/salus.sock` (`/tmp` without `TMPDIR`), `/run/salus/salus.sock`.
//!
//! Promise: a socket that nobody named is used only if it belongs to this user or to root, and so does
//! the process that listens: anyone may make a directory of that name in a shared one, and a job's data
//! must not be offered to a stranger. Nothing is sent to a socket that is not used. No call waits longer
//! than its deadline.
//! Not here: making the socket (the supervisor), the first frame.

use std::fmt;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout, socket_peercred};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use salus_wire::env;

/// The socket of a service for the whole machine.
pub const SYSTEM_SOCKET: &str = "/run/salus/salus.sock";
/// The socket's name inside its directory.
const SOCKET_NAME: &str = "salus.sock";
/// The kernel's limit for a socket's path (`sun_path`), its closing zero not counted.
pub const PATH_BYTES_MAX: usize = 107;

/// What the environment says about where to look. Read once, so that tests can make it up.
#[derive(Debug, Clone, Default)]
pub struct Search {
    pub uid: u32,
    /// `SALUS_SOCKET`.
    pub named: Option<PathBuf>,
    /// `XDG_RUNTIME_DIR`.
    pub runtime: Option<PathBuf>,
    /// `TMPDIR`, else `/tmp`.
    pub temporary: PathBuf,
}

/// A service that may be spoken to.
#[derive(Debug)]
pub struct Connected {
    pub path: PathBuf,
    pub socket: OwnedFd,
}

/// Why there is no service to speak to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotFound {
    /// The socket that was named cannot be used, or somebody else listens at one that looks like ours.
    At(PathBuf, Unusable),
    /// None of the usual places has one.
    Nowhere(Vec<(PathBuf, Unusable)>),
}

/// Why a socket cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unusable {
    /// There is nothing, or something that is no socket.
    Missing,
    /// Nobody listens any more.
    Abandoned,
    /// It is somebody else's, and was not named.
    Foreign {
        owner: u32,
    },
    /// It is ours, and the process that listens is somebody else's.
    Impostor {
        user: u32,
    },
    Denied(Errno),
    /// It accepted no connection in time.
    Busy,
    TooLong {
        bytes: usize,
    },
    Broken(Errno),
}

impl Search {
    pub fn of_this_process() -> Self {
        Self {
            uid: this_user(),
            named: path_in(env::SOCKET),
            runtime: path_in(env::XDG_RUNTIME_DIR),
            temporary: path_in("TMPDIR").unwrap_or_else(|| PathBuf::from("/tmp")),
        }
    }

    /// This user's own directory for what lives as long as a login: socket, log, lock.
    pub fn private_dir(&self) -> PathBuf {
        match &self.runtime {
            Some(runtime) => runtime.join("salus"),
            None => self.private_temporary(),
        }
    }

    /// The same where there is no `XDG_RUNTIME_DIR`.
    pub fn private_temporary(&self) -> PathBuf {
        self.temporary.join(format!("salus-{}", self.uid))
    }

    /// Where a service of this user listens if nothing else is said.
    pub fn default_socket(&self) -> PathBuf {
        self.private_dir().join(SOCKET_NAME)
    }

    /// Where to look if no socket is named, in this order.
    pub fn candidates(&self) -> Vec<PathBuf> {
        let mut all = vec![
            self.default_socket(),
            self.private_temporary().join(SOCKET_NAME),
            PathBuf::from(SYSTEM_SOCKET),
        ];
        all.dedup();
        all
    }

    /// The places that [`Self::connect`] tries.
    pub fn places(&self, chosen: Option<&Path>) -> Vec<PathBuf> {
        match chosen.or(self.named.as_deref()) {
            Some(named) => vec![named.to_owned()],
            None => self.candidates(),
        }
    }

    /// Connects to the socket that was chosen, else to the one that the environment names, else to the
    /// first candidate that can be used.
    pub fn connect(&self, chosen: Option<&Path>, deadline: Instant) -> Result<Connected, NotFound> {
        if let Some(path) = chosen.or(self.named.as_deref()) {
            return match connect(path, deadline) {
                Ok(socket) => Ok(Connected {
                    path: path.to_owned(),
                    socket,
                }),
                Err(why) => Err(NotFound::At(path.to_owned(), why)),
            };
        }
        let mut missed = Vec::new();
        for path in self.candidates() {
            match self.connect_unnamed(&path, deadline) {
                Ok(socket) => return Ok(Connected { path, socket }),
                Err(why @ Unusable::Impostor { .. }) => return Err(NotFound::At(path, why)),
                // The next one may do.
                Err(why) => missed.push((path, why)),
            }
        }
        Err(NotFound::Nowhere(missed))
    }

    fn connect_unnamed(&self, path: &Path, deadline: Instant) -> Result<OwnedFd, Unusable> {
        let found = std::fs::metadata(path).map_err(|_| Unusable::Missing)?;
        if !found.file_type().is_socket() {
            return Err(Unusable::Missing);
        }
        if !self.trusts(found.uid()) {
            return Err(Unusable::Foreign { owner: found.uid() });
        }
        let socket = connect(path, deadline)?;
        // As the kernel knows it: the socket's owner may have changed since it was made.
        let peer = socket_peercred(&socket).map_err(Unusable::Broken)?;
        match peer.uid.as_raw() {
            user if self.trusts(user) => Ok(socket),
            user => Err(Unusable::Impostor { user }),
        }
    }

    fn trusts(&self, user: u32) -> bool {
        user == 0 || user == self.uid
    }
}

/// The user whose rights this process has.
pub fn this_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A path in an environment variable. An empty one counts as unset, as the XDG specification has it.
pub fn path_in(variable: &str) -> Option<PathBuf> {
    let value = std::env::var_os(variable).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// Connects to the socket at `path`, of any user.
pub fn connect(path: &Path, deadline: Instant) -> Result<OwnedFd, Unusable> {
    check_length(path)?;
    let address = SocketAddrUnix::new(path).map_err(Unusable::Broken)?;
    let (family, kind) = (AddressFamily::UNIX, SocketType::STREAM);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None)
        .map_err(Unusable::Broken)?;
    // Bounds `connect`, too, which blocks while a service accepts nobody.
    set_socket_timeout(&socket, Timeout::Send, Some(left(deadline))).map_err(Unusable::Broken)?;
    loop {
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
    }
}

/// Refuses a path that the kernel would cut off.
pub fn check_length(path: &Path) -> Result<(), Unusable> {
    match path.as_os_str().len() {
        0..=PATH_BYTES_MAX => Ok(()),
        bytes => Err(Unusable::TooLong { bytes }),
    }
}

/// What is left until the deadline; never nothing, because that would mean forever.
pub fn left(deadline: Instant) -> Duration {
    deadline
        .saturating_duration_since(Instant::now())
        .max(Duration::from_millis(1))
}

impl From<Errno> for Unusable {
    fn from(e: Errno) -> Self {
        match e {
            Errno::ACCESS | Errno::PERM => Self::Denied(e),
            Errno::NOENT => Self::Missing,
            Errno::CONNREFUSED => Self::Abandoned,
            Errno::AGAIN => Self::Busy,
            e => Self::Broken(e),
        }
    }
}

/// What is wrong with the socket, as the end of a sentence about it.
impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("there is no such socket"),
            Self::Abandoned => f.write_str(
                "the socket is there, but nobody answers: the service has probably ended",
            ),
            Self::Foreign { owner } => write!(f, "it belongs to user {owner}"),
            Self::Impostor { user } => write!(f, "what listens there is run by user {user}"),
            Self::Denied(e) => write!(f, "this user may not connect to it: {e}"),
            Self::Busy => f.write_str("it accepted no connection in time"),
            Self::TooLong { bytes } => write!(
                f,
                "its path has {bytes} bytes, and {PATH_BYTES_MAX} is the system's limit"
            ),
            Self::Broken(e) => e.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn strings(paths: Vec<PathBuf>) -> Vec<String> {
        paths
            .iter()
            .map(|path| path.display().to_string())
            .collect()
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(1)
    }

    /// A search in a directory of this test alone.
    fn search(name: &str) -> (Search, PathBuf) {
        let dir =
            std::env::temp_dir().join(format!("salus-endpoint-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("salus")).expect("made");
        let search = Search {
            uid: this_user(),
            named: None,
            runtime: Some(dir.clone()),
            temporary: dir.clone(),
        };
        (search, dir)
    }

    #[test]
    fn this_users_service_is_looked_for_first_and_the_systems_last() {
        let without_runtime = Search {
            uid: 1000,
            temporary: "/tmp".into(),
            ..Search::default()
        };
        assert_eq!(
            strings(without_runtime.candidates()),
            ["/tmp/salus-1000/salus.sock", "/run/salus/salus.sock"]
        );
        let with_runtime = Search {
            runtime: Some("/run/user/1000".into()),
            ..without_runtime
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
    fn a_named_socket_is_the_only_one_tried() {
        let (mut search, dir) = search("named");
        let _default = UnixListener::bind(search.default_socket()).expect("listens");
        search.named = Some(dir.join("other.sock"));
        assert_eq!(search.places(None), [dir.join("other.sock")]);
        let found = search.connect(None, soon()).map(|found| found.path);
        assert_eq!(
            found,
            Err(NotFound::At(dir.join("other.sock"), Unusable::Missing))
        );
        let chosen = search.default_socket();
        let found = search
            .connect(Some(&chosen), soon())
            .map(|found| found.path);
        assert_eq!(found, Ok(chosen));
        std::fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn what_cannot_be_used_is_passed_over() {
        let (search, dir) = search("passed");
        let [first, second, _] = search.candidates().try_into().expect("three places");
        std::fs::create_dir_all(second.parent().expect("a directory")).expect("made");
        let found = || match search.connect(None, soon()) {
            Ok(found) => Ok(found.path),
            Err(NotFound::Nowhere(missed)) => Err(missed[..2].iter().map(|m| m.1).collect()),
            Err(other) => panic!("nothing was named: {other:?}"),
        };
        let expected: Vec<Unusable> = vec![Unusable::Missing, Unusable::Missing];
        assert_eq!(found(), Err(expected));
        std::fs::write(&first, "no socket").expect("written");
        let listener = UnixListener::bind(&second).expect("listens");
        assert_eq!(found(), Ok(second.clone()));
        drop(listener);
        assert_eq!(found(), Err(vec![Unusable::Missing, Unusable::Abandoned]));
        std::fs::remove_dir_all(dir).expect("removed");
    }

    #[test]
    fn a_path_that_the_kernel_would_cut_is_refused() {
        let long = PathBuf::from(format!("/tmp/{}", "x".repeat(120)));
        let why = connect(&long, soon()).expect_err("too long");
        assert_eq!(why, Unusable::TooLong { bytes: 125 });
    }
}
