//! Element types of arrays: one table of PJRT's numbers, XLA's numbers, names and sizes.
//!
//! Messages carry PJRT's numbers (`PJRT_Buffer_Type`); serialized programs and options carry XLA's
//! (`PrimitiveType`, which XLA's FFI shares). Everything that Salus knows of a type follows from
//! its row.
//!
//! Promise: a number without a row is a type that this version does not know, and is refused.
//! Cost: a lookup by PJRT's number is one array access.

/// One type of element.
#[derive(Debug, PartialEq, Eq)]
pub struct ElementType {
    /// Its `PJRT_Buffer_Type`.
    pub pjrt: u32,
    /// Its `xla::PrimitiveType`.
    pub xla: u64,
    /// As HLO and jaxprs write it.
    pub name: &'static str,
    /// Bits of an element where elements are packed. A token orders effects and has none.
    pub bits: u32,
}

/// `pred`, a boolean.
pub const PRED: u32 = 1;
/// `s32`.
pub const S32: u32 = 4;
/// `token`, which programs make and take, and which has no bytes.
pub const TOKEN: u32 = 23;

/// All types, by ascending PJRT number; the first is number 1.
#[rustfmt::skip] // one type per line
pub static ELEMENT_TYPES: [ElementType; 29] = [
    row( 1,  1, "pred",           8),
    row( 2,  2, "s8",             8),
    row( 3,  3, "s16",           16),
    row( 4,  4, "s32",           32),
    row( 5,  5, "s64",           64),
    row( 6,  6, "u8",             8),
    row( 7,  7, "u16",           16),
    row( 8,  8, "u32",           32),
    row( 9,  9, "u64",           64),
    row(10, 10, "f16",           16),
    row(11, 11, "f32",           32),
    row(12, 12, "f64",           64),
    row(13, 16, "bf16",          16),
    row(14, 15, "c64",           64),
    row(15, 18, "c128",         128),
    row(16, 19, "f8e5m2",         8),
    row(17, 20, "f8e4m3fn",       8),
    row(18, 23, "f8e4m3b11fnuz",  8),
    row(19, 24, "f8e5m2fnuz",     8),
    row(20, 25, "f8e4m3fnuz",     8),
    row(21, 21, "s4",             4),
    row(22, 22, "u4",             4),
    row(23, 17, "token",          0),
    row(24, 26, "s2",             2),
    row(25, 27, "u2",             2),
    row(26, 28, "f8e4m3",         8),
    row(27, 29, "f8e3m4",         8),
    row(28, 33, "f8e8m0fnu",      8),
    row(29, 32, "f4e2m1fn",       4),
];

const fn row(pjrt: u32, xla: u64, name: &'static str, bits: u32) -> ElementType {
    ElementType {
        pjrt,
        xla,
        name,
        bits,
    }
}

impl ElementType {
    /// The type of a `PJRT_Buffer_Type`.
    pub fn from_pjrt(number: u32) -> Option<&'static Self> {
        ELEMENT_TYPES.get((number as usize).checked_sub(1)?)
    }

    /// The type of an `xla::PrimitiveType`. Tuples have none.
    pub fn from_xla(number: u64) -> Option<&'static Self> {
        ELEMENT_TYPES.iter().find(|row| row.xla == number)
    }

    /// The type that HLO calls so.
    pub fn from_name(name: &str) -> Option<&'static Self> {
        ELEMENT_TYPES.iter().find(|row| row.name == name)
    }

    /// Bytes of an element in host memory, where one of less than a byte takes a byte.
    pub const fn host_bytes(&self) -> usize {
        self.bits.div_ceil(8) as usize
    }

    /// Whether a device may pack several elements into a byte.
    pub const fn is_sub_byte(&self) -> bool {
        0 < self.bits && self.bits < 8
    }

    /// Bytes of this many elements as a device holds them, where those of less than a byte are
    /// packed. `None` if no address space has as many.
    pub fn packed_bytes(&self, elements: usize) -> Option<usize> {
        match self.is_sub_byte() {
            true => Some(elements.div_ceil((8 / self.bits) as usize)),
            false => elements.checked_mul(self.host_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_found_by_its_numbers_and_name() {
        for (row, number) in ELEMENT_TYPES.iter().zip(1..) {
            assert_eq!(row.pjrt, number);
            assert_eq!(ElementType::from_pjrt(number), Some(row));
            assert_eq!(ElementType::from_xla(row.xla), Some(row));
            assert_eq!(ElementType::from_name(row.name), Some(row));
        }
        for number in [0, 30, u32::MAX] {
            assert_eq!(ElementType::from_pjrt(number), None);
        }
        // Invalid, a tuple, an opaque type, and types of one bit, which PJRT does not have.
        for number in [0, 13, 14, 30, 31, u64::MAX] {
            assert_eq!(ElementType::from_xla(number), None);
        }
        for (number, name) in [(PRED, "pred"), (S32, "s32"), (TOKEN, "token")] {
            assert_eq!(
                ElementType::from_name(name).map(|row| row.pjrt),
                Some(number)
            );
        }
    }

    #[test]
    fn sizes_follow_from_bits() {
        let size = |name, elements| {
            let row = ElementType::from_name(name).expect("a known type");
            (row.host_bytes(), row.packed_bytes(elements))
        };
        assert_eq!(size("s2", 5), (1, Some(2)));
        assert_eq!(size("f4e2m1fn", 5), (1, Some(3)));
        assert_eq!(size("pred", 5), (1, Some(5)));
        assert_eq!(size("c128", 5), (16, Some(80)));
        assert_eq!(size("token", 5), (0, Some(0)));
        assert_eq!(size("f64", usize::MAX), (8, None));
    }
}
