//! Protocol buffers at the level of bytes: reads and writes messages as lists of numbered fields.
//!
//! There is no schema: the caller knows which field numbers matter. A schema's decoder would drop or
//! keep unknown fields silently, and rebuilding from an allowlist must see them.
//!
//! Promise: every length is checked against the bytes that are left; anything malformed is an error,
//! and nothing after it is read. Writing what was read gives an equal message.
//! Cost: reading borrows and allocates nothing.

/// A field's value, by wire type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32(u32),
}

/// The bytes are not a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// The fields of a message, in their order in the bytes.
pub struct Fields<'a>(&'a [u8]);

pub fn fields(message: &[u8]) -> Fields<'_> {
    Fields(message)
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u32, Wire<'a>), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            // What follows a malformed field has no meaning.
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u32, Wire<'a>), Malformed> {
        let key = u32::try_from(self.varint()?).map_err(|_| Malformed)?;
        let number = key >> 3;
        if number == 0 {
            return Err(Malformed);
        }
        let value = match key & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => Wire::Fixed64(u64::from_le_bytes(self.array()?)),
            2 => {
                let len = usize::try_from(self.varint()?).map_err(|_| Malformed)?;
                Wire::Bytes(self.take(len)?)
            }
            5 => Wire::Fixed32(u32::from_le_bytes(self.array()?)),
            // Groups are extinct in XLA's messages; 6 and 7 never were.
            _ => return Err(Malformed),
        };
        Ok((number, value))
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let [byte] = self.array()?;
            let bits = u64::from(byte & 0x7f);
            if shift == 63 && bits > 1 {
                return Err(Malformed);
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        self.take(N)?.try_into().map_err(|_| Malformed)
    }
}

/// Appends a repeated integer field's values: packed or one by one, both are legal.
pub fn push_ints(value: Wire<'_>, to: &mut Vec<i64>) -> Result<(), Malformed> {
    match value {
        Wire::Varint(int) => to.push(int as i64),
        Wire::Bytes(packed) => {
            let mut ints = Fields(packed);
            while !ints.0.is_empty() {
                to.push(ints.varint()? as i64);
            }
        }
        Wire::Fixed64(_) | Wire::Fixed32(_) => return Err(Malformed),
    }
    Ok(())
}

impl<'a> Wire<'a> {
    pub fn bytes(self) -> Result<&'a [u8], Malformed> {
        match self {
            Wire::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed),
        }
    }

    pub fn varint(self) -> Result<u64, Malformed> {
        match self {
            Wire::Varint(int) => Ok(int),
            _ => Err(Malformed),
        }
    }
}

/// Writes a message; fields are in the order of the calls.
#[derive(Debug, Default)]
pub struct Writer(Vec<u8>);

impl Writer {
    pub fn field(&mut self, number: u32, value: Wire<'_>) {
        match value {
            Wire::Varint(int) => {
                self.varint(u64::from(number << 3));
                self.varint(int);
            }
            Wire::Fixed64(word) => {
                self.varint(u64::from(number << 3 | 1));
                self.0.extend(word.to_le_bytes());
            }
            Wire::Bytes(bytes) => {
                self.varint(u64::from(number << 3 | 2));
                self.varint(bytes.len() as u64);
                self.0.extend(bytes);
            }
            Wire::Fixed32(word) => {
                self.varint(u64::from(number << 3 | 5));
                self.0.extend(word.to_le_bytes());
            }
        }
    }

    pub fn ints(&mut self, number: u32, ints: &[i64]) {
        let mut packed = Writer::default();
        for int in ints {
            packed.varint(*int as u64);
        }
        self.field(number, Wire::Bytes(&packed.0));
    }

    pub fn finish(self) -> Vec<u8> {
        self.0
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let values = [
            (1, Wire::Varint(0)),
            (2, Wire::Varint(u64::MAX)),
            (300, Wire::Bytes(b"text")),
            (4, Wire::Fixed64(7)),
            (536_870_911, Wire::Fixed32(9)),
        ];
        let mut writer = Writer::default();
        for (number, value) in values {
            writer.field(number, value);
        }
        let message = writer.finish();
        let read: Result<Vec<_>, _> = fields(&message).collect();
        assert_eq!(read, Ok(values.to_vec()));
    }

    #[test]
    fn packed_and_single_integers_are_the_same() {
        let mut packed = Writer::default();
        packed.ints(3, &[-1, 300]);
        let mut single = Writer::default();
        single.field(3, Wire::Varint(u64::MAX));
        single.field(3, Wire::Varint(300));
        for message in [packed.finish(), single.finish()] {
            let mut ints = Vec::new();
            for field in fields(&message) {
                push_ints(field.expect("well formed").1, &mut ints).expect("integers");
            }
            assert_eq!(ints, [-1, 300]);
        }
    }

    #[test]
    fn malformed_messages_are_errors() {
        let cases: &[&[u8]] = &[
            &[0x08],                                                       // no value
            &[0x80],                                                       // half a key
            &[0x00, 0x01],                                                 // field 0
            &[0x0b],                                                       // a group
            &[0x0a, 0x05, 1, 2],                                           // too short
            &[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], // endless length
            &[
                0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02,
            ], // 65 bits
            &[0x09, 1, 2, 3],                                              // half a word
        ];
        for case in cases {
            assert_eq!(fields(case).last(), Some(Err(Malformed)), "{case:?}");
        }
    }
}
