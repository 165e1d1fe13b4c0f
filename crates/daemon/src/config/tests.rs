//! What a person sees who wrote something wrong, word for word.

use std::path::Path;

use salus_device::{Clock, Device as _, ScriptedConfig, ScriptedDevice};
use salus_engine::Room;

use super::*;

fn places() -> Places {
    Places {
        sockets: salus_channel::endpoint::Search {
            uid: 1000,
            temporary: "/tmp".into(),
            ..Default::default()
        },
        user_cache: Some("/home/anna/.cache".into()),
        ..Places::default()
    }
}

fn parse(text: &str) -> Result<Config, Problem> {
    Config::parse(Path::new("salus.toml"), text, &places())
}

/// The problem with a file whose first line is right, as it is printed.
#[track_caller]
fn check(rest: &str, expected: &str) {
    check_whole(&format!("schema_version = 1\n{rest}"), expected);
}

#[track_caller]
fn check_whole(text: &str, expected: &str) {
    let problem = parse(text).expect_err("the file has an error");
    let printed = match &problem.hint {
        Some(hint) => format!("{}\nhint: {hint}", problem.what),
        None => problem.what,
    };
    assert_eq!(printed, expected);
}

#[test]
fn a_file_that_says_nothing_gives_the_defaults() {
    let config = parse("schema_version = 1\n").expect("it is right");
    let expected = Config {
        file: Some("salus.toml".into()),
        ..Config::defaults(&places())
    };
    assert_eq!(config, expected);
    assert_eq!(config.host.device.name, AUTO);
    assert_eq!(
        config.host.cache.directory,
        Path::new("/home/anna/.cache/salus")
    );
    assert_eq!(config.host.cache.disk, 2 << 30);
}

#[test]
fn everything_can_be_said() {
    let config = parse(
        r#"
schema_version = 1
[service]
socket = "/run/salus/salus.sock"
allow_users = ["anna", 1001]
idle_exit_seconds = 0
[device]
device = "cuda"
lanes = 1
memory = "16GiB"
lapack = "/opt/libopenblas.so.0"
options = { allocator = "bfc", memory_fraction = 0.5, preallocate = false, visible_devices = [0] }
[cache]
directory = "/fast/salus"
disk = "1.5GiB"
memory = 1_048_576
memory_programs = 10
[compilers]
count = 3
"#,
    )
    .expect("it is right");
    assert_eq!(config.service.socket, Some("/run/salus/salus.sock".into()));
    assert_eq!(
        config.service.allow_users,
        AllowUsers::Users(vec!["anna".into(), "1001".into()])
    );
    assert_eq!(config.service.idle_exit_seconds, Some(0));
    assert_eq!(
        (config.host.device.name.as_str(), config.host.device.lanes),
        ("cuda", Some(1))
    );
    assert_eq!(config.host.device.memory, Some(16 << 30));
    assert_eq!(
        config.host.device.lapack,
        Some("/opt/libopenblas.so.0".into())
    );
    assert_eq!(
        config.host.device.options["memory_fraction"],
        PluginOption::Float(0.5)
    );
    assert_eq!(
        config.host.device.options["visible_devices"],
        PluginOption::Ints(vec![0])
    );
    assert_eq!(config.host.cache.disk, 3 << 29);
    assert_eq!(config.host.cache.memory, 1 << 20);
    assert_eq!(
        (
            config.host.cache.memory_programs,
            config.host.compilers.count
        ),
        (10, 3)
    );
}

#[test]
fn children_read_what_the_supervisor_wrote() {
    let mut config = parse("schema_version = 1").expect("it is right");
    let options = &mut config.host.device.options;
    options.insert("n".into(), PluginOption::Int(2));
    options.insert("f".into(), PluginOption::Float(0.5));
    options.insert("b".into(), PluginOption::Bool(true));
    options.insert("i".into(), PluginOption::Ints(vec![1, 2]));
    options.insert("t".into(), PluginOption::Text("2".into()));
    config.host.device.lapack = Some("/x/lapack.so".into());
    let settings = HostSettings {
        plugin: "/x/plugin.so".into(),
        ..config.host
    };
    let text = serde_json::to_string(&settings).expect("it can be written");
    let read: HostSettings = serde_json::from_str(&text).expect("it can be read");
    assert_eq!(read, settings);
}

