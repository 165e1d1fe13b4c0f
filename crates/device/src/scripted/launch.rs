//! A launch on the scripted device: checked, charged, and put into its lane's queue.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use salus_channel::lock;

use super::cell::{Cell, Charge, deleted};
use super::lane::{Ended, Run};
use super::script::{Fail, Script};
use super::{ScriptedArray, ScriptedDevice, ScriptedProgram};
use crate::element::host_bytes;
use crate::failure::{INTERNAL, INVALID_ARGUMENT, UNIMPLEMENTED, error};
use crate::{Done, Error, Placement};

type Allocated = (Charge, Vec<Option<Charge>>);

impl ScriptedDevice {
    pub(super) fn start(
        &self,
        program: &ScriptedProgram,
        lane: u32,
        arguments: &[&ScriptedArray],
        keep: &[u32],
        done: Done,
    ) -> Result<Vec<ScriptedArray>, Error> {
        let script = &program.script;
        let queue = self
            .lanes
            .get(lane as usize)
            .ok_or_else(|| error(INVALID_ARGUMENT, format!("there is no lane {lane}")))?;
        let donated = self.check_launch(script, lane, arguments, keep)?;
        let enqueues = !self.description.on_host;
        let mut fails = None;
        let allocated = match self.allocate(script, &donated) {
            // It is enqueued all the same, and says so when it ends.
            Err(failure) if enqueues => {
                fails = Some(failure);
                None
            }
            allocated => Some(allocated?),
        };
        let (mut scratch, charges) = allocated.unzip();
        if enqueues {
            self.accelerator.in_call();
            scratch = None;
        }
        let charges = charges.unwrap_or_else(|| script.outputs.iter().map(|_| None).collect());
        // Nothing fails from here on, so nothing that was donated has to be given back.
        let ended = Arc::<Ended>::default();
        for (argument, _) in arguments
            .iter()
            .zip(&donated)
            .filter(|(_, donated)| **donated)
        {
            argument.given.store(true, Ordering::SeqCst);
            *lock(&argument.donated_to) = Some(ended.clone());
        }
        let mut outputs = Vec::new();
        let charges = charges.into_iter().zip(script.output_memories());
        for ((shape, alias), (charge, memory)) in script.outputs.iter().zip(charges) {
            let in_place = alias.filter(|&alias| donated[alias as usize]);
            let inherited = || arguments[in_place? as usize].take_charge();
            outputs.push(ScriptedArray::new(
                Cell::pending(),
                shape.clone(),
                Placement { lane, memory },
                host_bytes(shape)? as u64,
                charge.or_else(inherited),
            ));
        }
        queue.push(Run {
            script: script.clone(),
            arguments: arguments.iter().map(|array| array.cell.clone()).collect(),
            donated,
            outputs: outputs.iter().map(|array| array.cell.clone()).collect(),
            done,
            ended,
            scratch,
            fails,
            accelerator: Arc::clone(&self.accelerator),
            enqueued: queue.now(),
        });
        Ok(outputs)
    }

    /// Memory for scratch, and for the outputs that take no argument's place.
    fn allocate(&self, script: &Script, donated: &[bool]) -> Result<Allocated, Error> {
        let scratch = self.charge(script.scratch_bytes + script.hidden_bytes)?;
        let outputs = script.outputs.iter().zip(script.output_memories());
        let outputs = outputs.map(|((shape, alias), memory)| {
            let in_place = alias.is_some_and(|alias| donated[alias as usize]);
            let bytes = host_bytes(shape)? as u64;
            let charge = || self.charge_in(memory, bytes);
            (!in_place).then(charge).transpose()
        });
        Ok((scratch, outputs.collect::<Result<_, _>>()?))
    }

    /// Which arguments are donated, if the launch is well formed and not scripted to fail.
    fn check_launch(
        &self,
        script: &Script,
        lane: u32,
        arguments: &[&ScriptedArray],
        keep: &[u32],
    ) -> Result<Vec<bool>, Error> {
        if script.fail == Fail::Launch {
            let name = &script.name;
            return Err(error(
                INTERNAL,
                format!("`{name}` does not launch, as scripted"),
            ));
        }
        if arguments.len() != script.parameters.len() {
            let (have, wanted) = (arguments.len(), script.parameters.len());
            return Err(error(
                INVALID_ARGUMENT,
                format!("{have} arguments for a program with {wanted} parameters"),
            ));
        }
        let mut donated = vec![false; arguments.len()];
        for alias in script.outputs.iter().filter_map(|output| output.1) {
            donated[alias as usize] = !keep.contains(&alias);
        }
        for (index, (argument, shape)) in arguments.iter().zip(&script.parameters).enumerate() {
            if argument.given.load(Ordering::SeqCst) {
                return Err(deleted());
            }
            let kept = keep.contains(&(index as u32)) && script.is_aliased(index as u32);
            if kept && argument.placement.is_host(&self.description) {
                return Err(error(
                    UNIMPLEMENTED,
                    format!("argument {index} is in host memory, and such a one cannot be kept"),
                ));
            }
            if argument.placement.lane != lane {
                let other = argument.placement.lane;
                return Err(error(
                    INVALID_ARGUMENT,
                    format!("argument {index} is in lane {other}, the launch in lane {lane}"),
                ));
            }
            if argument.bytes != host_bytes(shape)? as u64 {
                let bytes = argument.bytes;
                return Err(error(
                    INVALID_ARGUMENT,
                    format!("argument {index} has {bytes} bytes, the parameter is {shape:?}"),
                ));
            }
            let same = |other: &&&ScriptedArray| Arc::ptr_eq(&other.cell, &argument.cell);
            if donated[index] && arguments.iter().filter(same).count() > 1 {
                return Err(error(
                    INVALID_ARGUMENT,
                    format!("argument {index} is donated and used twice"),
                ));
            }
        }
        Ok(donated)
    }
}
