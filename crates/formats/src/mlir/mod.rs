//! A digest of a StableHLO module that ignores source locations.
//!
//! JAX sends its programs as StableHLO portable artifacts: MLIR bytecode, in which every operation
//! and block argument carries a location. An edited comment above a jitted function, or the same
//! model in another script, therefore changes the bytes, and with them the order in which strings,
//! attributes and types are numbered. [`digest`] rewrites the module into a stream in which
//! locations are missing and everything else is numbered in the order in which the operations
//! reach it, and hashes that.
//!
//! The stream can be read back: a count, a length or a kind always precedes what depends on
//! it, an entry of a table is described once and referred to by its number afterwards. So two
//! modules have the same stream only if they are the same up to locations.
//!
//! Promise: equal digests mean equal programs (a collision of SHA-256 aside), function and module
//! names included. `None` for whatever is not understood to the last byte: another format or
//! version, an encoding that `layouts` does not list, resources, padding, a location that is not
//! one. Never panics, whatever the bytes.
//! Cost: time and memory linear in the bytes; under 1 ms for a program of 100 KB.
//! Not here: whether the program is valid (the compiler checks), whether two programs that are
//! written differently compute the same, locations inside opaque data (a kernel in a custom call).
//!
//! Tried with artifacts of bytecode version 6, each lowered at two places with equal digests: for
//! StableHLO 1.13.0 by JAX 0.7.2, and for 1.13.3 (what the CPU plugin asks for) and 1.17.0 by JAX
//! 0.10.2, which are the oldest and the newest JAX that Salus is tested with. Artifacts for 0.9.0
//! have bytecode version 0, and modules that are not portable artifacts another producer: neither
//! is understood, and such a program counts by its bytes. `corpus/README.md` says how the artifacts
//! were made.

mod body;
mod bytes;
mod fields;
mod form;
mod layouts;
mod locations;
mod properties;
mod tables;

#[cfg(test)]
mod tests;

/// SHA-256 of the program without its locations, if it is one that can be understood.
pub fn digest(code: &[u8]) -> Option<[u8; 32]> {
    let module = tables::Module::read(code)?;
    let mut form = form::Form::new(&module);
    body::walk(&module, &mut form)?;
    form.finish()
}
