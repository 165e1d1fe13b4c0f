//! A job played by hand.

use super::*;

pub(super) struct Job {
    pub(super) socket: UnixStream,
    pub(super) inbox: Inbox,
    pub(super) outbox: Outbox,
    pub(super) segment: Segment,
    pub(super) seen: Vec<FromService>,
    /// Of callbacks, in the order in which the service opened them.
    pub(super) channels: VecDeque<UnixStream>,
}

impl Job {
    pub(super) fn send(&mut self, message: impl Into<ToService>) {
        self.outbox.push(&message.into(), None);
        self.flush();
    }

    pub(super) fn flush(&mut self) {
        self.outbox
            .flush(&self.socket, true)
            .expect("the service listens");
    }

    /// The first message, now or later, that is wanted; the others stay.
    pub(super) fn next(&mut self, wanted: impl Fn(&FromService) -> bool) -> FromService {
        loop {
            if let Some(at) = self.seen.iter().position(&wanted) {
                return self.seen.remove(at);
            }
            match self.inbox.take::<FromService>().expect("well-formed") {
                Some(received) => {
                    if matches!(received.message, FromService::CallbackChannel(_)) {
                        let socket = received.descriptor.expect("a channel's socket");
                        self.channels.push_back(socket.into());
                    }
                    self.seen.push(received.message);
                }
                None => {
                    let n = self
                        .inbox
                        .fill(&self.socket, true)
                        .expect("an answer in time");
                    assert!(
                        n > 0,
                        "the service closed the session; seen: {:?}",
                        self.seen
                    );
                }
            }
        }
    }

    pub(super) fn compile(&mut self, program: u64, script: &str) -> Result<(), Error> {
        self.ask_for(program, script);
        self.until_compiled()
    }

    pub(super) fn ask_for(&mut self, program: u64, script: &str) {
        assert!(self.segment.copy_in(4096, script.as_bytes()));
        let code = Region {
            segment: SegmentId(0),
            offset: 4096,
            length: script.len() as u64,
        };
        self.send(Compile {
            program: ProgramId(program),
            format: "mlir".into(),
            code,
            options: Vec::new(),
        });
    }

    pub(super) fn until_compiled(&mut self) -> Result<(), Error> {
        let answer = self.next(|message| {
            matches!(
                message,
                FromService::Compiled(_) | FromService::CompileFailed(_)
            )
        });
        match answer {
            FromService::CompileFailed(failed) => Err(failed.error),
            _ => Ok(()),
        }
    }

    pub(super) fn upload(&mut self, array: u64, values: [f32; 4]) {
        self.upload_to(0, array, values);
    }

    pub(super) fn upload_to(&mut self, memory: u32, array: u64, values: [f32; 4]) {
        let bytes: Vec<u8> = values
            .iter()
            .flat_map(|value| value.to_ne_bytes())
            .collect();
        let offset = 64 * array;
        assert!(self.segment.copy_in(offset, &bytes));
        let data = Region {
            segment: SegmentId(0),
            offset,
            length: 16,
        };
        let shape = Shape {
            element_type: F32,
            dims: vec![4],
            minor_to_major: None,
        };
        self.send(Upload {
            array: ArrayId(array),
            shape,
            memory,
            data,
        });
    }

    pub(super) fn execute(
        &mut self,
        operation: u64,
        program: u64,
        arguments: &[u64],
        first_output: u64,
    ) {
        let arguments = arguments.iter().copied().map(ArrayId).collect();
        self.send(Launch {
            operation: OperationId(operation),
            program: ProgramId(program),
            first_output: ArrayId(first_output),
            arguments,
            keep: Vec::new(),
        });
    }

    /// How the operation ended.
    pub(super) fn ended(&mut self, operation: u64) -> Result<(), Error> {
        let operation = OperationId(operation);
        self.send(Await { operation });
        let names = |completed: &Completed| {
            completed.done.contains(&operation)
                || completed
                    .failed
                    .iter()
                    .any(|(failed, _)| *failed == operation)
        };
        let message = self.next(
            |message| matches!(message, FromService::Completed(completed) if names(completed)),
        );
        let FromService::Completed(completed) = message else {
            panic!("not an end")
        };
        let error = completed
            .failed
            .iter()
            .find(|(failed, _)| *failed == operation)
            .map(|(_, e)| e.clone());
        // Others that were told in the same breath stay to be asked for.
        self.seen.push(FromService::Completed(completed));
        error.map_or(Ok(()), Err)
    }

    pub(super) fn fetch(&mut self, request: u64, array: u64) -> Result<Vec<u8>, Error> {
        self.read(request, array);
        self.until_read(request)
    }

    pub(super) fn read(&mut self, request: u64, array: u64) {
        let target = Region {
            segment: SegmentId(0),
            offset: 8192 + 64 * request,
            length: 16,
        };
        self.send(ReadArray {
            request: RequestId(request),
            array: ArrayId(array),
            target,
            form: Form::Raw,
        });
    }

    pub(super) fn until_read(&mut self, request: u64) -> Result<Vec<u8>, Error> {
        let offset = 8192 + 64 * request;
        let request = RequestId(request);
        let message = self.next(
            |message| matches!(message, FromService::ReadDone(fetched) if fetched.request == request),
        );
        let FromService::ReadDone(fetched) = message else {
            panic!("not a read")
        };
        match fetched.error {
            Some(error) => Err(error),
            None => Ok(self.segment.copy_out(offset, 16).expect("inside")),
        }
    }

    /// Asks what the session holds, which is answered as soon as the question was read.
    pub(super) fn usage(&mut self, request: u64) {
        let request = RequestId(request);
        self.send(salus_wire::AskUsage { request });
        self.next(
            |message| matches!(message, FromService::Usage(usage) if usage.request == request),
        );
    }

    pub(super) fn is_closed(&mut self) -> bool {
        loop {
            match self.inbox.fill(&self.socket, true) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }
}
