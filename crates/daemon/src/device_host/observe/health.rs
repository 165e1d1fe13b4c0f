//! Whether the device still works.
//!
//! Some errors stick: after an illegal address or a fault of its memory an accelerator fails every call
//! until its process has ended, and each job that comes gets an error. So when a launch or a transfer fails
//! with words that vendors use for such errors, or launches of two sessions fail one after the other, the
//! device is probed: a few bytes go there and back. If they do not come back, this process ends, and the
//! supervisor starts another one and tells the jobs why (`supervisor/children/mod.rs`).
//!
//! Promise: failures are noted without waiting, on whatever thread they show. One probe at a time, and
//! pauses between them, whatever jobs provoke. A device that is merely busy is not given up.
//! Cost: one load for each launch that ends well; nothing on a device whose memory is the host's, which has
//! no such errors. A probe takes a few bytes of the headroom.
//! Not here: which program is refused for it (`supervisor/blame.rs`).

use std::io;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use salus_channel::{Part, lock, wait};
use salus_device::{Device, HeapMemory, Placement, ReadForm, Shape};
use salus_engine::SessionId;
use salus_wire::{ElementType, Error, ErrorCode};

use crate::board::{Accusation, Running};
use crate::device_host::Host;
use crate::device_host::programs::Program;
use crate::log;

/// What vendors say when the device, or this process's part of it, is of no use any more. CUDA and HIP
/// name their errors; the rest are their descriptions, and what XLA makes of them.
const STICKS: [&str; 10] = [
    "cuda_error_",
    "cudaerror",
    "hiperror",
    "hip_error",
    "illegal memory access",
    "illegal address",
    "misaligned address",
    "unspecified launch failure",
    "device-side assert",
    "device lost",
];
/// The same of faults that are no program's doing.
const HARDWARE: [&str; 4] = [" ecc", "uncorrectable", "nvlink", "hardware"];

/// For the answer of a device on which nothing runs. One that is well takes less than a millisecond, one
/// that is broken says so at once.
const PROBE_WAIT: Duration = Duration::from_secs(5);
/// Between two probes: jobs may fail as often as they like.
const PROBE_PAUSE: Duration = Duration::from_millis(100);
/// Bytes that go there and back.
const PROBE_BYTES: u8 = 64;

#[derive(Default)]
pub(crate) struct Health {
    state: Mutex<State>,
    asked: Condvar,
    /// A launch has failed, and none has ended well since.
    failed_last: AtomicBool,
    /// Probes that the device has answered.
    answered: AtomicU64,
}

#[derive(Default)]
struct State {
    /// Set from the first sign until the device has answered.
    accused: Option<Accusation>,
    /// The session whose launch failed last.
    last: Option<SessionId>,
}

impl<D: Device> Host<D> {
    /// A launch has ended well.
    pub(crate) fn device_worked(&self) {
        if self.health.failed_last.load(Acquire) {
            lock(&self.health.state).last = None;
            self.health.failed_last.store(false, Release);
        }
    }

    /// How often the device was probed and has answered.
    #[cfg(test)]
    pub(crate) fn health_probes(&self) -> u64 {
        self.health.answered.load(Acquire)
    }

    /// A launch of the program, or a transfer, has failed.
    pub(crate) fn device_failed(
        &self,
        session: SessionId,
        program: Option<&Program<D>>,
        error: &Error,
    ) {
        if self.device.description().on_host {
            return;
        }
        let mut state = lock(&self.health.state);
        if state.accused.is_some() {
            return;
        }
        // What a callback says is its job's words.
        let is_jobs = program.is_some_and(|program| program.signature.calls_back);
        let sticks = !is_jobs && says_that_it_sticks(error);
        let mut in_a_row = false;
        if program.is_some() && error.code == ErrorCode::Internal {
            let before = state.last.replace(session);
            in_a_row = before.is_some_and(|before| before != session);
            self.health.failed_last.store(true, Release);
        }
        if !sticks && !in_a_row {
            return;
        }
        let by_program = sticks && !says_any(error, &HARDWARE);
        let program = program.filter(|_| by_program).map(|program| Running {
            session: session.0,
            program: program.number.0,
            name: program.signature.name.clone(),
        });
        let accusation = Accusation {
            session: session.0,
            program,
            why: error.message.clone(),
        };
        if let Some(writer) = self.board.get() {
            writer.board().accuse(&accusation);
        }
        state.accused = Some(accusation);
        self.health.asked.notify_one();
    }
}

fn says_that_it_sticks(error: &Error) -> bool {
    let excused = [ErrorCode::ResourceExhausted, ErrorCode::InvalidArgument];
    !excused.contains(&error.code) && (says_any(error, &STICKS) || says_any(error, &HARDWARE))
}

fn says_any(error: &Error, words: &[&str]) -> bool {
    let said = error.message.to_lowercase();
    words.iter().any(|word| said.contains(word))
}

