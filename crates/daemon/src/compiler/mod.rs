//! A compiler: one mortal process that turns sources into serialized executables.
//!
//! The vendor's compiler can crash on odd input and keeps tens of megabytes after large programs;
//! in a process of its own neither reaches anybody's session. It gets the source and the rebuilt
//! options in a memfd and answers with the executable and its signature in another. It is in a box
//! (`sandbox`): it has its socket, its memory, and nothing else.
//!
//! Not here: the cache, the device's memory, anything of a job but the program.

use std::io;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use salus_channel::{Inbox, Received, blob, open_blob, send_all};
use salus_device::{Device, Source};
use salus_wire::{
    CompileError, CompileRequest, CompileResult, Error, ErrorCode, FromCompiler, StoredProgram,
    ToCompiler, Wire, limits,
};

use crate::config::HostSettings;
use crate::log;
use crate::open_device::{Opened, open};
use crate::sandbox::Process;
use crate::supervisor::is_first_compiler;

/// The process: opens the device for compiling and serves the device host. The first compiler of a
/// service says in the log what its box lacks, for all of them.
pub fn main(control: UnixStream, settings: &HostSettings) -> ExitCode {
    // Before the plugin starts its threads, which inherit it.
    lower_priority();
    let result = open(Process::Compiler, settings).and_then(|(opened, held)| {
        if is_first_compiler() {
            held.log_missing("compilers");
        }
        match opened {
            Opened::Pjrt(device) => serve(&device, &control),
            Opened::Scripted(device) => serve(&device, &control),
        }
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error(format_args!("compiler: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Serves one device host until it closes the connection.
pub(crate) fn serve<D: Device>(device: &D, socket: &UnixStream) -> Result<(), Error> {
    let mut inbox = Inbox::default();
    loop {
        match inbox.take::<ToCompiler>() {
            Ok(Some(received)) => {
                if answer(device, socket, received).is_err() {
                    return Ok(());
                }
            }
            Ok(None) => match inbox.fill(socket, true) {
                Ok(n) if n > 0 => {}
                _ => return Ok(()),
            },
            Err(e) => {
                let message = format!("the device host sent what it should not: {e}");
                return Err(Error::new(ErrorCode::Internal, message));
            }
        }
    }
}

fn answer<D: Device>(
    device: &D,
    socket: &UnixStream,
    received: Received<ToCompiler>,
) -> io::Result<()> {
    let ToCompiler::CompileRequest(request) = received.message;
    let code = match received.descriptor {
        Some(descriptor) => open_blob(descriptor, request.code_bytes)?,
        None => Vec::new(),
    };
    match compile(device, &request, &code) {
        Ok(bytes) => {
            let message = CompileResult {
                bytes: bytes.len() as u64,
            };
            send_all(socket, &FromCompiler::from(message), Some(blob(&bytes)?))
        }
        Err(mut error) => {
            error
                .message
                .truncate(error.message.floor_char_boundary(limits::ERROR_BYTES));
            send_all(socket, &FromCompiler::from(CompileError { error }), None)
        }
    }
}

fn compile<D: Device>(device: &D, request: &CompileRequest, code: &[u8]) -> Result<Vec<u8>, Error> {
    let source = Source {
        format: &request.format,
        code,
        options: &request.options,
    };
    let compiled = device.compile(&source)?;
    let stored = StoredProgram {
        signature: compiled.signature,
        executable: compiled.executable,
    };
    let mut bytes = Vec::new();
    stored.put(&mut bytes);
    Ok(bytes)
}

/// A compilation beside a running job would slow it by up to half, so it gets about a quarter of a
/// contended core. Not the idle class: with all cores busy that would be next to nothing, and a new
/// job would wait minutes for its first step.
fn lower_priority() {
    let _ = rustix::process::setpriority_process(None, 5);
}
