//! The picture is well-formed, small, and shows who ran.

use salus_wire::RecordedIteration;

use super::super::devices::tests::{one, two};
use super::*;

/// Checks that elements are closed in order, attributes are quoted, and text has no bare `>` or
/// `&`. Returns how many elements there are of each name.
#[track_caller]
fn elements(xml: &str) -> BTreeMap<String, usize> {
    let mut open: Vec<&str> = Vec::new();
    let mut counts = BTreeMap::new();
    let mut rest = xml.trim_end();
    while let Some(start) = rest.find('<') {
        check_text(&rest[..start]);
        let end = rest[start..].find('>').expect("a tag ends") + start;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            continue;
        }
        let inner = tag.strip_suffix('/').unwrap_or(tag);
        let name = inner.split(' ').next().expect("a name");
        check_attributes(&inner[name.len()..]);
        *counts.entry(name.to_owned()).or_default() += 1;
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} are not closed");
    assert!(rest.is_empty(), "{rest:?} follows");
    counts
}

#[track_caller]
fn check_text(text: &str) {
    for part in text.split('&').skip(1) {
        let named = ["amp;", "lt;", "gt;", "quot;"];
        let known = named.iter().any(|name| part.starts_with(name));
        assert!(known, "&{part} is no entity");
    }
    assert!(!text.contains('>'), "{text}");
}

#[track_caller]
fn check_attributes(attributes: &str) {
    let mut rest = attributes.trim_start();
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").expect("a quoted value");
        assert!(
            name.chars()
                .all(|c| c.is_ascii_lowercase() || c == '-' || c == 'B')
        );
        let (value, after) = value.split_once('"').expect("a quote ends");
        check_text(value);
        rest = after.trim_start();
    }
}

#[test]
fn a_picture_is_well_formed_and_shows_every_iteration() {
    let picture = picture(&one());
    let counts = elements(&picture);
    // Two of the legend, two lanes, five iterations.
    assert_eq!(counts["rect"], 9);
    assert!(picture.contains("a &quot;quoted&quot; name, 3 iterations"));
    assert!(picture.contains(">lane 1</text>"));
    assert!(picture.contains(">100 ms</text>"));
    assert!(picture.contains("dashed: paged out"));
}

#[test]
fn names_cannot_break_out() {
    let mut devices = one();
    let timeline = &mut devices.all[0].timeline;
    for (job, name) in timeline
        .jobs
        .iter_mut()
        .zip(["</svg><script>", "a&b\u{ffff}"])
    {
        job.label = name.into();
    }
    let picture = picture(&devices);
    assert!(!elements(&picture).contains_key("script"));
    assert!(picture.contains("a&amp;b?, 2 iterations"));
}

#[test]
fn many_iterations_make_a_small_picture() {
    let mut devices = one();
    let timeline = &mut devices.all[0].timeline;
    let length = timeline.until - timeline.from;
    let count = 100_000;
    let runs = timeline.lanes.get_mut(&0).expect("a lane");
    let whole: RecordedIteration = runs[0].whole.clone();
    *runs = (0..count)
        .map(|n| Run {
            job: n % 2,
            program: String::new(),
            from: timeline.from + length * n as u64 / count as u64,
            until: timeline.from + length * (n as u64 + 1) / count as u64,
            whole: whole.clone(),
        })
        .collect();
    let picture = picture(&devices);
    elements(&picture);
    assert!(picture.len() < 100_000, "{} bytes", picture.len());
    // Both have half of the lane all the time.
    let half = "width=\"870.0\" height=\"15.0\"";
    assert_eq!(picture.matches(half).count(), 2);
}

#[test]
fn steps_of_time_are_round() {
    const MS: u64 = 1_000_000;
    for (ms, step_ms) in [
        (100, 20),
        (99, 10),
        (1000, 200),
        (4_999, 500),
        (60_000, 10_000),
    ] {
        assert_eq!(tick(ms * MS), step_ms * MS, "{ms}");
    }
    assert_eq!(tick(1), 1);
    assert_eq!(time(1500 * MS, 500 * MS), "1500 ms");
    assert_eq!(time(4000 * MS, 2000 * MS), "4 s");
}

#[test]
fn several_devices_are_in_one_picture_with_their_names() {
    let picture = picture(&two());
    let counts = elements(&picture);
    assert_eq!(counts["rect"], 18, "twice those of one");
    assert!(
        picture.contains("<title>10 iterations of 6 jobs on cuda:0 (Host CPU), cuda:1 (Host CPU)")
    );
    for device in ["cuda:0 (Host CPU)", "cuda:1 (Host CPU)"] {
        assert_eq!(picture.matches(&format!(">{device}</text>")).count(), 1);
    }
}