/// Starts the thread that probes the device whenever it is accused, and calls `end` if that fails.
pub(crate) fn start<D: Device>(
    host: &Arc<Host<D>>,
    end: impl FnOnce(Accusation) + Send + 'static,
) -> io::Result<()> {
    if !host.device.description().on_host {
        let host = Arc::clone(host);
        let thread = std::thread::Builder::new().name("health".into());
        thread.spawn(move || watch(&host, end))?;
    }
    Ok(())
}

fn watch<D: Device>(host: &Arc<Host<D>>, end: impl FnOnce(Accusation)) {
    loop {
        let mut state = lock(&host.health.state);
        let accusation = loop {
            match &state.accused {
                Some(accusation) => break accusation.clone(),
                None => state = wait(&host.health.asked, state),
            }
        };
        drop(state);
        let failed = format!(
            "session {}: {}, and it said `{}`",
            accusation.session,
            match &accusation.program {
                Some(program) => format!("the device failed after `{}`", program.name),
                None => "the device failed".into(),
            },
            accusation.why
        );
        match probe(host) {
            Err(why) => {
                log::error(format_args!(
                    "{failed}; a probe of the device failed, too: {why}; the device host ends, so that a \
                     new one can open the device again"
                ));
                return end(accusation);
            }
            Ok(()) => host.notice(format_args!("{failed}; a probe says that it still works")),
        }
        if let Some(writer) = host.board.get() {
            writer.board().acquit();
        }
        let mut state = lock(&host.health.state);
        (state.accused, state.last) = (None, None);
        drop(state);
        host.health.answered.fetch_add(1, Release);
        std::thread::sleep(PROBE_PAUSE);
    }
}

/// Ends this process without a call into the vendor's library, whose own way out would wait for the device.
pub(crate) fn end_process(_: Accusation) {
    let _ = rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::KILL);
    std::process::abort();
}

/// Sends some bytes to the device and back. While iterations run, the answer may be late.
fn probe<D: Device>(host: &Arc<Host<D>>) -> Result<(), String> {
    let (sender, answers) = mpsc::channel();
    let device = Arc::clone(&host.device);
    // The vendor's calls may never return.
    let thread = std::thread::Builder::new().name("probe".into());
    let started = thread.spawn(move || send_and_read(&*device, sender));
    if let Err(e) = started {
        log::warn(format_args!("the device cannot be probed: {e}"));
        return Ok(());
    }
    loop {
        match answers.recv_timeout(PROBE_WAIT) {
            Ok(answer) => return answer,
            Err(RecvTimeoutError::Disconnected) => return Err("it was dropped".into()),
            Err(RecvTimeoutError::Timeout) => {
                let runs = host.engine.look(|engine, _| engine.running().count());
                if runs == 0 {
                    let seconds = PROBE_WAIT.as_secs();
                    return Err(format!("no answer for {seconds} s while nothing runs"));
                }
            }
        }
    }
}

type Answer = Result<(), String>;

fn send_and_read<D: Device>(device: &D, sender: mpsc::Sender<Answer>) {
    let shape = Shape {
        element_type: ElementType::from_name("u8").map_or(0, |element| element.pjrt),
        dims: vec![i64::from(PROBE_BYTES)],
        minor_to_major: None,
    };
    let sent: Vec<u8> = (0..PROBE_BYTES).collect();
    let placement = Placement::default_in(0, device.description());
    let array = match device.upload(Box::new(HeapMemory::copy_of(&sent)), &shape, placement) {
        Ok(array) => array,
        // It has answered.
        Err(error) if error.code == ErrorCode::ResourceExhausted => return answer(&sender, Ok(())),
        Err(error) => return answer(&sender, Err(error.to_string())),
    };
    let (ready, is_ready) = mpsc::channel();
    device.on_ready(&array, Box::new(move |result| drop(ready.send(result))));
    match is_ready.recv() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return answer(&sender, Err(error.to_string())),
        Err(_) => return,
    }
    let target = Arc::new(HeapMemory::zeroed(sent.len()));
    let Some(part) = Part::of(&target, 0, sent.len() as u64) else {
        return;
    };
    let (done, ended) = mpsc::channel();
    let done = Box::new(move |result: Result<(), Error>| drop(done.send(result)));
    device.read(&array, Box::new(part), &ReadForm::Raw, done);
    answer(
        &sender,
        match ended.recv() {
            Ok(Ok(())) if target.bytes().to_vec() == sent => Ok(()),
            Ok(Ok(())) => Err("other bytes came back than were sent".into()),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the read was dropped".into()),
        },
    );
}

fn answer(sender: &mpsc::Sender<Answer>, answer: Answer) {
    // Nobody waits for what comes too late.
    let _ = sender.send(answer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendors_words_for_what_sticks_are_known() {
        let says = |code, message| says_that_it_sticks(&Error::new(code, message));
        for message in [
            "CUDA error: Failed to synchronize: CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access",
            "hipErrorLaunchFailure: unspecified launch failure",
            "Uncorrectable ECC error encountered",
        ] {
            assert!(says(ErrorCode::Internal, message), "{message}");
        }
        assert!(!says(ErrorCode::Internal, "the loop did not converge"));
        let full = "CUDA_ERROR_OUT_OF_MEMORY: out of memory";
        assert!(!says(ErrorCode::ResourceExhausted, full));
    }
}
