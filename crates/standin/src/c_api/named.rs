//! Named values, of callers and for them.

use salus_pjrt::sys::*;

use crate::c_api::inner::bytes;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Int(i64),
    Ints(Vec<i64>),
    Float(f32),
    Bool(bool),
}

/// # Safety
/// `len` named values at `start` are filled as the header says.
pub(crate) unsafe fn read(start: *const PJRT_NamedValue, len: usize) -> Vec<(String, Value)> {
    // SAFETY: the caller's promise; the type says which member of the union is filled.
    unsafe {
        let text = |at: *const _, len| {
            String::from_utf8_lossy(bytes::<u8>((at as *const std::ffi::c_char).cast(), len))
                .into_owned()
        };
        let value = |named: &PJRT_NamedValue| {
            let (value, size) = (named.value, named.value_size);
            match named.r#type {
                PJRT_NamedValue_kString => Value::Text(text(value.string_value, size)),
                PJRT_NamedValue_kInt64 => Value::Int(value.int64_value),
                PJRT_NamedValue_kInt64List => {
                    Value::Ints(bytes(value.int64_array_value, size).to_vec())
                }
                PJRT_NamedValue_kFloat => Value::Float(value.float_value),
                _ => Value::Bool(value.bool_value),
            }
        };
        let values = bytes(start, len).iter();
        values
            .map(|named| (text(named.name, named.name_size), value(named)))
            .collect()
    }
}

/// Named values for callers, and what they point to.
pub(crate) struct Named {
    raw: Vec<PJRT_NamedValue>,
    _values: Vec<(String, Value)>,
}

// SAFETY: never changed, and what it points to is its own.
unsafe impl Send for Named {}
// SAFETY: as above.
unsafe impl Sync for Named {}

impl Named {
    pub(crate) fn new(values: Vec<(String, Value)>) -> Named {
        let raw = |(name, value): &(String, Value)| {
            let (r#type, value, value_size) = match value {
                Value::Text(text) => {
                    let string_value = text.as_ptr().cast();
                    let value = PJRT_NamedValue_Value { string_value };
                    (PJRT_NamedValue_kString, value, text.len())
                }
                Value::Int(int64_value) => {
                    let int64_value = *int64_value;
                    let value = PJRT_NamedValue_Value { int64_value };
                    (PJRT_NamedValue_kInt64, value, 1)
                }
                Value::Ints(ints) => {
                    let int64_array_value = ints.as_ptr();
                    let value = PJRT_NamedValue_Value { int64_array_value };
                    (PJRT_NamedValue_kInt64List, value, ints.len())
                }
                Value::Float(float_value) => {
                    let float_value = *float_value;
                    let value = PJRT_NamedValue_Value { float_value };
                    (PJRT_NamedValue_kFloat, value, 1)
                }
                Value::Bool(bool_value) => {
                    let bool_value = *bool_value;
                    let value = PJRT_NamedValue_Value { bool_value };
                    (PJRT_NamedValue_kBool, value, 1)
                }
            };
            PJRT_NamedValue {
                struct_size: PJRT_NamedValue::END,
                extension_start: std::ptr::null_mut(),
                name: name.as_ptr().cast(),
                name_size: name.len(),
                r#type,
                value,
                value_size,
            }
        };
        Named {
            raw: values.iter().map(raw).collect(),
            _values: values,
        }
    }

    pub(crate) fn as_ptr(&self) -> *const PJRT_NamedValue {
        self.raw.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }
}
