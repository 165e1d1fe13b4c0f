//! A compiler: one mortal process that turns sources into serialized executables.
//!
//! The vendor's compiler can crash on odd input and keeps tens of megabytes after large programs;
//! in a process of its own neither reaches anybody's session. It gets the source and the rebuilt
//! options in a memfd and answers with the executable and its signature in another. It is in a box
//! (`sandbox`): it has its socket, its memory, and nothing else.
//!
//! A device with memory of its own belongs to the device host, whole: there a compiler is told what the
//! device is like and compiles without it (`Target`). A client here would take its part of that memory.
//! One compiler may have a small client of its own (`tuning`), which measures on the device while the
//! engine lets nothing else run there.
//!
//! Not here: the cache, the device's memory, anything of a job but the program.

mod tuning;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use salus_channel::{Inbox, Received, blob, open_blob, send_all};
use salus_device::{Compiled, Device, Source, TargetCompiler};
use salus_wire::{
    CompileError, CompileRequest, CompileResult, Error, ErrorCode, FromCompiler, StoredProgram,
    Target, ToCompiler, Wire, limits,
};

use crate::config::HostSettings;
use crate::log;
use crate::open_device::{Opened, open, open_beside, preload_libraries};
use crate::sandbox::{self, Held, Process, Strength};
use crate::supervisor::is_first_compiler;

/// The process: opens the device for compiling and serves the device host. The first compiler of a
/// service says in the log what its box lacks, for all of them.
pub fn main(control: UnixStream, settings: &HostSettings) -> ExitCode {
    // Before the plugin starts its threads, which inherit it.
    lower_priority();
    let result = match Strength::of(&settings.device.name) {
        Strength::Full => open(Process::Compiler, settings).and_then(|(opened, held)| {
            say_what_is_missing(&held);
            match opened {
                Opened::Pjrt(device) => serve(&device, &control),
                Opened::Scripted(device) => serve(&device, &control),
            }
        }),
        Strength::Light => serve_target(settings, &control),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            log::error(format_args!("compiler: {error}"));
            ExitCode::FAILURE
        }
    }
}

fn say_what_is_missing(held: &Held) {
    if is_first_compiler() {
        held.log_missing("compilers");
    }
}

/// What compiles.
type Compile<'a> = dyn Fn(&Source<'_>) -> Result<Compiled, Error> + 'a;

/// Serves one device host until it closes the connection.
pub(crate) fn serve<D: Device>(device: &D, socket: &UnixStream) -> Result<(), Error> {
    serve_with(
        &|source| device.compile(source),
        &mut Inbox::default(),
        socket,
    )
}

/// The same for a device that this process does not open, unless it is in the machine's memory.
fn serve_target(settings: &HostSettings, socket: &UnixStream) -> Result<(), Error> {
    let mut inbox = Inbox::default();
    let Some(ToCompiler::Target(target)) = next(&mut inbox, socket)?.map(|r| r.message) else {
        // The device host is gone before it had a device.
        return Ok(());
    };
    let compile = prepare(settings, &target)?;
    let held = sandbox::confine(Process::Compiler, Strength::Light, settings);
    say_what_is_missing(&held);
    serve_with(&*compile, &mut inbox, socket)
}

fn prepare(settings: &HostSettings, target: &Target) -> Result<Box<Compile<'static>>, Error> {
    let open = || -> Result<Box<Compile<'static>>, Error> {
        let device = open_beside(settings)?;
        Ok(Box::new(move |source| device.compile(source)))
    };
    if target.tunes {
        preload_libraries(settings);
        let device = open_beside(settings)?;
        let results = tuning::Results::open(&settings.cache.directory);
        return Ok(Box::new(move |source| results.compile(&device, source)));
    }
    if target.description.on_host {
        return open();
    }
    match TargetCompiler::open(&settings.plugin, &target.description) {
        Ok(compiler) => Ok(Box::new(move |source| compiler.compile(source))),
        Err(error) if error.code == ErrorCode::Unimplemented => {
            if is_first_compiler() {
                log::warn(format_args!(
                    "compilers open the device themselves, which takes some of its memory: {}",
                    error.message
                ));
            }
            open()
        }
        Err(error) => Err(error),
    }
}

/// The next message; none if the device host closed the connection.
fn next(inbox: &mut Inbox, socket: &UnixStream) -> Result<Option<Received<ToCompiler>>, Error> {
    loop {
        match inbox.take::<ToCompiler>() {
            Ok(Some(received)) => return Ok(Some(received)),
            Ok(None) => match inbox.fill(socket, true) {
                Ok(n) if n > 0 => {}
                _ => return Ok(None),
            },
            Err(e) => {
                let message = format!("the device host sent what it should not: {e}");
                return Err(Error::new(ErrorCode::Internal, message));
            }
        }
    }
}

fn serve_with(compile: &Compile<'_>, inbox: &mut Inbox, socket: &UnixStream) -> Result<(), Error> {
    while let Some(received) = next(inbox, socket)? {
        let ToCompiler::CompileRequest(request) = received.message else {
            let message = "the device host named a device twice";
            return Err(Error::new(ErrorCode::Internal, message));
        };
        if answer(compile, socket, &request, received.descriptor).is_err() {
            break;
        }
    }
    Ok(())
}

fn answer(
    compile: &Compile<'_>,
    socket: &UnixStream,
    request: &CompileRequest,
    descriptor: Option<OwnedFd>,
) -> io::Result<()> {
    let code = match descriptor {
        Some(descriptor) => open_blob(descriptor, request.code_bytes)?,
        None => Vec::new(),
    };
    match compiled(compile, request, &code) {
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

fn compiled(
    compile: &Compile<'_>,
    request: &CompileRequest,
    code: &[u8],
) -> Result<Vec<u8>, Error> {
    let source = Source {
        format: &request.format,
        code,
        options: &request.options,
    };
    let compiled = compile(&source)?;
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
