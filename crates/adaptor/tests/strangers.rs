//! Whose service a job speaks to when nobody names one.
//!
//! One test in a process of its own, because the library reads the environment once.
#![expect(unsafe_code, reason = "plays the C caller; sets the environment")]

mod play;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use play::*;
use rustix::process::Uid;
use salus_pjrt::sys::*;

/// Neither root nor the user who runs the test.
const STRANGER: u32 = 54_321;

/// A client of whichever service the library finds by itself.
fn find() -> Result<*mut PJRT_Client, Failure> {
    let mut create = args::<PJRT_Client_Create_Args>();
    call(api().PJRT_Client_Create, &mut create).map(|()| create.client)
}

fn directory(path: &Path) {
    std::fs::create_dir(path).expect("made");
    // For the stranger's thread, too.
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).expect("ours");
}

/// A socket on which a process of the stranger's listens, as far as the kernel can tell.
fn listen_as_a_stranger(path: &Path) -> UnixListener {
    let path = path.to_owned();
    std::thread::spawn(move || {
        // Of this thread alone, which ends.
        rustix::thread::set_thread_uid(Uid::from_raw(STRANGER)).expect("root may");
        UnixListener::bind(path).expect("a socket is made")
    })
    .join()
    .expect("no panic")
}

/// Opens a session with whoever listens there.
fn opens(path: &Path) {
    let listener = UnixListener::bind(path).expect("a socket is made");
    let service = std::thread::spawn(move || Service::welcome(&listener, 4, true));
    let client = find().expect("a session opens");
    drop(service.join().expect("the service accepts"));
    destroy_client(client);
    std::fs::remove_file(path).expect("removed");
}

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn only_this_user_and_root_are_spoken_to_without_being_named() {
    if Path::new("/run/salus/salus.sock").exists() {
        eprintln!("skipped: a service of this machine runs, which every job would find");
        return;
    }
    let scratch = Scratch(fresh_path());
    directory(&scratch.0);
    // SAFETY: this process has one test, and nothing reads the environment beside it.
    unsafe {
        std::env::set_var("XDG_RUNTIME_DIR", &scratch.0);
        std::env::set_var("TMPDIR", &scratch.0);
        std::env::remove_var("SALUS_SOCKET");
    }
    let me = rustix::process::geteuid().as_raw();
    let private = scratch.0.join(format!("salus-{me}"));
    directory(&scratch.0.join("salus"));
    directory(&private);
    let (first, second) = (
        scratch.0.join("salus/salus.sock"),
        private.join("salus.sock"),
    );

    let (code, text) = find().expect_err("no service");
    assert_eq!(code, PJRT_Error_Code_UNAVAILABLE);
    let places = format!(
        "there is no socket at {}, {}, /run/salus/salus.sock; start one",
        first.display(),
        second.display()
    );
    assert!(text.contains(&places), "{text}");
    opens(&first);
    // A file that is no socket is passed over.
    std::fs::write(&first, "").expect("written");
    opens(&second);
    std::fs::remove_file(&first).expect("removed");

    if me != 0 {
        eprintln!("skipped from here: only root can listen as somebody else");
        return;
    }
    let stranger = listen_as_a_stranger(&first);
    assert_eq!(first.metadata().expect("there").uid(), STRANGER);
    let (code, text) = find().expect_err("a stranger's");
    assert_eq!(code, PJRT_Error_Code_UNAVAILABLE);
    let why = format!(
        "the socket at {} belongs to user {STRANGER}, and those of others than this user (0) and \
         root are used only if they are named; start one",
        first.display()
    );
    assert!(text.contains(&why), "{text}");
    // It is passed over, not an obstacle.
    opens(&second);

    // A socket that looks like ours, but another listens: nothing is said to it.
    std::os::unix::fs::chown(&first, Some(0), Some(0)).expect("root may");
    let (code, text) = find().expect_err("a stranger");
    assert_eq!(code, PJRT_Error_Code_PERMISSION_DENIED);
    let shown = first.display();
    assert!(
        text.contains(&format!(
            "what listens at {shown} is run by user {STRANGER}"
        )),
        "{text}"
    );
    assert!(
        text.contains(&format!("set SALUS_SOCKET={shown}")),
        "{text}"
    );
    stranger.set_nonblocking(true).expect("set");
    let (mut heard, _) = stranger.accept().expect("it connected");
    let mut said = Vec::new();
    std::io::Read::read_to_end(&mut heard, &mut said).expect("it hung up");
    assert!(said.is_empty(), "{said:?}");

    // Who names it, chose it.
    let named = first.to_str().expect("UTF-8").to_owned();
    let service = std::thread::spawn(move || {
        stranger.set_nonblocking(false).expect("set");
        Service::welcome(&stranger, 4, true)
    });
    let client = create(&named).expect("a session opens");
    drop(service.join().expect("the service accepts"));
    destroy_client(client);
}
