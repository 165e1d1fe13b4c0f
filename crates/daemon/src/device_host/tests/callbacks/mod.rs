//! Programs that call functions of their job: the job's side of the channels is played by hand.

use std::cell::RefCell;
use std::io::Write;
use std::sync::Barrier;
use std::sync::mpsc::{Sender, channel};

use salus_engine::{SessionId, State};
use salus_wire::{CallbackCall, CallbackReturn, ErrorCode, FromCallbacks, ToCallbacks};

use super::*;
use crate::device_host::session::callbacks::LaunchThreads;

mod ends;
mod misbehaving;

const CALLS: &str = "name: calls; params: f32[4]; outputs: f32[4]; scratch: 100; callbacks: 1";
const UPDATES: &str = "name: updates; params: f32[4]; outputs: f32[4] alias 0; callbacks: 1";

/// The job's side of a channel.
struct Channel {
    socket: UnixStream,
    inbox: Inbox,
    memory: Option<Segment>,
    /// How often the service made memory for it.
    memories: u32,
}

impl Job {
    /// The next channel that the service opens.
    fn channel(&mut self) -> Channel {
        self.next(|message| matches!(message, FromService::CallbackChannel(_)));
        let socket = self.channels.pop_front().expect("it came with the message");
        socket.set_read_timeout(Some(DEADLINE)).expect("settable");
        Channel {
            socket,
            inbox: Inbox::default(),
            memory: None,
            memories: 0,
        }
    }

    /// A job whose program calls, and waits for the answer.
    fn calling(fixture: &mut Fixture, script: &str) -> (Self, Channel) {
        let mut job = fixture.job("calls.py");
        job.compile(1, script).expect("compiles");
        job.upload(1, [1.0, 2.0, 3.0, 4.0]);
        job.execute(1, 1, &[1], 10);
        let channel = job.channel();
        (job, channel)
    }

    /// Launches something else, and reads it.
    fn works(&mut self, operation: u64) {
        self.compile(7, KEEPING).expect("compiles");
        self.upload(70, [7.0; 4]);
        self.execute(operation, 7, &[70], 1_000 + operation);
        self.ended(operation).expect("it runs");
        self.fetch(operation, 1_000 + operation)
            .expect("it is there");
    }
}

impl Channel {
    /// The next call, or `None` if the service has closed the channel.
    fn taken(&mut self) -> Option<CallbackCall> {
        loop {
            let taken = self.inbox.take::<ToCallbacks>().expect("well-formed");
            match taken.map(|received| (received.message, received.descriptor)) {
                Some((ToCallbacks::CallbackCall(call), _)) => return Some(call),
                Some((ToCallbacks::CallbackMemory(memory), descriptor)) => {
                    let descriptor = descriptor.expect("its memory");
                    let memory = Segment::open(descriptor, memory.bytes).expect("mappable");
                    self.memory = Some(memory);
                    self.memories += 1;
                }
                None => {
                    let read = self.inbox.fill(&self.socket, true);
                    if read.expect("a call in time") == 0 {
                        return None;
                    }
                }
            }
        }
    }

    fn call(&mut self) -> CallbackCall {
        self.taken().expect("the channel is open")
    }

    fn operand(&self, call: &CallbackCall, index: usize) -> Vec<u8> {
        let array = &call.operands[index];
        let memory = self.memory.as_ref().expect("told before the call");
        memory.copy_out(array.offset, array.bytes).expect("inside")
    }

    fn fill(&self, call: &CallbackCall, index: usize, bytes: &[u8]) {
        let array = &call.results[index];
        assert_eq!(array.bytes, bytes.len() as u64);
        let memory = self.memory.as_ref().expect("told before the call");
        assert!(memory.copy_in(array.offset, bytes), "inside");
    }

    fn answer(&mut self, error: Option<Error>) {
        let answer = FromCallbacks::from(CallbackReturn { error });
        salus_channel::send_all(&self.socket, &answer, None).expect("the service listens");
    }

    fn answers(&mut self) -> CallbackCall {
        let call = self.call();
        self.answer(None);
        call
    }
}

impl Fixture {
    fn impatient(limit: Duration) -> Self {
        let room = Room {
            device_bytes: 1 << 20,
            host_bytes: 1 << 20,
            user_max: None,
        };
        Self::built(16 << 20, Clock::Real, room, limit)
    }

    /// Channels of a session, and idle ones among them.
    fn channels(&self, session: u64) -> (usize, usize) {
        let mut count = None;
        self.host.engine.each(|one, _, _, _| {
            if one.id == SessionId(session) {
                count = Some(one.channels.count());
            }
        });
        count.expect("it is open")
    }

