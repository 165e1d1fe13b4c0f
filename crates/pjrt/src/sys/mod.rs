//! The PJRT C ABI, transcribed: the header's names, layouts and constants, and no behaviour.
//!
//! Written against API 0.81, the version that the adaptor declares. `tests/header.rs` compiles the
//! header shipped in the `xla-cpu-pjrt` wheel and compares every size and offset with [`CStruct`].
//!
//! Promise: `T::END` is what the header calls `T_STRUCT_SIZE`, the end of the last field, which is
//! not `size_of::<T>()`: an older caller ends inside the padding.
//! Not here: any function body, any ownership; see the handles beside this module, and the adaptor.

#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

/// One field of a C struct as the header must have it.
#[derive(Debug, Clone, Copy)]
pub struct Field {
    pub name: &'static str,
    pub offset: usize,
    pub size: usize,
}

/// A C struct whose layout `tests/header.rs` compares with the header's.
///
/// # Safety
/// Zero bytes are a valid value: integers, raw pointers, `bool`s and optional functions only.
pub unsafe trait CStruct: Copy {
    const NAME: &'static str;
    const FIELDS: &'static [Field];
    /// The end of the last field: the header's `NAME_STRUCT_SIZE`.
    const END: usize = {
        let last = Self::FIELDS[Self::FIELDS.len() - 1];
        last.offset + last.size
    };
}

/// A struct that starts with `struct_size` and `extension_start`, as every argument struct does.
macro_rules! args {
    ($name:ident { $($field:ident : $ty:ty),* $(,)? }) => {
        plain! { $name {
            struct_size: usize,
            extension_start: *mut $crate::sys::PJRT_Extension_Base,
            $($field: $ty,)*
        } }
    };
}

/// A struct whose fields are all written out.
macro_rules! plain {
    ($name:ident { $($field:ident : $ty:ty),* $(,)? }) => {
        #[repr(C)]
        #[derive(Clone, Copy)]
        pub struct $name { $(pub $field: $ty,)* }

        // SAFETY: the header's types are integers, pointers, functions and structs of these.
        unsafe impl $crate::sys::CStruct for $name {
            const NAME: &'static str = stringify!($name);
            const FIELDS: &'static [$crate::sys::Field] = &[$($crate::sys::Field {
                name: stringify!($field),
                offset: ::std::mem::offset_of!($name, $field),
                size: size_of::<$ty>(),
            },)*];
        }
    };
}

/// Types known only by address: no size, neither `Send` nor `Sync`.
macro_rules! opaque {
    ($($name:ident),* $(,)?) => {$(
        #[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
            _not_send: ::std::marker::PhantomData<(*mut u8, ::std::marker::PhantomPinned)>,
        }
    )*};
}

mod all;
mod base;
mod buffer;
mod client;
mod device;
mod error;
mod event;
mod executable;
mod ffi;
mod layouts;
mod profiler;
mod slots;
mod topology;
mod transfer;

pub use all::*;
pub use base::*;
pub use buffer::*;
pub use client::*;
pub use device::*;
pub use error::*;
pub use event::*;
pub use executable::*;
pub use ffi::*;
pub use layouts::*;
pub use profiler::*;
pub use slots::*;
pub use topology::*;
pub use transfer::*;
