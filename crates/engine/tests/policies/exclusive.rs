//! Exclusive: one job has the device until it ends.

use salus_engine::{SessionId, Why};

use crate::trial::{Trial, start};

#[test]
fn it_says_who_has_the_device() {
    let mut run = start("policy exclusive\na: 8 x 10ms\nb: 8 x 10ms");
    run.until_ms(20);
    let owner = run.session("a").map(SessionId);
    assert!(owner.is_some());
    assert_eq!(run.why("b"), Some(Why::Exclusive { owner }));
}
