//! A job played by hand against a device host on the scripted device: real sockets, real segments,
//! real threads, and a device whose every answer is known.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use salus_channel::{Inbox, Outbox, Segment};
use salus_device::{Clock, Pieces, ScriptedConfig, ScriptedDevice};
use salus_engine::{Account, Engine, Policy, Room};
use salus_wire::{
    Adopt, ArrayId, Await, Compile, Completed, CopyArray, DropArrays, Error, ErrorCode, Form,
    FromService, JobSettings, Launch, OperationId, ProgramId, ReadArray, Region, RequestId,
    SegmentId, Shape, ToService, Upload, limits,
};

use crate::config::HostSettings;
use crate::device_host::clocked_engine::ClockedEngine;
use crate::device_host::memory::page_pool::Pool;
use crate::device_host::memory::pins::Pins;
use crate::device_host::programs::Programs;
use crate::device_host::programs::cache::{Disk, Platform};
use crate::device_host::programs::compiler_pool::Compilers;
use crate::device_host::session::SharedSession;
use crate::device_host::{Host, Supervisor};

mod fixture;
mod job;

mod accelerator;
mod bounds;
mod callbacks;
mod ends;
mod launches;
mod own_memory;
mod paging;
mod profiles;
mod programs;
mod sharing;
mod tokens;
mod traces;
mod tuning;
mod uploads;

use fixture::{Fixture, scripted};
use job::Job;

const DEADLINE: Duration = Duration::from_secs(20);
const F32: u32 = 11;
const STEP: &str = "name: step; params: f32[4]; outputs: f32[4] alias 0; scratch: 100; ms: 5";
const KEEPING: &str = "name: keeping; params: f32[4]; outputs: f32[4]; ms: 5";

/// Steps of which each has the last one's output as its argument; returns the last output.
fn train(job: &mut Job, steps: u64, mut between: impl FnMut(u64)) -> u64 {
    job.compile(1, STEP).expect("compiles");
    job.upload(1, [1.0, 2.0, 3.0, 4.0]);
    let mut state = 1;
    for step in 1..=steps {
        job.execute(step, 1, &[state], 10 + step);
        state = 10 + step;
        job.ended(step).expect("it ran");
        between(step);
    }
    state
}
