//! Linear algebra on the CPU device: handlers for the custom calls that JAX makes of `jnp.linalg`.
//!
//! JAX's CPU backend calls LAPACK inside the job's process, from the copy in SciPy's wheel. The
//! device host has handlers of the same names that call the same library, so results are the same
//! to the bit. Compilers register them too, because the plugin looks a target up when it compiles.
//!
//! Two of JAX's calls need no library: `perturbed.rs` and `sparse.rs`.
//!
//! Threads: the library has a pool as large as in JAX's own process (the cores, or
//! `OPENBLAS_NUM_THREADS` in the service's environment), for all lanes together, from the first
//! call on. Results depend on that number.
//!
//! Cost: scratch for a few matrices, which no ledger sees, as in JAX.
//! Not here: where the library is (`discover.rs`).
#![expect(unsafe_code, reason = "calls LAPACK on the operands of custom calls")]

mod arguments;
mod eigen;
mod library;
mod perturbed;
mod reduce;
mod scalar;
mod solve;
mod sparse;
mod svd;

use std::path::Path;

use salus_pjrt::sys::{XLA_FFI_CallFrame, XLA_FFI_Error, XLA_FFI_Handler};
use salus_pjrt::{Call, Ffi, handle};

use crate::Error;
use crate::failure::vendor;
use arguments::Invocation;
use library::Routine;
use scalar::Complex;

type C64 = Complex<f32>;
type C128 = Complex<f64>;

/// A custom call by its name, and the handler and routine behind it.
struct Target {
    name: &'static str,
    routine: &'static str,
    handler: XLA_FFI_Handler,
}

macro_rules! target {
    ($routine:literal, $function:expr) => {{
        const TARGET: &str = concat!("lapack_", $routine, "_ffi");
        unsafe extern "C" fn handler(frame: *mut XLA_FFI_CallFrame) -> *mut XLA_FFI_Error {
            static ROUTINE: Routine = Routine::new($routine);
            let target = TARGET;
            let answer = |call: &Call<'_>| $function(Invocation { target, call }, &ROUTINE);
            // SAFETY: the plugin calls this with its frame.
            unsafe { handle(frame, answer) }
        }
        Target {
            name: TARGET,
            routine: $routine,
            handler,
        }
    }};
}

const TARGETS: &[Target] = &[
    target!("strsm", solve::trsm::<f32>),
    target!("dtrsm", solve::trsm::<f64>),
    target!("ctrsm", solve::trsm::<C64>),
    target!("ztrsm", solve::trsm::<C128>),
    target!("sgetrf", solve::getrf::<f32>),
    target!("dgetrf", solve::getrf::<f64>),
    target!("cgetrf", solve::getrf::<C64>),
    target!("zgetrf", solve::getrf::<C128>),
    target!("spotrf", solve::potrf::<f32>),
    target!("dpotrf", solve::potrf::<f64>),
    target!("cpotrf", solve::potrf::<C64>),
    target!("zpotrf", solve::potrf::<C128>),
    target!("sgeqrf", solve::geqrf::<f32>),
    target!("dgeqrf", solve::geqrf::<f64>),
    target!("cgeqrf", solve::geqrf::<C64>),
    target!("zgeqrf", solve::geqrf::<C128>),
    target!("sgeqp3", solve::geqp3::<f32>),
    target!("dgeqp3", solve::geqp3::<f64>),
    target!("cgeqp3", solve::geqp3::<C64>),
    target!("zgeqp3", solve::geqp3::<C128>),
    target!("sorgqr", solve::orgqr::<f32>),
    target!("dorgqr", solve::orgqr::<f64>),
    target!("cungqr", solve::orgqr::<C64>),
    target!("zungqr", solve::orgqr::<C128>),
    target!("sormqr", solve::ormqr::<f32>),
    target!("dormqr", solve::ormqr::<f64>),
    target!("cunmqr", solve::ormqr::<C64>),
    target!("zunmqr", solve::ormqr::<C128>),
    target!("sgtsv", solve::gtsv::<f32>),
    target!("dgtsv", solve::gtsv::<f64>),
    target!("cgtsv", solve::gtsv::<C64>),
    target!("zgtsv", solve::gtsv::<C128>),
    target!("sgesdd", svd::gesdd::<f32>),
    target!("dgesdd", svd::gesdd::<f64>),
    target!("cgesdd", svd::gesdd::<C64>),
    target!("zgesdd", svd::gesdd::<C128>),
    target!("sgesvd", svd::gesvd::<f32>),
    target!("dgesvd", svd::gesvd::<f64>),
    target!("cgesvd", svd::gesvd::<C64>),
    target!("zgesvd", svd::gesvd::<C128>),
    target!("ssyevd", eigen::syevd::<f32>),
    target!("dsyevd", eigen::syevd::<f64>),
    target!("cheevd", eigen::syevd::<C64>),
    target!("zheevd", eigen::syevd::<C128>),
    target!("sgeev", eigen::geev_real::<f32>),
    target!("dgeev", eigen::geev_real::<f64>),
    target!("cgeev", eigen::geev_complex::<C64>),
    target!("zgeev", eigen::geev_complex::<C128>),
    target!("sgees", reduce::gees::<f32>),
    target!("dgees", reduce::gees::<f64>),
    target!("cgees", reduce::gees::<C64>),
    target!("zgees", reduce::gees::<C128>),
    target!("sgehrd", reduce::gehrd::<f32>),
    target!("dgehrd", reduce::gehrd::<f64>),
    target!("cgehrd", reduce::gehrd::<C64>),
    target!("zgehrd", reduce::gehrd::<C128>),
    target!("ssytrd", reduce::sytrd::<f32>),
    target!("dsytrd", reduce::sytrd::<f64>),
    target!("chetrd", reduce::sytrd::<C64>),
    target!("zhetrd", reduce::sytrd::<C128>),
];

/// Handlers that need no library.
const OWN: &[(&str, XLA_FFI_Handler)] = &[
    (perturbed::TARGET, perturbed::handler),
    (sparse::TARGET, sparse::handler),
];

/// The platform under which the plugin looks handlers up.
const PLATFORM: &str = "Host";

/// Registers all handlers; without a library, those that call none. Once in the life of the process.
pub(crate) fn register(ffi: Ffi, library: Option<&Path>) {
    let has_library = library.is_some_and(library::set_path);
    let with_library = if has_library { TARGETS } else { &[] };
    let with_library = with_library
        .iter()
        .map(|target| (target.name, target.handler));
    for (name, handler) in OWN.iter().copied().chain(with_library) {
        // A plugin that has its own keeps it; for one that refuses ours, compiling says which.
        let _ = ffi.register(name, PLATFORM, handler);
    }
}

/// The custom calls that programs may make where there is LAPACK.
pub fn linalg_targets() -> impl Iterator<Item = &'static str> {
    let with_library = TARGETS.iter().map(|target| target.name);
    OWN.iter().map(|(name, _)| *name).chain(with_library)
}

/// Whether the library at `path` can be opened and has all routines.
pub fn check_lapack(path: &Path) -> Result<(), Error> {
    library::check(path, TARGETS.iter().map(|target| target.routine)).map_err(vendor)
}
