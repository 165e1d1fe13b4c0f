//! An accusation: the device is suspected to be broken, and by which launch.
//!
//! It is on the board before the device is asked whether it still works, because asking a broken one, or
//! whatever another session asks of it meanwhile, may end the process: vendors check such calls by
//! aborting. It is taken back if the device answers.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{Board, NAME_WORDS, Running, put_text, text};

/// The vendor's words, as far as they fit.
const WHY_WORDS: usize = 64;

#[repr(C)]
pub(super) struct Place {
    /// Not 0: there is one. Written last.
    set: AtomicU64,
    session: AtomicU64,
    /// 0 if no program is accused.
    program: AtomicU64,
    name: [AtomicU64; NAME_WORDS],
    why: [AtomicU64; WHY_WORDS],
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accusation {
    /// Whose launch or transfer showed it first.
    pub(crate) session: u64,
    /// The program that may have done it.
    pub(crate) program: Option<Running>,
    /// What the vendor said.
    pub(crate) why: String,
}

impl Board {
    pub(crate) fn accuse(&self, accusation: &Accusation) {
        let place = &self.page().accusation;
        place.session.store(accusation.session, Relaxed);
        let program = accusation.program.as_ref();
        let number = program.map_or(0, |program| program.program);
        place.program.store(number, Relaxed);
        put_text(&place.name, program.map_or("", |program| &program.name));
        put_text(&place.why, &accusation.why);
        place.set.store(1, Release);
    }

    /// The device works.
    pub(crate) fn acquit(&self) {
        self.page().accusation.set.store(0, Release);
    }

    /// What the device host suspected when it ended; nothing if another process ended it.
    pub(crate) fn accusation(&self) -> Option<Accusation> {
        let place = &self.page().accusation;
        if place.set.load(Acquire) == 0 || self.page().panicked.load(Acquire) != 0 {
            return None;
        }
        if self.killer().is_some() {
            return None;
        }
        let session = place.session.load(Relaxed);
        let program = place.program.load(Relaxed);
        Some(Accusation {
            session,
            program: (program != 0).then(|| Running {
                session,
                program,
                name: text(&place.name),
            }),
            why: text(&place.why),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::board::Writer;

    #[test]
    fn an_accusation_is_seen_until_it_is_taken_back() {
        let (board, descriptor) = Board::create().expect("memory");
        let writer = Writer::new(Board::open(descriptor).expect("the same memory"));
        assert_eq!(board.accusation(), None);
        let mut accusation = Accusation {
            session: 7,
            program: Some(Running {
                session: 7,
                program: 70,
                name: "jit_step".into(),
            }),
            why: "CUDA_ERROR_ILLEGAL_ADDRESS".into(),
        };
        writer.board().accuse(&accusation);
        assert_eq!(board.accusation().as_ref(), Some(&accusation));
        writer.board().acquit();
        assert_eq!(board.accusation(), None);
        accusation.program = None;
        accusation.why = "ä".repeat(1000);
        writer.board().accuse(&accusation);
        let seen = board.accusation().expect("it is there");
        assert!(seen.why.len() > 500 && accusation.why.starts_with(&seen.why));
        assert_eq!(seen.program, None);
        // What another process did is not the device's doing.
        writer.board().killed_by(1);
        assert_eq!(board.accusation(), None);
    }
}
