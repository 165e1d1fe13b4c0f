//! Programs that sessions hold, and what they take of the service's memory.
//!
//! A loaded program is in the device host's heap for as long as a session, a launch or an output of it
//! needs it, so `[cache] memory` cannot bound these programs. They are counted per user, a program once
//! however many of the user's sessions hold it, and beyond the limit no further one is given out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use salus_channel::lock;
use salus_device::Device;
use salus_units::Bytes;
use salus_wire::Error;

use crate::device_host::errors::resource_exhausted;
use crate::device_host::programs::Program;
use crate::device_host::session::Identity;

/// The programs that the sessions of each user hold.
pub(crate) struct Leases {
    users: Mutex<HashMap<u32, UserPrograms>>,
    user_bytes_max: u64,
}

#[derive(Default)]
struct UserPrograms {
    bytes: u64,
    /// How many leases there are of each program.
    leases: HashMap<u64, usize>,
}

/// A program as a session holds it.
pub(crate) struct Lease<D: Device> {
    program: Arc<Program<D>>,
    user: u32,
    leases: Arc<Leases>,
}

impl Leases {
    pub(crate) fn new(user_bytes_max: u64) -> Arc<Self> {
        Arc::new(Self {
            users: Mutex::default(),
            user_bytes_max,
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u32, UserPrograms>> {
        lock(&self.users)
    }

    /// Bytes of the programs that this user's sessions hold.
    #[cfg(test)]
    pub(crate) fn user_bytes(&self, user: u32) -> u64 {
        self.lock().get(&user).map_or(0, |held| held.bytes)
    }

    /// Counts the program for the session's user.
    pub(crate) fn take<D: Device>(
        self: &Arc<Self>,
        who: &Identity,
        program: Arc<Program<D>>,
    ) -> Result<Arc<Lease<D>>, Error> {
        let (number, bytes) = (program.number.0, program.loaded_bytes);
        let mut users = self.lock();
        let before = users.get(&who.uid).map_or(0, |held| held.bytes);
        let has_it = users
            .get(&who.uid)
            .is_some_and(|held| held.leases.contains_key(&number));
        if !has_it && before + bytes > self.user_bytes_max {
            let message = format!(
                "`{}` takes about {:.2} of the service's memory, programs of {}'s sessions take {:.2} \
                 already, and the limit for a user is {:.2}",
                program.signature.name,
                Bytes(bytes),
                who.user,
                Bytes(before),
                Bytes(self.user_bytes_max)
            );
            return Err(resource_exhausted(message).hint(
                "`del` functions that are no longer used and `jax.clear_caches()` give programs back, \
                 large constants are better given as arguments; `[limits] programs_per_user` of \
                 salus.toml sets the limit",
            ));
        }
        let held = users.entry(who.uid).or_default();
        if !has_it {
            held.bytes += bytes;
        }
        *held.leases.entry(number).or_default() += 1;
        drop(users);
        Ok(Arc::new(Lease {
            program,
            user: who.uid,
            leases: Arc::clone(self),
        }))
    }
}

impl<D: Device> Drop for Lease<D> {
    fn drop(&mut self) {
        let mut users = self.leases.lock();
        let Some(held) = users.get_mut(&self.user) else {
            return;
        };
        let number = self.program.number.0;
        let left = held.leases.get_mut(&number).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            held.leases.remove(&number);
            held.bytes -= self.program.loaded_bytes;
        }
        if held.leases.is_empty() {
            users.remove(&self.user);
        }
    }
}

impl<D: Device> std::ops::Deref for Lease<D> {
    type Target = Program<D>;

    fn deref(&self) -> &Program<D> {
        &self.program
    }
}
