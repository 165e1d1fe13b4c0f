//! Scenarios that cannot be read: each error names the place, what is wrong and, where it can be
//! said, what was meant. Whatever the text, nothing panics.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use salus_sim::{Problem, Scenario};

fn problem(text: &str) -> Problem {
    Scenario::parse(text).expect_err(text)
}

/// The error and its hint, as one text.
#[track_caller]
fn check(text: &str, expected: &str) {
    let problem = problem(text);
    let hint = problem.hint.as_deref().unwrap_or("-");
    assert_eq!(format!("{problem}\nhint: {hint}"), expected);
}

#[test]
fn policies() {
    let list = "policies are exclusive, fifo, srtf, pack, fair, priority, las, deadline";
    check(
        "lanes 2\npolicy fiar\na: 5 x 10ms",
        &format!("line 2, column 8: `fiar` is not a policy\nhint: did you mean `fair`? {list}"),
    );
    check(
        "policy round-robin",
        &format!("line 1, column 8: `round-robin` is not a policy\nhint: {list}"),
    );
    check(
        "a: 5 x 10ms\nat 10ms: policy lsa",
        &format!("line 2, column 17: `lsa` is not a policy\nhint: did you mean `las`? {list}"),
    );
}

#[test]
fn settings() {
    check(
        "lnaes 2\na: 5 x 10ms",
        "line 1, column 1: `lnaes` is not a setting\n\
         hint: did you mean `lanes`? a job's line begins with its name and a colon, a command's \
         with `at`; settings are policy, lanes, width, device, host, link, step, until",
    );
    for (text, expected) in [
        (
            "lanes",
            "line 1, column 6: expected a number, found the end of the line",
        ),
        (
            "lanes 0",
            "line 1, column 7: expected a whole number from 1 to 9, found `0`",
        ),
        (
            "lanes many",
            "line 1, column 7: expected a whole number from 1 to 9, found `many`",
        ),
        (
            "lanes 1 2",
            "line 1, column 9: expected the end of the line, found `2`",
        ),
        (
            "lanes 1\nlanes 2",
            "line 2, column 1: `lanes` is given twice",
        ),
        ("step 0ms", "line 1, column 6: `0ms` must be more than zero"),
        (
            "policy: 5 x 10ms",
            "line 1, column 1: `policy` is a setting, and cannot be a job's name",
        ),
    ] {
        check(text, &format!("{expected}\nhint: -"));
    }
    check(
        "lanes 2\nwidth 3\na: 5 x 10ms",
        "line 2, column 7: a width of 3 is more than there are lanes, 2\n\
         hint: `lanes 2` gives the device two lanes",
    );
    check(
        "# nothing\n",
        "line 1, column 1: the scenario has no jobs\nhint: a job is a line such as `a: 5 x 10ms`",
    );
}

#[test]
fn quantities() {
    let times = "hint: a time is a number with ns, us, ms, s, min or h: 10ms, 1.5s; at most 1000h";
    for word in ["10", "10sec", "ms", "-1ms", "1001h", "1.5.5ms", "1e3ms"] {
        let text = format!("step {word}");
        let expected = format!("line 1, column 6: `{word}` is not a time\n{times}");
        check(&text, &expected);
    }
    let sizes = "hint: a size is a number with B, KiB, MiB, GiB or TiB: 300MiB, 1.5GiB; at most \
                 1024TiB";
    for word in ["1", "1GB", "2000TiB", "99999999999999999999B"] {
        let text = format!("device {word}");
        let expected = format!("line 1, column 8: `{word}` is not a size\n{sizes}");
        check(&text, &expected);
    }
    check(
        "link 10GiB",
        "line 1, column 6: `10GiB` is not a rate\n\
         hint: a rate is a number with MiB/s, GiB/s or TiB/s: 12GiB/s; more than zero",
    );
    for word in ["0.5x", "1.8", "fast"] {
        check(
            &format!("a: 5 x 10ms, beside {word}"),
            &format!(
                "line 1, column 21: `{word}` is not a slow-down\n\
                 hint: a slow-down is a number with x, from 1x to 1000x: 1.8x"
            ),
        );
    }
}

