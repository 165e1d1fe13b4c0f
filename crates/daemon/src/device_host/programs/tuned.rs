//! Tuned compilations: by the one compiler that has a client on the device, while nothing else runs there.
//!
//! What is measured beside a running job is measured wrong, and the job is slowed. So the whole compilation
//! is a turn of the service's own in the engine: which of its parts measure, nobody outside of it knows.
//! Where it fails, for whatever reason, the program is compiled without the device.
//!
//! Not here: which programs are worth it (`formats/src/tuning.rs`), the results (`compiler/tuning.rs`).

use std::sync::{Arc, Mutex};

use salus_channel::lock;
use salus_device::Device;
use salus_formats::tuning::may_be_tuned;
use salus_wire::StoredProgram;

use crate::device_host::clocked_engine::ClockedEngine;
use crate::device_host::programs::compiler_pool::{Cancel, Compilers, Source};
use crate::log;

/// A compiler that fails this often before its first answer cannot work here.
const ATTEMPTS: u32 = 2;

pub(crate) struct Tuned<D: Device> {
    compilers: Arc<Compilers>,
    engine: Arc<ClockedEngine<D>>,
    /// Held while it compiles: there is one such compiler, and one turn.
    state: Mutex<State>,
}

enum State {
    /// It has answered nothing yet, and failed this often.
    Untried(u32),
    Works,
    GivenUp,
}

impl<D: Device> Tuned<D> {
    pub(crate) fn new(compilers: Arc<Compilers>, engine: Arc<ClockedEngine<D>>) -> Self {
        Self {
            compilers,
            engine,
            state: Mutex::new(State::Untried(0)),
        }
    }

    /// The program as it is fastest; `None` if it must be compiled without the device.
    pub(crate) fn compile(&self, source: &Source<'_>, cancel: &Cancel) -> Option<StoredProgram> {
        if !may_be_tuned(source.format, source.code) {
            return None;
        }
        let mut state = lock(&self.state);
        if matches!(*state, State::GivenUp) || cancel.is_cancelled() {
            return None;
        }
        let turn = self
            .engine
            .in_a_turn(|| self.compilers.try_to_compile(source, cancel));
        match (turn?, &*state) {
            (Some(answer), _) => {
                *state = State::Works;
                return answer.ok();
            }
            (None, State::Untried(failures)) if !cancel.is_cancelled() => {
                *state = match failures + 1 {
                    ATTEMPTS => State::GivenUp,
                    failures => State::Untried(failures),
                };
            }
            (None, _) => {}
        }
        if let State::GivenUp = *state {
            log::warn(
                "the compiler that measures on the device cannot work here: programs are compiled \
                 without (its own lines above say why; `[compilers] tune = false` does not try)",
            );
        }
        None
    }
}
