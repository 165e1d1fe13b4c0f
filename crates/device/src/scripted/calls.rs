//! Callbacks of the scripted device: a program calls its job before it runs.

use salus_channel::lock;

use super::script::Script;
use super::{ScriptedArray, ScriptedDevice};
use crate::failure::{INTERNAL, error};
use crate::{CallArray, Callbacks, Error, HostBytes, Lent, Shape, Style};

impl ScriptedDevice {
    /// Makes all calls of a program, each with the program's arguments as operands.
    pub(super) fn call_back(
        &self,
        script: &Script,
        arguments: &[Lent<'_, ScriptedArray>],
        callbacks: &dyn Callbacks,
    ) -> Result<(), Error> {
        let (calls, together) = (script.callbacks, script.together);
        let operands = arguments.iter().map(|lent| bytes_of(lent.array));
        let operands = operands.collect::<Result<Vec<_>, _>>()?;
        let call = |callback| self.call(callbacks, callback, script, &operands);
        if together {
            std::thread::scope(|scope| {
                let call = &call;
                let calls: Vec<_> = (0..calls).map(|n| scope.spawn(move || call(n))).collect();
                let mut outcomes = calls.into_iter().map(std::thread::ScopedJoinHandle::join);
                let failed = || Err(error(INTERNAL, "a callback panicked"));
                outcomes.try_for_each(|outcome| outcome.unwrap_or_else(|_| failed()))
            })?;
        } else {
            (0..calls).try_for_each(call)?;
        }
        Ok(())
    }

    /// One call, with operands of the program's parameters and as many results.
    fn call(
        &self,
        callbacks: &dyn Callbacks,
        callback: u64,
        script: &Script,
        operands: &[Vec<u8>],
    ) -> Result<(), Error> {
        let mut operands = operands.to_vec();
        let empty = operands.iter().map(|operand| vec![0; operand.len()]);
        let mut results: Vec<Vec<u8>> = empty.collect();
        let outcome = callbacks.call(
            callback,
            Style::Values,
            &call_arrays(script, &mut operands),
            &call_arrays(script, &mut results),
        );
        *lock(&self.returned) = results;
        outcome
    }
}

fn call_arrays<'a>(script: &'a Script, arrays: &'a mut [Vec<u8>]) -> Vec<CallArray<'a>> {
    let arrays = script.parameters.iter().zip(arrays);
    let array = |(shape, bytes): (&'a Shape, &'a mut Vec<u8>)| CallArray {
        element_type: shape.element_type,
        dims: &shape.dims,
        bytes: HostBytes::of_slice(bytes),
    };
    arrays.map(array).collect()
}

/// Once the array is there.
fn bytes_of(array: &ScriptedArray) -> Result<Vec<u8>, Error> {
    let (sender, ready) = std::sync::mpsc::channel();
    let done = Box::new(move |result| drop(sender.send(result)));
    array.cell.on_ready(done);
    let ready = ready.recv();
    ready.unwrap_or_else(|_| Err(error(INTERNAL, "an array was forgotten")))?;
    array.cell.with_bytes(<[u8]>::to_vec)
}
