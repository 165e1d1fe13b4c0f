//! Every message survives the wire.

use salus_wire::{
    Adopt, ArrayFailed, ArrayId, AskProfile, AskTrace, AskUsage, Await, CallbackArray,
    CallbackCall, CallbackChannel, CallbackMemory, CallbackReturn, ChangePolicy, ChangeSession,
    Command, Compile, CompileError, CompileFailed, CompileRequest, CompileResult, Compiled,
    CompilerEnded, CompilerJoined, CompilerWanted, Completed, CopyArray, DropArrays, DropProgram,
    Failed, Form, FromCallbacks, FromCompiler, FromHost, FromService, Hello, Launch, Load,
    OperationId, Profiled, ProgramId, ReadArray, ReadDone, Refused, Released, Report, Reported,
    Request, RequestId, Segment, SegmentGone, SegmentId, Target, ToCallbacks, ToCompiler, ToHost,
    ToService, Traced, Up, Upload, Usage, Welcome,
};

use crate::check::check;

use crate::samples::{CHANGES, description, error, region, settings, shape};

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
        device: "cuda:1".into(),
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
            device: "cuda:1".into(),
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
    for missing in [None, Some("starting again".to_owned())] {
        check::<M>(salus_wire::Trace {
            device: "cuda:1".into(),
            bytes: 100,
            missing,
            more: 1,
        });
    }
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
    check::<FromHost>(Load {
        newest: 7,
        wanting_milli: 1500,
        held_bytes: 1 << 40,
    });
    check::<ToCompiler>(Target {
        description: description(),
        tunes: true,
    });
    check::<ToCompiler>(CompileRequest {
        format: "mlir".into(),
        code_bytes: 10,
        options: vec![9; 50],
    });
    check::<FromCompiler>(CompileResult { bytes: 10 });
    check::<FromCompiler>(CompileError { error: error() });
}
