//! LAPACK's library, opened when the first program calls it: it starts threads of its own, which a
//! service without linear algebra does not need.

use std::ffi::{CStr, CString, c_char, c_void};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::OnceLock;

use salus_pjrt::sys::PJRT_Error_Code_INTERNAL;
use salus_pjrt::{Error, Library};

/// The library's path, set once in the life of the process.
static PATH: OnceLock<PathBuf> = OnceLock::new();
static OPENED: OnceLock<Result<Library, Error>> = OnceLock::new();

/// Prefixes of the routines' names: SciPy's own build has one, others have none.
const PREFIXES: [&str; 2] = ["scipy_", ""];

/// Sets the library's path. False if it was set before.
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
        let library = Library::open(path, "LAPACK").map_err(|error| refused(error.message))?;
        if config(library).is_some_and(|config| config.contains(WIDE)) {
            let path = path.display();
            return Err(refused(format!("the LAPACK at {path} has 64-bit integers")));
        }
        Ok(library)
    };
    OPENED.get_or_init(open).clone()
}

/// Part of OpenBLAS's configuration if its integers have 64 bits: it would misread ours.
const WIDE: &str = "USE64BITINT";

/// OpenBLAS's configuration; `None` if it is another library.
fn config(library: Library) -> Option<String> {
    let symbol = |prefix: &str| {
        let name = CString::new(format!("{prefix}openblas_get_config")).ok()?;
        library.symbol(&name)
    };
    let symbol = PREFIXES.into_iter().find_map(symbol)?;
    // SAFETY: OpenBLAS declares it so; the text lives as long as the library.
    unsafe {
        let config: unsafe extern "C" fn() -> *const c_char = std::mem::transmute(symbol);
        let text = config();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

fn find(library: Library, name: &str) -> Result<Address, Error> {
    let symbol = |prefix: &str| {
        let symbol = CString::new(format!("{prefix}{name}_")).ok()?;
        library.symbol(&symbol).map(Address)
    };
    PREFIXES.into_iter().find_map(symbol).ok_or_else(|| {
        let path = PATH.get().map_or(Path::new("?"), |path| path);
        refused(format!("the LAPACK at {} has no `{name}`", path.display()))
    })
}

fn refused(what: String) -> Error {
    let hint = "set `lapack` in the service's configuration to another one, or install SciPy anew";
    Error::new(PJRT_Error_Code_INTERNAL, format!("{what}; {hint}"))
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
