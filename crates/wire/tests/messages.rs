//! Every message survives the wire, and no bytes make decoding panic or allocate without reason.

use std::num::{NonZeroU32, NonZeroU64};

use salus_fuzz::{Fuzz, peak_bytes};
use salus_wire::{
    Adopt, ArrayFailed, ArrayId, AskProfile, AskTrace, AskUsage, Await, CallbackArray,
    CallbackCall, CallbackChannel, CallbackMemory, CallbackReturn, Change, ChangePolicy,
    ChangeSession, Command, Compile, CompileError, CompileFailed, CompileRequest, CompileResult,
    Compiled, CompilerEnded, CompilerJoined, CompilerWanted, Completed, CopyArray, Description,
    DropArrays, DropProgram, Error, ErrorCode, Failed, Form, FromCallbacks, FromCompiler, FromHost,
    FromService, Header, Hello, JobSettings, Launch, Memory, MemoryStats, Message, NonZeroDuration,
    OperationId, Output, Priority, Profile, Profiled, ProfiledLaunch, ProgramId, ReadArray,
    ReadDone, Reader, RecordedIteration, RecordedMemory, RecordedMove, RecordedRefusal,
    RecordedSession, RecordedSpan, RecordedWait, Recording, Refused, Region, Released, Report,
    Reported, Request, RequestId, Segment, SegmentGone, SegmentId, Shape, Signature, StoredProgram,
    ToCallbacks, ToCompiler, ToHost, ToService, Token, TokenError, Traced, Up, Upload, Usage,
    Value, Weight, Welcome, Wire, Work, decode_body, encode_frame, limits, version,
};

fn error() -> Error {
    Error::new(ErrorCode::InvalidArgument, "what happened, why, what to do")
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
        segment: SegmentId(7),
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
    encode_frame(&message, 1, &mut frame);
    let header = Header::decode(&frame)
        .expect("within limits")
        .expect("a whole header");
    assert_eq!(header.descriptors, 1);
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
    // The kind is part of the input, so that bodies are read as other messages, too.
    let seed = [&header.kind.to_le_bytes(), body].concat();
    Fuzz::new("message", 2000).seed(seed).run(|input| {
        let Some((kind, body)) = input.split_first_chunk() else {
            return false;
        };
        let kind = u16::from_le_bytes(*kind);
        let decoded: Option<M> = bounded(body, |body| decode_body(kind, body).ok());
        let Some(decoded) = decoded else { return false };
        let mut again = Vec::new();
        decoded.put_body(&mut again);
        assert_eq!((decoded.kind(), again.as_slice()), (kind, body));
        true
    });
}

/// Decodes, and holds no more than the bytes justify: the smallest item of a list takes a tenth of
/// what it is decoded to.
fn bounded<T>(bytes: &[u8], decode: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let (decoded, peak) = peak_bytes(|| decode(bytes));
    let allowed = 1024 + 16 * bytes.len();
    assert!(peak <= allowed, "{peak} bytes for {} bytes", bytes.len());
    decoded
}

/// The same for a value that travels in shared memory: every part of it is refused, and whatever
/// else decodes is what it encodes to.
fn check_blob<T: Wire + PartialEq + std::fmt::Debug>(value: &T) {
    let decode = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes);
        let decoded = T::take(&mut reader, 0).ok()?;
        reader.is_empty().then_some(decoded)
    };
    let mut bytes = Vec::new();
    value.put(&mut bytes);
    assert_eq!(decode(&bytes).as_ref(), Some(value));
    for end in 0..bytes.len() {
        assert!(T::take(&mut Reader::new(&bytes[..end]), 0).is_err());
    }
    Fuzz::new("blob", 10_000).seed(bytes).run(|input| {
        let Some(decoded) = bounded(input, decode) else {
            return false;
        };
        let mut again = Vec::new();
        decoded.put(&mut again);
        assert_eq!(again, input);
        true
    });
}

