//! One of each thing that messages carry.

use std::num::{NonZeroU32, NonZeroU64};

use salus_wire::{
    Change, Description, Error, ErrorCode, JobSettings, Memory, MemoryStats, NonZeroDuration,
    Output, Priority, RecordedIteration, RecordedMemory, RecordedMove, RecordedRefusal,
    RecordedSession, RecordedSpan, RecordedWait, Recording, Region, SegmentId, Shape, Signature,
    Value, Weight, Work,
};

pub(crate) fn error() -> Error {
    Error::new(ErrorCode::InvalidArgument, "what happened, why, what to do")
}

pub(crate) fn shape() -> Shape {
    Shape {
        element_type: 11,
        dims: vec![2, 3],
        minor_to_major: Some(vec![0, 1]),
    }
}

pub(crate) fn region() -> Region {
    Region {
        segment: SegmentId(7),
        offset: 64,
        length: 24,
    }
}

pub(crate) fn description() -> Description {
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
        topology_attributes: vec![("target_config".into(), Value::Text("a".into()))],
    }
}

pub(crate) fn signature() -> Signature {
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

pub(crate) const THREE: Weight = Weight(NonZeroU32::MIN.saturating_add(2));

pub(crate) const CHANGES: [Change; 7] = [
    Change::MemoryMax(NonZeroU64::new(1 << 40)),
    Change::Weight(THREE),
    Change::Priority(Priority::Low),
    Change::Deadline(NonZeroDuration::from_nanos(20_000_000)),
    Change::Pause,
    Change::Resume,
    Change::Kill,
];

pub(crate) fn settings() -> JobSettings {
    JobSettings {
        memory_max: NonZeroU64::new(1 << 40),
        weight: THREE,
        priority: Priority::High,
        deadline: NonZeroDuration::from_nanos(20_000_000),
        work: NonZeroU64::new(1_000).map(Work::Iterations),
    }
}

pub(crate) fn recording() -> Recording {
    let span = RecordedSpan {
        session: 7,
        began_ns: 1,
        ended_ns: 2,
    };
    Recording {
        began_unix_ns: 1 << 60,
        from_ns: 1,
        until_ns: 99,
        platform: "cpu".into(),
        kind: "Host CPU".into(),
        policy: "fair".into(),
        room_bytes: 1 << 30,
        host_room_bytes: 1 << 32,
        lanes: 4,
        width: 1,
        records_made: 70_000,
        records_forgotten: 4_464,
        sessions: vec![RecordedSession {
            session: 7,
            name: "train.py".into(),
            pid: 4121,
            opened_ns: 1,
            closed_ns: Some(98),
            settings: settings(),
            recalled_ns: Some(1 << 33),
            peak_bytes: 1 << 20,
            scratch_bytes: 1000,
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
            reads: true,
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
