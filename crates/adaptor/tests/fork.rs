//! A forked child: it owns nothing of its parent's session and says so. One test, one process.
#![expect(unsafe_code, reason = "plays the C caller, and forks")]

mod play;

use play::*;
use salus_pjrt::sys::*;

unsafe extern "C" {
    fn fork() -> i32;
    fn _exit(status: i32) -> !;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
}

#[test]
fn a_child_is_told_to_make_its_own_client_and_disturbs_nothing() {
    let (client, mut service) = Service::open(8, true);
    let (program, _) = compiled(client, &mut service, &signature(1, 1, 0));
    let (a, id) = array(client, &mut service);
    // SAFETY: the child calls the adaptor and ends by `_exit`.
    let child = unsafe { fork() };
    if child == 0 {
        let code = |outcome: Result<(), Failure>| outcome.err().map(|failure| failure.0);
        let refused = Some(PJRT_Error_Code_FAILED_PRECONDITION);
        let good = code(put(client, &[1.0]).map(|_| ())) == refused
            && code(launch(program, &[a], 1, &[]).map(|_| ())) == refused
            && code(compile(client, b"x").map(|_| ())) == refused
            && code(read_into(a, &mut [0.0; 4]).map(|_| ())) == refused
            && !is_deleted(a);
        destroy(a);
        destroy_executable(program);
        destroy_client(client);
        // SAFETY: nothing of the parent's may run here.
        unsafe { _exit(i32::from(!good)) };
    }
    let mut status = -1;
    // SAFETY: our child.
    assert_eq!(unsafe { waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child's calls");
    // The parent goes on, and only its own frames arrive.
    let launched = launch(program, &[a], 1, &[]).expect("launched");
    let frame = next!(service, Launch);
    assert_eq!(frame.arguments, [id]);
    service.send(salus_wire::Completed {
        done: vec![frame.operation],
        failed: Vec::new(),
    });
    await_event(launched.event).expect("it ended well");
    destroy(a);
    destroy(launched.outputs[0]);
    destroy_executable(program);
    destroy_client(client);
}
