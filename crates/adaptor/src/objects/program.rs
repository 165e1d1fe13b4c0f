//! Programs: what is known of them without asking the device.
//!
//! The reply to a compilation carries the whole signature, so all questions are answered from here
//! ([`crate::objects::executable`]). A program has two lives: its description, kept by outputs that point
//! into it, and its slot in the service ([`Loaded`]), which ends with the last handle.
//!
//! Promise: lists and texts stay where they are for as long as the program.
#![expect(unsafe_code, reason = "lists of pointers that C reads")]

use std::ffi::c_char;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use salus_pjrt::sys;
use salus_wire::{ProgramId, Signature};

use crate::c_api::c_args::lend;
use crate::c_api::error::{Result, invalid, unimplemented};
use crate::c_api::named_values::Attributes;
use crate::objects::array_type::ArrayType;
use crate::objects::client::Client;
use crate::objects::device::Hardware;
use crate::objects::layouts::Layout;

/// A program's description.
pub(crate) struct Program {
    pub(crate) client: Arc<Client>,
    pub(crate) id: ProgramId,
    pub(crate) outputs: Vec<Output>,
    /// Parameters that a launch donates unless it is to keep them, ascending.
    pub(crate) donated: Vec<u32>,
    pub(crate) num_parameters: usize,
    pub(crate) signature: Signature,
    pub(crate) source: Source,
    pub(crate) lists: Lists,
}

pub(crate) struct Output {
    pub(crate) array: ArrayType,
    /// Index into the device's memories.
    pub(crate) memory: u32,
}

/// What was compiled, kept for `Serialize`.
pub(crate) struct Source {
    pub(crate) format: String,
    pub(crate) code: Vec<u8>,
    pub(crate) options: Vec<u8>,
}

/// The signature as C reads it; pointers lead into this struct, the signature and the device's
/// memories, whose contents never change.
pub(crate) struct Lists {
    pub(crate) types: Vec<sys::PJRT_Buffer_Type>,
    pub(crate) dims: Vec<i64>,
    pub(crate) ranks: Vec<usize>,
    pub(crate) kinds: Vec<*const c_char>,
    pub(crate) kind_sizes: Vec<usize>,
    pub(crate) cost: Attributes,
    layouts: Vec<*mut sys::PJRT_Layouts_MemoryLayout>,
    _layouts: Box<[Layout]>,
}

// SAFETY: the pointers lead to immutable data of the same program.
unsafe impl Send for Lists {}
// SAFETY: as above.
unsafe impl Sync for Lists {}

/// A program's slot in the service, which ends with the last handle on it.
pub(crate) struct Loaded {
    pub(crate) program: Arc<Program>,
    deleted: AtomicBool,
}

impl Program {
    /// A program as it was compiled, with the first handle on its slot in the service.
    pub(crate) fn load(
        client: Arc<Client>,
        id: ProgramId,
        signature: Signature,
        source: Source,
    ) -> Result<Arc<Loaded>> {
        let outputs = signature
            .outputs
            .iter()
            .map(|output| {
                Ok(Output {
                    array: ArrayType::of_shape(&output.shape, Some(&output.layout_text))?,
                    memory: output.memory,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let num_parameters = signature.parameters.len();
        if let Some(beyond) = signature
            .donated
            .iter()
            .find(|d| **d as usize >= num_parameters)
        {
            return Err(invalid(format!(
                "the service says that parameter {beyond} of {num_parameters} is donated"
            )));
        }
        let program = Self {
            id,
            lists: Lists::new(&signature, &outputs, client.hardware),
            client,
            outputs,
            donated: signature.donated.clone(),
            num_parameters,
            signature,
            source,
        };
        Ok(Arc::new(Loaded {
            program: Arc::new(program),
            deleted: AtomicBool::new(false),
        }))
    }

    pub(crate) fn name(&self) -> &str {
        &self.signature.name
    }

    pub(crate) fn layouts(&self) -> &[*mut sys::PJRT_Layouts_MemoryLayout] {
        &self.lists.layouts
    }

    pub(crate) fn fingerprint(&self) -> Result<&[u8]> {
        let fingerprint = self.signature.fingerprint.as_deref();
        fingerprint
            .ok_or_else(|| unimplemented("the device's plugin gives programs no fingerprint"))
    }
}

impl Lists {
    fn new(signature: &Signature, outputs: &[Output], hardware: &'static Hardware) -> Self {
        let layouts: Box<[Layout]> = outputs
            .iter()
            .map(|output| Layout::of_program(output.array.layout_text.clone()))
            .collect();
        let kinds: Vec<&str> = match &signature.output_memory_kinds {
            Some(kinds) => kinds.iter().map(String::as_str).collect(),
            // The vendor does not say, so it is where its arrays are when nobody says. Callers
            // other than JAX do not cope without an answer.
            None => outputs
                .iter()
                .map(|o| hardware.memory(o.memory).kind())
                .collect(),
        };
        let arrays = outputs.iter().map(|output| &output.array);
        Self {
            types: arrays.clone().map(|array| array.element_type).collect(),
            dims: arrays
                .clone()
                .flat_map(|array| array.dims.clone())
                .collect(),
            ranks: arrays.map(|array| array.dims.len()).collect(),
            kinds: kinds.iter().map(|kind| kind.as_ptr().cast()).collect(),
            kind_sizes: kinds.iter().map(|kind| kind.len()).collect(),
            cost: Attributes::new(signature.cost.clone()),
            layouts: layouts.iter().map(lend).collect(),
            _layouts: layouts,
        }
    }
}

impl Loaded {
    /// An error if the program was deleted.
    pub(crate) fn usable(&self) -> Result<()> {
        if self.deleted.load(Ordering::Acquire) {
            return Err(invalid(format!(
                "the program `{}` has been deleted",
                self.program.name()
            )));
        }
        Ok(())
    }

    pub(crate) fn delete(&self) {
        let session = &self.program.client.session;
        if session.is_ours() && !self.deleted.swap(true, Ordering::AcqRel) {
            session.drop_program(self.program.id);
        }
    }
}

impl Drop for Loaded {
    fn drop(&mut self) {
        self.delete();
    }
}
