//! Little-endian encoding of plain values, with a limit on each.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError(pub String);

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for DecodeError {}

/// Reads values out of untrusted bytes.
#[derive(Debug, Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn take(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        match self.rest.split_at_checked(n) {
            Some((head, rest)) => {
                self.rest = rest;
                Ok(head)
            }
            None => Err(DecodeError(format!(
                "expected {n} more bytes of a message, found {}",
                self.rest.len()
            ))),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// A count of items of at least `item_bytes` each, checked before anything is allocated.
    fn count(&mut self, limit: usize, item_bytes: usize) -> Result<usize, DecodeError> {
        let n = u32::take(self, 0)? as usize;
        if n > limit {
            return Err(DecodeError(format!(
                "a message has {n} items where {limit} is the limit"
            )));
        }
        if n.saturating_mul(item_bytes) > self.rest.len() {
            return Err(DecodeError(format!(
                "a message announces {n} items and holds {} bytes",
                self.rest.len()
            )));
        }
        Ok(n)
    }
}

/// A value that travels. `limit` bounds its length where it has one.
pub trait Wire: Sized {
    /// The fewest bytes that a value takes.
    const MIN_BYTES: usize;
    fn put(&self, out: &mut Vec<u8>);
    fn take(reader: &mut Reader<'_>, limit: usize) -> Result<Self, DecodeError>;
}

macro_rules! numbers {
    ($($ty:ty),*) => {$(
        impl Wire for $ty {
            const MIN_BYTES: usize = size_of::<$ty>();
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
            fn take(reader: &mut Reader<'_>, _limit: usize) -> Result<Self, DecodeError> {
                let mut bytes = [0; size_of::<$ty>()];
                bytes.copy_from_slice(reader.take(size_of::<$ty>())?);
                Ok(Self::from_le_bytes(bytes))
            }
        }
    )*};
}
numbers!(u8, u16, u32, u64, i32, i64, f32);

impl Wire for bool {
    const MIN_BYTES: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn take(reader: &mut Reader<'_>, _limit: usize) -> Result<Self, DecodeError> {
        match u8::take(reader, 0)? {
            0 => Ok(false),
            1 => Ok(true),
            n => Err(DecodeError(format!("expected 0 or 1, found {n}"))),
        }
    }
}

impl Wire for String {
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        out.extend_from_slice(self.as_bytes());
    }
    fn take(reader: &mut Reader<'_>, limit: usize) -> Result<Self, DecodeError> {
        let n = reader.count(limit, 1)?;
        let bytes = reader.take(n)?;
        match std::str::from_utf8(bytes) {
            Ok(text) => Ok(text.to_owned()),
            Err(e) => Err(DecodeError(format!(
                "a text of {n} bytes is not UTF-8: {e}"
            ))),
        }
    }
}

impl<T: Wire> Wire for Option<T> {
    const MIN_BYTES: usize = 1;
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }
    fn take(reader: &mut Reader<'_>, limit: usize) -> Result<Self, DecodeError> {
        Ok(if bool::take(reader, 0)? {
            Some(T::take(reader, limit)?)
        } else {
            None
        })
    }
}

impl<T: Wire> Wire for Vec<T> {
    const MIN_BYTES: usize = 4;
    fn put(&self, out: &mut Vec<u8>) {
        (self.len() as u32).put(out);
        for item in self {
            item.put(out);
        }
    }
    fn take(reader: &mut Reader<'_>, limit: usize) -> Result<Self, DecodeError> {
        let n = reader.count(limit, T::MIN_BYTES)?;
        (0..n).map(|_| T::take(reader, limit)).collect()
    }
}

impl<A: Wire, B: Wire> Wire for (A, B) {
    const MIN_BYTES: usize = A::MIN_BYTES + B::MIN_BYTES;
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
        self.1.put(out);
    }
    fn take(reader: &mut Reader<'_>, limit: usize) -> Result<Self, DecodeError> {
        Ok((A::take(reader, limit)?, B::take(reader, limit)?))
    }
}

