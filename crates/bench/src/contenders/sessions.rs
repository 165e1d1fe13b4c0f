//! Sessions without a job: what the service has of a job that is connected and does nothing.
//!
//! They speak the wire themselves, because ten Python processes would weigh more than what is
//! measured. Each uploads a small array, reads it back and drops it, so that the service has made
//! whatever it makes for a session that works.

use std::path::Path;
use std::time::{Duration, Instant};

use salus_channel::Segment;
use salus_daemon::config::Problem;
use salus_harness::{Client, Loss};
use salus_wire::{DropArrays, Form, Region, Shape, Token};

/// The service answers at once, or not at all.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Holds the array on its way there, and back.
const SEGMENT_BYTES: u64 = 4096;
/// `PJRT_Buffer_Type_F32`.
const F32: u32 = 11;
const VALUES: [u8; 16] = [7; 16];

/// An open session; it ends when it is dropped.
pub(crate) struct Session {
    client: Client,
    /// Stays mapped here as in a job, so that its pages count half for the service.
    _segment: Segment,
}

impl Session {
    pub(crate) fn open(socket: &Path) -> Result<Self, Problem> {
        let failed = |what: &str| Problem::new(format!("a session cannot be opened: {what}"));
        let opened = Client::open(socket, "bench");
        let mut client = opened.map_err(|loss| failed(&loss.to_string()))?;
        match use_once(&mut client) {
            Ok(Ok(segment)) => Ok(Self {
                client,
                _segment: segment,
            }),
            Ok(Err(what)) => Err(failed(&what)),
            Err(loss) => Err(failed(&loss.to_string())),
        }
    }

    /// Asks for a program as the library does in a job, and returns how long it took to have it.
    pub(crate) fn load(&mut self, program: &Token) -> Result<Duration, Problem> {
        let failed =
            |what: &str| Problem::new(format!("a session cannot have its program: {what}"));
        match load(&mut self.client, program) {
            Ok(Ok(time)) => Ok(time),
            Ok(Err(what)) => Err(failed(&what)),
            Err(loss) => Err(failed(&loss.to_string())),
        }
    }
}

fn load(client: &mut Client, program: &Token) -> Result<Result<Duration, String>, Loss> {
    let length = program.code.len() as u64;
    let (segment, memory) = client.segment(length)?;
    client.flush()?;
    let begin = Instant::now();
    memory.copy_in(0, &program.code);
    let code = Region {
        segment,
        offset: 0,
        length,
    };
    let loaded = client.compile_from(&program.format, code, &program.options, ANSWER_TIME)?;
    let time = begin.elapsed();
    Ok(loaded.map(|_| time).map_err(|error| error.message))
}

/// Uploads, reads and drops an array; returns the segment it used, or what went wrong.
fn use_once(client: &mut Client) -> Result<Result<Segment, String>, Loss> {
    let (segment, memory) = client.segment(SEGMENT_BYTES)?;
    let length = VALUES.len() as u64;
    let region = |offset| Region {
        segment,
        offset,
        length,
    };
    let back = SEGMENT_BYTES / 2;
    memory.copy_in(0, &VALUES);
    let shape = Shape {
        element_type: F32,
        dims: vec![4],
        minor_to_major: None,
    };
    let array = client.upload(shape, region(0));
    let deadline = Instant::now() + ANSWER_TIME;
    if let Some(error) = client.read(array, region(back), Form::Raw, deadline)? {
        return Ok(Err(error.message));
    }
    if memory.copy_out(back, length).as_deref() != Some(&VALUES[..]) {
        return Ok(Err("an array came back with other values".into()));
    }
    client.push(DropArrays {
        arrays: vec![array],
    });
    client.flush()?;
    Ok(Ok(memory))
}
