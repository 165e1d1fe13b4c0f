//! Arguments of C callers: read and written field by field; errors and objects handed back to C.
//!
//! An argument struct of a C caller may be shorter than ours (an older header) or longer (a newer
//! one), so no reference to it is ever made. [`Args`] reads and writes a field ([`field!`]) only if it
//! ends inside the caller's `struct_size`.
//!
//! Promise: an error or a panic in a body becomes a `PJRT_Error`; nothing unwinds into C; nothing
//! borrowed from the caller outlives the call.
//! Not here: what the slots mean.
#![expect(unsafe_code, reason = "the fence itself")]

use std::any::Any;
use std::ffi::c_char;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::{null_mut, read_unaligned, write_unaligned};

use salus_pjrt::sys::{CStruct, PJRT_Error};

use crate::c_api::error::{Error, Result, internal, into_raw, invalid};

/// Declares the body of a slot: `args` is an [`Args`] of the struct `Call`, the block a `Result<()>`.
///
/// `sure fn` is for slots whose error would abort the user's process: they answer as well as they
/// can and never fail.
macro_rules! entry {
    (@with $fence:ident $($(#[$doc:meta])* fn $slot:ident($args:ident: $type:ident) $body:block)*) => {$(
        $(#[$doc])*
        pub(crate) unsafe extern "C" fn $slot(
            $args: *mut salus_pjrt::sys::$type,
        ) -> *mut salus_pjrt::sys::PJRT_Error {
            #[allow(dead_code, reason = "some slots look at no field")]
            type Call = salus_pjrt::sys::$type;
            let body = |$args: $crate::c_api::c_args::Args<'_, Call>| $body;
            $crate::c_api::c_args::$fence(stringify!($slot), || {
                // SAFETY: the caller of a slot follows the header.
                unsafe { $crate::c_api::c_args::with_args($args, body) }
            })
        }
    )*};
    (sure $($slots:tt)*) => { entry! { @with sure $($slots)* } };
    ($($slots:tt)*) => { entry! { @with fenced $($slots)* } };
}
pub(crate) use entry;

/// Runs the body of a slot; an error or a panic becomes a `PJRT_Error`.
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

/// Likewise, for slots whose error makes JAX abort the process.
pub(crate) fn sure(_slot: &str, body: impl FnOnce() -> Result<()>) -> *mut PJRT_Error {
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

/// A field of a struct of the header: where it is, and of which type.
pub(crate) struct Field<T, F> {
    offset: usize,
    _types: PhantomData<fn(&T) -> &F>,
}

impl<T, F> Clone for Field<T, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, F> Copy for Field<T, F> {}

impl<T, F> Field<T, F> {
    /// # Safety
    /// At `offset`, `T` has the field that `_field` names; use [`field!`].
    pub(crate) const unsafe fn new(offset: usize, _field: fn(&T) -> &F) -> Self {
        Self {
            offset,
            _types: PhantomData,
        }
    }

    fn end(self) -> usize {
        self.offset + size_of::<F>()
    }
}

/// A field by its name: `field!(PJRT_Event_Await_Args.event)`.
macro_rules! field {
    ($struct:ident.$field:ident) => {
        // SAFETY: both name the same field.
        unsafe {
            $crate::c_api::c_args::Field::new(
                ::std::mem::offset_of!($struct, $field),
                |whole: &$struct| &whole.$field,
            )
        }
    };
}
pub(crate) use field;

/// A C caller's argument struct, during the call.
pub(crate) struct Args<'a, T> {
    at: *mut T,
    size: usize,
    _call: PhantomData<&'a ()>,
}

/// Runs `body` with a caller's arguments, which it cannot keep.
///
/// # Safety
/// `at` is null, or the caller keeps what the header asks of it: the struct starts with its size and
/// is readable and writable up to that; pointers and handles in it are what the header says, for as
/// long as the call lasts.
pub(crate) unsafe fn with_args<T: CStruct>(
    at: *mut T,
    body: impl for<'a> FnOnce(Args<'a, T>) -> Result<()>,
) -> Result<()> {
    if at.is_null() {
        return Err(invalid(format!("the pointer to {} is NULL", T::NAME)));
    }
    // SAFETY: the caller's promise.
    body(unsafe { Args::new(at) })
}

impl<'a, T: CStruct> Args<'a, T> {
    /// # Safety
    /// As [`with_args`], for `'a`, and not null.
    unsafe fn new(at: *mut T) -> Self {
        Self {
            at,
            // SAFETY: every struct of the API starts with its size.
            size: unsafe { read_unaligned(at.cast::<usize>()) },
            _call: PhantomData,
        }
    }

    /// Whether the caller's struct has the field.
    fn reaches<F>(&self, field: Field<T, F>) -> bool {
        field.end() <= self.size
    }

    #[cold]
    fn too_short<F>(&self, field: Field<T, F>) -> Error {
        invalid(format!(
            "{} has struct_size {}, which ends before its field `{}` does ({})",
            T::NAME,
            self.size,
            name_of(field),
            field.end(),
        ))
    }

    #[cold]
    fn null<F>(&self, field: Field<T, F>) -> Error {
        invalid(format!("`{}` of {} is NULL", name_of(field), T::NAME))
    }

    /// A field, if the caller's struct has it.
    pub(crate) fn optional<F: Copy>(&self, field: Field<T, F>) -> Option<F> {
        // SAFETY: the field ends inside the caller's struct.
        self.reaches(field)
            .then(|| unsafe { read_unaligned(self.at.byte_add(field.offset).cast::<F>()) })
    }

    pub(crate) fn read<F: Copy>(&self, field: Field<T, F>) -> Result<F> {
        self.optional(field).ok_or_else(|| self.too_short(field))
    }

    /// Writes a field that the caller must have.
    pub(crate) fn put<F: Copy>(&self, field: Field<T, F>, value: F) -> Result<()> {
        if self.put_optional(field, value) {
            Ok(())
        } else {
            Err(self.too_short(field))
        }
    }

    /// Writes a field if the caller's struct has it.
    pub(crate) fn put_optional<F: Copy>(&self, field: Field<T, F>, value: F) -> bool {
        let reaches = self.reaches(field);
        if reaches {
            // SAFETY: the field ends inside the caller's struct, which is writable.
            unsafe { self.put_always(field, value) };
        }
        reaches
    }

    /// Writes a field whatever size the struct says it has.
    ///
    /// # Safety
    /// In every version of the header the struct has room for the field.
    pub(crate) unsafe fn put_always<F: Copy>(&self, field: Field<T, F>, value: F) {
        // SAFETY: the caller promises the room.
        unsafe { write_unaligned(self.at.byte_add(field.offset).cast::<F>(), value) };
    }

    /// A text that lives as long as the object asked about.
    pub(crate) fn put_text(
        &self,
        start: Field<T, *const c_char>,
        size: Field<T, usize>,
        text: &str,
    ) {
        self.put_optional(start, text.as_ptr().cast());
        self.put_optional(size, text.len());
    }

    /// Hands an object to the caller.
    pub(crate) fn hand<H: Handle>(
        &self,
        field: Field<T, *mut H::Raw>,
        object: Box<H>,
    ) -> Result<()> {
        if !self.reaches(field) {
            return Err(self.too_short(field));
        }
        self.put(field, give(object))
    }

    /// An object that the caller names.
    pub(crate) fn handle<H: Handle>(&self, field: Field<T, *mut H::Raw>) -> Result<&'a H> {
        let raw = self.read(field)?;
        // SAFETY: the caller names a live object of this type, made by us, or NULL.
        unsafe { raw.cast::<H>().as_ref() }.ok_or_else(|| self.null(field))
    }

    /// As [`Args::handle`], where the header has a `const` pointer.
    pub(crate) fn handle_const<H: Handle>(&self, field: Field<T, *const H::Raw>) -> Result<&'a H> {
        let raw = self.read(field)?;
        // SAFETY: as above.
        unsafe { raw.cast::<H>().as_ref() }.ok_or_else(|| self.null(field))
    }

    /// An object that the caller names or leaves out.
    pub(crate) fn handle_or_null<H: Handle>(&self, field: Field<T, *mut H::Raw>) -> Option<&'a H> {
        let raw = self.optional(field)?;
        // SAFETY: as above.
        unsafe { raw.cast::<H>().as_ref() }
    }

    /// An object that the caller gives back.
    pub(crate) fn own<H: Handle>(&self, field: Field<T, *mut H::Raw>) -> Option<Box<H>> {
        let raw = self.optional(field)?;
        // SAFETY: a `Destroy` gets what `give` handed out, once, or NULL.
        (!raw.is_null()).then(|| unsafe { Box::from_raw(raw.cast()) })
    }

    /// An array that the caller owns.
    pub(crate) fn list<E: Copy>(
        &self,
        start: Field<T, *const E>,
        count: Field<T, usize>,
    ) -> Result<&'a [E]> {
        let (at, count) = (self.read(start)?, self.read(count)?);
        if count == 0 {
            return Ok(&[]);
        }
        if at.is_null() {
            return Err(self.null(start));
        }
        // SAFETY: the header has `count` elements there, readable during the call.
        Ok(unsafe { std::slice::from_raw_parts(at, count) })
    }

    pub(crate) fn bytes(
        &self,
        start: Field<T, *const c_char>,
        size: Field<T, usize>,
    ) -> Result<&'a [u8]> {
        let chars = self.list(start, size)?;
        // SAFETY: chars are bytes.
        Ok(unsafe { std::slice::from_raw_parts(chars.as_ptr().cast(), chars.len()) })
    }

    /// A struct that the caller points to.
    pub(crate) fn inner<S: CStruct>(&self, field: Field<T, *const S>) -> Result<Args<'a, S>> {
        let at = self.read(field)?;
        if at.is_null() {
            return Err(self.null(field));
        }
        // SAFETY: the caller follows the header for structs that it points to, too.
        Ok(unsafe { Args::new(at.cast_mut()) })
    }

    /// As [`Args::inner`], for a struct that we fill.
    pub(crate) fn inner_mut<S: CStruct>(&self, field: Field<T, *mut S>) -> Result<Args<'a, S>> {
        let at = self.read(field)?;
        if at.is_null() {
            return Err(self.null(field));
        }
        // SAFETY: as above.
        Ok(unsafe { Args::new(at) })
    }
}

