//! Sizes of arrays that a job describes, and which array may be passed for which parameter.
//!
//! The table itself is [`salus_wire::ElementType`].
//!
//! Promise: no product of dimensions overflows unseen.

use salus_wire::element::{PRED, TOKEN};
use salus_wire::{ElementType, Error, Shape};

use crate::refusal::invalid;

/// Bytes of one element in host memory, where types of less than a byte take one each.
///
/// `None` for numbers this version does not know.
pub fn host_element_bytes(element_type: u32) -> Option<usize> {
    ElementType::from_pjrt(element_type).map(ElementType::host_bytes)
}

/// Whether it is a token, which programs make and take, and which cannot be uploaded or copied.
pub fn is_token(shape: &Shape) -> bool {
    shape.element_type == TOKEN
}

/// Whether an array of one shape may be an argument where the other is wanted.
///
/// JAX passes a token as an array of no booleans (`pred[0]`), also where a program has a token:
/// plugins compare bytes, and neither has any.
pub fn is_taken_for(given: &Shape, wanted: &Shape) -> bool {
    let orders = |shape: &Shape| match shape.element_type {
        TOKEN => true,
        PRED => shape.dims == [0],
        _ => false,
    };
    given == wanted || (orders(given) && orders(wanted))
}

/// Bytes that an upload of this shape must bring.
pub fn upload_bytes(shape: &Shape) -> Result<usize, Error> {
    if is_token(shape) {
        return Err(invalid(
            "a token cannot be uploaded: only programs make them; pass an array of no booleans \
             (`pred[0]`), which is taken for one",
        ));
    }
    host_bytes(shape)
}

/// Whether a device may pack several elements into a byte.
pub fn is_sub_byte(element_type: u32) -> bool {
    ElementType::from_pjrt(element_type).is_some_and(ElementType::is_sub_byte)
}

/// Bytes of this many elements as the device holds them, those of less than a byte packed.
pub fn packed_bytes(element_type: u32, elements: usize) -> usize {
    match ElementType::from_pjrt(element_type) {
        Some(element) => element.packed_bytes(elements).unwrap_or(usize::MAX),
        None => 0,
    }
}

/// Bytes of a dense array in host memory. A job may have sent the shape.
pub fn host_bytes(shape: &Shape) -> Result<usize, Error> {
    let element = host_element_bytes(shape.element_type).ok_or_else(|| {
        let number = shape.element_type;
        invalid(format!(
            "arrays of PJRT element type {number} cannot be in host memory"
        ))
    })?;
    let mut bytes = Some(element);
    for &dim in &shape.dims {
        let dim =
            usize::try_from(dim).map_err(|_| invalid(format!("a dimension of {dim} elements")))?;
        bytes = bytes.and_then(|bytes| bytes.checked_mul(dim));
    }
    // A zero makes the array empty, whatever the other dimensions multiply to.
    if shape.dims.contains(&0) {
        return Ok(0);
    }
    bytes.ok_or_else(|| {
        let dims = &shape.dims;
        invalid(format!("an array of dimensions {dims:?} is too large"))
    })
}

/// PJRT's number of an XLA `PrimitiveType`.
pub fn from_xla(primitive_type: u64) -> Option<u32> {
    ElementType::from_xla(primitive_type).map(|element| element.pjrt)
}

#[cfg(test)]
mod tests {
    use super::*;
    use salus_pjrt::sys::*;

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

    #[test]
    fn the_table_has_the_headers_numbers() {
        let number = |name| ElementType::from_name(name).expect("a known type").pjrt;
        let header = [
            ("pred", PJRT_Buffer_Type_PRED),
            ("s2", PJRT_Buffer_Type_S2),
            ("s4", PJRT_Buffer_Type_S4),
            ("s8", PJRT_Buffer_Type_S8),
            ("s16", PJRT_Buffer_Type_S16),
            ("s32", PJRT_Buffer_Type_S32),
            ("s64", PJRT_Buffer_Type_S64),
            ("u2", PJRT_Buffer_Type_U2),
            ("u4", PJRT_Buffer_Type_U4),
            ("u8", PJRT_Buffer_Type_U8),
            ("u16", PJRT_Buffer_Type_U16),
            ("u32", PJRT_Buffer_Type_U32),
            ("u64", PJRT_Buffer_Type_U64),
            ("f16", PJRT_Buffer_Type_F16),
            ("f32", PJRT_Buffer_Type_F32),
            ("f64", PJRT_Buffer_Type_F64),
            ("bf16", PJRT_Buffer_Type_BF16),
            ("c64", PJRT_Buffer_Type_C64),
            ("c128", PJRT_Buffer_Type_C128),
            ("f8e5m2", PJRT_Buffer_Type_F8E5M2),
            ("f8e4m3fn", PJRT_Buffer_Type_F8E4M3FN),
            ("f8e4m3b11fnuz", PJRT_Buffer_Type_F8E4M3B11FNUZ),
            ("f8e5m2fnuz", PJRT_Buffer_Type_F8E5M2FNUZ),
            ("f8e4m3fnuz", PJRT_Buffer_Type_F8E4M3FNUZ),
            ("f8e4m3", PJRT_Buffer_Type_F8E4M3),
            ("f8e3m4", PJRT_Buffer_Type_F8E3M4),
            ("f8e8m0fnu", PJRT_Buffer_Type_F8E8M0FNU),
            ("f4e2m1fn", PJRT_Buffer_Type_F4E2M1FN),
            ("token", PJRT_Buffer_Type_TOKEN),
        ];
        assert_eq!(header.len(), salus_wire::element::ELEMENT_TYPES.len());
        for (name, expected) in header {
            assert_eq!(number(name), expected, "{name}");
        }
    }
}
