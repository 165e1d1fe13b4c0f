//! Every message survives the wire, and no bytes make decoding panic or allocate without reason.

use salus_wire::{
    Adopt, ArrayFailed, AskProfile, AskTrace, AskUsage, Await, CallbackArray, CallbackCall,
    CallbackChannel, CallbackMemory, CallbackReturn, Change, Changed, Command, Compile,
    CompileError, CompileFailed, CompileRequest, CompileResult, Compiled, CompilerEnded,
    CompilerJoined, CompilerWanted, Completed, CopyArray, Description, DropArrays, DropProgram,
    Error, Execute, Failed, Fetch, Fetched, Form, FromCallbacks, FromCompiler, FromHost,
    FromService, Header, Hello, Memory, MemoryStats, Message, Ordered, Output, Priority, Profile,
    Profiled, ProfiledLaunch, Reader, RecordedIteration, RecordedMemory, RecordedMove,
    RecordedRefusal, RecordedSession, RecordedSpan, RecordedWait, Recording, Refused, Region,
    Released, Report, Reported, Request, Segment, SegmentGone, Shape, Signature, StoredProgram,
    Terms, ToCallbacks, ToCompiler, ToHost, ToService, Token, TokenError, Traced, Up, Upload,
    Usage, Value, Welcome, Wire, decode_body, encode_frame, limits, version,
};

fn error() -> Error {
    Error {
        code: 3,
        message: "what happened, why, what to do".into(),
    }
}

fn shape() -> Shape {
    Shape {
        element_type: 11,
        dims: vec![2, 3],
        minor_to_major: Some(vec![0, 1]),
    }
}

fn region() -> Region {
    Region {
        segment: 7,
        offset: 64,
        length: 24,
    }
}

fn description() -> Description {
    Description {
        platform_name: "cpu".into(),
        platform_version: "1".into(),
        kind: "cpu".into(),
        debug_string: "d".into(),
        display_string: "t".into(),
        local_hardware_id: -1,
        plugin_attributes: vec![
            ("a".into(), Value::Text("x".into())),
            ("b".into(), Value::Int(-4)),
            ("c".into(), Value::Ints(vec![1, 2, 3])),
            ("d".into(), Value::Float(0.5)),
            ("e".into(), Value::Bool(true)),
        ],
        device_attributes: vec![],
        memories: vec![Memory {
            id: 0,
            kind: "device".into(),
            kind_id: 9,
            debug_string: String::new(),
            display_string: String::new(),
        }],
        default_memory: 0,
        lanes: 2,
        capacity_bytes: 1 << 34,
        on_host: true,
        plugin_path: "plugin.so".into(),
        api_version: (0, 81),
        serialized_topology: Some(vec![1, 2, 3]),
    }
}

fn signature() -> Signature {
    Signature {
        name: "jit_step".into(),
        fingerprint: Some(vec![1; 8]),
        parameters: vec![shape(), shape()],
        outputs: vec![Output {
            shape: shape(),
            layout_text: "{0,1}".into(),
            memory: 0,
            aliases: Some(1),
        }],
        donated: vec![1],
        code_bytes: 5,
        memory: Some(MemoryStats {
            temp_bytes: 99,
            ..MemoryStats::default()
        }),
        cost: vec![("flops".into(), Value::Float(2.0))],
        optimized_program: vec![0; 100],
        output_memory_kinds: Some(vec!["device".into()]),
        calls_back: true,
    }
}

/// Encodes, decodes, compares; then decodes every prefix and a run of damaged copies.
fn check<M: Message + PartialEq + std::fmt::Debug>(message: impl Into<M>) {
    let message = message.into();
    let mut frame = Vec::new();
    encode_frame(&message, 42, 1, &mut frame);
    let header = Header::decode(&frame)
        .expect("within limits")
        .expect("a whole header");
    assert_eq!((header.sequence, header.descriptors), (42, 1));
    let body = &frame[Header::BYTES..];
    assert_eq!(header.length as usize, body.len());
    let decoded: M = decode_body(header.kind, body).expect("what was encoded decodes");
    assert_eq!(decoded, message);
    for end in 0..body.len() {
        let cut: Result<M, _> = decode_body(header.kind, &body[..end]);
        assert!(
            cut.is_err(),
            "{end} of {} bytes pass for a whole message",
            body.len()
        );
    }
    let mut random = 0x9e37_79b9_7f4a_7c15_u64 ^ body.len() as u64;
    for _ in 0..2000 {
        let mut damaged = body.to_vec();
        for _ in 0..3 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            if damaged.is_empty() {
                break;
            }
            let at = (random >> 33) as usize % damaged.len();
            damaged[at] = (random >> 20) as u8;
        }
        let _: Result<M, _> = decode_body(header.kind, &damaged);
    }
}

