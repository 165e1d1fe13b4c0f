//! An array's type: elements, dimensions, layout; and the sizes that follow from them.
//!
//! Promise: no product of untrusted dimensions overflows unseen.
//! Not here: the data.
#![expect(unsafe_code, reason = "reads a union of the C caller")]

use salus_pjrt::sys;
use salus_wire::{ElementType, Shape, limits};

use crate::c_api::error::{Result, invalid, unimplemented};

/// Everything that a caller may ask about an array's type, answered without computing.
pub(crate) struct ArrayType {
    pub(crate) element_type: u32,
    pub(crate) dims: Vec<i64>,
    pub(crate) minor_to_major: Vec<i64>,
    /// As the Layouts extension serializes it.
    pub(crate) layout_text: String,
    /// Where an element takes at least a byte.
    pub(crate) host_bytes: u64,
    /// Where elements of less than a byte are packed.
    pub(crate) device_bytes: u64,
}

fn element(element_type: u32) -> Result<&'static ElementType> {
    ElementType::from_pjrt(element_type).ok_or_else(|| {
        invalid(format!(
            "PJRT element type {element_type} is not known to this version of Salus"
        ))
    })
}

/// Bytes of an element in host memory.
pub(crate) fn host_element_bytes(element_type: u32) -> Result<usize> {
    element(element_type).map(ElementType::host_bytes)
}

fn elements(dims: &[i64]) -> Result<u64> {
    if dims.len() > limits::DIMS {
        return Err(invalid(format!(
            "an array has {} dimensions, {} is the limit",
            dims.len(),
            limits::DIMS
        )));
    }
    let mut count = Some(1u64);
    for &dim in dims {
        let dim = u64::try_from(dim)
            .map_err(|_| invalid(format!("an array has a dimension of {dim} elements")))?;
        count = count.and_then(|count| count.checked_mul(dim));
    }
    if dims.contains(&0) {
        return Ok(0);
    }
    // Far above any memory, far below where a product with an element's size overflows.
    count
        .filter(|count| *count < 1 << 56)
        .ok_or_else(|| invalid(format!("an array of dimensions {dims:?} is too large")))
}

/// The layout in which the last dimension is the fastest.
pub(crate) fn descending(rank: usize) -> Vec<i64> {
    (0..rank as i64).rev().collect()
}

/// The default layout, as the CPU plugin writes it whatever the type: `{1,0}`.
pub(crate) fn default_layout_text(rank: usize) -> String {
    format!("{{{}}}", order_text(&descending(rank)))
}

/// An array's layout, as the CPU plugin writes it: `{1,0:E(4)}` where elements are packed.
fn layout_text(element: &ElementType, minor_to_major: &[i64]) -> String {
    let order = order_text(minor_to_major);
    match element.is_sub_byte() {
        true => format!("{{{order}:E({})}}", element.bits),
        false => format!("{{{order}}}"),
    }
}

fn order_text(minor_to_major: &[i64]) -> String {
    let order: Vec<String> = minor_to_major.iter().map(i64::to_string).collect();
    order.join(",")
}

/// An array for messages, `f32[2,3]`.
pub(crate) fn describe(array: &ArrayType) -> String {
    let name = ElementType::from_pjrt(array.element_type).map_or("?", |element| element.name);
    let dims: Vec<String> = array.dims.iter().map(i64::to_string).collect();
    format!("{name}[{}]", dims.join(","))
}

impl ArrayType {
    /// `minor_to_major` absent is the default, descending layout.
    pub(crate) fn new(
        element_type: u32,
        dims: &[i64],
        minor_to_major: Option<Vec<i64>>,
    ) -> Result<Self> {
        let element = element(element_type)?;
        let count = elements(dims)?;
        let minor_to_major = minor_to_major.unwrap_or_else(|| descending(dims.len()));
        check_order(&minor_to_major, dims.len())?;
        Ok(Self {
            element_type,
            dims: dims.to_vec(),
            layout_text: layout_text(element, &minor_to_major),
            minor_to_major,
            host_bytes: count * element.host_bytes() as u64,
            device_bytes: (count * u64::from(element.bits)).div_ceil(8),
        })
    }

    pub(crate) fn of_shape(shape: &Shape, layout: Option<&str>) -> Result<Self> {
        let mut array = Self::new(
            shape.element_type,
            &shape.dims,
            shape.minor_to_major.clone(),
        )?;
        if let Some(text) = layout.filter(|text| !text.is_empty()) {
            array.layout_text = text.to_owned();
        }
        Ok(array)
    }

    pub(crate) fn shape(&self) -> Shape {
        let default = self
            .minor_to_major
            .iter()
            .rev()
            .copied()
            .eq(0..self.dims.len() as i64);
        Shape {
            element_type: self.element_type,
            dims: self.dims.clone(),
            minor_to_major: (!default).then(|| self.minor_to_major.clone()),
        }
    }
}

fn check_order(minor_to_major: &[i64], rank: usize) -> Result<()> {
    let mut sorted = minor_to_major.to_vec();
    sorted.sort_unstable();
    if sorted.iter().copied().eq(0..rank as i64) {
        Ok(())
    } else {
        Err(invalid(format!(
            "the layout {minor_to_major:?} is not an order of {rank} dimensions"
        )))
    }
}

