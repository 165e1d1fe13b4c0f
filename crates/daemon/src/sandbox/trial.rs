//! What a process in a box tries in order to get out, for `salus doctor` and for tests: what the kernel
//! says it enforces is one thing, what happens another.

use std::fs::{self, File};
use std::io;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::process::{Pid, Signal, getppid, kill_process, test_kill_process};

/// Something that a process in a box should not be able to do, and how it went.
#[derive(Debug)]
pub struct Escape {
    pub what: &'static str,
    /// The mechanism of a full box that refuses it, whatever else is there.
    pub by: &'static str,
    /// The error is what is hoped for.
    pub result: io::Result<()>,
}

impl Escape {
    /// Whether it was refused, rather than failed for another reason.
    pub fn is_refused(&self) -> bool {
        matches!(&self.result, Err(e) if e.kind() == io::ErrorKind::PermissionDenied)
    }
}

/// The names of mechanisms.
pub(super) const FILES: &str = "files";
pub(super) const CALLS: &str = "system calls";

/// The one escape that the light box refuses, too.
pub const GRAVE: &str = "make a system call that no plugin needs";

// tidy: long, because it is one list of attempts.
/// Tries all of them. `outside` is a directory that this process could write to before, with the files
/// `secret` and `removable` in it and a socket `listens`.
pub fn escapes(outside: &Path) -> Vec<Escape> {
    let secret = outside.join("secret");
    let parent = getppid().unwrap_or(Pid::INIT);
    let of_parent = format!("/proc/{}/environ", parent.as_raw_pid());
    let mut all = Vec::new();
    let mut attempt = |by, what, result: io::Result<()>| all.push(Escape { what, by, result });
    let everybody = fs::Permissions::from_mode(0o777);
    let write = || File::options().write(true).open(&secret);
    attempt(FILES, "read a file", File::open(&secret).map(drop));
    attempt(FILES, "list a directory", fs::read_dir(outside).map(drop));
    attempt(
        FILES,
        "read another's environment",
        File::open(of_parent).map(drop),
    );
    attempt(FILES, "write a file", write().map(drop));
    attempt(
        FILES,
        "make a file",
        File::create_new(outside.join("made")).map(drop),
    );
    attempt(
        FILES,
        "make a directory",
        fs::create_dir(outside.join("made-too")),
    );
    attempt(
        CALLS,
        "change a file's mode",
        fs::set_permissions(&secret, everybody),
    );
    attempt(
        FILES,
        "rename a file",
        fs::rename(&secret, outside.join("renamed")),
    );
    attempt(
        FILES,
        "remove a file",
        fs::remove_file(outside.join("removable")),
    );
    let unbound = socket(AddressFamily::INET, SocketType::DGRAM, None);
    attempt(
        CALLS,
        "make a socket",
        unbound.map(drop).map_err(Into::into),
    );
    let kernels = socket(AddressFamily::NETLINK, SocketType::RAW, None);
    attempt(
        CALLS,
        "ask the kernel for networks",
        kernels.map(drop).map_err(Into::into),
    );
    // Port 9 has nobody behind it, which would be another error.
    attempt(
        CALLS,
        "connect by TCP",
        TcpStream::connect(("127.0.0.1", 9)).map(drop),
    );
    attempt(
        CALLS,
        "listen by TCP",
        TcpListener::bind(("127.0.0.1", 0)).map(drop),
    );
    attempt(
        CALLS,
        "bind by UDP",
        UdpSocket::bind(("127.0.0.1", 0)).map(drop),
    );
    let listens = outside.join("listens");
    attempt(
        CALLS,
        "connect to a local socket",
        UnixStream::connect(&listens).map(drop),
    );
    let mine = UnixListener::bind(outside.join("mine"));
    attempt(CALLS, "make a local socket", mine.map(drop));
    attempt(CALLS, "run a program", run("/bin/true"));
    // Of a file that is not there, because this process must go on where it is allowed.
    let became = Command::new("/no/such/program").exec();
    attempt(CALLS, "become a program", Err(became));
    let found = test_kill_process(parent);
    attempt(CALLS, "look for another process", found.map_err(Into::into));
    // One that nobody notices, should it arrive.
    let signalled = kill_process(parent, Signal::CONT);
    attempt(
        CALLS,
        "signal another process",
        signalled.map_err(Into::into),
    );
    // Everybody may ask for this one, so that nothing but the filter refuses it.
    let unshared = unshare(CloneFlags::CLONE_FS);
    attempt(CALLS, GRAVE, unshared.map_err(Into::into));
    all
}

fn run(program: &str) -> io::Result<()> {
    let mut command = Command::new(program);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    command.spawn()?.wait().map(drop)
}
