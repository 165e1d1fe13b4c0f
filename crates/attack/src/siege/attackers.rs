//! The attackers of the siege: each is a thread that goes on until the siege is over.

use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::process::Signal;
use salus_harness::{Client, Ending, Keeper, Loss, Process, Service};
use salus_wire::{
    ArrayId, AskUsage, Await, DropArrays, Form, Launch, ProgramId, ReadArray, Region, RequestId,
    SegmentId, Shape, Upload, limits,
};

use super::Arguments;
use crate::Problem;
use crate::frames;
use crate::generated;
use crate::iteration;
use crate::programs;
use crate::scribble;
use crate::tally::Tally;

/// The lowest priority there is; the reason is in the header of the module above.
const NICE: i32 = 19;
const COMPILE_TIME: Duration = Duration::from_secs(20);
const RUN_TIME: Duration = Duration::from_secs(20);

/// What an attacker needs.
#[derive(Clone, Copy)]
struct Scene<'a> {
    service: &'a Service,
    keeper: &'a Keeper,
    over: &'a AtomicBool,
}

impl Scene<'_> {
    fn is_over(self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Waits between two blows, and not past the end.
    fn pause(self, random: &mut Rng, milliseconds: u64) {
        let until = Instant::now() + Duration::from_millis(random.u64(..milliseconds));
        while Instant::now() < until && !self.is_over() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

type Attacker = fn(Scene<'_>, &mut Rng, &mut Tally) -> Result<(), Problem>;

const ATTACKERS: &[(&str, Attacker)] = &[
    ("kills and stops", kill_and_stop),
    ("frames", send_frames),
    ("programs", run_programs),
    ("limits", exhaust),
    ("compilers", hold_compilers),
    ("never reads", never_read),
    ("shared memory", change_memory),
];

pub(super) fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    service: &'scope Service,
    keeper: &'scope Keeper,
    arguments: &Arguments,
    over: &'scope AtomicBool,
) -> Vec<ScopedJoinHandle<'scope, Option<Tally>>> {
    let scene = Scene {
        service,
        keeper,
        over,
    };
    let (only, seed) = (&arguments.only, arguments.seed);
    ATTACKERS
        .iter()
        .zip(1u64..)
        .filter(|((name, _), _)| only.is_empty() || only.iter().any(|one| one == name))
        .map(|((name, attacker), number)| {
            scope.spawn(move || {
                // Of this thread alone.
                let _ = rustix::process::nice(NICE);
                let mut random = Rng::with_seed(seed.wrapping_mul(1000).wrapping_add(number));
                let mut tally = Tally::new(name);
                while !scene.is_over() {
                    // An attacker that is thrown out comes again.
                    if let Err(problem) = attacker(scene, &mut random, &mut tally) {
                        tally.count("thrown out");
                        tally.reason(&problem.to_string());
                        scene.pause(&mut random, 50);
                    }
                }
                Some(tally)
            })
        })
        .collect()
}

pub(super) fn small_program(number: u32) -> String {
    format!(
        "module @small {{ func.func public @main(%a: tensor<64x64xf32>) -> tensor<64x64xf32> {{
           %c = stablehlo.constant dense<{number}.0> : tensor<64x64xf32>
           %m = stablehlo.multiply %a, %c : tensor<64x64xf32>
           %r = stablehlo.dot %m, %a : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32>
           return %r : tensor<64x64xf32> }} }}"
    )
}

/// Processes with sessions that are stopped, go on, and are killed wherever they are.
fn kill_and_stop(scene: Scene<'_>, random: &mut Rng, tally: &mut Tally) -> Result<(), Problem> {
    let seed = random.u64(..).to_string();
    let victim = Process::start(
        scene.keeper,
        std::env::current_exe()?.as_os_str(),
        Ending::Kill,
        Path::new("/dev/null"),
        |command| {
            command
                .args(["victim", "--seed", &seed, "--socket"])
                .arg(scene.service.socket())
                .stdout(Stdio::null());
        },
    )?;
    scene.pause(random, 400);
    if random.bool() {
        victim.signal(Signal::STOP)?;
        tally.count("stopped");
        scene.pause(random, 1500);
        if random.bool() {
            victim.signal(Signal::CONT)?;
            scene.pause(random, 200);
        }
    }
    drop(victim);
    tally.count("killed");
    Ok(())
}

