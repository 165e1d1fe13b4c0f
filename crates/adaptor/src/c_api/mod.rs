//! The C side: the table of functions, how their arguments are read, what is handed back to C.

pub(crate) mod api_table;
pub(crate) mod c_args;
pub(crate) mod error;
pub(crate) mod named_values;
pub(crate) mod owned_bytes;
