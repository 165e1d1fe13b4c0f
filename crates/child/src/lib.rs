//! `libsalus_child.so`: the device host and the compilers, for a process that is not our binary.
//!
//! The handlers of a vendor's linear algebra are in Python's extension modules, which only a Python can
//! load. So where there are such, these processes are Pythons: `python/salus/child_launcher.py` loads
//! the modules, registers what they have with the plugin, and calls [`salus_child_main`], which
//! returns when the process is to end.
//!
//! Not here: anything that differs from the same processes of our own binary.

use std::ffi::{c_char, c_int};
use std::process::ExitCode;

use salus_daemon::config::Problem;
use salus_daemon::supervisor;
use salus_daemon::{heap, log};

const VERSION: &std::ffi::CStr = match std::ffi::CStr::from_bytes_with_nul(
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes(),
) {
    Ok(version) => version,
    Err(_) => panic!("a version has no zero in it"),
};

/// The version of this library. The processes of a service are all of one.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "a symbol that is exported")]
pub extern "C" fn salus_child_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Is the device host (0) or a compiler (1) until the supervisor ends it; returns an exit status.
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "a symbol that is exported")]
pub extern "C" fn salus_child_main(role: u32) -> c_int {
    let ended = std::panic::catch_unwind(|| match role {
        0 => supervisor::device_host(heap::trim_c_library),
        _ => supervisor::compiler(),
    });
    match ended {
        Ok(ended) => status(ended),
        // The panic has told its story on standard error.
        Err(_) => 101,
    }
}

fn status(ended: Result<ExitCode, Problem>) -> c_int {
    match ended {
        Ok(code) => c_int::from(code != ExitCode::SUCCESS),
        Err(problem) => {
            log::error(format_args!("{problem}"));
            1
        }
    }
}
