//! LineReader from a process, each awaited for a limited time only.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use crate::watch::wait_readable;

/// A pipe's end and what was read beyond the last line.
#[derive(Debug)]
pub struct LineReader<R> {
    from: R,
    read: Vec<u8>,
}

impl<R: Read + AsFd> LineReader<R> {
    pub fn new(from: R) -> Self {
        Self {
            from,
            read: Vec::new(),
        }
    }

    /// The next line without its end, or why there is none.
    pub fn next(&mut self, time: Duration) -> io::Result<String> {
        let deadline = Instant::now() + time;
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                let line = std::mem::replace(&mut self.read, rest);
                return Ok(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            wait_readable(&self.from, deadline)?;
            let mut bytes = [0; 4096];
            let n = self.from.read(&mut bytes)?;
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.read.extend_from_slice(&bytes[..n]);
        }
    }

    /// Whether something can be read at once.
    pub fn is_there(&self) -> bool {
        !self.read.is_empty() || wait_readable(&self.from, Instant::now()).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn lines_come_one_by_one_and_then_their_end() {
        let (reader, mut writer) = io::pipe().expect("a pipe");
        let mut lines = LineReader::new(reader);
        writer.write_all(b"one\ntwo\nthr").expect("room");
        let soon = Duration::from_secs(10);
        assert_eq!(lines.next(soon).expect("there"), "one");
        assert_eq!(lines.next(soon).expect("there"), "two");
        writer.write_all(b"ee\nlost").expect("room");
        assert_eq!(lines.next(soon).expect("there"), "three");
        drop(writer);
        let end = lines.next(soon).expect_err("at its end");
        assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn nobody_waits_for_ever() {
        let (reader, _writer) = io::pipe().expect("a pipe");
        let late = LineReader::new(reader)
            .next(Duration::ZERO)
            .expect_err("nothing comes");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }
}