#[test]
fn a_misspelt_key_names_the_nearest() {
    check(
        "[service]\nsokcet = \"/x\"\n",
        "salus.toml, line 3: `sokcet` is not a key of [service]\n\
         hint: did you mean `socket`?",
    );
    check(
        "[devices]\nlanes = 2\n",
        "salus.toml, line 2: `devices` is not a key or section of the configuration\n\
         hint: did you mean `device`?",
    );
}

#[test]
fn a_key_in_the_wrong_section_is_sent_to_the_right_one() {
    check(
        "[service]\nlanes = 2\n",
        "salus.toml, line 3: `lanes` is not a key of [service]\n\
         hint: `lanes` belongs in [device]",
    );
    check(
        "[cache]\nwings = 2\n",
        "salus.toml, line 3: `wings` is not a key of [cache]\n\
         hint: it may have `directory`, `disk`, `memory`, `memory_programs`",
    );
}

#[test]
fn a_wrong_value_is_shown_with_what_is_due() {
    check(
        "[device]\nlanes = \"two\"\n",
        "salus.toml, line 3: `lanes`: expected a whole number from 1 to 64, found \"two\"",
    );
    check(
        "[device]\nlanes = 0\n",
        "salus.toml, line 3: `lanes`: expected a whole number from 1 to 64, found 0",
    );
    check(
        "\n[device]\nmemory = \"16 gigs\"\n",
        "salus.toml, line 4: `memory`: expected a size such as \"16GiB\", found \"16 gigs\"",
    );
    check(
        "[service]\nallow_users = \"everyone\"\n",
        "salus.toml, line 3: `allow_users`: expected \"owner\", \"all\" or a list of \
         user names, found \"everyone\"",
    );
    check(
        "cache = 3\n",
        "salus.toml, line 2: `cache`: expected a section [cache], found 3",
    );
    check(
        "[device.options]\nx = { y = 1 }\n",
        "salus.toml, line 3: `x`: expected a number, a text, true, false or a list of whole numbers, \
         found a section",
    );
}

#[test]
fn the_version_of_the_file_must_be_there_and_known() {
    check_whole(
        "[device]\nlanes = 1\n",
        "salus.toml, line 1: `schema_version` is missing\n\
         hint: write `schema_version = 1` as the first line",
    );
    check_whole(
        "schema_version = 2\n",
        "salus.toml, line 1: `schema_version`: expected 1, which this version of Salus reads, found 2",
    );
}

#[test]
fn broken_toml_names_the_line() {
    let problem = parse("schema_version = 1\n[device\n").expect_err("it is broken");
    assert!(
        problem.what.starts_with("salus.toml, line 2: "),
        "{}",
        problem.what
    );
    assert!(parse("\u{0}\u{fffd}[[[").is_err());
    assert!(parse("").is_err());
}

#[test]
fn a_named_file_that_is_missing_is_an_error_and_an_unnamed_one_is_not() {
    let nowhere = Path::new("/nonexistent/salus.toml");
    let problem = Config::load(Some(nowhere), &places()).expect_err("it was named");
    assert_eq!(
        problem.what,
        "the configuration `/nonexistent/salus.toml` does not exist"
    );
}

#[test]
fn uploads_are_copied_where_others_than_the_owner_may_come_in() {
    let settings = |users: &str| {
        let text = format!("schema_version = 1\n[service]\n{users}\n");
        let config = parse(&text).expect("it is right");
        config.host
    };
    assert!(!settings("").copies_uploads());
    assert!(!settings("allow_users = []").copies_uploads());
    assert!(settings("allow_users = \"all\"").copies_uploads());
    assert!(settings("allow_users = [1001]").copies_uploads());
}

#[test]
fn pages_beside_a_device_with_memory_of_its_own_have_half_of_the_machine() {
    let settings = parse("schema_version = 1\n").expect("it is right").host;
    let of = |on_host, devices| {
        let device = ScriptedDevice::open(&ScriptedConfig {
            lanes: 1,
            capacity_bytes: 1 << 50,
            clock: Clock::Manual,
            on_host,
        });
        let settings = settings.for_device(Some(0), devices);
        settings.room(device.description()).host_bytes
    };
    // An eighth is left beside a device that has all of the machine. What is free changes meanwhile.
    assert!(of(false, 1) > 2 * of(true, 1));
    assert!(of(false, 1) > 2 * of(false, 4), "devices share it");
}