#[test]
fn jobs() {
    check(
        "a: wieght 2, 5 x 10ms",
        "line 1, column 4: `wieght` is not an item of a job\n\
         hint: did you mean `weight`? items are `5 x 10ms`, which must be there, and those that \
         begin with from, weight, priority, deadline, iterations, expect, recalled, memory, \
         scratch, wait, ahead, every, poisson, beside",
    );
    check(
        "a: weight 2",
        "line 1, column 1: job `a` has no iterations\n\
         hint: `5 x 10ms` is five iterations of 10ms each",
    );
    check(
        "a: 5 x 10ms, priority hihg",
        "line 1, column 23: `hihg` is not a priority\n\
         hint: did you mean `high`? priorities are high, normal, low",
    );
    check(
        "a: weight 2 from 0ms",
        "line 1, column 13: expected the end of the line, found `from`\nhint: items are separated by commas",
    );
    for (text, expected) in [
        (
            "a:",
            "line 1, column 3: expected an item of the job, found the end of the line",
        ),
        (
            "a: 5 x 10ms,",
            "line 1, column 13: expected an item of the job, found the end of the line",
        ),
        (
            "a: , 5 x 10ms",
            "line 1, column 4: expected an item of the job, found a comma",
        ),
        (
            ": 5 x 10ms",
            "line 1, column 1: expected a name, found a colon",
        ),
        (
            "a: from, 5 x 10ms",
            "line 1, column 8: expected a time, found a comma",
        ),
        (
            "a: weight 0",
            "line 1, column 11: expected a whole number from 1 to 1000000, found `0`",
        ),
        (
            "a: ahead 0",
            "line 1, column 10: expected a whole number from 1 to 100, found `0`",
        ),
        (
            "a: weight 1, weight 2",
            "line 1, column 14: `weight` is given twice",
        ),
        (
            "a: 1 x 1s\nb: 1 x 1s\na: 1 x 1s",
            "line 3, column 1: there are two jobs `a`",
        ),
        (
            "a: 5 x 20ms..10ms seed 1",
            "line 1, column 8: `20ms..10ms` ends before it begins",
        ),
    ] {
        check(text, &format!("{expected}\nhint: -"));
    }
    check(
        "a\u{1b}[31m: 5 x 10ms",
        "line 1, column 1: `a\\u{1b}[31m` is not a name\n\
         hint: names have letters, digits, `-`, `_` and `.`, at most 20 of them",
    );
}

#[test]
fn iterations_and_chance() {
    let hint = "hint: iterations are written `5 x 10ms`: their number, an x, the time of each";
    for (text, expected) in [
        ("a: 5 10ms", "line 1, column 6: expected an x, found `10ms`"),
        (
            "a: 5",
            "line 1, column 5: expected an x, found the end of the line",
        ),
        (
            "a: 5x 10ms",
            "line 1, column 4: expected a whole number from 1 to 1000000, found `5x`",
        ),
        (
            "a: 0 x 10ms",
            "line 1, column 4: expected a whole number from 1 to 1000000, found `0`",
        ),
    ] {
        check(text, &format!("{expected}\n{hint}"));
    }
    let seed = "hint: what is random needs a seed, so that every run draws the same: `seed 7`";
    for (text, expected) in [
        (
            "a: 5 x 10ms..20ms",
            "line 1, column 18: expected `seed`, found the end of the line",
        ),
        (
            "a: 5 x 1ms, poisson 5ms, ahead 1",
            "line 1, column 24: expected `seed`, found a comma",
        ),
        (
            "a: 5 x 1ms, poisson 5ms sed 3",
            "line 1, column 25: expected `seed`, found `sed`",
        ),
    ] {
        check(text, &format!("{expected}\n{seed}"));
    }
    check(
        "a: 5 x 1ms, every 5ms, poisson 5ms seed 3",
        "line 1, column 24: `poisson` is given twice\n\
         hint: give a job's requests once, with `every` or with `poisson`",
    );
    check(
        "a: 5 x 1ms, expect 5ms, iterations 5",
        "line 1, column 25: `iterations` is given twice\n\
         hint: give a job's work once, with `iterations` or with `expect`",
    );
}

