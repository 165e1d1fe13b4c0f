//! Every scenario of `scenarios/` draws the picture that stands beside it.
//!
//! `NAME.txt` is a scenario as `salus sim` takes it, `NAME.expected` what that prints, and
//! `NAME.compared`, where there is one, what `salus sim --compare` prints. `SALUS_BLESS=1` writes
//! them anew; look at each before it is kept.

use std::fs;
use std::path::{Path, PathBuf};

use salus_engine::Policy;
use salus_sim::{Report, Scenario, compared, shown};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

/// All files that end so, without that ending, in order.
fn names(ending: &str) -> Vec<String> {
    let files = fs::read_dir(folder()).expect("the scenarios are there");
    let names = files.map(|file| file.expect("it can be listed").file_name());
    let names = names.map(|name| name.into_string().expect("names are plain"));
    let mut names: Vec<String> = names
        .filter_map(|name| Some(name.strip_suffix(ending)?.to_owned()))
        .collect();
    names.sort();
    names
}

fn scenario(name: &str) -> Scenario {
    let path = folder().join(format!("{name}.txt"));
    let text = fs::read_to_string(path).expect("it can be read");
    Scenario::parse(&text).unwrap_or_else(|problem| panic!("{name}, {problem}"))
}

fn under_all(scenario: &Scenario) -> Vec<Report> {
    let under = |policy| scenario.under(policy).run();
    Policy::ALL.into_iter().map(under).collect()
}

/// Whether the file has this text, or has it now.
fn holds(file: &str, text: &str) -> bool {
    let path = folder().join(file);
    #[expect(clippy::disallowed_methods, reason = "how one blesses")]
    if std::env::var("SALUS_BLESS").is_ok_and(|bless| bless == "1") {
        fs::write(&path, text).expect("it can be written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    if expected != text {
        eprintln!("--- {file} expects\n{expected}--- and it is\n{text}");
    }
    expected == text
}

#[test]
fn scenarios_draw_their_pictures() {
    let mut all_as_expected = true;
    for name in names(".txt") {
        let text = shown(&scenario(&name).run());
        all_as_expected &= holds(&format!("{name}.expected"), &text);
    }
    for name in names(".compared") {
        let text = compared(&under_all(&scenario(&name)));
        all_as_expected &= holds(&format!("{name}.compared"), &text);
    }
    assert!(
        all_as_expected,
        "pictures differ; if they are right, `SALUS_BLESS=1 cargo test -p salus-sim` keeps them"
    );
}

#[test]
fn no_picture_is_left_without_its_scenario() {
    let scenarios = names(".txt");
    for name in names(".expected").iter().chain(&names(".compared")) {
        assert!(scenarios.contains(name), "{name}.txt is gone");
    }
}

#[test]
fn every_policy_has_two_scenarios() {
    for policy in Policy::ALL {
        let with = |name: &&String| scenario(name).run().policy == policy;
        let count = names(".txt").iter().filter(with).count();
        assert!(count >= 2, "{} has {count}", policy.name());
    }
}

#[test]
fn equal_scenarios_give_equal_reports() {
    for name in names(".txt") {
        let texts = [(); 2].map(|()| compared(&under_all(&scenario(&name))));
        assert_eq!(texts[0], texts[1], "{name}");
    }
}

#[test]
fn the_manual_shows_what_is_printed() {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/simulation.md");
    let manual = fs::read_to_string(manual).expect("the manual is there");
    for file in ["fair-weights.txt", "fair-weights.expected"] {
        let text = fs::read_to_string(folder().join(file)).expect("it can be read");
        assert!(manual.contains(&format!("```text\n{text}```")), "{file}");
    }
}
