//! Devices, programs and arrays as both ends of a session know them.

use crate::codec::{wire_choice, wire_struct};
use crate::ids::SegmentId;
use crate::limits;

wire_struct! {
    /// What one session needs to know of a device, whatever the plugin's version.
    Description {
        /// The vendor's platform name, verbatim: JAX chooses lowering rules by it.
        platform_name: String = limits::NAME_BYTES,
        platform_version: String = limits::ERROR_BYTES,
        kind: String = limits::NAME_BYTES,
        debug_string: String = limits::NAME_BYTES,
        display_string: String = limits::NAME_BYTES,
        local_hardware_id: i32,
        /// Attributes of the plugin (`xla_version`, `stablehlo_current_version`, …).
        plugin_attributes: Vec<(String, Value)> = limits::ATTRIBUTES,
        /// Attributes of the device's description.
        device_attributes: Vec<(String, Value)> = limits::ATTRIBUTES,
        memories: Vec<Memory> = limits::MEMORIES,
        /// Index into `memories`.
        default_memory: u32,
        /// Independent in-order queues that may run side by side.
        lanes: u32,
        /// Device memory in bytes: the plugin's limit, or the machine's memory for a CPU device.
        capacity_bytes: u64,
        /// Whether host pointers to arrays are meaningful to a job (platform `cpu`).
        on_host: bool,
        /// Path of the plugin and its PJRT API version, for `doctor` and the cache key.
        plugin_path: String = limits::ERROR_BYTES,
        api_version: (i32, i32),
        /// The topology as the vendor serializes it, if it can: JAX hashes it into cache keys.
        serialized_topology: Option<Vec<u8>> = limits::FRAME_BYTES,
        /// Attributes of the topology. On GPUs `target_config` is among them: all that a compiler
        /// must know of the device, its driver and its libraries.
        topology_attributes: Vec<(String, Value)> = limits::ATTRIBUTES,
    }

    Memory {
        id: i32,
        kind: String = limits::NAME_BYTES,
        kind_id: i32,
        debug_string: String = limits::NAME_BYTES,
        display_string: String = limits::NAME_BYTES,
    }

    /// All that a job may ask about a program without asking the device.
    #[derive(Default)]
    Signature {
        name: String = limits::ERROR_BYTES,
        fingerprint: Option<Vec<u8>> = limits::ERROR_BYTES,
        parameters: Vec<Shape> = limits::ARGUMENTS,
        outputs: Vec<Output> = limits::ARGUMENTS,
        /// Parameters that a launch donates unless told to keep them, ascending.
        donated: Vec<u32> = limits::ARGUMENTS,
        code_bytes: i64,
        memory: Option<MemoryStats>,
        cost: Vec<(String, Value)> = limits::ATTRIBUTES,
        /// `hlo_with_config` proto, or empty where the plugin has none.
        optimized_program: Vec<u8> = limits::BLOB_BYTES,
        /// As the vendor answers for output memory kinds; `None` where it does not.
        output_memory_kinds: Option<Vec<String>> = limits::ARGUMENTS,
        /// Whether it calls functions of the job while it runs.
        calls_back: bool,
    }

    Output {
        shape: Shape,
        /// The layout as the Layouts extension serializes it, `{1,0}`.
        layout_text: String = limits::ERROR_BYTES,
        /// Index into [`Description::memories`].
        memory: u32,
        /// The parameter whose memory it takes over, if that is donated.
        aliases: Option<u32>,
    }

    /// `PJRT_Executable_GetCompiledMemoryStats`, host fields included.
    #[derive(Copy, Default, Eq)]
    MemoryStats {
        generated_code_bytes: i64,
        argument_bytes: i64,
        output_bytes: i64,
        alias_bytes: i64,
        temp_bytes: i64,
        host_generated_code_bytes: i64,
        host_argument_bytes: i64,
        host_output_bytes: i64,
        host_alias_bytes: i64,
        host_temp_bytes: i64,
    }

    /// An array's type as PJRT numbers it (`PJRT_Buffer_Type`), its dimensions and its layout.
    #[derive(Eq, Hash)]
    Shape {
        element_type: u32,
        dims: Vec<i64> = limits::DIMS,
        /// Minor to major; `None` is the default (descending) layout.
        minor_to_major: Option<Vec<i64>> = limits::DIMS,
    }

    /// A range of a shared segment.
    #[derive(Copy, Eq, Hash)]
    Region {
        segment: SegmentId,
        offset: u64,
        length: u64,
    }
}

wire_choice! {
    /// An attribute's or option's value (`PJRT_NamedValue`).
    Value, "kind of value" {
        0 = Text(text: String = limits::ERROR_BYTES),
        1 = Int(number: i64),
        2 = Ints(numbers: Vec<i64> = limits::ATTRIBUTES),
        3 = Float(number: f32),
        4 = Bool(flag: bool),
    }
}