#[test]
fn commands() {
    check(
        "at 10ms: puase a\na: 5 x 10ms",
        "line 1, column 10: `puase` is not a command\n\
         hint: did you mean `pause`? commands are pause, resume, kill, change, policy",
    );
    check(
        "train: 5 x 10ms\nserve: 5 x 10ms\nat 10ms: pause trian",
        "line 3, column 16: `trian` is not a job\n\
         hint: did you mean `train`? jobs are train, serve",
    );
    check(
        "a: 5 x 10ms\nat 10ms pause a",
        "line 2, column 9: expected a colon, found `pause`\nhint: `at 100ms: pause a`",
    );
    check(
        "a: 5 x 10ms\nat 10ms: change a memory 5MiB",
        "line 2, column 19: `memory` is not a setting of a job\n\
         hint: settings of a job are weight, priority, deadline, iterations, expect",
    );
    for (text, expected) in [
        (
            "at",
            "line 1, column 3: expected a time, found the end of the line",
        ),
        (
            "at 10ms: pause",
            "line 1, column 15: expected a job's name, found the end of the line",
        ),
        (
            "at 10ms: kill a b",
            "line 1, column 17: expected the end of the line, found `b`",
        ),
        (
            "at 10ms: change a",
            "line 1, column 18: expected a setting, found the end of the line",
        ),
        (
            "a: from 1s, 5 x 10ms\nat 10ms: pause a",
            "line 2, column 16: `a` arrives at 1s, after 10ms",
        ),
    ] {
        check(text, &format!("{expected}\nhint: -"));
    }
}

#[test]
fn limits() {
    let mut many = String::new();
    for job in 0..=100 {
        let _ = writeln!(many, "j{job}: 1 x 1ms");
    }
    check(
        &many,
        "line 101, column 1: there are more than 100 jobs\nhint: -",
    );
    check(
        "a: 1000000 x 1ms\nb: 1 x 1ms",
        "line 2, column 1: with `b` the jobs have 1000001 iterations together, 1000000 are the \
         most\nhint: -",
    );
    let commands = "at 1ms: pause a\n".repeat(1001);
    check(
        &format!("a: 1 x 1ms\n{commands}"),
        "line 1002, column 9: there are more than 1000 commands\nhint: -",
    );
    let long = "x".repeat(100);
    let shown = problem(&format!("{long}: 1 x 1ms")).what;
    assert_eq!(shown, format!("`{}…` is not a name", "x".repeat(40)));
}

/// Scenarios with words exchanged, left out and broken: an error or a run, and no panic.
#[test]
fn whatever_is_typed_nothing_panics() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut texts: Vec<String> = fs::read_dir(folder)
        .expect("the scenarios are there")
        .map(|file| file.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|end| end == "txt"))
        .map(|path| fs::read_to_string(path).expect("it can be read"))
        .collect();
    texts.sort();
    let words: Vec<&str> = texts.iter().flat_map(|text| text.split(' ')).collect();
    let mut random = fastrand::Rng::with_seed(7);
    let mut below = |n: usize| random.u64(..n as u64) as usize;
    let (mut runs, mut errors) = (0, 0);
    for _ in 0..4000 {
        let mut broken: Vec<String> = texts[below(texts.len())]
            .split(' ')
            .map(str::to_owned)
            .collect();
        for _ in 0..=below(3) {
            let at = below(broken.len());
            match below(4) {
                0 => broken[at] = words[below(words.len())].to_owned(),
                1 => broken.insert(at, words[below(words.len())].to_owned()),
                2 => broken[at].truncate(1),
                _ => broken[at].push(['1', 'm', ':', ',', '9', 'é'][below(6)]),
            }
        }
        match Scenario::parse(&broken.join(" ")) {
            Ok(scenario) => {
                scenario.run();
                runs += 1;
            }
            Err(problem) => {
                assert!(problem.line > 0 && problem.column > 0);
                errors += 1;
            }
        }
    }
    assert!(runs > 100 && errors > 100, "{runs} runs, {errors} errors");
}