/// Declares structs that travel field by field; `= LIMIT` bounds the lengths inside a field.
macro_rules! wire_struct {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident : $ty:ty $(= $limit:expr)?),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name { $($(#[$fdoc])* pub $field: $ty,)* }

        impl $crate::codec::Wire for $name {
            const MIN_BYTES: usize = 0 $(+ <$ty as $crate::codec::Wire>::MIN_BYTES)*;
            #[allow(unused_variables, reason = "a message may have no fields")]
            fn put(&self, out: &mut Vec<u8>) {
                $($crate::codec::Wire::put(&self.$field, out);)*
            }
            #[allow(unused_variables, reason = "a message may have no fields")]
            fn take(
                reader: &mut $crate::codec::Reader<'_>,
                limit: usize,
            ) -> Result<Self, $crate::codec::DecodeError> {
                $(#[allow(unused_mut, unused_assignments, reason = "only some fields set it")]
                let $field = {
                    let mut field_limit = limit;
                    $(field_limit = $limit;)?
                    <$ty as $crate::codec::Wire>::take(reader, field_limit)?
                };)*
                Ok(Self { $($field,)* })
            }
        }
    )*};
}

/// Declares an enum of messages, each variant a struct of the same name, numbered for the wire.
macro_rules! wire_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $number:literal = $variant:ident),* $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        #[allow(clippy::large_enum_variant, reason = "messages are decoded one at a time")]
        pub enum $name { $($(#[$vdoc])* $variant($variant),)* }

        impl $crate::frame::Message for $name {
            fn kind(&self) -> u16 {
                match self { $(Self::$variant(_) => $number,)* }
            }
            fn put_body(&self, out: &mut Vec<u8>) {
                match self { $(Self::$variant(body) => $crate::codec::Wire::put(body, out),)* }
            }
            fn take_body(
                kind: u16,
                reader: &mut $crate::codec::Reader<'_>,
            ) -> Result<Self, $crate::codec::DecodeError> {
                match kind {
                    $($number => Ok(Self::$variant($crate::codec::Wire::take(reader, 0)?)),)*
                    other => Err($crate::codec::DecodeError(format!(
                        concat!("{} is not a kind of ", stringify!($name)), other))),
                }
            }
        }

        $(impl From<$variant> for $name {
            fn from(body: $variant) -> Self { Self::$variant(body) }
        })*
    };
}

/// Declares an enum of values, each variant numbered by a byte: alone, with one value `(name: Type)`
/// or with fields. `= LIMIT` bounds the lengths inside a value. `what` names it in errors.
macro_rules! wire_choice {
    ($(#[$doc:meta])* $name:ident, $what:literal {
        $($(#[$vdoc:meta])* $number:literal = $variant:ident
            $(($value:ident : $vty:ty $(= $vlimit:expr)?))?
            $({ $($field:ident : $ty:ty $(= $limit:expr)?),* })?
        ),* $(,)?
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub enum $name {
            $($(#[$vdoc])* $variant $(($vty))? $({ $($field: $ty),* })?,)*
        }

        impl $crate::codec::Wire for $name {
            const MIN_BYTES: usize = 1;
            fn put(&self, out: &mut Vec<u8>) {
                match self {$(
                    Self::$variant $(($value))? $({ $($field),* })? => {
                        out.push($number);
                        $($crate::codec::Wire::put($value, out);)?
                        $($($crate::codec::Wire::put($field, out);)*)?
                    }
                )*}
            }
            fn take(
                reader: &mut $crate::codec::Reader<'_>,
                _limit: usize,
            ) -> Result<Self, $crate::codec::DecodeError> {
                Ok(match <u8 as $crate::codec::Wire>::take(reader, 0)? {
                    $($number => Self::$variant
                        $((<$vty as $crate::codec::Wire>::take(reader, 0 $(+ $vlimit)?)?))?
                        $({ $($field: <$ty as $crate::codec::Wire>::take(reader, 0 $(+ $limit)?)?),* })?,
                    )*
                    other => return Err($crate::codec::DecodeError(
                        format!(concat!("{} is not a ", $what), other))),
                })
            }
        }
    };
}

pub(crate) use {wire_choice, wire_enum, wire_struct};
