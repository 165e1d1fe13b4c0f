//! Named values as C reads them: attributes of the plugin, of devices, properties of programs.
#![expect(unsafe_code, reason = "reads named values of the C caller")]

use std::ffi::c_char;

use salus_pjrt::sys::{self, CStruct};
use salus_wire::Value;

/// Named values and the C view of them, which points into them.
pub(crate) struct Attributes {
    raw: Vec<sys::PJRT_NamedValue>,
    /// Never changed, because `raw` points into it.
    _owned: Box<[(String, Value)]>,
}

// SAFETY: the pointers lead into `_owned`, which nobody changes.
unsafe impl Send for Attributes {}
// SAFETY: as above.
unsafe impl Sync for Attributes {}

impl Attributes {
    pub(crate) fn new(values: Vec<(String, Value)>) -> Self {
        let owned = values.into_boxed_slice();
        let raw = owned.iter().map(raw_value).collect();
        Self { raw, _owned: owned }
    }

    pub(crate) fn as_ptr(&self) -> *const sys::PJRT_NamedValue {
        self.raw.as_ptr()
    }

    pub(crate) fn len(&self) -> usize {
        self.raw.len()
    }
}

fn raw_value((name, value): &(String, Value)) -> sys::PJRT_NamedValue {
    use sys::PJRT_NamedValue_Value as Raw;
    let (r#type, value, value_size) = match value {
        Value::Text(text) => (
            sys::PJRT_NamedValue_kString,
            Raw {
                string_value: text.as_ptr().cast::<c_char>(),
            },
            text.len(),
        ),
        Value::Int(number) => (
            sys::PJRT_NamedValue_kInt64,
            Raw {
                int64_value: *number,
            },
            1,
        ),
        Value::Ints(numbers) => (
            sys::PJRT_NamedValue_kInt64List,
            Raw {
                int64_array_value: numbers.as_ptr(),
            },
            numbers.len(),
        ),
        Value::Float(number) => (
            sys::PJRT_NamedValue_kFloat,
            Raw {
                float_value: *number,
            },
            1,
        ),
        Value::Bool(flag) => (sys::PJRT_NamedValue_kBool, Raw { bool_value: *flag }, 1),
    };
    sys::PJRT_NamedValue {
        struct_size: sys::PJRT_NamedValue::END,
        extension_start: std::ptr::null_mut(),
        name: name.as_ptr().cast(),
        name_size: name.len(),
        r#type,
        value,
        value_size,
    }
}

/// A caller's named values that are texts or whole numbers, by name. Others are none of ours.
///
/// # Safety
/// `values` are as the header says: names and texts as long as their sizes.
pub(crate) unsafe fn options(values: &[sys::PJRT_NamedValue]) -> Vec<(String, Value)> {
    let text = |start: *const c_char, size: usize| {
        if start.is_null() || size == 0 {
            return String::new();
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(start.cast::<u8>(), size) };
        String::from_utf8_lossy(bytes).into_owned()
    };
    let mut options = Vec::new();
    for value in values {
        let known = match value.r#type {
            sys::PJRT_NamedValue_kString => {
                // SAFETY: the type says which member of the union is there.
                Value::Text(text(unsafe { value.value.string_value }, value.value_size))
            }
            // SAFETY: as above.
            sys::PJRT_NamedValue_kInt64 => Value::Int(unsafe { value.value.int64_value }),
            _ => continue,
        };
        options.push((text(value.name, value.name_size), known));
    }
    options
}
