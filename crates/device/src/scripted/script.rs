//! Programs of the scripted device: one line of text.
//!
//! ```text
//! name: step; params: f32[4,4], s32[]; outputs: f32[4,4] alias 0, f32[]; ms: 5; scratch: 64
//! ```
//!
//! `alias N` makes an output take over parameter N, `host` after it puts it into memory 1, which is
//! `pinned_host`. `ms` is how long a run takes, `scratch` what
//! it needs besides its arrays, `hidden` what it needs beyond what its compiler reports, `callbacks` how often it
//! calls its job before it runs (one after the other, or with `together: 1` all at the same time), and
//! `fail` is `compile`, `launch`, `async`, `sticky`, `crash` or `none`. All but `name` may be left out.

use std::time::Duration;

use salus_wire::ElementType;

use crate::element::host_bytes;
use crate::failure::{INVALID_ARGUMENT, error};
use crate::layout;
use crate::{Error, MemoryStats, Output, Shape, Signature, Value};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Script {
    pub(super) name: String,
    pub(super) parameters: Vec<Shape>,
    /// Shape and the parameter whose place it takes.
    pub(super) outputs: Vec<(Shape, Option<u32>)>,
    /// Which outputs are in host memory.
    pub(super) on_host: Vec<bool>,
    pub(super) duration: Duration,
    pub(super) scratch_bytes: u64,
    /// Scratch that the compiler does not report.
    pub(super) hidden_bytes: u64,
    /// Calls with the arguments as operands, and as many results.
    pub(super) callbacks: u64,
    pub(super) together: bool,
    pub(super) fail: Fail,
}

/// Where a program fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fail {
    Never,
    Compile,
    Launch,
    /// While running: the launch succeeds, the outputs are poisoned.
    Async,
    /// While running, and everything on the device from then on.
    Sticky,
    /// While running, and the process with it.
    Crash,
}

impl Script {
    pub(super) fn parse(code: &[u8]) -> Result<Script, Error> {
        let wrong = |what: String| error(INVALID_ARGUMENT, format!("a script with {what}"));
        let text = std::str::from_utf8(code).map_err(|_| wrong("other than text".to_owned()))?;
        let mut script = Script {
            name: String::new(),
            parameters: Vec::new(),
            outputs: Vec::new(),
            on_host: Vec::new(),
            duration: Duration::ZERO,
            scratch_bytes: 0,
            hidden_bytes: 0,
            callbacks: 0,
            together: false,
            fail: Fail::Never,
        };
        for clause in text
            .split(';')
            .map(str::trim)
            .filter(|clause| !clause.is_empty())
        {
            let (key, value) = clause
                .split_once(':')
                .map(|(key, value)| (key.trim(), value.trim()))
                .ok_or_else(|| wrong(format!("`{clause}`, which is no `key: value`")))?;
            let number = || value.parse().map_err(|_| wrong(format!("{key} `{value}`")));
            match key {
                "name" => script.name = value.to_owned(),
                "params" => {
                    script.parameters = list(value)
                        .map(|word| shape(&word))
                        .collect::<Option<_>>()
                        .ok_or_else(|| wrong(format!("params `{value}`")))?;
                }
                "outputs" => {
                    script.on_host = list(value).map(|word| word.ends_with(HOST)).collect();
                    script.outputs = list(value)
                        .map(|word| output(word.strip_suffix(HOST).unwrap_or(&word)))
                        .collect::<Option<_>>()
                        .ok_or_else(|| wrong(format!("outputs `{value}`")))?;
                }
                "ms" => script.duration = Duration::from_millis(number()?),
                "scratch" => script.scratch_bytes = number()?,
                "callbacks" => script.callbacks = number()?,
                "together" => script.together = number()? > 0,
                "hidden" => script.hidden_bytes = number()?,
                "fail" => {
                    script.fail = match value {
                        "none" => Fail::Never,
                        "compile" => Fail::Compile,
                        "launch" => Fail::Launch,
                        "async" => Fail::Async,
                        "sticky" => Fail::Sticky,
                        "crash" => Fail::Crash,
                        _ => return Err(wrong(format!("fail `{value}`"))),
                    };
                }
                _ => return Err(wrong(format!("`{key}`, which is no key"))),
            }
        }
        if script.name.is_empty() {
            return Err(wrong("no name".to_owned()));
        }
        script
            .check_aliases()
            .ok_or_else(|| wrong("aliases that do not fit".to_owned()))?;
        Ok(script)
    }

    /// An alias must be a parameter, used once, of the same size.
    fn check_aliases(&self) -> Option<()> {
        let mut used = Vec::new();
        for (shape, alias) in &self.outputs {
            let Some(alias) = alias else { continue };
            let parameter = self.parameters.get(*alias as usize)?;
            if used.contains(alias) || host_bytes(parameter).ok()? != host_bytes(shape).ok()? {
                return None;
            }
            used.push(*alias);
        }
        Some(())
    }