#[test]
fn devices_share_what_may_be_pinned() {
    let pinned = |text: &str, devices| {
        let config = parse(&format!("schema_version = 1\n[device]\n{text}\n"));
        let settings = config.expect("it is right").host;
        settings.for_device(Some(0), devices).pinned_bytes(&Room {
            device_bytes: 0,
            host_bytes: 600,
            user_max: None,
        })
    };
    assert_eq!(pinned("", 2), 300, "a half of what one has");
    assert_eq!(pinned("pinned_memory = 400", 1), 400);
    assert_eq!(pinned("pinned_memory = 400", 2), 200);
    assert_eq!(pinned("pinned_memory = 0", 2), 0);
}

#[test]
fn kernels_of_jobs_are_refused_where_others_may_come_in_unless_they_are_allowed() {
    let refuses = |users: &str| {
        let text = format!("schema_version = 1\n[service]\n{users}\n");
        parse(&text)
            .expect("it is right")
            .host
            .refuses_raw_kernels()
    };
    assert!(!refuses(""));
    assert!(refuses("allow_users = \"all\""));
    assert!(refuses("allow_users = [1001]\nallow_raw_kernels = false"));
    assert!(!refuses("allow_users = [1001]\nallow_raw_kernels = true"));
}

#[test]
fn limits_hold_as_they_were_set_and_nobody_has_all_sessions_where_users_share() {
    let text = r#"
schema_version = 1
[limits]
memory_per_user = "1GiB"
programs_per_user = "2GiB"
sessions_per_user = 10
"#;
    let config = parse(text).expect("it is right");
    let limits = config.host.limits(100);
    assert_eq!(limits["memory_per_user"], 1 << 30);
    assert_eq!(limits["programs_per_user"], 2u64 << 30);
    assert_eq!(limits["sessions_per_user"], 10);
    assert_eq!(limits["memory_per_session"], serde_json::Value::Null);
    assert_eq!(limits["launches_in_flight"], 32);
    let most = |users: &str| {
        let text = format!("schema_version = 1\n[service]\nallow_users = {users}\n");
        parse(&text).expect("it is right").host.user_sessions(100)
    };
    assert_eq!(most("\"owner\""), 100);
    assert_eq!(most("\"all\""), 50);
}

/// The block of settings in the documentation.
fn documented() -> &'static str {
    let page = include_str!("../../../../docs/configuration.md");
    let (_, block) = page.split_once("```toml\n").expect("there is a block");
    block.split_once("```").expect("it ends").0
}

#[test]
fn the_documentation_names_every_key_and_is_right() {
    let config = parse(documented()).expect("it can be copied as it is");
    assert_eq!(config.host.limits.iteration_seconds, Some(600));
    let table: toml::Table = documented().parse().expect("it is TOML");
    for (section, keys) in file::known() {
        let documented = table.get(&section).expect("the section is documented");
        for (key, _) in keys.as_object().into_iter().flatten() {
            assert!(documented.get(key).is_some(), "[{section}] {key}");
        }
    }
}

#[test]
fn a_list_is_not_a_section() {
    check(
        "compilers = [3]\n",
        "salus.toml, line 2: `compilers`: expected a section [compilers], found a list",
    );
    check(
        "[device]\noptions = [3]\n",
        "salus.toml, line 3: `options`: expected a section [device.options], found a list",
    );
    check(
        "device.laens = 3\n",
        "salus.toml, line 2: `laens` is not a key of [device]\n\
         hint: did you mean `lanes`?",
    );
}

#[test]
fn every_kind_of_value_says_what_it_expects() {
    let wrong = |section: &str, key: &str, value: &str, expected: &str| {
        check(
            &format!("[{section}]\n{key} = {value}\n"),
            &format!("salus.toml, line 3: `{key}`: expected {expected}"),
        );
    };
    wrong("cache", "disk", "0", "a size such as \"16GiB\", found 0");
    wrong(
        "cache",
        "disk",
        "[1]",
        "a size such as \"16GiB\", found a list",
    );
    wrong("service", "socket", "\"\"", "a text, found \"\"");
    wrong("device", "device", "1.5", "a text, found 1.5");
    wrong(
        "device",
        "lanes",
        "-1",
        "a whole number from 1 to 64, found -1",
    );
    wrong(
        "service",
        "allow_users",
        "[true]",
        "\"owner\", \"all\" or a list of user names, found a list",
    );
    wrong("service", "allow_raw_kernels", "1", "a boolean, found 1");
    wrong(
        "scheduling",
        "policy",
        "\"fairr\"",
        "one of \"exclusive\", \"fifo\", \"srtf\", \"pack\", \"fair\", \"priority\", \"las\", \
         \"deadline\", found \"fairr\"",
    );
}
