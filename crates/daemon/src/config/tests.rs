//! What a person sees who wrote something wrong, word for word.

use std::path::Path;

use super::*;

fn places() -> Places {
    Places {
        uid: 1000,
        temporary: "/tmp".into(),
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
    assert_eq!(config.device, "cpu");
    assert_eq!(config.cache_dir, Path::new("/home/anna/.cache/salus"));
    assert_eq!(config.cache_disk_bytes, 2 << 30);
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
    assert_eq!(config.socket, Some("/run/salus/salus.sock".into()));
    assert_eq!(
        config.allow_users,
        AllowUsers::Users(vec!["anna".into(), "1001".into()])
    );
    assert_eq!(config.idle_exit_seconds, Some(0));
    assert_eq!((config.device.as_str(), config.lanes), ("cuda", Some(1)));
    assert_eq!(config.capacity_bytes, Some(16 << 30));
    assert_eq!(config.lapack, Some("/opt/libopenblas.so.0".into()));
    assert_eq!(
        config.plugin_options["memory_fraction"],
        PluginOption::Float(0.5)
    );
    assert_eq!(
        config.plugin_options["visible_devices"],
        PluginOption::Ints(vec![0])
    );
    assert_eq!(config.cache_disk_bytes, 3 << 29);
    assert_eq!(config.cache_memory_bytes, 1 << 20);
    assert_eq!((config.cache_memory_programs, config.compilers), (10, 3));
}

#[test]
fn children_read_what_the_supervisor_wrote() {
    let mut config = parse("schema_version = 1").expect("it is right");
    config
        .plugin_options
        .insert("n".into(), PluginOption::Int(2));
    config
        .plugin_options
        .insert("f".into(), PluginOption::Float(0.5));
    config
        .plugin_options
        .insert("b".into(), PluginOption::Bool(true));
    config
        .plugin_options
        .insert("i".into(), PluginOption::Ints(vec![1, 2]));
    config
        .plugin_options
        .insert("t".into(), PluginOption::Text("2".into()));
    let settings = config.host_settings("/x/plugin.so".into(), Some("/x/lapack.so".into()));
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
        "salus.toml, line 3: `lanes` is \"two\", and a whole number from 1 to 64 is due",
    );
    check(
        "[device]\nlanes = 0\n",
        "salus.toml, line 3: `lanes` is 0, and a whole number from 1 to 64 is due",
    );
    check(
        "\n[device]\nmemory = \"16 gigs\"\n",
        "salus.toml, line 4: `memory` is \"16 gigs\", and a size such as \"16GiB\" is due",
    );
    check(
        "[service]\nallow_users = \"everyone\"\n",
        "salus.toml, line 3: `allow_users` is \"everyone\", and \"owner\", \"all\" or a list of \
         user names is due",
    );
    check(
        "cache = 3\n",
        "salus.toml, line 2: `cache` is 3, and a section [cache] is due",
    );
    check(
        "[device.options]\nx = { y = 1 }\n",
        "salus.toml, line 3: `x` is a section, and a number, a text, true, false or a list of \
         whole numbers is due",
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
        "salus.toml, line 1: `schema_version` is 2, and this version of Salus reads 1",
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
fn sizes() {
    for (text, bytes) in [
        ("4096", Some(4096)),
        ("16GiB", Some(16 << 30)),
        ("512 MiB", Some(512 << 20)),
        ("1.5GiB", Some(3 << 29)),
        ("2GB", Some(2_000_000_000)),
        ("1B", Some(1)),
        ("-1GiB", None),
        ("GiB", None),
        ("1e3", None),
        (".5GiB", None),
        ("99999999999TiB", None),
        ("", None),
    ] {
        assert_eq!(parse_bytes(text), bytes, "{text}");
    }
}

#[test]
fn uploads_are_copied_where_others_than_the_owner_may_come_in() {
    let settings = |users: &str| {
        let text = format!("schema_version = 1\n[service]\n{users}\n");
        let config = parse(&text).expect("it is right");
        config.host_settings(PathBuf::new(), None)
    };
    assert!(!settings("").copies_uploads());
    assert!(!settings("allow_users = []").copies_uploads());
    assert!(settings("allow_users = \"all\"").copies_uploads());
    assert!(settings("allow_users = [1001]").copies_uploads());
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
    let limits = config.host_settings(PathBuf::new(), None).limits(100);
    assert_eq!(limits["memory_per_user"], 1 << 30);
    assert_eq!(limits["programs_per_user"], 2u64 << 30);
    assert_eq!(limits["sessions_per_user"], 10);
    assert_eq!(limits["memory_per_session"], serde_json::Value::Null);
    assert_eq!(limits["launches_in_flight"], 32);
    let mut config = Config::defaults(&places());
    let most = |config: &Config| {
        config
            .host_settings(PathBuf::new(), None)
            .user_sessions(100)
    };
    assert_eq!(most(&config), 100);
    config.allow_users = AllowUsers::All;
    assert_eq!(most(&config), 50);
}
