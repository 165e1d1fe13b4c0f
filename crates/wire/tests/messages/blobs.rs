//! What travels in shared memory survives it, and parts of it are refused.

use salus_fuzz::Fuzz;
use salus_wire::{Profile, ProfiledLaunch, StoredProgram, Token, TokenError};

use crate::check::{bounded, check_blob};

use crate::samples::{recording, signature};

#[test]
fn a_stored_program_survives() {
    let program = StoredProgram {
        signature: signature(),
        executable: vec![7; 1000],
    };
    check_blob(&program);
}

#[test]
fn a_recording_survives_and_half_of_one_is_refused() {
    check_blob(&recording());
}

#[test]
fn a_profile_survives_and_half_of_one_is_refused() {
    let launch = ProfiledLaunch {
        lane: 1,
        program: 0,
        ready_ns: 1,
        began_ns: 2,
        ended_ns: 3,
    };
    let profile = Profile {
        from_ns: 1 << 60,
        programs: vec!["jit_step".into()],
        launches: vec![launch.clone(), launch],
    };
    check_blob(&profile);
}

#[test]
fn tokens_carry_the_source_and_nothing_foreign_passes_for_one() {
    let token = Token {
        format: "mlir".into(),
        code: vec![5; 300],
        options: vec![1, 2, 3],
    };
    let bytes = token.encode();
    assert_eq!(Token::decode(&bytes).as_ref(), Ok(&token));
    // What is behind the check, which damage does not get past; then the whole.
    check_blob(&token);
    Fuzz::new("token", 10_000).seed(bytes.clone()).run(|input| {
        let Some(decoded) = bounded(input, |input| Token::decode(input).ok()) else {
            return false;
        };
        assert_eq!(decoded.encode(), input);
        true
    });
    assert_eq!(
        Token::decode(b"\x7fELF machine code"),
        Err(TokenError::Foreign)
    );
    assert_eq!(Token::decode(b""), Err(TokenError::Foreign));
    for at in 16..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert_eq!(
            Token::decode(&damaged),
            Err(TokenError::Damaged),
            "byte {at}"
        );
    }
    for end in 16..bytes.len() {
        assert_eq!(Token::decode(&bytes[..end]), Err(TokenError::Damaged));
    }
}
