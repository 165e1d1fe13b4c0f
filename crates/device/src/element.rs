//! Element types: PJRT's numbers, XLA's numbers, and what an element takes in host memory.
#![expect(non_upper_case_globals, reason = "patterns with the header's names")]

use salus_pjrt::sys::*;

use crate::Shape;
use crate::failure::{INVALID_ARGUMENT, error};

/// Bytes of one element in host memory, where types of less than a byte take one each.
///
/// `None` for numbers this version does not know.
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
        // It orders effects and holds nothing.
        PJRT_Buffer_Type_TOKEN => 0,
        _ => return None,
    })
}

/// Whether it is a token, which programs make and take, and which cannot be uploaded or copied.
pub fn is_token(shape: &Shape) -> bool {
    shape.element_type == PJRT_Buffer_Type_TOKEN
}

/// Whether an array of one shape may be an argument where the other is wanted.
///
/// JAX says a token as an array of no booleans (`pred[0]`), also where a program has a token: plugins
/// compare bytes, and neither has any.
pub fn is_taken_for(given: &Shape, wanted: &Shape) -> bool {
    let orders = |shape: &Shape| match shape.element_type {
        PJRT_Buffer_Type_TOKEN => true,
        PJRT_Buffer_Type_PRED => shape.dims == [0],
        _ => false,
    };
    given == wanted || (orders(given) && orders(wanted))
}

/// What an upload of this shape must bring.
pub(crate) fn upload_bytes(shape: &Shape) -> Result<usize, crate::Error> {
    if is_token(shape) {
        return Err(error(
            INVALID_ARGUMENT,
            "a token cannot be uploaded: only programs make them; pass an array of no booleans \
             (`pred[0]`), which is taken for one",
        ));
    }
    host_bytes(shape)
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

/// Bytes of so many elements as the device holds them, those of less than a byte packed.
pub(crate) fn packed_bytes(element_type: u32, elements: usize) -> usize {
    match element_type {
        PJRT_Buffer_Type_S4 | PJRT_Buffer_Type_U4 | PJRT_Buffer_Type_F4E2M1FN => {
            elements.div_ceil(2)
        }
        PJRT_Buffer_Type_S2 | PJRT_Buffer_Type_U2 => elements.div_ceil(4),
        other => elements * host_element_bytes(other).unwrap_or(0),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(element_type: u32, dims: &[i64]) -> Shape {
        Shape {
            element_type,
            dims: dims.to_vec(),
            minor_to_major: None,
        }
    }

    #[test]
    fn no_booleans_are_taken_for_a_token_and_nothing_else_is() {
        let token = shape(PJRT_Buffer_Type_TOKEN, &[]);
        let none = shape(PJRT_Buffer_Type_PRED, &[0]);
        for (given, wanted) in [(&token, &none), (&none, &token), (&token, &token)] {
            assert!(is_taken_for(given, wanted));
        }
        for other in [
            shape(PJRT_Buffer_Type_PRED, &[]),
            shape(PJRT_Buffer_Type_PRED, &[0, 0]),
            shape(PJRT_Buffer_Type_PRED, &[1]),
            shape(PJRT_Buffer_Type_S8, &[0]),
        ] {
            assert!(!is_taken_for(&other, &token) && !is_taken_for(&token, &other));
            assert!(!is_taken_for(&other, &none) && is_taken_for(&other, &other));
        }
        assert_eq!(host_bytes(&token), Ok(0));
        assert!(upload_bytes(&token).is_err() && upload_bytes(&none) == Ok(0));
    }
}