#[test]
fn messages_of_jobs() {
    type M = ToService;
    check::<M>(Hello {
        protocol_min: 1,
        protocol_max: 2,
        version: "0.1".into(),
        name: "train.py".into(),
        terms: terms(),
        run: 0,
    });
    check::<M>(Command {
        protocol_min: 1,
        protocol_max: 1,
        request: Request::Report,
    });
    check::<M>(Segment { id: 1, bytes: 4096 });
    check::<M>(SegmentGone { id: 1 });
    check::<M>(Upload {
        array: 1,
        shape: shape(),
        memory: 0,
        data: region(),
    });
    check::<M>(Compile {
        program: 1,
        format: "mlir".into(),
        code: region(),
        options: vec![1, 2, 3],
    });
    check::<M>(Execute {
        operation: 5,
        program: 1,
        first_output: 100,
        arguments: (1..40).collect(),
        keep: vec![0, 3],
    });
    check::<M>(CopyArray {
        operation: 6,
        array: 1,
        copy: 2,
        memory: 1,
    });
    check::<M>(Fetch {
        request: 1,
        array: 2,
        target: region(),
        form: Form::Raw,
    });
    let form = Form::Host {
        minor_to_major: vec![1, 0],
    };
    check::<M>(Fetch {
        request: 1,
        array: 2,
        target: region(),
        form,
    });
    check::<M>(Await { operation: 3 });
    check::<M>(DropArrays {
        arrays: vec![1, 2, 3],
    });
    check::<M>(DropProgram { program: 4 });
    check::<M>(AskUsage { request: 5 });
    check::<M>(AskProfile {
        request: 5,
        since_ns: 1 << 60,
    });
    check::<M>(Command {
        protocol_min: 1,
        protocol_max: 1,
        request: Request::Policy {
            name: "fair".into(),
        },
    });
    check::<M>(Command {
        protocol_min: 1,
        protocol_max: 1,
        request: Request::Trace { seconds: 10 },
    });
    for change in CHANGES {
        check::<M>(Command {
            protocol_min: 1,
            protocol_max: 1,
            request: Request::Change { session: 7, change },
        });
    }
}

const CHANGES: [Change; 7] = [
    Change::MemoryMax(1 << 40),
    Change::Weight(3),
    Change::Priority(Priority::Low),
    Change::Deadline(20_000),
    Change::Pause,
    Change::Resume,
    Change::Kill,
];

fn terms() -> Terms {
    Terms {
        memory_max: 1 << 40,
        weight: 3,
        priority: Priority::High,
        deadline_us: 20_000,
        iterations: 1_000,
        expect_us: 600_000_000,
    }
}

#[test]
fn messages_to_jobs() {
    type M = FromService;
    check::<M>(Welcome {
        protocol: 1,
        session: 7,
        version: "0.1".into(),
        description: description(),
        window: 32,
    });
    check::<M>(Refused { error: error() });
    check::<M>(salus_wire::Answer { json: "{}".into() });
    check::<M>(salus_wire::Trace { bytes: 100 });
    check::<M>(Compiled {
        program: 1,
        bytes: 100,
    });
    check::<M>(CompileFailed {
        program: 1,
        error: error(),
    });
    check::<M>(Completed {
        done: vec![1, 2],
        failed: vec![(3, error())],
    });
    check::<M>(Fetched {
        request: 9,
        error: None,
    });
    check::<M>(Released {
        regions: vec![region(), region()],
    });
    check::<M>(ArrayFailed {
        array: 1,
        error: error(),
    });
    check::<M>(Profiled {
        request: 1,
        bytes: 100,
        error: Some(error()),
    });
    check::<M>(Usage {
        request: 1,
        bytes: 2,
        peak_bytes: 3,
        limit_bytes: 4,
    });
}

