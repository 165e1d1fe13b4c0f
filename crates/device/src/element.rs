//! Element types: PJRT's numbers, XLA's numbers, and what an element takes in host memory.
#![expect(non_upper_case_globals, reason = "patterns with the header's names")]

use salus_pjrt::sys::*;

use crate::Shape;
use crate::failure::{INVALID_ARGUMENT, error};

/// Bytes of one element in host memory, where types of less than a byte take one each.
///
/// `None` for what has no elements (tokens) and for numbers this version does not know.
pub fn host_element_bytes(element_type: u32) -> Option<usize> {
    Some(match element_type {
        PJRT_Buffer_Type_PRED
        | PJRT_Buffer_Type_S8
        | PJRT_Buffer_Type_U8
        | PJRT_Buffer_Type_F8E5M2
        | PJRT_Buffer_Type_F8E4M3FN
        | PJRT_Buffer_Type_F8E4M3B11FNUZ
        | PJRT_Buffer_Type_F8E5M2FNUZ
        | PJRT_Buffer_Type_F8E4M3FNUZ
        | PJRT_Buffer_Type_F8E4M3
        | PJRT_Buffer_Type_F8E3M4
        | PJRT_Buffer_Type_F8E8M0FNU
        | PJRT_Buffer_Type_S4
        | PJRT_Buffer_Type_U4
        | PJRT_Buffer_Type_S2
        | PJRT_Buffer_Type_U2
        | PJRT_Buffer_Type_F4E2M1FN => 1,
        PJRT_Buffer_Type_S16
        | PJRT_Buffer_Type_U16
        | PJRT_Buffer_Type_F16
        | PJRT_Buffer_Type_BF16 => 2,
        PJRT_Buffer_Type_S32 | PJRT_Buffer_Type_U32 | PJRT_Buffer_Type_F32 => 4,
        PJRT_Buffer_Type_S64 | PJRT_Buffer_Type_U64 | PJRT_Buffer_Type_F64
        | PJRT_Buffer_Type_C64 => 8,
        PJRT_Buffer_Type_C128 => 16,
        _ => return None,
    })
}

/// Whether a device may pack several elements into a byte.
pub fn is_sub_byte(element_type: u32) -> bool {
    matches!(
        element_type,
        PJRT_Buffer_Type_S4
            | PJRT_Buffer_Type_U4
            | PJRT_Buffer_Type_S2
            | PJRT_Buffer_Type_U2
            | PJRT_Buffer_Type_F4E2M1FN
    )
}

/// Bytes of a dense array in host memory. Shapes may be claims: no product is trusted.
pub fn host_bytes(shape: &Shape) -> Result<usize, crate::Error> {
    let element = host_element_bytes(shape.element_type).ok_or_else(|| {
        let number = shape.element_type;
        error(
            INVALID_ARGUMENT,
            format!("arrays of PJRT element type {number} cannot be in host memory"),
        )
    })?;
    let mut bytes = Some(element);
    for &dim in &shape.dims {
        let dim = usize::try_from(dim)
            .map_err(|_| error(INVALID_ARGUMENT, format!("a dimension of {dim} elements")))?;
        bytes = bytes.and_then(|bytes| bytes.checked_mul(dim));
    }
    // A zero makes the array empty, whatever the other dimensions multiply to.
    if shape.dims.contains(&0) {
        return Ok(0);
    }
    bytes.ok_or_else(|| {
        let dims = &shape.dims;
        error(
            INVALID_ARGUMENT,
            format!("an array of dimensions {dims:?} is too large"),
        )
    })
}

/// PJRT's number of an XLA `PrimitiveType`.
pub(crate) fn from_xla(primitive_type: u64) -> Option<u32> {
    Some(match primitive_type {
        1 => PJRT_Buffer_Type_PRED,
        2 => PJRT_Buffer_Type_S8,
        3 => PJRT_Buffer_Type_S16,
        4 => PJRT_Buffer_Type_S32,
        5 => PJRT_Buffer_Type_S64,
        6 => PJRT_Buffer_Type_U8,
        7 => PJRT_Buffer_Type_U16,
        8 => PJRT_Buffer_Type_U32,
        9 => PJRT_Buffer_Type_U64,
        10 => PJRT_Buffer_Type_F16,
        11 => PJRT_Buffer_Type_F32,
        12 => PJRT_Buffer_Type_F64,
        15 => PJRT_Buffer_Type_C64,
        16 => PJRT_Buffer_Type_BF16,
        17 => PJRT_Buffer_Type_TOKEN,
        18 => PJRT_Buffer_Type_C128,
        19 => PJRT_Buffer_Type_F8E5M2,
        20 => PJRT_Buffer_Type_F8E4M3FN,
        21 => PJRT_Buffer_Type_S4,
        22 => PJRT_Buffer_Type_U4,
        23 => PJRT_Buffer_Type_F8E4M3B11FNUZ,
        24 => PJRT_Buffer_Type_F8E5M2FNUZ,
        25 => PJRT_Buffer_Type_F8E4M3FNUZ,
        26 => PJRT_Buffer_Type_S2,
        27 => PJRT_Buffer_Type_U2,
        28 => PJRT_Buffer_Type_F8E4M3,
        29 => PJRT_Buffer_Type_F8E3M4,
        32 => PJRT_Buffer_Type_F4E2M1FN,
        33 => PJRT_Buffer_Type_F8E8M0FNU,
        _ => return None,
    })
}
