//! A device host and compilers that are made up.
//!
//! They are this test program, started again to run one "test", [`child`], which does nothing in
//! the ordinary run. The device's name chooses the behaviour; so does a job's name.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use salus_channel::{Inbox, Outbox, send_all};
use salus_wire::{
    Adopt, CompilerWanted, Description, Error, ErrorCode, Failed, FromHost, FromService, Load,
    Reported, SessionClosed, ToHost, Traced, Up, Welcome,
};
use serde_json::json;

use super::super::{Launcher, enter};
use crate::board::{Accusation, Board, Running, Writer};
use crate::config::HostSettings;

/// Which of the two the started program is.
const ROLE: &str = "SALUS_TEST_ROLE";

pub(super) fn launcher() -> Launcher {
    let me = std::env::current_exe().expect("this program has a path");
    // A shell only to keep the test harness of the child quiet.
    let script = format!("{ROLE}=\"$1\" exec \"$0\" --exact \"$2\" >/dev/null 2>&1");
    let child = concat!(module_path!(), "::child");
    let child = child.split_once("::").map_or(child, |(_, path)| path);
    let arguments = |role: &str| {
        let words = ["-c", &script, &me.to_string_lossy(), role, child];
        words.map(Into::into).to_vec()
    };
    Launcher {
        program: "/bin/sh".into(),
        device_host: arguments("host"),
        compiler: arguments("compiler"),
        environment: Vec::new(),
    }
}

#[test]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (control, settings) = enter(c"salus-test").expect("it was started by a supervisor");
    match role.as_str() {
        "compiler" => compile(control),
        _ => host(control, &settings),
    }
}

/// Crashes at the first byte.
fn compile(mut control: UnixStream) {
    if control.read(&mut [0; 1]).is_ok_and(|n| n > 0) {
        std::process::abort();
    }
}

#[derive(Clone)]
struct Control {
    socket: Arc<UnixStream>,
    outbox: Arc<Mutex<Outbox>>,
}

impl Control {
    fn send(&self, message: impl Into<FromHost>) {
        self.send_with(message, None);
    }

    fn send_with(&self, message: impl Into<FromHost>, descriptor: Option<OwnedFd>) {
        let mut outbox = salus_channel::lock(&self.outbox);
        outbox.push(&message.into(), descriptor);
        let _ = outbox.flush(&*self.socket, true);
    }
}

fn host(mut socket: UnixStream, settings: &HostSettings) {
    let device = settings.device.name.as_str();
    let index = settings.device_index.unwrap_or(0);
    match device {
        "dies" => std::process::abort(),
        "second_dies" if index == 1 => std::process::abort(),
        "babbles" => {
            socket.write_all(&[0xff; 64]).expect("it reads");
            let _ = socket.read(&mut [0; 1]);
        }
        "gated" => {
            let mut access = UnixStream::connect(settings.cache.directory.join("access"))
                .expect("the test listens");
            access.read_exact(&mut [0; 1]).expect("the test opens it");
        }
        _ => {}
    }
    let control = Control {
        socket: Arc::new(socket),
        outbox: Arc::default(),
    };
    if device == "fails" || (device == "second_fails" && index == 1) {
        return control.send(Failed {
            error: Error::new(ErrorCode::NotFound, "no such device"),
        });
    }
    control.send(Up {
        description: description(),
        json: json!({ "device": { "platform": "fake", "lanes": 1, "index": index } }).to_string(),
    });
    listen(&control, settings, device == "mute");
}