#[test]
fn messages_of_callbacks() {
    check::<FromService>(CallbackChannel { channel: 3 });
    let array = CallbackArray {
        shape: shape(),
        offset: 64,
        bytes: 1 << 20,
    };
    check::<ToCallbacks>(CallbackMemory { bytes: 1 << 16 });
    check::<ToCallbacks>(CallbackCall {
        operation: 7,
        callback: 1,
        buffers: true,
        operands: vec![array.clone(), array.clone()],
        results: vec![array],
    });
    check::<FromCallbacks>(CallbackReturn { error: None });
    check::<FromCallbacks>(CallbackReturn {
        error: Some(error()),
    });
}

#[test]
fn messages_inside_the_service() {
    check::<ToHost>(Adopt {
        session: 1,
        protocol: 1,
        pid: 100,
        uid: 1000,
        user: "ada".into(),
        name: "train.py".into(),
        terms: terms(),
    });
    check::<ToHost>(Report { request: 1 });
    for change in CHANGES {
        check::<ToHost>(Changed {
            request: 1,
            session: 2,
            change,
        });
    }
    check::<ToHost>(Ordered {
        request: 1,
        policy: "srtf".into(),
    });
    for names_of in [None, Some(1001)] {
        check::<ToHost>(AskTrace {
            request: 1,
            seconds: 10,
            names_of,
        });
    }
    check::<ToHost>(CompilerJoined {
        compiler: 1,
        pid: 5,
    });
    check::<ToHost>(CompilerEnded {
        compiler: 1,
        how: "signal 6 (SIGABRT)".into(),
    });
    check::<FromHost>(Up {
        description: description(),
        json: "{}".into(),
    });
    check::<FromHost>(Failed { error: error() });
    check::<FromHost>(Reported {
        request: 1,
        json: "{}".into(),
    });
    check::<FromHost>(Traced {
        request: 1,
        bytes: 100,
    });
    check::<FromHost>(CompilerWanted { count: 1 });
    check::<ToCompiler>(CompileRequest {
        format: "mlir".into(),
        code_bytes: 10,
        options: vec![9; 50],
    });
    check::<FromCompiler>(CompileResult { bytes: 10 });
    check::<FromCompiler>(CompileError { error: error() });
}

#[test]
fn a_stored_program_survives() {
    let program = StoredProgram {
        signature: signature(),
        executable: vec![7; 1000],
    };
    let mut bytes = Vec::new();
    program.put(&mut bytes);
    let decoded = StoredProgram::take(&mut Reader::new(&bytes), 0).expect("whole");
    assert_eq!(decoded, program);
}

fn recording() -> Recording {
    let span = RecordedSpan {
        session: 7,
        began_ns: 1,
        ended_ns: 2,
    };
    Recording {
        from_ns: 1,
        until_ns: 99,
        platform: "cpu".into(),
        kind: "Host CPU".into(),
        policy: "fair".into(),
        room_bytes: 1 << 30,
        sessions: vec![RecordedSession {
            session: 7,
            name: "train.py".into(),
            pid: 4121,
            opened_ns: 1,
            closed_ns: Some(98),
        }],
        programs: vec![(5, "jit_step".into())],
        iterations: vec![RecordedIteration {
            session: 7,
            lane: 1,
            program: 5,
            ready_ns: 10,
            started_ns: 20,
            memory_ns: 5,
            began_ns: 30,
            ended_ns: 40,
            runs: true,
        }],
        waits: vec![RecordedWait {
            session: 7,
            ready_ns: 50,
            until_ns: 60,
            memory_ns: 10,
        }],
        moves: vec![RecordedMove {
            session: 7,
            out: true,
            asked_bytes: 100,
            bytes: 90,
            began_ns: 50,
            ended_ns: 55,
        }],
        pauses: vec![span.clone()],
        compilations: vec![span],
        refusals: vec![RecordedRefusal {
            session: 7,
            at_ns: 70,
            why: "too large".into(),
        }],
        policies: vec![(80, "srtf".into())],
        memory: vec![RecordedMemory {
            at_ns: 1,
            resident_bytes: 2,
            paged_bytes: 3,
            scratch_bytes: 4,
        }],
    }
}

#[test]
fn a_recording_survives_and_half_of_one_is_refused() {
    let recording = recording();
    let mut bytes = Vec::new();
    recording.put(&mut bytes);
    let decoded = Recording::take(&mut Reader::new(&bytes), 0).expect("whole");
    assert_eq!(decoded, recording);
    for end in 0..bytes.len() {
        assert!(Recording::take(&mut Reader::new(&bytes[..end]), 0).is_err());
    }
}