fn send_frames(scene: Scene<'_>, random: &mut Rng, tally: &mut Tally) -> Result<(), Problem> {
    let many = random.usize(1..60);
    let mut sent = 0;
    let ended = frames::session(scene.service, random, many, &mut sent);
    tally.add("sent", sent);
    match ended {
        Ok(()) => tally.count("sessions that outlived their frames"),
        Err(Loss::Refused(why)) => {
            tally.count("sessions refused with a reason");
            tally.reason(&why);
        }
        Err(loss) => return Err(loss.into()),
    }
    Ok(())
}

/// Random modules, and changed ones without loops: those might never end, and nobody who trains
/// beside an endless program gets anything done.
fn run_programs(scene: Scene<'_>, random: &mut Rng, tally: &mut Tally) -> Result<(), Problem> {
    let mut session = Client::open(scene.service.socket(), "programs")?;
    for _ in 0..random.u32(1..40) {
        if scene.is_over() {
            break;
        }
        let seed = random.u64(..);
        let code = match random.bool() {
            true => generated::module(seed, false).text.into_bytes(),
            false => match programs::module(seed) {
                ("text" | "scan" | "random", _) => continue,
                (_, code) => code,
            },
        };
        match session.compile("mlir", &code, &[], COMPILE_TIME)? {
            Ok((program, signature)) => {
                iteration::run(&mut session, program, &signature, Some(random), RUN_TIME)?;
                session.drop_program(program);
                tally.count("run");
            }
            Err(_) => tally.count("refused"),
        }
    }
    Ok(())
}

// tidy: long, because it is one list of cases, one for each limit.
/// Goes to a limit and beyond.
fn exhaust(scene: Scene<'_>, random: &mut Rng, tally: &mut Tally) -> Result<(), Problem> {
    let socket = scene.service.socket();
    match random.u32(..6) {
        0 => {
            tally.count("many sessions");
            let mut sessions = Vec::new();
            while sessions.len() < 600 && !scene.is_over() {
                sessions.push(Client::open(socket, "one of many")?);
            }
        }
        1 => {
            tally.count("many segments");
            let mut session = Client::open(socket, "segments")?;
            for _ in 0..=limits::SEGMENTS {
                session.segment(4096)?;
                session.flush()?;
            }
        }
        2 => {
            tally.count("many programs");
            let mut session = Client::open(socket, "programs")?;
            for _ in 0..500 {
                let code = small_program(random.u32(..3));
                let made = session.compile("mlir", code.as_bytes(), &[], COMPILE_TIME)?;
                if made.is_err() || scene.is_over() {
                    break;
                }
            }
        }
        3 => {
            tally.count("many launches");
            let (mut session, program, array) = with_array(scene)?;
            for _ in 0..4 * limits::LAUNCHES {
                let operation = session.next_operation();
                let first_output = session.next_array();
                let arguments = vec![array];
                let keep = vec![0];
                let launch = Launch {
                    operation,
                    program,
                    first_output,
                    arguments,
                    keep,
                };
                session.push(launch);
                session.push(Await { operation });
            }
            session.flush()?;
            until_told(&mut session)?;
        }
        4 => {
            tally.count("many reads");
            let (mut session, _, array) = with_array(scene)?;
            for request in (0..2 * limits::REQUESTS as u64).map(RequestId) {
                let target = Region {
                    segment: SegmentId(2),
                    offset: 0,
                    length: 64 * 64 * 4,
                };
                session.push(ReadArray {
                    request,
                    array,
                    target,
                    form: Form::Raw,
                });
            }
            session.flush()?;
            until_told(&mut session)?;
        }
        _ => {
            tally.count("many arrays");
            let (mut session, _, _) = with_array(scene)?;
            let mut arrays = Vec::new();
            for _ in 0..20_000 {
                let array = session.next_array();
                arrays.push(array);
                session.push(upload(array));
            }
            session.flush()?;
            for some in arrays.chunks(limits::BATCH) {
                session.push(DropArrays {
                    arrays: some.to_vec(),
                });
            }
            session.flush()?;
            until_told(&mut session)?;
        }
    }
    Ok(())
}

