//! Splits a line of a scenario into tokens, each with its place, and says what is wrong with one.
//!
//! Tokens are separated by blanks; a comma and a colon are tokens of their own; `#` begins a comment.

use std::fmt;

/// Why a scenario cannot be read, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
    pub what: String,
    pub hint: Option<String>,
}

impl Problem {
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { line, column, .. } = self;
        write!(f, "line {line}, column {column}: {}", self.what)
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Token<'_> {
    pub(crate) fn problem(&self, what: impl Into<String>) -> Problem {
        Problem {
            line: self.line,
            column: self.column,
            what: what.into(),
            hint: None,
        }
    }

    /// The token as it is quoted in an error: it may contain anything.
    pub(crate) fn quoted(&self) -> String {
        const SHOWN: usize = 40;
        let mut text: String = self.text.chars().take(SHOWN).collect();
        if self.text.chars().count() > SHOWN {
            text.push('…');
        }
        format!("`{}`", text.escape_debug())
    }

    /// Keeps the value that the token gives, which is given once.
    pub(crate) fn once<T>(&self, slot: &mut Option<T>, value: T) -> Result<(), Problem> {
        match slot.replace(value) {
            None => Ok(()),
            Some(_) => Err(self.problem(format!("{} is given twice", self.quoted()))),
        }
    }

    /// The token is none of those that are known here.
    pub(crate) fn unknown(&self, what: &str, those_are: &str, known: &[&str]) -> Problem {
        let problem = self.problem(format!("{} is not {what}", self.quoted()));
        let list = format!("{those_are} {}", known.join(", "));
        match nearest(self.text, known) {
            Some(near) => problem.hint(format!("did you mean `{near}`? {list}")),
            None => problem.hint(list),
        }
    }
}

/// What was probably meant.
pub(crate) fn nearest<'a>(text: &str, known: &[&'a str]) -> Option<&'a str> {
    // Two letters exchanged, left out or added; more than that, or most of it, is another word.
    let errors = match text.chars().count() {
        0..=3 => 1,
        _ => 2,
    };
    let distance = |known: &&str| strsim::damerau_levenshtein(text, known);
    let near = known.iter().copied().min_by_key(distance)?;
    (distance(&near) <= errors).then_some(near)
}

/// The tokens of a line, read from left to right.
#[derive(Debug)]
pub(crate) struct Line<'a> {
    tokens: Vec<Token<'a>>,
    at: usize,
    /// What is reported where something is missing at the end.
    end: Token<'a>,
}

impl<'a> Line<'a> {
    pub(crate) fn new(number: usize, text: &'a str) -> Self {
        let text = text.split('#').next().unwrap_or_default().trim_end();
        let mut tokens = Vec::new();
        let mut column = 1;
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            let length = match first {
                ',' | ':' => 1,
                _ if first.is_whitespace() => first.len_utf8(),
                _ => rest
                    .find(|c: char| c.is_whitespace() || matches!(c, ',' | ':'))
                    .unwrap_or(rest.len()),
            };
            let (word, after) = rest.split_at(length);
            if !first.is_whitespace() {
                tokens.push(Token {
                    text: word,
                    line: number,
                    column,
                });
            }
            column += word.chars().count();
            rest = after;
        }
        let end = Token {
            text: "",
            line: number,
            column,
        };
        Self { tokens, at: 0, end }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    pub(crate) fn peek(&self) -> Option<Token<'a>> {
        self.tokens.get(self.at).copied()
    }

    /// The next token, where `expected` says what it must be.
    pub(crate) fn next(&mut self, expected: &str) -> Result<Token<'a>, Problem> {
        match self.peek() {
            Some(word) if !matches!(word.text, "," | ":") => {
                self.at += 1;
                Ok(word)
            }
            Some(word) => Err(word.problem(format!(
                "expected {expected}, found a {}",
                name_of(word.text)
            ))),
            None => Err(self
                .end
                .problem(format!("expected {expected}, found the end of the line"))),
        }
    }

    /// Takes the next token if it is this one.
    pub(crate) fn takes(&mut self, text: &str) -> bool {
        let is_it = self.peek().is_some_and(|word| word.text == text);
        self.at += usize::from(is_it);
        is_it
    }

    /// Whether another item follows; at the end of one there is a comma or nothing.
    pub(crate) fn has_more(&mut self) -> Result<bool, Problem> {
        if self.takes(",") {
            return Ok(true);
        }
        let ends = self.ends().map(|()| false);
        ends.map_err(|problem| problem.hint("items are separated by commas"))
    }

    pub(crate) fn ends(&self) -> Result<(), Problem> {
        match self.peek() {
            None => Ok(()),
            Some(word) => Err(word.problem(format!(
                "expected the end of the line, found {}",
                word.quoted()
            ))),
        }
    }
}

fn name_of(separator: &str) -> &'static str {
    match separator {
        "," => "comma",
        _ => "colon",
    }
}
