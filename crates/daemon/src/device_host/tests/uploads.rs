//! Uploads: when the job has its memory back.

use super::*;

#[test]
fn a_region_comes_back_when_its_array_is_gone() {
    let mut fixture = Fixture::new();
    let mut job = fixture.job("feed.py");
    job.upload(1, [1.0; 4]);
    job.fetch(1, 1).expect("the array is there");
    job.send(DropArrays {
        arrays: vec![ArrayId(1)],
    });
    let message = job.next(|message| matches!(message, FromService::Released(_)));
    let FromService::Released(released) = message else {
        panic!("not a release")
    };
    assert_eq!(
        released.regions,
        [Region {
            segment: SegmentId(0),
            offset: 64,
            length: 16
        }]
    );
}

#[test]
fn the_region_of_a_refused_upload_comes_back() {
    let room = Room {
        device_bytes: 8,
        host_bytes: 1 << 20,
        user_max: None,
    };
    let mut fixture = Fixture::of(Clock::Real, room);
    let mut job = fixture.job("large.py");
    job.upload(1, [1.0; 4]);
    let failed = job.next(|message| matches!(message, FromService::ArrayFailed(_)));
    let FromService::ArrayFailed(failed) = failed else {
        panic!("not a failure")
    };
    assert_eq!(failed.error.code, ErrorCode::ResourceExhausted);
    let message = job.next(|message| matches!(message, FromService::Released(_)));
    let FromService::Released(released) = message else {
        panic!("not a release")
    };
    assert_eq!(released.regions[0].offset, 64);
}
