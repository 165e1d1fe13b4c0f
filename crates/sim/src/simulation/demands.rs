//! What sessions ask for, in few words.

use salus_engine::{Calling, Demand, Kind, Program};

/// What a launch needs, in bytes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Needs {
    /// Arguments, wherever they are.
    pub arguments: u64,
    /// Those of them that are paged out.
    pub paged: u64,
    /// Outputs that take no argument's place.
    pub new: u64,
    /// The same in host memory.
    pub host: u64,
    pub scratch: u64,
}

/// A launch of `program`.
pub fn launch(program: Program, needs: Needs) -> Demand {
    demand(
        Kind::Launch {
            scratch_bytes: needs.scratch,
            program,
        },
        needs,
    )
}

/// A launch that calls back. Its scratch is its own, and among `needs.new`.
pub fn launch_with_callbacks(program: Program, calling: u64, needs: Needs) -> Demand {
    assert_eq!(needs.scratch, 0, "the lane has none for it");
    let calling = Calling(calling);
    demand(Kind::CallsBack { program, calling }, needs)
}

/// Room for an array.
pub fn upload(bytes: u64) -> Demand {
    demand(
        Kind::Array,
        Needs {
            new: bytes,
            ..Needs::default()
        },
    )
}

fn demand(kind: Kind, needs: Needs) -> Demand {
    Demand {
        kind,
        new_bytes: needs.new,
        new_host_bytes: needs.host,
        argument_bytes: needs.arguments,
        paged_bytes: needs.paged,
    }
}

/// Room for an array in host memory.
pub fn upload_to_host(bytes: u64) -> Demand {
    demand(
        Kind::Array,
        Needs {
            host: bytes,
            ..Needs::default()
        },
    )
}

/// What must be free for it.
pub fn lacks(demand: &Demand) -> u64 {
    demand.new_bytes + demand.paged_bytes + demand.scratch_bytes()
}
