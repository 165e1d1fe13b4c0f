//! `salus.toml`: what may be said in it, and what holds where nothing is said.
//!
//! Everything has a default, so that a file is optional. A file that is there is read strictly: a
//! misspelt key or a wrong value stops the start with file, line and the nearest key, because a
//! setting that is silently ignored is found out much later.
//!
//! Promise: no text of a configuration makes it panic.
//! Not here: the settings (`config/sections.rs`), how they are read (`config/file.rs`), where it is looked for (`paths.rs`), what the settings do.

mod device_names;
mod file;
mod host_settings;
mod sections;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

pub use self::device_names::{DeviceNames, VISIBLE_DEVICES, is_path, split};
use self::file::File;
pub use self::host_settings::HostSettings;
use self::sections::Sections;
pub use self::sections::{
    AUTO, Cache, Compilers, Device, Limits, PluginOption, Scheduling, Service,
};
use crate::paths::Places;

/// Who may connect, besides the service's own user and root.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub enum AllowUsers {
    #[default]
    Owner,
    All,
    /// Names or numbers.
    Users(Vec<String>),
}

impl AllowUsers {
    /// Whether somebody besides the service's own user and root may come in.
    pub fn several(&self) -> bool {
        match self {
            Self::Owner => false,
            Self::All => true,
            Self::Users(named) => !named.is_empty(),
        }
    }
}

/// A configuration with every default filled in.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// The file it was read from, if there was one.
    pub file: Option<PathBuf>,
    pub service: Service,
    /// What all processes of the service need to know.
    pub host: HostSettings,
}

/// A thing that a person has to put right: what happened, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub what: String,
    pub hint: Option<String>,
}

impl Problem {
    pub fn new(what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            hint: None,
        }
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl std::error::Error for Problem {}

impl From<salus_wire::Error> for Problem {
    fn from(error: salus_wire::Error) -> Self {
        Self {
            what: error.message,
            hint: error.hint,
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

/// A configuration is a page; anything larger is another file.
const FILE_BYTES: u64 = 1 << 20;

impl Config {
    pub fn defaults(places: &Places) -> Self {
        Self::new(None, Sections::default(), places)
    }

    /// The file that was named (it must be there), else the first that is found, else defaults.
    pub fn load(named: Option<&Path>, places: &Places) -> Result<Self, Problem> {
        if let Some(path) = named.or(places.config.as_deref()) {
            return Self::read(path, places)?.ok_or_else(|| {
                Problem::new(format!(
                    "the configuration `{}` does not exist",
                    path.display()
                ))
                .hint("it was named by `--config` or SALUS_CONFIG")
            });
        }
        for path in places.config_files() {
            if let Some(config) = Self::read(&path, places)? {
                return Ok(config);
            }
        }
        Ok(Self::defaults(places))
    }

    fn read(path: &Path, places: &Places) -> Result<Option<Self>, Problem> {
        let unreadable = |e: &dyn fmt::Display| {
            Problem::new(format!(
                "the configuration `{}` cannot be read: {e}",
                path.display()
            ))
        };
        match fs::metadata(path) {
            Ok(found) if found.len() > FILE_BYTES => {
                return Err(unreadable(&format!(
                    "it has {} bytes, {FILE_BYTES} is the limit",
                    found.len()
                )));
            }
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(unreadable(&e)),
        }
        let text = fs::read_to_string(path).map_err(|e| unreadable(&e))?;
        Self::parse(path, &text, places).map(Some)
    }

    pub fn parse(path: &Path, text: &str, places: &Places) -> Result<Self, Problem> {
        let sections = File { path, text }.read()?;
        Ok(Self::new(Some(path.to_owned()), sections, places))
    }

    fn new(file: Option<PathBuf>, sections: Sections, places: &Places) -> Self {
        Self {
            file,
            service: sections.service.clone(),
            host: HostSettings::new(sections, places),
        }
    }
}

#[cfg(test)]
mod tests;
