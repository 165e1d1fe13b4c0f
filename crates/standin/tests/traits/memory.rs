//! Pools of several clients on one device.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use salus_pjrt::sys::{PJRT_Error_Code_RESOURCE_EXHAUSTED, PJRT_Error_Code_UNIMPLEMENTED};
use salus_pjrt::{Client, Value};
use salus_standin::state::{in_place, on_device};

use crate::common::*;

const MIB: usize = 1 << 20;

fn in_use(client: &Client) -> i64 {
    device(client)
        .memory_stats()
        .expect("it counts")
        .bytes_in_use
}

#[test]
fn the_first_allocation_takes_the_whole_pool() {
    let state = StateFile::new("lazy");
    let first = client(&state, "memory=100MiB");
    let second = client(&state, "memory=100MiB");
    let counts = state.open();
    let taken = || counts.sum(0, in_place::POOL) as usize;
    assert_eq!(taken(), 0, "a client takes nothing");
    let array = bytes(&first, MIB).expect("there is room");
    assert_eq!(taken(), 75 * MIB);
    assert_eq!(in_use(&first), MIB as i64);
    // What is left, going back by tenths: 75 × 0.9¹¹ is the first below 25.
    drop(bytes(&second, MIB).expect("there is room"));
    let rest = taken() - 75 * MIB;
    assert!((22 * MIB..25 * MIB).contains(&rest), "{rest}");
    let refused = bytes(&second, 30 * MIB).err().expect("it has about 23");
    assert_eq!(refused.code, PJRT_Error_Code_RESOURCE_EXHAUSTED);
    assert!(
        refused
            .message
            .contains("Out of memory while trying to allocate"),
        "{refused:?}"
    );
    drop(array);
    assert_eq!(
        (in_use(&first), taken() - rest),
        (0, 75 * MIB),
        "nothing is given back"
    );
    drop(first);
    assert_eq!(taken(), rest, "but with the client");
}

#[test]
fn a_pool_that_grows_takes_what_it_needs() {
    let state = StateFile::new("grow");
    let options = [
        ("preallocate", Value::Bool(false)),
        ("memory_fraction", Value::Float(0.5)),
    ];
    let client = try_client(&state, "memory=64MiB", &options).expect("it opens");
    let counts = state.open();
    let _small = bytes(&client, 4096).expect("there is room");
    assert_eq!(counts.sum(0, in_place::POOL), 2 << 20);
    let _large = bytes(&client, 20 * MIB).expect("there is room");
    assert!(
        counts.sum(0, in_place::POOL) <= 32 << 20,
        "the limit is half of it"
    );
    assert!(bytes(&client, 20 * MIB).is_err());
}

#[test]
fn free_memory_in_pieces_is_no_room_unless_it_does_not_fragment() {
    for fragments in [true, false] {
        let state = StateFile::new(&format!("fragments-{fragments}"));
        let traits = format!("memory=64MiB,fragments={}", u8::from(fragments));
        let fraction = [("memory_fraction", Value::Float(1.0))];
        let client = try_client(&state, &traits, &fraction).expect("it opens");
        let mut arrays: Vec<_> = (0..8).map(|_| bytes(&client, 8 * MIB).ok()).collect();
        assert!(arrays.iter().all(Option::is_some), "eight are 64 MiB");
        for piece in [1, 3, 5] {
            arrays[piece] = None;
        }
        assert_eq!(in_use(&client) as usize, 40 * MIB);
        let found = bytes(&client, 12 * MIB);
        assert_eq!(found.is_err(), fragments, "24 MiB are free, 8 in a piece");
        arrays[2] = None;
        assert!(
            bytes(&client, 12 * MIB).is_ok(),
            "three pieces have become one"
        );
    }
}

