//! The library, opened when the first program calls it: it starts threads of its own, which a
//! service without linear algebra need not have.

use std::ffi::{CString, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;

use salus_pjrt::sys::PJRT_Error_Code_INTERNAL;
use salus_pjrt::{Error, Library};

/// Where it is, said once in the life of the process.
static PATH: OnceLock<PathBuf> = OnceLock::new();
static OPENED: OnceLock<Result<Library, Error>> = OnceLock::new();

/// What SciPy puts before the names of routines in its own build, and what others have there.
const PREFIXES: [&str; 2] = ["scipy_", ""];

/// Says where the library is. False if that was said before.
pub(super) fn set_path(path: &Path) -> bool {
    PATH.set(path.to_owned()).is_ok()
}

/// One routine, looked up at its first call.
pub(super) struct Routine {
    name: &'static str,
    address: OnceLock<Result<Address, Error>>,
}

#[derive(Clone, Copy)]
struct Address(NonNull<c_void>);

// SAFETY: code of a library that is never closed.
unsafe impl Send for Address {}
// SAFETY: as above.
unsafe impl Sync for Address {}

impl Routine {
    pub(super) const fn new(name: &'static str) -> Routine {
        Routine {
            name,
            address: OnceLock::new(),
        }
    }

    /// The routine as a function of type `F`.
    ///
    /// # Safety
    /// `F` is the function pointer that LAPACK documents for this routine: every argument by
    /// address, then a length of 1 for each string.
    pub(super) unsafe fn function<F: Copy>(&self) -> Result<F, Error> {
        const { assert!(size_of::<F>() == size_of::<NonNull<c_void>>()) };
        let find = || find(opened()?, self.name);
        let address = self.address.get_or_init(find).clone()?;
        // SAFETY: the address of a function, and `F` is its type by the caller's promise.
        Ok(unsafe { std::mem::transmute_copy(&address.0) })
    }
}

fn opened() -> Result<Library, Error> {
    let open = || {
        let path = PATH.get().expect("set before a handler is registered");
        Library::open(path, "LAPACK")
    };
    OPENED.get_or_init(open).clone()
}

fn find(library: Library, name: &str) -> Result<Address, Error> {
    let symbol = |prefix: &str| {
        let symbol = CString::new(format!("{prefix}{name}_")).ok()?;
        library.symbol(&symbol).map(Address)
    };
    PREFIXES.into_iter().find_map(symbol).ok_or_else(|| {
        let path = PATH.get().map_or(Path::new("?"), |path| path);
        Error::new(
            PJRT_Error_Code_INTERNAL,
            format!(
                "the LAPACK at {} has no `{name}`; set `lapack` in the service's configuration \
                 to another one",
                path.display()
            ),
        )
    })
}

/// Opens the library at `path` and looks for each of `routines`.
pub(super) fn check(
    path: &Path,
    routines: impl Iterator<Item = &'static str>,
) -> Result<(), Error> {
    set_path(path);
    let library = opened()?;
    for name in routines {
        find(library, name)?;
    }
    Ok(())
}