    fn state(&self, session: u64) -> State {
        let state = |engine: &Engine, _| engine.account(SessionId(session)).map(Account::state);
        self.host.engine.look(state).expect("it is open")
    }

    /// All sessions but this many have ended, and all that they held but this many bytes is freed.
    fn until_left(&self, sessions: u64, bytes: u64) {
        self.until(|| self.sum(|_| 1) == sessions && self.resident() == bytes);
    }
}

fn bytes(values: [f32; 4]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

// Calls and answers.

#[test]
fn a_call_reaches_the_job_and_its_answer_ends_the_launch() {
    let mut fixture = Fixture::new();
    let (mut job, mut channel) = Job::calling(&mut fixture, CALLS);
    let call = channel.call();
    assert_eq!(
        (call.operation, call.callback, call.buffers),
        (OperationId(1), 0, false)
    );
    assert_eq!((call.operands.len(), call.results.len()), (1, 1));
    let shape = &call.operands[0].shape;
    assert_eq!((shape.element_type, &shape.dims[..]), (F32, &[4][..]));
    assert_eq!(channel.operand(&call, 0), bytes([1.0, 2.0, 3.0, 4.0]));
    fixture.until(|| fixture.state(1) == State::Callback);
    // Scratch of what calls back, its output and its argument.
    assert_eq!(fixture.resident(), 100 + 16 + 16);
    channel.fill(&call, 0, &bytes([5.0, 6.0, 7.0, 8.0]));
    channel.answer(None);
    job.ended(1).expect("it ran");
    job.fetch(1, 10).expect("the output is there at once");
    assert_eq!(
        fixture.host.device.returned(),
        [bytes([5.0, 6.0, 7.0, 8.0])]
    );
    assert_eq!(fixture.resident(), 16 + 16);
    fixture.until(|| fixture.sum(|account| account.iterations) == 1);
    assert_eq!(fixture.sum(|account| u64::from(account.running)), 0);
}

#[test]
fn calls_follow_each_other_on_one_channel_and_its_memory() {
    let mut fixture = Fixture::new();
    let script = "name: thrice; params: f32[4]; outputs: f32[4] alias 0; callbacks: 3";
    let (mut job, mut channel) = Job::calling(&mut fixture, script);
    for launch in 0..50 {
        if launch > 0 {
            job.execute(1 + launch, 1, &[9 + launch], 10 + launch);
        }
        for callback in 0..3 {
            let call = channel.answers();
            assert_eq!(
                (call.operation, call.callback),
                (OperationId(1 + launch), callback)
            );
        }
        job.ended(1 + launch).expect("it ran");
    }
    assert_eq!((fixture.channels(1), channel.memories), ((1, 1), 1));
    assert_eq!(
        fixture.resident(),
        16,
        "outputs take their arguments' places"
    );
}

#[test]
fn memory_of_a_channel_grows_with_what_is_given_to_a_callback() {
    let mut fixture = Fixture::new();
    let (mut job, mut channel) = Job::calling(&mut fixture, CALLS);
    channel.answers();
    job.ended(1).expect("it ran");
    let large = "name: large; params: f32[40000]; outputs: f32[4]; callbacks: 1";
    let make = "name: make; outputs: f32[40000]";
    job.compile(2, large).expect("compiles");
    job.compile(3, make).expect("compiles");
    job.execute(2, 3, &[], 20);
    for launch in 3..10 {
        job.execute(launch, 2, &[20], 10 * launch);
        let call = channel.call();
        assert_eq!(channel.operand(&call, 0).len(), 160_000);
        channel.answer(None);
        job.ended(launch).expect("it ran");
    }
    assert_eq!((fixture.channels(1), channel.memories), ((1, 1), 2));
}

#[test]
fn what_the_job_answers_is_the_error_word_for_word() {
    let mut fixture = Fixture::new();
    let (mut job, mut channel) = Job::calling(&mut fixture, CALLS);
    channel.call();
    let raised = Error::new(
        ErrorCode::Internal,
        "CpuCallback error: Traceback (…):\n  File \"t.py\", line 1\nValueError: é",
    );
    channel.answer(Some(raised.clone()));
    assert_eq!(job.ended(1), Err(raised.clone()));
    assert_eq!(job.fetch(1, 10), Err(raised), "its output stands for it");
    assert_eq!(fixture.resident(), 16, "only the argument is left");
    // The channel is as good as before.
    job.execute(2, 1, &[1], 20);
    assert_eq!(channel.answers().operation, OperationId(2));
    job.ended(2).expect("it ran");
    assert_eq!(fixture.channels(1), (1, 1));
}

#[test]
fn calls_of_one_launch_may_be_under_way_at_the_same_time() {
    let mut fixture = Fixture::new();
    let script = "name: both; params: f32[4]; outputs: f32[4]; callbacks: 3; together: 1";
    let (mut job, first) = Job::calling(&mut fixture, script);
    let mut channels = [first, job.channel(), job.channel()];
    let mut calls: Vec<u64> = channels.iter_mut().map(|c| c.call().callback).collect();
    calls.sort_unstable();
    assert_eq!(calls, [0, 1, 2]);
    fixture.until(|| fixture.state(1) == State::Callback);
    for channel in channels.iter_mut().rev() {
        assert_eq!(fixture.state(1), State::Callback);
        channel.answer(None);
    }
    job.ended(1).expect("it ran");
    fixture.until(|| fixture.sum(|account| account.iterations) == 1);
    assert_eq!(fixture.channels(1), (3, 3));
}

// What goes on meanwhile.

#[test]
fn others_have_the_lane_while_a_call_waits() {
    let mut fixture = Fixture::new();
    let mut other = fixture.job("other.py");
    let (mut job, mut channel) = Job::calling(&mut fixture, CALLS);
    channel.call();
    other.works(1);
    // Also those that call back.
    other.compile(2, CALLS).expect("compiles");
    other.execute(2, 2, &[70], 20);
    let mut second = other.channel();
    assert_eq!(second.answers().operation, OperationId(2));
    other.ended(2).expect("it ran");
    channel.answer(None);
    job.ended(1).expect("it ran");
}

#[test]
fn a_callback_may_launch_and_read() {
    let mut fixture = Fixture::new();
    let (mut job, mut channel) = Job::calling(&mut fixture, CALLS);
    channel.call();
    job.works(2);
    job.fetch(3, 1).expect("the launch's own argument");
    // And what it launches may call back.
    job.execute(4, 1, &[1], 40);
    let mut inner = job.channel();
    assert_eq!(inner.call().operation, OperationId(4));
    job.works(5);
    inner.answer(None);
    job.ended(4).expect("the inner one ran");
    job.fetch(6, 40).expect("its output is there");
    channel.answer(None);
    job.ended(1).expect("the outer one ran");
    job.fetch(7, 10).expect("its output is there");
    fixture.until(|| fixture.sum(|account| account.iterations) == 4);
    assert_eq!(fixture.channels(1), (2, 2));
}

/// What the outer launch reads must stay as it is until that has ended.
#[test]
fn an_argument_of_a_launch_that_waits_is_not_overwritten() {
    let expected = {
        let mut fixture = Fixture::new();
        let (mut job, mut channel) = Job::calling(&mut fixture, CALLS);
        channel.answers();
        job.ended(1).expect("it ran");
        job.fetch(1, 10).expect("it is there")
    };
    let mut fixture = Fixture::new();
    for round in 1..=50 {
        let mut job = fixture.job("train.py");
        job.compile(1, CALLS).expect("compiles");
        job.compile(2, STEP).expect("compiles");
        job.upload(1, [1.0, 2.0, 3.0, 4.0]);
        job.execute(1, 1, &[1], 10);
        // At once, as another thread of the job may do it.
        job.execute(2, 2, &[1], 20);
        let mut channel = job.channel();
        job.ended(2).expect("it ran, on a copy");
        channel.answers();
        job.ended(1).expect("it ran");
        let bits = job.fetch(1, 10).expect("it is there");
        assert_eq!(bits, expected, "in round {round}");
    }
}

#[test]
fn what_is_donated_is_gone_at_once_and_charged_once() {
    let mut fixture = Fixture::new();
    let (mut job, mut channel) = Job::calling(&mut fixture, UPDATES);
    channel.call();
    let gone = job.fetch(1, 1).expect_err("it was donated");
    assert_eq!(gone.message, "array 1 has been deleted or donated");
    let unknown = job.fetch(2, 10).expect_err("nobody may name it yet");
    assert_eq!(unknown.message, "array 10 has been deleted or donated");
    channel.answer(None);
    job.ended(1).expect("it ran");
    job.fetch(3, 10).expect("it is there");
    assert_eq!(fixture.resident(), 16);
    job.send(DropArrays {
        arrays: vec![ArrayId(10)],
    });
    fixture.until(|| fixture.resident() == 0);
}

// Jobs that misbehave.
