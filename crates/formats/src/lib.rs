//! What jobs send and compilers return: serialized programs and options, parsed without trust.
//!
//! A job chooses every byte of a program and its options, and a compiler that a program broke may
//! return anything. Whatever reads these bytes is here; what is done with the result is in `device`
//! and `daemon`. Formats are read at the level of bytes, by field number, because rebuilding a
//! message from an allowlist must see what a schema would hide.
//!
//! Promise: no input panics, recursion and memory are bounded by the bytes given and by named
//! limits, equal input gives equal output, and whatever is not understood is refused. `tests/fuzz/main.rs`
//! holds each parser to it, starting from `corpus/`.
//! Not here: I/O, `unsafe`, PJRT calls; frames between our own processes (`wire`).
#![forbid(unsafe_code)]

pub mod callback;
pub mod element;
pub mod hlo;
pub mod layout;
pub mod mlir;
pub mod options;
pub mod proto;
pub mod requirements;
pub mod tuning;
pub mod vet;

mod refusal;
