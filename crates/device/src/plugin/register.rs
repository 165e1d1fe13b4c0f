//! Host memory that a vendor's plugin has registered: it copies from and to it directly, and not by way
//! of memory of its own.
#![expect(unsafe_code, reason = "the vendor keeps the memory's address")]

use std::sync::Arc;

use salus_pjrt::Client;

use crate::failure::optional;
use crate::{Error, HostBytes, HostMemory, Registration};

/// Unregistered when it is dropped, and mapped until then.
struct Registered {
    client: Client,
    memory: Arc<dyn HostMemory>,
}

impl Drop for Registered {
    fn drop(&mut self) {
        let start = HostBytes::of(&*self.memory).as_ptr();
        // Nobody could act on an error: the memory is unmapped next.
        let _ = self.client.dma_unmap(start.cast());
    }
}

pub(super) fn register(
    client: &Client,
    memory: Arc<dyn HostMemory>,
) -> Result<Option<Registration>, Error> {
    let bytes = HostBytes::of(&*memory);
    let start = bytes.as_ptr().cast();
    // SAFETY: `Registered` keeps the memory mapped until it has called `dma_unmap`.
    let mapped = unsafe { client.dma_map(start, bytes.len()) };
    let mapped = optional(mapped)?;
    Ok(mapped.map(|()| {
        let client = client.clone();
        Box::new(Registered { client, memory }) as Registration
    }))
}