fn listen(control: &Control, settings: &HostSettings, mute: bool) {
    let mut events: Vec<String> = Vec::new();
    let mut sessions = Vec::new();
    let mut writer: Option<Writer> = None;
    let mut inbox = Inbox::default();
    loop {
        let Some(received) = inbox.take::<ToHost>().expect("it is a frame") else {
            match inbox.fill(&*control.socket, true) {
                Ok(n) if n > 0 => continue,
                _ => return,
            }
        };
        match (received.message, received.descriptor) {
            (ToHost::Adopt(adopt), Some(job)) => {
                // Names like `crash 5` run program 5 when they end everything.
                let number = adopt.name.split(' ').nth(1).and_then(|n| n.parse().ok());
                let running = writer.as_ref().zip(number);
                if let Some((writer, program)) = running
                    && adopt.name.starts_with("break")
                {
                    accuse(writer, adopt.session, program);
                }
                let running = running.map(|(w, n)| w.begin(0, adopt.session, n, "bad_program"));
                sessions.push(json!({ "id": adopt.session, "name": adopt.name }));
                adopted(control, &adopt, job.into());
                drop(running);
            }
            (ToHost::Report(_), _) if mute => {}
            (ToHost::Report(report), _) => {
                let policy = settings.scheduling.policy.name();
                let json = json!({
                    "device": {
                        "platform": "fake", "index": settings.device_index, "events": events,
                        "began_with": policy, "compilers": settings.compilers.count,
                    },
                    "sessions": sessions,
                    "events": events, "policy": policy,
                });
                control.send(Reported {
                    request: report.request,
                    json: json.to_string(),
                });
            }
            (ToHost::ChangeSession(changed), _) => {
                events.push(format!("session {}: {:?}", changed.session, changed.change));
                control.send(Reported {
                    request: changed.request,
                    json: "{}".into(),
                });
            }
            (ToHost::ChangePolicy(ordered), _) => {
                events.push(format!("policy {}", ordered.policy));
                control.send(Reported {
                    request: ordered.request,
                    json: "{}".into(),
                });
            }
            (ToHost::AskTrace(_), _) if mute => {}
            (ToHost::AskTrace(asked), _) => {
                let data = format!("the last {} s", asked.seconds);
                let (request, bytes) = (asked.request, data.len() as u64);
                let blob = salus_channel::blob(data.as_bytes()).expect("memory");
                control.send_with(Traced { request, bytes }, Some(blob));
            }
            (ToHost::CompilerJoined(joined), Some(socket)) => {
                events.push(format!("compiler {} joined", joined.compiler));
                UnixStream::from(socket)
                    .write_all(b"!")
                    .expect("the compiler is there");
            }
            (ToHost::CompilerEnded(ended), _) => {
                events.push(format!("compiler {} ended: {}", ended.compiler, ended.how));
            }
            (ToHost::Board(_), Some(memory)) => {
                let board = Board::open(memory).expect("the supervisor's memory");
                writer = Some(Writer::new(board));
            }
            (ToHost::Convicted(convicted), _) => {
                events.push(format!("convicted {}", convicted.program));
            }
            (ToHost::Adopt(_) | ToHost::CompilerJoined(_) | ToHost::Board(_), None) => {
                panic!("no descriptor came")
            }
        }
    }
}

/// As a device host does whose device has failed.
fn accuse(writer: &Writer, session: u64, program: u64) {
    writer.board().accuse(&Accusation {
        session,
        program: Some(Running {
            session,
            program,
            name: "bad_program".into(),
        }),
        why: "CUDA_ERROR_ILLEGAL_ADDRESS".into(),
    });
}

fn adopted(control: &Control, adopt: &Adopt, mut job: UnixStream) {
    match adopt.name.split(' ').next().unwrap_or_default() {
        "crash" | "break" => std::process::abort(),
        "compile" => control.send(CompilerWanted { count: 1 }),
        "load" => {
            let number = |n| adopt.name.split(' ').nth(n).and_then(|n| n.parse().ok());
            control.send(Load {
                newest: adopt.session,
                wanting_milli: number(1).expect("sessions that want the device"),
                held_bytes: number(2).expect("bytes that they hold"),
            });
        }
        _ => {}
    }
    let welcome = Welcome {
        protocol: adopt.protocol,
        session: adopt.session,
        version: "test".into(),
        description: description(),
        window: 1,
    };
    send_all(&job, &FromService::from(welcome), None).expect("the job reads");
    let (control, session) = (control.clone(), adopt.session);
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = job.read_to_end(&mut bytes);
        let _ = job.write_all(&bytes);
        drop(job);
        control.send(SessionClosed { session });
    });
}

fn description() -> Description {
    Description {
        platform_name: "fake".into(),
        platform_version: "1".into(),
        kind: "made up".into(),
        debug_string: "fake:0".into(),
        display_string: "fake:0".into(),
        local_hardware_id: 0,
        plugin_attributes: Vec::new(),
        device_attributes: Vec::new(),
        memories: Vec::new(),
        default_memory: 0,
        lanes: 1,
        capacity_bytes: 1 << 30,
        on_host: true,
        plugin_path: String::new(),
        api_version: (0, 81),
        serialized_topology: None,
        topology_attributes: Vec::new(),
    }
}