#[test]
fn a_profile_survives_and_half_of_one_is_refused() {
    let launch = ProfiledLaunch {
        lane: 1,
        program: 0,
        ready_ns: 1,
        began_ns: 2,
        ended_ns: 3,
    };
    let profile = Profile {
        from_ns: 1 << 60,
        programs: vec!["jit_step".into()],
        launches: vec![launch.clone(), launch],
    };
    let mut bytes = Vec::new();
    profile.put(&mut bytes);
    let decoded = Profile::take(&mut Reader::new(&bytes), 0).expect("whole");
    assert_eq!(decoded, profile);
    for end in 0..bytes.len() {
        assert!(Profile::take(&mut Reader::new(&bytes[..end]), 0).is_err());
    }
}

#[test]
fn counts_are_checked_before_anything_is_allocated() {
    // Four billion ids announced in a body of eight bytes.
    let body = [0xff_u8; 8];
    let refused = decode_body::<ToService>(11, &body).expect_err("more than the limit");
    assert!(refused.0.contains("16384 is the limit"), "{refused}");
    // Within the limit, but not there.
    let refused = decode_body::<ToService>(11, &[0, 16, 0, 0, 1]).expect_err("not there");
    assert!(
        refused.0.contains("announces 4096 items and holds 1 bytes"),
        "{refused}"
    );
}

#[test]
fn a_frame_beyond_the_limit_is_refused_by_its_header() {
    let header = Header {
        length: limits::FRAME_BYTES as u32 + 1,
        kind: 1,
        descriptors: 0,
        sequence: 0,
    };
    assert!(Header::decode(&header.encode()).is_err());
    assert_eq!(Header::decode(&header.encode()[..15]), Ok(None));
}

#[test]
fn unknown_kinds_and_trailing_bytes_are_refused() {
    assert!(decode_body::<ToService>(99, &[]).is_err());
    let mut frame = Vec::new();
    encode_frame(&ToService::from(Await { operation: 1 }), 1, 0, &mut frame);
    frame.push(0);
    assert!(decode_body::<ToService>(10, &frame[Header::BYTES..]).is_err());
}

#[test]
fn the_largest_honest_launch_fits_a_frame() {
    let execute = Execute {
        operation: 1,
        program: 1,
        first_output: 1,
        arguments: vec![u64::MAX; limits::ARGUMENTS],
        keep: vec![u32::MAX; limits::ARGUMENTS],
    };
    let mut frame = Vec::new();
    encode_frame(&ToService::from(execute), 1, 0, &mut frame);
    assert!(Header::decode(&frame).is_ok());
}

#[test]
fn version_windows() {
    let table = [
        ((1, 1), (1, 1), Some(1)),
        ((1, 3), (2, 5), Some(3)),
        ((2, 3), (1, 2), Some(2)),
        ((1, 1), (2, 3), None),
        ((3, 4), (1, 2), None),
        ((1, 4), (3, 2), None),
    ];
    for (ours, theirs, chosen) in table {
        assert_eq!(
            version::choose(ours, theirs).ok(),
            chosen,
            "{ours:?} and {theirs:?}"
        );
    }
    let why = version::choose((1, 1), (7, 9)).expect_err("no version in common");
    assert!(why.contains("1 to 1") && why.contains("7 to 9"), "{why}");
}

#[test]
fn tokens_carry_the_source_and_nothing_foreign_passes_for_one() {
    let token = Token {
        format: "mlir".into(),
        code: vec![5; 300],
        options: vec![1, 2, 3],
    };
    let bytes = token.encode();
    assert_eq!(Token::decode(&bytes), Ok(token));
    assert_eq!(
        Token::decode(b"\x7fELF machine code"),
        Err(TokenError::Foreign)
    );
    assert_eq!(Token::decode(b""), Err(TokenError::Foreign));
    for at in 16..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert_eq!(
            Token::decode(&damaged),
            Err(TokenError::Damaged),
            "byte {at}"
        );
    }
    for end in 16..bytes.len() {
        assert_eq!(Token::decode(&bytes[..end]), Err(TokenError::Damaged));
    }
}
