//! What a job of the swarm asks for, and what it gives back between two requests.

use salus_engine::Program;
use salus_sim::{Needs, launch, launch_with_callbacks, upload, upload_to_host};

use crate::jobs::{Asked, CallsBack, Chance};
use crate::swarm::Swarm;

impl Swarm {
    /// Arrays go away at any time, but not while a request names them.
    pub(crate) fn drop_some(&mut self, id: u64) {
        self.drop_some_of_the_host(id);
        let random = &mut self.random;
        let job = self.jobs.get_mut(&id).expect("it is open");
        if job.asked.is_some() || job.arrays.is_empty() || !random.one_in(3) {
            return;
        }
        let at = random.below(job.arrays.len() as u64) as usize;
        let array = job.arrays.remove(at);
        let (resident_bytes, paged_bytes) = match array.paged {
            true => (0, array.bytes),
            false => (array.bytes, 0),
        };
        self.tell(|simulation| simulation.release(id, resident_bytes, paged_bytes));
    }

    fn drop_some_of_the_host(&mut self, id: u64) {
        let job = self.jobs.get_mut(&id).expect("it is open");
        if job.host_bytes > 0 && self.random.one_in(3) {
            let bytes = 1 + self.random.below(job.host_bytes);
            job.host_bytes -= bytes;
            self.tell(|simulation| simulation.release_host(id, bytes));
        }
    }

    pub(crate) fn ask(&mut self, id: u64) {
        self.asked += 1;
        let (number, since_ns) = (self.asked, self.now_ns());
        let random = &mut self.random;
        let job = self.jobs.get_mut(&id).expect("it is open");
        let held: u64 = job.arrays.iter().map(|array| array.bytes).sum();
        let held = held + job.host_bytes;
        let left = self.share.saturating_sub(held);
        let limit = if self.fits { left } else { self.share };
        let grows = job.arrays.is_empty() || (job.grows && left > 0);
        let new_bytes = match (grows, random.below(4)) {
            (true, _) => random.below(limit / 2 + 1),
            (false, 0) => random.below((left / 8).min(64) + 1),
            _ => 0,
        };
        let mut arguments: Vec<usize> = (0..job.arrays.len())
            .filter(|_| !random.one_in(4))
            .collect();
        let uploads = job.arrays.is_empty() || random.one_in(6);
        let calls_back = job.calls != CallsBack::Never && random.one_in(2);
        // Something else runs once in a while: it validates, or saves.
        let program = match random.one_in(8) {
            true => Program(200 + id),
            false => job.program,
        };
        if uploads {
            arguments.clear();
        }
        let host_bytes = match self.separate && random.one_in(3) {
            true => random.below(left / 2 + 1),
            false => 0,
        };
        let needs = Needs {
            arguments: job.bytes_of(&arguments, false),
            paged: job.bytes_of(&arguments, true),
            new: new_bytes,
            host: host_bytes,
            scratch: 0,
        };
        let scratch = job.scratch_bytes;
        let (own_bytes, demand) = match (uploads, calls_back) {
            (true, _) if host_bytes > 0 => (0, upload_to_host(host_bytes)),
            (true, _) => (0, upload(new_bytes)),
            (false, true) => {
                let new = new_bytes + scratch;
                let needs = Needs { new, ..needs };
                (scratch, launch_with_callbacks(program, number, needs))
            }
            (false, false) => (0, launch(program, Needs { scratch, ..needs })),
        };
        job.asked = Some(Asked {
            arguments,
            demand,
            own_bytes,
            since_ns,
        });
        self.tell(|simulation| simulation.ready(id, demand));
    }
}
