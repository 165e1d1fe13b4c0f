//! What is no message is refused, and why is said.

use salus_wire::{
    ArrayId, Await, Header, Launch, NonZeroDuration, OperationId, Priority, ProgramId, Reader,
    ToService, Weight, Wire, decode_body, encode_frame, limits, version,
};

use crate::samples::THREE;

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