fn name_of<T: CStruct, F>(field: Field<T, F>) -> &'static str {
    let found = T::FIELDS.iter().find(|f| f.offset == field.offset);
    found.map_or("?", |f| f.name)
}

#[cfg(test)]
mod tests {
    use super::{fenced, sure};
    use crate::c_api::error::{Error, invalid};

    /// Takes over what `fenced` gave to C.
    fn taken(error: *mut salus_pjrt::sys::PJRT_Error) -> Error {
        // SAFETY: made by `into_raw`, taken once.
        *unsafe { Box::from_raw(error.cast::<Error>()) }
    }

    #[test]
    fn a_panic_becomes_an_error_that_says_it_is_ours() {
        let error = taken(fenced("PJRT_Some_Slot", || panic!("no such {}", "thing")));
        assert_eq!(error.code, salus_wire::ErrorCode::Internal);
        assert_eq!(
            error.message,
            "Salus has a bug in PJRT_Some_Slot: no such thing; please report it with the program \
             that shows it"
        );
        assert!(sure("x", || panic!("not even this")).is_null());
    }

    #[test]
    fn an_error_is_handed_over_and_success_is_null() {
        assert_eq!(taken(fenced("x", || Err(invalid("why")))), invalid("why"));
        assert!(fenced("x", || Ok(())).is_null());
        assert!(sure("x", || Err(invalid("why"))).is_null());
    }
}
