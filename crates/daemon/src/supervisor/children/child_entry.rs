//! The first steps of a child process: it takes over what `process.rs` prepared.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use rustix::process::Signal;

use crate::config::{HostSettings, Problem};
use crate::heap::{self, GiveBack};
use crate::supervisor::children::process::{FIRST, SETTINGS};

/// What `ps` and `top` call a compiler.
pub const COMPILER: &CStr = c"salus-compiler";

/// When the machine has no memory left, the kernel ends a compiler rather than the device host, which
/// has everybody's arrays, or a job: a compilation that ended this way is retried.
const COMPILER_FIRST: &str = "500";

/// Is the device host until the supervisor ends it.
pub fn device_host(give_back: GiveBack) -> Result<ExitCode, Problem> {
    let (control, settings) = enter(c"salus-device")?;
    heap::gives_back_by(give_back);
    Ok(crate::device_host::main(control, &settings))
}

/// Is a compiler until the supervisor or the device host ends it.
pub fn compiler() -> Result<ExitCode, Problem> {
    let (control, settings) = enter(COMPILER)?;
    Ok(crate::compiler::main(control, &settings))
}

/// Takes over the control socket and the settings. `name` is what `ps` and `top` show.
///
/// To be called first, and once: it binds this process to the life of the supervisor. Should that
/// have died already, the control socket says so: it is at its end.
pub fn enter(name: &CStr) -> Result<(UnixStream, HostSettings), Problem> {
    let Some(settings) = std::env::var_os(SETTINGS) else {
        return Err(Problem::new("this command is a part of `salus serve`")
            .hint("`salus serve` starts it by itself"));
    };
    let settings = settings
        .to_str()
        .and_then(|text| serde_json::from_str(text).ok())
        .ok_or_else(|| Problem::new(format!("{SETTINGS} does not hold a child's settings")))?;
    let control = bind_to_supervisor(name)
        .map_err(|e| Problem::new(format!("the supervisor's socket cannot be taken over: {e}")))?;
    Ok((control, settings))
}

/// Whether this process is the first compiler of its service.
pub(crate) fn is_first_compiler() -> bool {
    std::env::var_os(FIRST).is_some()
}

fn bind_to_supervisor(name: &CStr) -> io::Result<UnixStream> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_name(name)?;
    if name == COMPILER {
        // Where it cannot be written, the kernel chooses by size alone.
        let _ = std::fs::write("/proc/self/oom_score_adj", COMPILER_FIRST);
    }
    let control = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // So that nothing else in this process reads or writes the control socket by accident.
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    // Fails if standard input was not a socket.
    control.peer_addr()?;
    Ok(control)
}
