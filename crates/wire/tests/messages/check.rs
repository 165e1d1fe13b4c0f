//! What every message and every blob must withstand.

use salus_fuzz::{Fuzz, peak_bytes};
use salus_wire::{Header, Message, Reader, Wire, decode_body, encode_frame};

/// Encodes, decodes, compares; then decodes every prefix and a run of damaged copies.
pub(crate) fn check<M: Message + PartialEq + std::fmt::Debug>(message: impl Into<M>) {
    let message = message.into();
    let mut frame = Vec::new();
    encode_frame(&message, 1, &mut frame);
    let header = Header::decode(&frame)
        .expect("within limits")
        .expect("a whole header");
    assert_eq!(header.descriptors, 1);
    let body = &frame[Header::BYTES..];
    assert_eq!(header.length as usize, body.len());
    let decoded: M = decode_body(header.kind, body).expect("what was encoded decodes");
    assert_eq!(decoded, message);
    for end in 0..body.len() {
        let cut: Result<M, _> = decode_body(header.kind, &body[..end]);
        assert!(
            cut.is_err(),
            "{end} of {} bytes pass for a whole message",
            body.len()
        );
    }
    // The kind is part of the input, so that bodies are read as other messages, too.
    let seed = [&header.kind.to_le_bytes(), body].concat();
    Fuzz::new("message", 2000).seed(seed).run(|input| {
        let Some((kind, body)) = input.split_first_chunk() else {
            return false;
        };
        let kind = u16::from_le_bytes(*kind);
        let decoded: Option<M> = bounded(body, |body| decode_body(kind, body).ok());
        let Some(decoded) = decoded else { return false };
        let mut again = Vec::new();
        decoded.put_body(&mut again);
        assert_eq!((decoded.kind(), again.as_slice()), (kind, body));
        true
    });
}

/// Decodes, and holds no more than the bytes justify: the smallest item of a list takes a tenth of
/// what it is decoded to.
pub(crate) fn bounded<T>(bytes: &[u8], decode: impl FnOnce(&[u8]) -> Option<T>) -> Option<T> {
    let (decoded, peak) = peak_bytes(|| decode(bytes));
    let allowed = 1024 + 16 * bytes.len();
    assert!(peak <= allowed, "{peak} bytes for {} bytes", bytes.len());
    decoded
}

/// The same for a value that travels in shared memory: every part of it is refused, and whatever
/// else decodes is what it encodes to.
pub(crate) fn check_blob<T: Wire + PartialEq + std::fmt::Debug>(value: &T) {
    let decode = |bytes: &[u8]| {
        let mut reader = Reader::new(bytes);
        let decoded = T::take(&mut reader, 0).ok()?;
        reader.is_empty().then_some(decoded)
    };
    let mut bytes = Vec::new();
    value.put(&mut bytes);
    assert_eq!(decode(&bytes).as_ref(), Some(value));
    for end in 0..bytes.len() {
        assert!(T::take(&mut Reader::new(&bytes[..end]), 0).is_err());
    }
    Fuzz::new("blob", 10_000).seed(bytes).run(|input| {
        let Some(decoded) = bounded(input, decode) else {
            return false;
        };
        let mut again = Vec::new();
        decoded.put(&mut again);
        assert_eq!(again, input);
        true
    });
}
