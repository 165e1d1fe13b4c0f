//! The border to C: what comes in is read field by field, what goes out is owned or an error.
//!
//! An argument struct of a C caller may be shorter than ours (an older header) or longer (a newer
//! one), so no reference to it is ever made. [`Args`] reads and writes a field only if it ends
//! inside the caller's `struct_size`.
//!
//! Promise: an error or a panic in a body becomes a `PJRT_Error`; nothing unwinds into C.
//! Not here: what the slots mean.
#![expect(unsafe_code, reason = "the fence itself")]

use std::any::Any;
use std::ffi::c_char;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null_mut, read_unaligned, write_unaligned};

use salus_pjrt::sys::{CStruct, PJRT_Error};

use crate::error::{Result, internal, into_raw, invalid};

/// Declares the body of a slot: `args` is an [`Args`], the block a `Result<()>`.
///
/// `sure fn` is for slots whose error would abort the user's process: they answer as well as they
/// can and never fail.
macro_rules! entry {
    ($($(#[$doc:meta])* fn $slot:ident($args:ident: $type:ident) $body:block)*) => {$(
        $(#[$doc])*
        pub(crate) unsafe extern "C" fn $slot(
            $args: *mut salus_pjrt::sys::$type,
        ) -> *mut salus_pjrt::sys::PJRT_Error {
            $crate::fence::fenced(stringify!($slot), || {
                // SAFETY: the caller of a slot follows the header.
                let $args = unsafe { $crate::fence::Args::new($args) }?;
                $body
            })
        }
    )*};
    (sure $($(#[$doc:meta])* fn $slot:ident($args:ident: $type:ident) $body:block)*) => {$(
        $(#[$doc])*
        pub(crate) unsafe extern "C" fn $slot(
            $args: *mut salus_pjrt::sys::$type,
        ) -> *mut salus_pjrt::sys::PJRT_Error {
            $crate::fence::sure(|| {
                // SAFETY: the caller of a slot follows the header.
                let $args = unsafe { $crate::fence::Args::new($args) }?;
                $body
            })
        }
    )*};
}
pub(crate) use entry;

pub(crate) fn fenced(slot: &str, body: impl FnOnce() -> Result<()>) -> *mut PJRT_Error {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => null_mut(),
        Ok(Err(error)) => into_raw(error),
        Err(panic) => into_raw(internal(format!(
            "Salus has a bug in {slot}: {}; please report it with the program that shows it",
            panic_text(panic.as_ref())
        ))),
    }
}

/// For slots whose error makes JAX abort the process.
pub(crate) fn sure(body: impl FnOnce() -> Result<()>) -> *mut PJRT_Error {
    let _ = catch_unwind(AssertUnwindSafe(body));
    null_mut()
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("a panic without a message")
}

/// A type of ours that C knows by an opaque pointer.
pub(crate) trait Handle: Sized {
    type Raw;
}

/// Hands an object to C, which gives it back to its `Destroy`.
pub(crate) fn give<T: Handle>(object: Box<T>) -> *mut T::Raw {
    Box::into_raw(object).cast()
}

/// The pointer by which C knows an object that we keep.
pub(crate) fn lend<T: Handle>(object: &T) -> *mut T::Raw {
    std::ptr::from_ref(object).cast_mut().cast()
}

/// A C caller's argument struct.
pub(crate) struct Args<'a, T> {
    at: *mut T,
    size: usize,
    _call: PhantomData<&'a ()>,
}

impl<'a, T: CStruct> Args<'a, T> {
    /// # Safety
    /// `at` is null, or the caller keeps what the header asks of it: the struct starts with its
    /// size and is readable and writable so far; pointers and handles in it are what the header
    /// says, for as long as the call lasts.
    pub(crate) unsafe fn new(at: *mut T) -> Result<Self> {
        if at.is_null() {
            return Err(invalid(format!("the pointer to {} is NULL", T::NAME)));
        }
        // SAFETY: every struct of the API starts with its size.
        let size = unsafe { read_unaligned(at.cast::<usize>()) };
        Ok(Self {
            at,
            size,
            _call: PhantomData,
        })
    }

    /// Where a field starts and ends, found on a struct of our own.
    fn span<F>(place: impl Fn(&T) -> &F) -> (usize, usize) {
        // SAFETY: zero bytes are a valid value of every `CStruct`.
        let sample: T = unsafe { MaybeUninit::zeroed().assume_init() };
        let field: *const F = place(&sample);
        let start = field as usize - (&raw const sample) as usize;
        (start, start + size_of::<F>())
    }

    #[cold]
    fn too_short(&self, end: usize) -> crate::error::Error {
        let field = T::FIELDS.iter().find(|f| f.offset + f.size >= end);
        invalid(format!(
            "{} has struct_size {}, which ends before its field `{}` does ({end})",
            T::NAME,
            self.size,
            field.map_or("?", |f| f.name),
        ))
    }

    /// A field, if the caller's struct has it.
    pub(crate) fn optional<F: Copy>(&self, place: impl Fn(&T) -> &F) -> Option<F> {
        let (start, end) = Self::span(place);
        // SAFETY: the field ends inside the caller's struct.
        (end <= self.size)
            .then(|| unsafe { read_unaligned(self.at.byte_add(start).cast_const().cast::<F>()) })
    }

    pub(crate) fn read<F: Copy>(&self, place: impl Fn(&T) -> &F) -> Result<F> {
        self.optional(&place)
            .ok_or_else(|| self.too_short(Self::span(place).1))
    }

    /// Writes a field that the caller must have.
    pub(crate) fn put<F: Copy>(&self, place: impl Fn(&T) -> &F, value: F) -> Result<()> {
        if self.put_optional(&place, value) {
            Ok(())
        } else {
            Err(self.too_short(Self::span(place).1))
        }
    }

    /// Writes a field if the caller's struct has it.
    pub(crate) fn put_optional<F: Copy>(&self, place: impl Fn(&T) -> &F, value: F) -> bool {
        let (start, end) = Self::span(place);
        if end > self.size {
            return false;
        }
        // SAFETY: the field ends inside the caller's struct, which is writable.
        unsafe { write_unaligned(self.at.byte_add(start).cast::<F>(), value) };
        true
    }

    /// Writes a field whatever size the struct says it has.
    ///
    /// # Safety
    /// In every version of the header the struct has room for the field.
    pub(crate) unsafe fn put_always<F: Copy>(&self, place: impl Fn(&T) -> &F, value: F) {
        let (start, _) = Self::span(place);
        // SAFETY: the caller promises the room.
        unsafe { write_unaligned(self.at.byte_add(start).cast::<F>(), value) };
    }

    /// A text that lives as long as the object asked about.
    pub(crate) fn put_text(
        &self,
        start: impl Fn(&T) -> &*const c_char,
        size: impl Fn(&T) -> &usize,
        text: &str,
    ) {
        self.put_optional(start, text.as_ptr().cast());
        self.put_optional(size, text.len());
    }

    /// Hands an object to the caller.
    pub(crate) fn hand<H: Handle>(
        &self,
        place: impl Fn(&T) -> &*mut H::Raw,
        object: Box<H>,
    ) -> Result<()> {
        let (_, end) = Self::span(&place);
        if end > self.size {
            return Err(self.too_short(end));
        }
        self.put(place, give(object))
    }

    /// An object that the caller names.
    pub(crate) fn handle<H: Handle>(&self, place: impl Fn(&T) -> &*mut H::Raw) -> Result<&'a H> {
        let raw = self.read(&place)?;
        // SAFETY: the caller names a live object of this type, made by us, or NULL.
        unsafe { raw.cast::<H>().as_ref() }.ok_or_else(|| self.null(Self::span(place).0))
    }

    /// As [`Args::handle`], where the header has a `const` pointer.
    pub(crate) fn handle_const<H: Handle>(
        &self,
        place: impl Fn(&T) -> &*const H::Raw,
    ) -> Result<&'a H> {
        let raw = self.read(&place)?;
        // SAFETY: as above.
        unsafe { raw.cast::<H>().as_ref() }.ok_or_else(|| self.null(Self::span(place).0))
    }

    /// An object that the caller names or leaves out.
    pub(crate) fn handle_or_null<H: Handle>(
        &self,
        place: impl Fn(&T) -> &*mut H::Raw,
    ) -> Option<&'a H> {
        let raw = self.optional(place)?;
        // SAFETY: as above.
        unsafe { raw.cast::<H>().as_ref() }
    }

    /// An object that the caller gives back.
    pub(crate) fn own<H: Handle>(&self, place: impl Fn(&T) -> &*mut H::Raw) -> Option<Box<H>> {
        let raw = self.optional(place)?;
        // SAFETY: a `Destroy` gets what `give` handed out, once, or NULL.
        (!raw.is_null()).then(|| unsafe { Box::from_raw(raw.cast()) })
    }

    /// An array that the caller owns.
    pub(crate) fn list<E: Copy>(
        &self,
        start: impl Fn(&T) -> &*const E,
        count: impl Fn(&T) -> &usize,
    ) -> Result<&'a [E]> {
        let (at, count) = (self.read(&start)?, self.read(count)?);
        if count == 0 {
            return Ok(&[]);
        }
        if at.is_null() {
            return Err(self.null(Self::span(start).0));
        }
        // SAFETY: the header has `count` elements there, readable during the call.
        Ok(unsafe { std::slice::from_raw_parts(at, count) })
    }

    pub(crate) fn bytes(
        &self,
        start: impl Fn(&T) -> &*const c_char,
        size: impl Fn(&T) -> &usize,
    ) -> Result<&'a [u8]> {
        let chars = self.list(start, size)?;
        // SAFETY: chars are bytes.
        Ok(unsafe { std::slice::from_raw_parts(chars.as_ptr().cast(), chars.len()) })
    }

    /// A struct that the caller points to.
    pub(crate) fn inner<S: CStruct>(&self, place: impl Fn(&T) -> &*const S) -> Result<Args<'a, S>> {
        let at = self.read(&place)?;
        if at.is_null() {
            return Err(self.null(Self::span(place).0));
        }
        // SAFETY: the caller follows the header for structs that it points to, too.
        unsafe { Args::new(at.cast_mut()) }
    }

    /// As [`Args::inner`], for a struct that we fill.
    pub(crate) fn inner_mut<S: CStruct>(
        &self,
        place: impl Fn(&T) -> &*mut S,
    ) -> Result<Args<'a, S>> {
        let at = self.read(&place)?;
        if at.is_null() {
            return Err(self.null(Self::span(place).0));
        }
        // SAFETY: as above.
        unsafe { Args::new(at) }
    }

    #[cold]
    fn null(&self, offset: usize) -> crate::error::Error {
        let field = T::FIELDS.iter().find(|f| f.offset == offset);
        invalid(format!(
            "`{}` of {} is NULL",
            field.map_or("?", |f| f.name),
            T::NAME
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::{fenced, sure};
    use crate::error::{Error, invalid};

    /// Takes over what `fenced` gave to C.
    fn taken(error: *mut salus_pjrt::sys::PJRT_Error) -> Error {
        // SAFETY: made by `into_raw`, taken once.
        *unsafe { Box::from_raw(error.cast::<Error>()) }
    }

    #[test]
    fn a_panic_becomes_an_error_that_says_it_is_ours() {
        let error = taken(fenced("PJRT_Some_Slot", || panic!("no such {}", "thing")));
        assert_eq!(error.code, salus_pjrt::sys::PJRT_Error_Code_INTERNAL);
        assert_eq!(
            error.message,
            "Salus has a bug in PJRT_Some_Slot: no such thing; please report it with the program \
             that shows it"
        );
        assert!(sure(|| panic!("not even this")).is_null());
    }

    #[test]
    fn an_error_is_handed_over_and_success_is_null() {
        assert_eq!(taken(fenced("x", || Err(invalid("why")))), invalid("why"));
        assert!(fenced("x", || Ok(())).is_null());
        assert!(sure(|| Err(invalid("why"))).is_null());
    }
}