    /// The memory of each output.
    pub(super) fn output_memories(&self) -> impl Iterator<Item = u32> {
        self.on_host.iter().map(|&on_host| u32::from(on_host))
    }

    /// Whether an output takes the parameter's place.
    pub(super) fn is_aliased(&self, parameter: u32) -> bool {
        let mut outputs = self.outputs.iter();
        outputs.any(|(_, alias)| *alias == Some(parameter))
    }

    /// Whether the parameter's place is taken by an output in host memory.
    fn is_on_host(&self, parameter: u32) -> bool {
        let mut outputs = self.outputs.iter().zip(&self.on_host);
        outputs.any(|((_, alias), on_host)| *on_host && *alias == Some(parameter))
    }

    pub(super) fn signature(&self) -> Result<Signature, Error> {
        let bytes = |shape: &Shape| host_bytes(shape).map(|bytes| bytes as i64);
        let mut memory = MemoryStats {
            temp_bytes: self.scratch_bytes as i64,
            ..MemoryStats::default()
        };
        for (index, parameter) in (0..).zip(&self.parameters) {
            match self.is_on_host(index) {
                true => memory.host_argument_bytes += bytes(parameter)?,
                false => memory.argument_bytes += bytes(parameter)?,
            }
        }
        for (shape, alias) in &self.outputs {
            memory.output_bytes += bytes(shape)?;
            if alias.is_some() {
                memory.alias_bytes += bytes(shape)?;
            }
        }
        let mut donated: Vec<u32> = self.outputs.iter().filter_map(|output| output.1).collect();
        donated.sort_unstable();
        let output = |((shape, alias), memory): (&(Shape, Option<u32>), u32)| Output {
            shape: shape.clone(),
            layout_text: layout::text(shape),
            memory,
            aliases: *alias,
        };
        Ok(Signature {
            name: self.name.clone(),
            fingerprint: Some(self.name.clone().into_bytes()),
            parameters: self.parameters.clone(),
            outputs: self
                .outputs
                .iter()
                .zip(self.output_memories())
                .map(output)
                .collect(),
            donated,
            code_bytes: 0,
            memory: Some(memory),
            cost: vec![("flops".to_owned(), Value::Float(0.0))],
            optimized_program: Vec::new(),
            output_memory_kinds: None,
            calls_back: self.callbacks > 0,
        })
    }
}

/// After an output that is in host memory.
const HOST: &str = " host";

/// Splits at commas outside of brackets.
fn list(text: &str) -> impl Iterator<Item = String> {
    let mut words = vec![String::new()];
    let mut depth = 0;
    for c in text.chars() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => {
                words.push(String::new());
                continue;
            }
            _ => {}
        }
        if let Some(word) = words.last_mut() {
            word.push(c);
        }
    }
    words
        .into_iter()
        .map(|word| word.trim().to_owned())
        .filter(|word| !word.is_empty())
}

/// `f32[4,4]`
fn shape(word: &str) -> Option<Shape> {
    let (name, dims) = word.strip_suffix(']')?.split_once('[')?;
    let dims = dims.split(',').map(str::trim).filter(|dim| !dim.is_empty());
    Some(Shape {
        element_type: ElementType::from_name(name)?.pjrt,
        dims: dims.map(|dim| dim.parse().ok()).collect::<Option<_>>()?,
        minor_to_major: None,
    })
}

/// `f32[4,4] alias 0`
fn output(word: &str) -> Option<(Shape, Option<u32>)> {
    match word.split_once(" alias ") {
        Some((array, alias)) => Some((shape(array.trim())?, Some(alias.trim().parse().ok()?))),
        None => Some((shape(word)?, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_read() {
        let text = b"name: step; params: f32[4,4], s32[]; outputs: f32[4,4] alias 0; ms: 5";
        let script = Script::parse(text).expect("well formed");
        assert_eq!(script.parameters[0].dims, [4, 4]);
        assert_eq!(script.parameters[1].dims, [0i64; 0]);
        assert_eq!(script.outputs[0].1, Some(0));
        let signature = script.signature().expect("known types");
        assert_eq!(signature.donated, [0]);
        assert_eq!(signature.memory.expect("scripts know").alias_bytes, 64);
    }

    #[test]
    fn nonsense_is_an_error() {
        for text in [
            &b"\xff"[..],
            b"",
            b"name",
            b"name: a; ms: many",
            b"name: a; params: x9[1]",
            b"name: a; params: f32[4]; outputs: f32[8] alias 0",
            b"name: a; outputs: f32[4] alias 0",
            b"name: a; fail: later",
            b"name: a; colour: red",
        ] {
            Script::parse(text).expect_err("malformed");
        }
    }
}