#[test]
fn messages_of_jobs() {
    type M = ToService;
    check::<M>(Hello {
        protocol_min: 1,
        protocol_max: 2,
        version: "0.1".into(),
        name: "train.py".into(),
        settings: settings(),
        run: 0,
    });
    check::<M>(Command {
        protocol_min: 1,
        protocol_max: 1,
        request: Request::Report,
    });
    check::<M>(Segment {
        id: SegmentId(1),
        bytes: 4096,
    });
    check::<M>(SegmentGone { id: SegmentId(1) });
    check::<M>(Upload {
        array: ArrayId(1),
        shape: shape(),
        memory: 0,
        data: region(),
    });
    check::<M>(Compile {
        program: ProgramId(1),
        format: "mlir".into(),
        code: region(),
        options: vec![1, 2, 3],
    });
    check::<M>(Launch {
        operation: OperationId(5),
        program: ProgramId(1),
        first_output: ArrayId(100),
        arguments: (1..40).map(ArrayId).collect(),
        keep: vec![0, 3],
    });
    check::<M>(CopyArray {
        operation: OperationId(6),
        array: ArrayId(1),
        copy: ArrayId(2),
        memory: 1,
    });
    check::<M>(ReadArray {
        request: RequestId(1),
        array: ArrayId(2),
        target: region(),
        form: Form::Raw,
    });
    let form = Form::Host {
        minor_to_major: vec![1, 0],
    };
    check::<M>(ReadArray {
        request: RequestId(1),
        array: ArrayId(2),
        target: region(),
        form,
    });
    check::<M>(Await {
        operation: OperationId(3),
    });
    check::<M>(DropArrays {
        arrays: [1, 2, 3].map(ArrayId).to_vec(),
    });
    check::<M>(DropProgram {
        program: ProgramId(4),
    });
    check::<M>(AskUsage {
        request: RequestId(5),
    });
    check::<M>(AskProfile {
        request: RequestId(5),
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

const THREE: Weight = Weight(NonZeroU32::MIN.saturating_add(2));

const CHANGES: [Change; 7] = [
    Change::MemoryMax(NonZeroU64::new(1 << 40)),
    Change::Weight(THREE),
    Change::Priority(Priority::Low),
    Change::Deadline(NonZeroDuration::from_nanos(20_000_000)),
    Change::Pause,
    Change::Resume,
    Change::Kill,
];

fn settings() -> JobSettings {
    JobSettings {
        memory_max: NonZeroU64::new(1 << 40),
        weight: THREE,
        priority: Priority::High,
        deadline: NonZeroDuration::from_nanos(20_000_000),
        work: NonZeroU64::new(1_000).map(Work::Iterations),
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
        program: ProgramId(1),
        bytes: 100,
    });
    check::<M>(CompileFailed {
        program: ProgramId(1),
        error: error(),
    });
    check::<M>(Completed {
        done: vec![OperationId(1), OperationId(2)],
        failed: vec![(OperationId(3), error())],
    });
    check::<M>(ReadDone {
        request: RequestId(9),
        error: None,
    });
    check::<M>(Released {
        regions: vec![region(), region()],
    });
    check::<M>(ArrayFailed {
        array: ArrayId(1),
        error: error(),
    });
    check::<M>(Profiled {
        request: RequestId(1),
        bytes: 100,
        error: Some(error()),
    });
    check::<M>(Usage {
        request: RequestId(1),
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
        operation: OperationId(7),
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
        settings: settings(),
    });
    check::<ToHost>(Report { request: 1 });
    for change in CHANGES {
        check::<ToHost>(ChangeSession {
            request: 1,
            session: 2,
            change,
        });
    }
    check::<ToHost>(ChangePolicy {
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
    check_blob(&program);
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
    check_blob(&recording());
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
    check_blob(&profile);
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
    };
    assert!(Header::decode(&header.encode()).is_err());
    assert_eq!(Header::decode(&header.encode()[..7]), Ok(None));
}

#[test]
fn unknown_kinds_and_trailing_bytes_are_refused() {
    assert!(decode_body::<ToService>(99, &[]).is_err());
    let mut frame = Vec::new();
    encode_frame(
        &ToService::from(Await {
            operation: OperationId(1),
        }),
        0,
        &mut frame,
    );
    frame.push(0);
    assert!(decode_body::<ToService>(10, &frame[Header::BYTES..]).is_err());
}

#[test]
fn the_largest_honest_launch_fits_a_frame() {
    let execute = Launch {
        operation: OperationId(1),
        program: ProgramId(1),
        first_output: ArrayId(1),
        arguments: vec![ArrayId(u64::MAX); limits::ARGUMENTS],
        keep: vec![u32::MAX; limits::ARGUMENTS],
    };
    let mut frame = Vec::new();
    encode_frame(&ToService::from(execute), 0, &mut frame);
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
    assert_eq!(Token::decode(&bytes).as_ref(), Ok(&token));
    // What is behind the check, which damage does not get past; then the whole.
    check_blob(&token);
    Fuzz::new("token", 10_000).seed(bytes.clone()).run(|input| {
        let Some(decoded) = bounded(input, |input| Token::decode(input).ok()) else {
            return false;
        };
        assert_eq!(decoded.encode(), input);
        true
    });
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

#[test]
fn settings_that_mean_nothing_are_refused() {
    let refused = |bytes: &[u8]| {
        let weight = <Weight as Wire>::take(&mut Reader::new(bytes), 0);
        weight.expect_err("a weight of 0 would never run").0
    };
    assert_eq!(refused(&[0; 4]), "expected a weight from 1, found 0");
    let zero = <NonZeroDuration as Wire>::take(&mut Reader::new(&[0; 8]), 0);
    assert_eq!(
        zero.expect_err("no iteration ends in no time").0,
        "expected a time from 1, found 0"
    );
    let weight = |text: &str| text.parse::<Weight>().map_err(|e| e.to_string());
    assert_eq!(weight("3"), Ok(THREE));
    assert_eq!(
        weight("0"),
        Err("expected a whole number from 1, found `0`: a weight of 0 would never run".into())
    );
    assert_eq!(
        weight("two"),
        Err("expected a whole number from 1, found `two`".into())
    );
    let urgent = "urgent".parse::<Priority>().map_err(|e| e.to_string());
    assert_eq!(
        urgent,
        Err("expected `high`, `normal` or `low`, found `urgent`".into())
    );
}
