//! A vendor's plugin: a shared library that exports `GetPjrtApi`.
//!
//! Opened once per process and never closed. Opening the same file again returns the same table
//! without initializing it a second time.

use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Mutex;

use crate::api::{Api, Padded};
use crate::library::Library;
use crate::sys::*;
use crate::value::copy_named;
use crate::{Client, Error, Topology, Value};

#[derive(Clone)]
pub struct Plugin {
    api: Api,
    path: PathBuf,
    version: (i32, i32),
}

static OPEN: Mutex<Vec<Plugin>> = Mutex::new(Vec::new());

impl Plugin {
    /// Opens the library at `path` and initializes it.
    pub fn open(path: &Path) -> Result<Plugin, Error> {
        // Two names of one file are one plugin; a path that cannot be resolved fails in dlopen,
        // whose message says why.
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let mut open = OPEN.lock().unwrap_or_else(|poison| poison.into_inner());
        if let Some(plugin) = open.iter().find(|plugin| plugin.path == path) {
            return Ok(plugin.clone());
        }
        let plugin = Plugin::open_first(path)?;
        open.push(plugin.clone());
        Ok(plugin)
    }

    fn open_first(path: PathBuf) -> Result<Plugin, Error> {
        let library = Library::open(&path, "the plugin")?;
        let Some(symbol) = library.symbol(c"GetPjrtApi") else {
            return Err(Error::new(
                PJRT_Error_Code_INVALID_ARGUMENT,
                format!(
                    "{} is no PJRT plugin: it exports no GetPjrtApi",
                    path.display()
                ),
            ));
        };
        // SAFETY: a function of this name has this type in every PJRT plugin.
        let get_api: unsafe extern "C" fn() -> *mut PJRT_Api =
            unsafe { std::mem::transmute(symbol.as_ptr()) };
        // SAFETY: it takes nothing and may be called at any time.
        let table = NonNull::new(unsafe { get_api() }).ok_or_else(|| {
            Error::internal(format!("GetPjrtApi of {} returned null", path.display()))
        })?;
        // SAFETY: from `GetPjrtApi`, and the library is never closed.
        let api = unsafe { Api::new(table) };
        let version = api.version().ok_or_else(|| {
            Error::internal(format!("the table of {} has no version", path.display()))
        })?;
        if version.0 != PJRT_API_MAJOR {
            return Err(Error::new(
                PJRT_Error_Code_FAILED_PRECONDITION,
                format!(
                    "{} speaks PJRT API {}.{}, and Salus speaks {PJRT_API_MAJOR}.x: \
                     use a plugin of that major version",
                    path.display(),
                    version.0,
                    version.1
                ),
            ));
        }
        let mut args = Padded::<PJRT_Plugin_Initialize_Args>::new();
        // SAFETY: no arguments.
        unsafe { call!(api, PJRT_Plugin_Initialize, &mut args) }?;
        Ok(Plugin { api, path, version })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Major and minor version of the table.
    pub fn api_version(&self) -> (i32, i32) {
        self.version
    }

    /// The plugin's attributes; empty if it has none.
    pub fn attributes(&self) -> Result<Vec<(String, Value)>, Error> {
        let mut args = Padded::<PJRT_Plugin_Attributes_Args>::new();
        // SAFETY: nothing but out-fields; the attributes live as long as the process.
        unsafe {
            call!(self.api, PJRT_Plugin_Attributes, &mut args)?;
            Ok(copy_named(args.attributes, args.num_attributes))
        }
    }

    /// Whether it is the plugin of a GPU, CUDA's or ROCm's: only these have a list of custom calls of
    /// their own. No client is needed to know.
    pub fn is_of_a_gpu(&self) -> bool {
        self.api
            .extension(PJRT_Extension_Type_Gpu_Custom_Call)
            .is_some()
    }

    /// Describes devices that need not be there, to compile for them.
    pub fn create_topology(
        &self,
        name: &str,
        options: &[(String, Value)],
    ) -> Result<Topology, Error> {
        Topology::create(self.api, name, options)
    }

    /// The topology that [`Topology::serialize`] gave, perhaps in another process.
    pub fn deserialize_topology(&self, serialized: &[u8]) -> Result<Topology, Error> {
        Topology::deserialize(self.api, serialized)
    }

    pub fn create_client(&self, options: &[(String, Value)]) -> Result<Client, Error> {
        Client::create(self.api, options)
    }
}
