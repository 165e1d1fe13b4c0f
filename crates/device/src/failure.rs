//! Errors of this crate, and the vendor's errors as ours.

use crate::plugin::targets::explained;
use crate::{Error, Value};
use salus_wire::ErrorCode;

pub(crate) use salus_wire::ErrorCode::{
    Internal as INTERNAL, InvalidArgument as INVALID_ARGUMENT, NotFound as NOT_FOUND,
    ResourceExhausted as RESOURCE_EXHAUSTED, Unimplemented as UNIMPLEMENTED,
};

pub(crate) fn error(code: ErrorCode, message: impl Into<String>) -> Error {
    Error::new(code, message)
}

/// The vendor's error as it is, or in words that help where we have some.
pub(crate) fn vendor(error: salus_pjrt::Error) -> Error {
    explained(Error::new(
        ErrorCode::from_number(error.code),
        error.message,
    ))
}

/// `None` where the vendor says that it lacks a function.
pub(crate) fn optional<T>(result: Result<T, salus_pjrt::Error>) -> Result<Option<T>, Error> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.is_unimplemented() => Ok(None),
        Err(error) => Err(vendor(error)),
    }
}

/// Named values in this crate's vocabulary.
pub(crate) fn values(named: Vec<(String, salus_pjrt::Value)>) -> Vec<(String, Value)> {
    let ours = |value| match value {
        salus_pjrt::Value::Text(text) => Value::Text(text),
        salus_pjrt::Value::Int(int) => Value::Int(int),
        salus_pjrt::Value::Ints(ints) => Value::Ints(ints),
        salus_pjrt::Value::Float(float) => Value::Float(float),
        salus_pjrt::Value::Bool(bool) => Value::Bool(bool),
    };
    named
        .into_iter()
        .map(|(name, value)| (name, ours(value)))
        .collect()
}

/// Named values in the vendor's vocabulary.
pub(crate) fn vendor_values(named: &[(String, Value)]) -> Vec<(String, salus_pjrt::Value)> {
    let theirs = |value: &Value| match value {
        Value::Text(text) => salus_pjrt::Value::Text(text.clone()),
        Value::Int(int) => salus_pjrt::Value::Int(*int),
        Value::Ints(ints) => salus_pjrt::Value::Ints(ints.clone()),
        Value::Float(float) => salus_pjrt::Value::Float(*float),
        Value::Bool(bool) => salus_pjrt::Value::Bool(*bool),
    };
    named
        .iter()
        .map(|(name, value)| (name.clone(), theirs(value)))
        .collect()
}