/// A layout that a C caller describes, as an order of dimensions; `None` if it leaves it out.
///
/// Read whatever its `struct_size` says: XLA's own client never sets it, so what stands there is
/// stack garbage. The struct and its union have not changed since they were added to the header.
pub(crate) fn order_of(
    layout: *const sys::PJRT_Buffer_MemoryLayout,
    dims: &[i64],
    element_bytes: usize,
) -> Result<Option<Vec<i64>>> {
    if layout.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller points to a layout of the header's form.
    let order = match unsafe { (&raw const (*layout).r#type).read_unaligned() } {
        sys::PJRT_Buffer_MemoryLayout_Type_Tiled => {
            // SAFETY: the type says which member of the union is there.
            let tiled = unsafe { (&raw const (*layout).value.tiled).read_unaligned() };
            if tiled.num_tiles > 0 {
                return Err(unimplemented(
                    "layouts with tiles are not supported by Salus yet",
                ));
            }
            list(tiled.minor_to_major, tiled.minor_to_major_size)
        }
        sys::PJRT_Buffer_MemoryLayout_Type_Strides => {
            // SAFETY: as above.
            let strides = unsafe { (&raw const (*layout).value.strides).read_unaligned() };
            let strides = list(strides.byte_strides, strides.num_byte_strides);
            order_of_strides(&strides, dims, element_bytes)?
        }
        other => return Err(invalid(format!("{other} is not a type of layout"))),
    };
    check_order(&order, dims.len())?;
    Ok(Some(order))
}

pub(crate) fn list(start: *const i64, count: usize) -> Vec<i64> {
    if start.is_null() || count == 0 {
        return Vec::new();
    }
    // SAFETY: the caller of a slot points to `count` numbers.
    unsafe { std::slice::from_raw_parts(start, count) }.to_vec()
}

/// The order of dimensions that dense strides express.
fn order_of_strides(strides: &[i64], dims: &[i64], element_bytes: usize) -> Result<Vec<i64>> {
    if strides.len() != dims.len() {
        return Err(invalid(format!(
            "{} strides for {} dimensions",
            strides.len(),
            dims.len()
        )));
    }
    let mut order = descending(dims.len());
    order.sort_by_key(|&d| strides[d as usize]);
    let mut expected = element_bytes as i64;
    for &d in &order {
        let (stride, dim) = (strides[d as usize], dims[d as usize]);
        if dim > 1 && stride != expected {
            return Err(unimplemented(format!(
                "a layout with strides {strides:?} of dimensions {dims:?} is not dense, and Salus \
                 supports dense layouts only"
            )));
        }
        expected = expected.saturating_mul(dim.max(1));
    }
    Ok(order)
}

#[cfg(test)]
mod tests {
    use salus_pjrt::sys::*;

    use super::*;

    #[test]
    fn sizes_and_texts_are_the_cpu_plugins() {
        let cases: [(u32, &[i64], &str, u64, u64); 6] = [
            (PJRT_Buffer_Type_S4, &[5], "{0:E(4)}", 3, 5),
            (PJRT_Buffer_Type_S4, &[3, 5], "{1,0:E(4)}", 8, 15),
            (PJRT_Buffer_Type_F32, &[2, 3], "{1,0}", 24, 24),
            (PJRT_Buffer_Type_F32, &[], "{}", 4, 4),
            (PJRT_Buffer_Type_S2, &[4], "{0:E(2)}", 1, 4),
            (PJRT_Buffer_Type_PRED, &[3, 0], "{1,0}", 0, 0),
        ];
        for (element_type, dims, text, device_bytes, host_bytes) in cases {
            let array = ArrayType::new(element_type, dims, None).expect("a plain array");
            assert_eq!(array.layout_text, text);
            assert_eq!(array.device_bytes, device_bytes);
            assert_eq!(array.host_bytes, host_bytes);
            assert_eq!(array.shape().minor_to_major, None);
        }
    }

    #[test]
    fn untrusted_dimensions_and_layouts_are_checked() {
        let f32 = PJRT_Buffer_Type_F32;
        assert!(ArrayType::new(f32, &[1 << 40, 1 << 40], None).is_err());
        assert!(ArrayType::new(f32, &[-1], None).is_err());
        assert!(ArrayType::new(999, &[1], None).is_err());
        assert!(ArrayType::new(f32, &[2, 2], Some(vec![0, 0])).is_err());
        assert!(ArrayType::new(f32, &[2, 2], Some(vec![0])).is_err());
        assert!(ArrayType::new(f32, &[0, i64::MAX, i64::MAX], None).is_ok());
    }

    #[test]
    fn strides_become_orders() {
        assert_eq!(order_of_strides(&[12, 4], &[2, 3], 4), Ok(vec![1, 0]));
        assert_eq!(order_of_strides(&[4, 8], &[2, 3], 4), Ok(vec![0, 1]));
        assert!(order_of_strides(&[16, 4], &[2, 3], 4).is_err());
    }
}