#[test]
fn what_a_killed_process_held_is_given_back() {
    let state = StateFile::new("killed");
    let mut child = Command::new(std::env::current_exe().expect("a test has a path"))
        .args([
            "--exact",
            "memory::another_process",
            "--ignored",
            "--nocapture",
        ])
        .env("STANDIN_TEST_STATE", state.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let says = |line: &std::io::Result<String>| line.as_ref().is_ok_and(|l| l.contains("holds"));
    assert!(lines.any(|line| says(&line)), "the other has its memory");
    let counts = state.open();
    assert_eq!(counts.sum(0, in_place::POOL), 75 << 20);
    child.kill().expect("it lives");
    child.wait().expect("it ends");
    assert_eq!(counts.sum(0, in_place::POOL), 0);
    assert_eq!(counts.clients_now(0), 0);
}

/// Run by the test above.
#[test]
#[ignore = "a part of another test"]
fn another_process() {
    let path = std::env::var("STANDIN_TEST_STATE").expect("the other test says");
    let traits = format!("memory=100MiB,state={path}");
    let options = [("standin".to_owned(), Value::Text(traits))];
    let client = plugin().create_client(&options).expect("it opens");
    let _held = bytes(&client, 4096).expect("there is room");
    writeln!(std::io::stdout(), "\nholds").expect("the other listens");
    // Until it is killed, or the other is gone.
    let _ = std::io::stdin().lines().next();
}

#[test]
fn pinned_memory_is_not_the_devices() {
    let state = StateFile::new("pinned");
    let client = client(&state, "memory=16MiB");
    let pinned = device(&client).memories().expect("two").remove(1);
    let array = upload_to(&pinned, &client, &vec![1.5; 8 << 20]).expect("32 MiB of the host");
    assert_eq!(in_use(&client), 0);
    assert_eq!(read(&array).map(|numbers| numbers[7]), Ok(1.5));
    let copied = array.copy_to_memory(&default_memory(&client));
    let refused = copied.err().expect("32 MiB do not fit into 12");
    assert_eq!(refused.code, PJRT_Error_Code_RESOURCE_EXHAUSTED);
}

#[test]
fn who_compiles_with_a_client_takes_the_pool() {
    for (traits, taken) in [("memory=100MiB", 75 << 20), ("memory=100MiB,autotune=0", 0)] {
        let state = StateFile::new(&format!("tunes-{taken}"));
        let client = client(&state, traits);
        compile(&client, &double("double", 4, false));
        assert_eq!(state.open().sum(0, in_place::POOL), taken, "{traits}");
    }
}

#[test]
fn statistics_are_as_the_allocator_has_them() {
    let state = StateFile::new("statistics");
    let platform = [("allocator", Value::Text("platform".to_owned()))];
    let without = [
        try_client(&state, "memory=64MiB,stats=0", &[]),
        try_client(&state, "memory=64MiB", &platform),
    ];
    for client in without {
        let client = client.expect("it opens");
        let refused = device(&client).memory_stats().expect_err("none");
        assert_eq!(refused.code, PJRT_Error_Code_UNIMPLEMENTED);
    }
    let counts = state.open();
    let client = try_client(&state, "memory=64MiB", &platform).expect("it opens");
    let array = bytes(&client, MIB);
    assert_eq!(
        counts.sum(0, in_place::POOL),
        1 << 20,
        "as much as it needs"
    );
    drop(array);
    assert_eq!(counts.sum(0, in_place::POOL), 0, "and gives it back");
    let most = counts
        .device(0, on_device::TAKEN_MOST)
        .load(Ordering::Relaxed);
    assert_eq!(most, 1 << 20);
}

#[test]
fn a_context_takes_memory_beside_the_pool() {
    let state = StateFile::new("context");
    let first = client(&state, "memory=64MiB,context=40MiB");
    assert_eq!(state.open().sum(0, in_place::POOL), 40 << 20);
    assert!(try_client(&state, "memory=64MiB,context=40MiB", &[]).is_err());
    drop(first);
    assert!(try_client(&state, "memory=64MiB,context=40MiB", &[]).is_ok());
}

#[test]
fn an_allocation_waits_for_memory_if_it_is_told_to() {
    let state = StateFile::new("waits-for-memory");
    let fraction = [("memory_fraction", Value::Float(1.0))];
    let client = try_client(&state, "memory=16MiB,wait_ms=60000", &fraction).expect("it opens");
    let array = bytes(&client, 12 * MIB).expect("there is room");
    let other = std::thread::scope(|scope| {
        let other = scope.spawn(|| bytes(&client, 12 * MIB));
        // Whichever comes first, the other gets it.
        drop(array);
        other.join().expect("it does not panic")
    });
    assert!(other.is_ok(), "there is room since the first is gone");
}
