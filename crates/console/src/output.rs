//! The one place that prints.
//!
//! A reader that stopped (`salus ps | head -1`) is no error.

use std::io::{self, Write};
use std::process::ExitCode;

use salus_daemon::config::Problem;

/// Exit status of an error.
pub const ERROR: u8 = 2;

/// Data: to standard output.
pub fn data(text: &str) {
    let mut out = io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// What a person may want to know: to standard error.
pub fn note(text: &str) {
    say(&format!("salus: {text}"));
}

/// The same, where it is plain who speaks.
pub fn say(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// An error with its hint; returns its exit status.
pub fn error(problem: &Problem) -> ExitCode {
    failure(problem);
    ExitCode::from(ERROR)
}

/// Prints an error, whatever the exit status will be.
pub fn failure(problem: &Problem) {
    let _ = io::stderr().lock().write_all(shown(problem).as_bytes());
}

fn shown(problem: &Problem) -> String {
    match &problem.hint {
        Some(hint) => format!("error: {}\n\nhint: {hint}\n", problem.what),
        None => format!("error: {}\n", problem.what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_happened_and_what_to_do() {
        let problem = Problem::new("no service runs").hint("`salus serve` starts one");
        assert_eq!(
            shown(&problem),
            "error: no service runs\n\nhint: `salus serve` starts one\n"
        );
    }
}
