//! Named values: options that go in, attributes that come out.
#![expect(non_upper_case_globals, reason = "patterns with the header's names")]

use std::ffi::c_char;

use crate::api::text;
use crate::sys::*;

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Text(String),
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
    Bool(bool),
}

/// Copies a list of named values that a vendor lent; values of unknown types are left out.
///
/// # Safety
/// `len` named values at `start` are readable and filled as the header says, or `start` is null.
pub(crate) unsafe fn copy_named(start: *const PJRT_NamedValue, len: usize) -> Vec<(String, Value)> {
    // SAFETY: the caller's promise.
    let values = unsafe { crate::api::list(start, len) };
    values
        .iter()
        .filter_map(|named| {
            // SAFETY: the type says which member of the union is filled.
            let value = unsafe {
                match named.r#type {
                    PJRT_NamedValue_kString => {
                        Value::Text(text(named.value.string_value, named.value_size))
                    }
                    PJRT_NamedValue_kInt64 => Value::Int(named.value.int64_value),
                    PJRT_NamedValue_kInt64List => Value::Ints(
                        crate::api::list(named.value.int64_array_value, named.value_size).to_vec(),
                    ),
                    PJRT_NamedValue_kFloat => Value::Float(named.value.float_value),
                    PJRT_NamedValue_kBool => Value::Bool(named.value.bool_value),
                    _ => return None,
                }
            };
            // SAFETY: the name is filled whatever the type.
            Some((unsafe { text(named.name, named.name_size) }, value))
        })
        .collect()
}

/// Lends named values to a vendor; the result points into `values`.
pub(crate) fn lend_named(values: &[(String, Value)]) -> Vec<PJRT_NamedValue> {
    values
        .iter()
        .map(|(name, value)| {
            let (r#type, member, value_size) = match value {
                Value::Text(text) => (
                    PJRT_NamedValue_kString,
                    PJRT_NamedValue_Value {
                        string_value: text.as_ptr().cast::<c_char>(),
                    },
                    text.len(),
                ),
                Value::Int(int) => (
                    PJRT_NamedValue_kInt64,
                    PJRT_NamedValue_Value { int64_value: *int },
                    1,
                ),
                Value::Ints(ints) => (
                    PJRT_NamedValue_kInt64List,
                    PJRT_NamedValue_Value {
                        int64_array_value: ints.as_ptr(),
                    },
                    ints.len(),
                ),
                Value::Float(float) => (
                    PJRT_NamedValue_kFloat,
                    PJRT_NamedValue_Value {
                        float_value: *float,
                    },
                    1,
                ),
                Value::Bool(bool) => (
                    PJRT_NamedValue_kBool,
                    PJRT_NamedValue_Value { bool_value: *bool },
                    1,
                ),
            };
            PJRT_NamedValue {
                // Elements of an array cannot be padded: their true size.
                struct_size: PJRT_NamedValue::END,
                extension_start: std::ptr::null_mut(),
                name: name.as_ptr().cast(),
                name_size: name.len(),
                r#type,
                value: member,
                value_size,
            }
        })
        .collect()
}