fn upload(array: ArrayId) -> Upload {
    Upload {
        array,
        shape: Shape {
            element_type: 11,
            dims: vec![64, 64],
            minor_to_major: None,
        },
        memory: 0,
        data: Region {
            segment: SegmentId(2),
            offset: 0,
            length: 64 * 64 * 4,
        },
    }
}

/// A session, a program of it, and an array in its second segment.
fn with_array(scene: Scene<'_>) -> Result<(Client, ProgramId, ArrayId), Problem> {
    let mut session = Client::open(scene.service.socket(), "limits")?;
    let made = session.compile("mlir", small_program(1).as_bytes(), &[], COMPILE_TIME)?;
    let (program, _) = made?;
    session.segment(1 << 16)?;
    let array = session.next_array();
    session.push(upload(array));
    session.flush()?;
    Ok((session, program, array))
}

/// Takes answers until the service has read all that was sent.
fn until_told(session: &mut Client) -> Result<(), Loss> {
    session.push(AskUsage {
        request: RequestId(77),
    });
    session.flush()?;
    let deadline = Instant::now() + RUN_TIME;
    loop {
        if let salus_wire::FromService::Usage(usage) = session.receive(deadline)?.message
            && usage.request == RequestId(77)
        {
            return Ok(());
        }
    }
}

/// Loops in loops: what they take to compile grows faster than they do.
fn hold_compilers(scene: Scene<'_>, random: &mut Rng, tally: &mut Tally) -> Result<(), Problem> {
    let mut session = Client::open(scene.service.socket(), "slow to compile")?;
    let depth = random.usize(40..130);
    let mut code = String::from(
        "module @deep { func.func public @main(%a: tensor<i32>) -> tensor<i32> {
           %n = stablehlo.constant dense<2> : tensor<i32>
           %i = stablehlo.constant dense<1> : tensor<i32>\n",
    );
    for level in 0..depth {
        let init = match level {
            0 => "%a".to_owned(),
            _ => format!("%x{}", level - 1),
        };
        code += &format!(
            "%l{level} = stablehlo.while(%x{level} = {init}) : tensor<i32> cond {{
               %c = stablehlo.compare LT, %x{level}, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
               stablehlo.return %c : tensor<i1> }} do {{\n"
        );
    }
    for level in (0..depth).rev() {
        let inner = match level + 1 == depth {
            true => format!("%x{level}"),
            false => format!("%l{}", level + 1),
        };
        code += &format!(
            "%y{level} = stablehlo.add {inner}, %i : tensor<i32>
             stablehlo.return %y{level} : tensor<i32> }}\n"
        );
    }
    code += "return %l0 : tensor<i32> } }";
    tally.count("asked for");
    // It goes away before the answer as a rule.
    let time = Duration::from_millis(random.u64(100..5000));
    match session.compile("mlir", code.as_bytes(), &[], time) {
        Ok(Ok(_)) => tally.count("compiled"),
        Ok(Err(_)) => tally.count("refused"),
        Err(Loss::Late) => tally.count("left alone"),
        Err(loss) => return Err(loss.into()),
    }
    Ok(())
}

/// Asks and asks, and takes no answer.
fn never_read(scene: Scene<'_>, random: &mut Rng, tally: &mut Tally) -> Result<(), Problem> {
    let mut session = Client::open(scene.service.socket(), "never reads")?;
    session
        .stream()
        .set_write_timeout(Some(Duration::from_secs(5)))?;
    tally.count("sessions");
    while !scene.is_over() {
        for request in 0..1000 {
            session.push(AskUsage {
                request: RequestId(request),
            });
        }
        if session.flush().is_err() {
            tally.count("closed by the service");
            break;
        }
    }
    scene.pause(random, 500);
    Ok(())
}

fn change_memory(scene: Scene<'_>, random: &mut Rng, tally: &mut Tally) -> Result<(), Problem> {
    let (body, donated) = scribble::any_code(random);
    scribble::launches(scene.service, random, body, donated, scene.over, tally)?;
    scene.pause(random, 300);
    Ok(())
}
