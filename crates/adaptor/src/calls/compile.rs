//! Compilation: a program's source goes to the service, its signature comes back.
//!
//! The calling thread waits for the reply; JAX compiles in threads of its own. A serialized
//! program is a token that holds its source, so loading one is compiling it, from the service's
//! cache as a rule.
//!
//! Not here: what is known of the program afterwards ([`crate::objects::program`]).
#![expect(unsafe_code, reason = "C entry points")]
#![allow(non_snake_case, reason = "the header's names")]

use std::sync::Arc;

use salus_pjrt::sys;
use salus_wire::{Compile, Reader, Signature, Token, Wire, limits};

use crate::c_api::c_args::{Args, entry, field};
use crate::c_api::error::{Result, internal, invalid, unavailable};
use crate::connection::pending::Asked;
use crate::objects::client::{Client, ClientHandle, client};
use crate::objects::executable::{Executable, LoadedExecutable};
use crate::objects::program::{Loaded, Program, Source};
use crate::objects::topology::Topology;

fn compile(client: &Arc<Client>, source: Source) -> Result<Arc<Loaded>> {
    let session = &client.session;
    session.may_wait()?;
    check_limits(&source)?;
    let block = session.block(source.code.len() as u64)?;
    // SAFETY: the block has that many bytes and belongs to us alone.
    unsafe {
        std::ptr::copy_nonoverlapping(source.code.as_ptr(), block.address(), source.code.len());
    }
    let program = session.next_program();
    let message = Compile {
        program,
        format: source.format.clone(),
        code: block.region(),
        options: source.options.clone(),
    };
    let (descriptor, bytes) = session.request_blob(Asked::Program(program), message, None)?;
    let signature = salus_channel::open_blob(descriptor, bytes)
        .map_err(|e| unavailable(format!("the signature of a program could not be read: {e}")))?;
    let signature = Signature::take(&mut Reader::new(&signature), 0).map_err(|e| {
        internal(format!(
            "the service sent a signature that cannot be read: {e}"
        ))
    })?;
    Program::load(Arc::clone(client), program, signature, source)
}

fn check_limits(source: &Source) -> Result<()> {
    if source.options.len() > limits::OPTIONS_BYTES {
        return Err(invalid(format!(
            "the compile options have {} bytes, and Salus takes {} at most; they grow with the \
             number of arguments that have explicit layouts",
            source.options.len(),
            limits::OPTIONS_BYTES
        )));
    }
    if source.code.len() as u64 > limits::PROGRAM_BYTES {
        return Err(invalid(format!(
            "the program has {} bytes, and Salus takes {} at most; constants make programs large, \
             so pass big arrays as arguments",
            source.code.len(),
            limits::PROGRAM_BYTES
        )));
    }
    if source.format.len() > limits::NAME_BYTES {
        return Err(invalid("the name of the program's format is too long"));
    }
    Ok(())
}

/// Copies what the caller wants compiled.
type Code = sys::PJRT_Program;

fn source_of(program: &Args<'_, Code>, options: &[u8]) -> Result<Source> {
    let format = program.bytes(field!(Code.format), field!(Code.format_size))?;
    let size = program.read(field!(Code.code_size))?;
    let code = program.read(field!(Code.code))?;
    if code.is_null() || size == 0 {
        return Err(invalid("there is no program to compile: its code is empty"));
    }
    // SAFETY: the caller's program has `size` bytes.
    let code = unsafe { std::slice::from_raw_parts(code.cast::<u8>(), size) };
    Ok(Source {
        format: String::from_utf8_lossy(format).into_owned(),
        code: code.to_vec(),
        options: options.to_vec(),
    })
}

entry! {
    fn PJRT_Client_Compile(args: PJRT_Client_Compile_Args) {
        let client = client(&args, field!(Call.client))?;
        let options = args.bytes(field!(Call.compile_options), field!(Call.compile_options_size))?;
        let source = source_of(&args.inner(field!(Call.program))?, options)?;
        let loaded = compile(client, source)?;
        args.hand(field!(Call.executable), Box::new(LoadedExecutable(loaded)))
    }

    fn PJRT_Compile(args: PJRT_Compile_Args) {
        let client = match args.handle_or_null::<ClientHandle>(field!(Call.client)) {
            Some(client) => Arc::clone(&client.0),
            None => args.handle_const::<Topology>(field!(Call.topology))?.client()?,
        };
        let options = args.bytes(field!(Call.compile_options), field!(Call.compile_options_size))?;
        let source = source_of(&args.inner(field!(Call.program))?, options)?;
        let loaded = compile(&client, source)?;
        args.hand(field!(Call.executable), Box::new(Executable(loaded)))
    }

    fn PJRT_Executable_DeserializeAndLoad(args: PJRT_Executable_DeserializeAndLoad_Args) {
        let client = client(&args, field!(Call.client))?;
        let bytes = args.bytes(field!(Call.serialized_executable), field!(Call.serialized_executable_size))?;
        let token = Token::decode(bytes).map_err(invalid)?;
        let mut source = Source {
            format: token.format,
            code: token.code,
            options: token.options,
        };
        // Absent in the struct of older callers.
        let overriding = args.bytes(
            field!(Call.overridden_serialized_compile_options),
            field!(Call.overridden_serialized_compile_options_size),
        );
        if let Some(options) = overriding.ok().filter(|options| !options.is_empty()) {
            source.options = options.to_vec();
        }
        let loaded = compile(client, source)?;
        args.hand(field!(Call.loaded_executable), Box::new(LoadedExecutable(loaded)))
    }
}
