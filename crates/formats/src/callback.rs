//! The custom calls by which a program calls functions of its job while it runs.

/// What the job's function is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// The operands; it returns the results.
    Values,
    /// The operands and the memory of the results, which it fills (`jax.experimental.buffer_callback`).
    Buffers,
}

/// The names to which JAX lowers its callbacks on platform `cpu`.
pub const TARGETS: &[(&str, Style)] = &[
    ("xla_ffi_python_cpu_callback", Style::Values),
    ("xla_ffi_partitioned_python_cpu_callback", Style::Values),
    ("xla_buffer_python_cpu_callback", Style::Buffers),
];
