//! Just enough of protobuf's wire format to write options that JAX would not.

pub(crate) fn varint(number: u64, out: &mut Vec<u8>) {
    let mut rest = number;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// A number as field `field`.
pub(crate) fn number(field: u32, value: u64, out: &mut Vec<u8>) {
    varint(u64::from(field) << 3, out);
    varint(value, out);
}

/// A text or a message as field `field`.
pub(crate) fn bytes(field: u32, value: &[u8], out: &mut Vec<u8>) {
    varint(u64::from(field) << 3 | 2, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}
