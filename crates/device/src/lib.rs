//! What Salus asks of an accelerator: load, upload, launch, read, free.
//!
//! [`PjrtDevice`] is the real one, any vendor's PJRT plugin; [`ScriptedDevice`] computes nothing
//! but keeps its promises about order, donation and faults, with durations a test chooses. One
//! conformance suite (`tests/conformance.rs`) runs on both.
//!
//! Promise: no method blocks on the device, except `launch`, which a plugin may run inline in the
//! caller for as long as it likes, and `compile`.
//! Not here: sessions, turns, accounts; the caller has checked types, shapes and deletion.

mod types;

pub mod accelerators;
pub mod discover;
pub mod machine;
pub mod vendor_package;

mod callbacks;
mod failure;
mod layout;
mod linalg;
mod placement;
mod plugin;
mod scripted;

pub use callbacks::{CallArray, Callbacks, Lent, Style};
pub use linalg::{check_lapack, linalg_targets};
pub use placement::{Placement, is_host_memory};
pub use plugin::{
    PjrtArray, PjrtConfig, PjrtDevice, PjrtProgram, Purpose, TargetCompiler, preload,
};
pub use salus_formats::element::{self, host_bytes, is_sub_byte, is_taken_for};
pub use scripted::{
    Clock, LaunchCalls, Pieces, Registered, ScriptedArray, ScriptedConfig, ScriptedDevice,
    ScriptedProgram,
};
pub use types::*;

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

/// Called once when work on the device ended, on a thread of the device. It must not block.
pub type Done = Box<dyn FnOnce(Result<(), Error>) + Send>;

/// Host memory that is registered with a device, which it keeps mapped.
pub type Registration = Box<dyn Any + Send + Sync>;

pub trait Device: Send + Sync + 'static {
    type Program: Send + Sync + 'static;
    type Array: Send + Sync + 'static;

    fn description(&self) -> &Description;

    /// Compiles and serializes. Runs for seconds and may crash the process: only compilers call it.
    fn compile(&self, source: &Source<'_>) -> Result<Compiled, Error>;

    /// Loads what `compile` returned, in this process or another.
    fn load(&self, compiled: &Compiled) -> Result<Self::Program, Error>;

    /// Wraps or copies host memory, whose elements are dense and row-major, whatever layout the
    /// array gets. Memory that is wrapped is the array: programs may overwrite it in place. `host`
    /// is dropped when the device is done with it.
    fn upload(
        &self,
        host: Box<dyn HostMemory>,
        shape: &Shape,
        placement: Placement,
    ) -> Result<Self::Array, Error>;

    /// Starts `program`; outputs may be used as arguments at once, whatever their state.
    ///
    /// Arguments in the program's alias list and not in `keep` are donated: afterwards only
    /// dropping them is allowed, and dropping them before `done` was called may block.
    ///
    /// A launch that returns an error donates nothing and does not call `done`. One that succeeds
    /// calls it once, perhaps before this returns. Launches of a lane run in order, but their
    /// `done`s may overtake each other by some microseconds.
    fn launch(
        &self,
        program: &Self::Program,
        lane: u32,
        arguments: &[&Self::Array],
        keep: &[u32],
        done: Done,
    ) -> Result<Vec<Self::Array>, Error>;

    /// Runs a program whose signature says that it calls back, to its end: blocks for as long as
    /// that takes, callbacks included. Donation is as in `launch`; what the device is lent it gives
    /// back when it no longer uses it.
    fn run_calling_back(
        &self,
        program: &Self::Program,
        lane: u32,
        arguments: Vec<Lent<'_, Self::Array>>,
        keep: &[u32],
        callbacks: Arc<dyn Callbacks>,
    ) -> Result<Vec<Self::Array>, Error>;

    /// Calls `done` when the array's value is there, at once if it is there already.
    fn on_ready(&self, array: &Self::Array, done: Done);

    /// Whether the array's value is there now, and no failure.
    fn is_ready(&self, array: &Self::Array) -> bool {
        let is_ready = Arc::new(AtomicBool::new(false));
        let set = Arc::clone(&is_ready);
        let done = Box::new(move |result: Result<(), Error>| set.store(result.is_ok(), SeqCst));
        self.on_ready(array, done);
        is_ready.load(SeqCst)
    }

    /// Copies a ready array's bytes as the device holds them into `target`, whose length is
    /// [`Device::array_bytes`], or as a host reads them ([`ReadForm::Host`]). Small arrays are
    /// copied at once in the caller's thread, then `done` is called before this returns. `target` is
    /// dropped before `done` is called.
    fn read(&self, array: &Self::Array, target: Box<dyn HostMemory>, form: &ReadForm, done: Done);

    /// Bytes that the array occupies on the device.
    fn array_bytes(&self, array: &Self::Array) -> u64;

    /// What an array of this many bytes takes of the device's memory: allocators round up.
    fn allocated_bytes(&self, bytes: u64) -> u64 {
        bytes
    }

    /// What the device's allocator reports, if it does.
    fn memory_use(&self) -> Option<MemoryUse>;

    /// Registers host memory with the device until what is returned is dropped, so that transfers from
    /// and to it need no copy of the vendor's. `None` if the device does not do that.
    fn register(&self, memory: Arc<dyn HostMemory>) -> Result<Option<Registration>, Error>;

    /// The address of a ready array, if the device's memory is this process's.
    fn host_address(&self, array: &Self::Array) -> Option<usize>;

    /// A copy of the array in another of the device's lanes or memories.
    fn copy_to_memory(
        &self,
        array: &Self::Array,
        placement: Placement,
    ) -> Result<Self::Array, Error>;
}
