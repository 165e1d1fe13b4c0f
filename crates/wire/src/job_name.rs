//! What a job is called that was given no name.

use std::ffi::OsStr;
use std::path::Path;

/// Where even the program's name is not known.
const NO_NAME: &str = "job";

/// The name of a command as a person would say it: `python -u train.py --lr 1` is `train.py`.
pub fn job_name(words: &[impl AsRef<OsStr>]) -> String {
    let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
    let names: Vec<String> = words.iter().map(|word| file_name(word)).collect();
    // `env`, `nice` and launchers may come before the interpreter.
    if let Some(at) = names.iter().position(|name| is_python(name)) {
        return script(&words[at + 1..]).unwrap_or_else(
            |interpreter_alone| match interpreter_alone {
                true => format!("{} -c", names[at]),
                false => names[at].clone(),
            },
        );
    }
    let is_script = |word: &&&OsStr| Path::new(word).extension() == Some(OsStr::new("py"));
    match (words.iter().skip(1).find(is_script), names.first()) {
        (Some(script), _) => file_name(script),
        (None, Some(program)) if !program.is_empty() => program.clone(),
        (None, _) => NO_NAME.into(),
    }
}

/// The script or module among an interpreter's arguments; `Err` says whether its code is one of them.
fn script(arguments: &[&OsStr]) -> Result<String, bool> {
    let mut rest = arguments.iter().filter(|word| !word.is_empty());
    while let Some(word) = rest.next() {
        let text = word.to_string_lossy();
        match &*text {
            "-m" => {
                let module = rest.next().ok_or(false)?;
                return Ok(module.to_string_lossy().into_owned());
            }
            "-c" => return Err(true),
            // These options take a value.
            "-W" | "-X" => drop(rest.next()),
            option if option.starts_with('-') => {}
            _ => return Ok(file_name(word)),
        }
    }
    Err(false)
}

fn is_python(name: &str) -> bool {
    let version = name.strip_prefix("python");
    version.is_some_and(|v| v.bytes().all(|b| b.is_ascii_digit() || b == b'.'))
}

fn file_name(path: &OsStr) -> String {
    let name = Path::new(path).file_name().unwrap_or(path);
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_called_after_its_script() {
        for (command, name) in [
            ("python -u dir/train.py --x 3", "train.py"),
            ("/usr/bin/python3.11 train.py", "train.py"),
            ("python -W ignore -X dev a/b.py c.py", "b.py"),
            ("python -m pkg.train x", "pkg.train"),
            ("python3 -c pass", "python3 -c"),
            ("python", "python"),
            ("python -m", "python"),
            ("env A=1 python3 -m pkg", "pkg"),
            ("torchrun --n 1 train.py", "train.py"),
            ("/usr/bin/torchrun", "torchrun"),
            ("./train.py", "train.py"),
            ("", "job"),
        ] {
            let words: Vec<&str> = command.split(' ').collect();
            assert_eq!(job_name(&words), name, "{command}");
        }
        assert_eq!(job_name(&[""; 0]), "job");
    }
}
