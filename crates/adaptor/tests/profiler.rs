//! The Profiler extension as JAX uses it: a profiler around launches.
#![expect(unsafe_code, reason = "plays the C caller")]

mod play;

use std::mem::MaybeUninit;
use std::ptr::null_mut;

use play::*;
use salus_channel::blob;
use salus_pjrt::sys::*;
use salus_wire::{Error, ErrorCode, Profile, Profiled, ProfiledLaunch, Wire};

fn functions() -> &'static PLUGIN_Profiler_Api {
    let mut next = api().extension_start;
    // SAFETY: a chain of statics, which ends with NULL; the type says which one it is.
    unsafe {
        while (*next).r#type != PJRT_Extension_Type_Profiler {
            next = (*next).next;
        }
        &*(*next.cast::<PJRT_Profiler_Extension>()).profiler_api
    }
}

/// Arguments as XLA's client makes them: whatever lay on the stack, also for `struct_size`.
fn garbage<T: CStruct>() -> T {
    let mut args = MaybeUninit::<T>::uninit();
    // SAFETY: all bits are a value of integers and raw pointers, which these structs have only.
    unsafe {
        args.as_mut_ptr().write_bytes(0xa5, 1);
        args.assume_init()
    }
}

struct Profiler(*mut PLUGIN_Profiler);

impl Profiler {
    fn new() -> Self {
        let mut create = garbage::<PLUGIN_Profiler_Create_Args>();
        create.options = c"".as_ptr();
        create.options_size = 0;
        // SAFETY: as the header says.
        assert!(unsafe { functions().create.expect("filled")(&mut create) }.is_null());
        Self(create.profiler)
    }

    fn start(&self) {
        let mut start = garbage::<PLUGIN_Profiler_Start_Args>();
        start.profiler = self.0;
        // SAFETY: a live profiler.
        assert!(unsafe { functions().start.expect("filled")(&mut start) }.is_null());
    }

    fn stop(&self) {
        let mut stop = garbage::<PLUGIN_Profiler_Stop_Args>();
        stop.profiler = self.0;
        // SAFETY: a live profiler.
        assert!(unsafe { functions().stop.expect("filled")(&mut stop) }.is_null());
    }

    fn data(&self) -> Vec<u8> {
        let mut collect = garbage::<PLUGIN_Profiler_CollectData_Args>();
        collect.profiler = self.0;
        collect.buffer = null_mut();
        let call = functions().collect_data.expect("filled");
        // SAFETY: a live profiler; where the first call points to, it has this many bytes.
        unsafe {
            assert!(call(&mut collect).is_null());
            let size = collect.buffer_size_in_bytes;
            if size == 0 {
                return Vec::new();
            }
            let seen = std::slice::from_raw_parts(collect.buffer, size).to_vec();
            // As the header has it: once more, with memory of the caller's.
            let mut own = vec![0; size];
            collect.buffer = own.as_mut_ptr();
            assert!(call(&mut collect).is_null());
            assert_eq!(own, seen);
            seen
        }
    }
}

impl Drop for Profiler {
    fn drop(&mut self) {
        let mut destroy = garbage::<PLUGIN_Profiler_Destroy_Args>();
        destroy.profiler = self.0;
        // SAFETY: destroyed once.
        assert!(unsafe { functions().destroy.expect("filled")(&mut destroy) }.is_null());
    }
}

fn contains(data: &[u8], text: &str) -> bool {
    data.windows(text.len()).any(|part| part == text.as_bytes())
}

/// One test, because profiles are of the whole process.
#[test]
fn profiles_tell_what_ran_and_never_fail() {
    // Older clients of XLA refuse any other size, and crash then.
    assert_eq!(functions().struct_size, 80);
    // Nobody has a session: there is nothing to see.
    let profiler = Profiler::new();
    profiler.stop();
    profiler.start();
    profiler.stop();
    assert!(profiler.data().is_empty());

    let (client, mut service) = Service::open(4, true);
    profiler.start();
    let answering = std::thread::spawn(move || {
        let asked = next!(service, AskProfile);
        let launch = |at: u64| ProfiledLaunch {
            lane: 0,
            program: 0,
            ready_ns: asked.since_ns + at,
            began_ns: asked.since_ns + at + 100,
            ended_ns: asked.since_ns + at + 200,
        };
        let profile = Profile {
            from_ns: asked.since_ns,
            programs: vec!["jit_step".into()],
            launches: vec![launch(0), launch(1000)],
        };
        let mut bytes = Vec::new();
        profile.put(&mut bytes);
        let profiled = Profiled {
            request: asked.request,
            bytes: bytes.len() as u64,
            error: None,
        };
        service.send_with(profiled, Some(blob(&bytes).expect("a memfd")));
        service
    });
    profiler.stop();
    let mut service = answering.join().expect("asked once");
    let data = profiler.data();
    assert!(contains(&data, "/device:CUSTOM:salus:0 (cpu)"));
    assert!(contains(&data, "jit_step") && contains(&data, "lane 0"));

    // A service that does not know: an empty profile, and the session goes on.
    profiler.start();
    let answering = std::thread::spawn(move || {
        let asked = next!(service, AskProfile);
        service.send(Profiled {
            request: asked.request,
            bytes: 0,
            error: Some(Error::new(ErrorCode::ResourceExhausted, "too often")),
        });
        service
    });
    profiler.stop();
    let mut service = answering.join().expect("asked once");
    assert!(profiler.data().is_empty());
    let (array, _) = array(client, &mut service);
    destroy(array);

    // A service that is gone.
    profiler.start();
    drop(service);
    profiler.stop();
    assert!(profiler.data().is_empty());
    destroy_client(client);
    let after = Profiler::new();
    after.start();
    after.stop();
    assert!(after.data().is_empty());
}

#[test]
fn null_is_nothing() {
    let functions = functions();
    // SAFETY: NULL is what is tested; there never is an error.
    unsafe {
        assert!(functions.create.expect("filled")(null_mut()).is_null());
        assert!(functions.start.expect("filled")(null_mut()).is_null());
        assert!(functions.stop.expect("filled")(null_mut()).is_null());
        assert!(functions.destroy.expect("filled")(null_mut()).is_null());
        assert!(functions.collect_data.expect("filled")(null_mut()).is_null());
        functions.error_destroy.expect("filled")(null_mut());
        let mut code = garbage::<PLUGIN_Profiler_Error_GetCode_Args>();
        assert!(functions.error_get_code.expect("filled")(&mut code).is_null());
        assert_eq!(code.code, 0);
        let mut message = garbage::<PLUGIN_Profiler_Error_Message_Args>();
        functions.error_message.expect("filled")(&mut message);
        assert_eq!(message.message_size, 0);
    }
    let profiler = Profiler(null_mut());
    profiler.start();
    profiler.stop();
    assert!(profiler.data().is_empty());
}
