//! A trace as it is sent: records copied in small parts, sorted by kind, cut to the time asked for.

use std::collections::BTreeSet;

use salus_engine::{Duration, Engine, Policy, Refusal, SessionId, Time};
use salus_units::Bytes;
use salus_wire::{
    Description, RecordedIteration, RecordedMemory, RecordedMove, RecordedRefusal, RecordedSession,
    RecordedSpan, RecordedWait, Recording,
};

use super::lanes::Ongoing;
use super::ring::{Iteration, Memory, RECORDS, Record};
use super::{Card, Open, Recorder};

/// Records that are read or copied at once, under the lock that every iteration needs: in about ten
/// microseconds.
pub(crate) const PART_RECORDS: usize = 1024;

/// What the recorder knew at one moment.
#[derive(Default)]
pub(crate) struct Copied {
    /// The number of the record that is copied next.
    next: u64,
    records: Vec<Record>,
    memory_before: Memory,
    /// No record was overwritten: all that ever happened is there.
    is_whole: bool,
    cards: Vec<Card>,
    programs: Vec<(u64, String)>,
    policy: Option<Policy>,
    room_bytes: u64,
    host_room_bytes: u64,
    /// All of them, and those that are open unless the policy opens all.
    lanes: (u32, u32),
    made: u64,
    forgotten: u64,
    now: Time,
}

impl Recorder {
    /// Copies the next part of the records; false if there is none.
    pub(crate) fn copy_part(&self, copied: &mut Copied) -> bool {
        if copied.records.is_empty() {
            copied.is_whole = self.ring.oldest() == 0;
            copied.memory_before = self.ring.memory_before();
            copied.forgotten = self.ring.oldest();
        }
        copied.next = copied.next.max(self.ring.oldest());
        if copied.next == self.ring.written() {
            return false;
        }
        let part = self.ring.some(copied.next, PART_RECORDS);
        copied.records.extend_from_slice(part);
        copied.next += part.len() as u64;
        true
    }

    /// Copies the rest, and ends what goes on with the present.
    pub(crate) fn copy_rest(&self, now: Time, engine: &Engine, copied: &mut Copied) {
        for ongoing in self.lanes.ongoing(now) {
            match ongoing {
                Ongoing::Runs(iteration) => copied.records.push(Record::Iteration(iteration)),
                Ongoing::Waits(iteration) => copied.records.extend(iteration.waits(now)),
            }
        }
        for open in self.open.values() {
            copied.records.extend(open.ongoing(now, engine));
        }
        let held = self.memory.held();
        copied.records.extend(held.map(Record::Memory));
        copied.cards = self.ended.iter().cloned().collect();
        let open = self.open.values().map(|open| {
            let mut card = open.card.clone();
            card.note_peak(engine);
            card
        });
        copied.cards.extend(open);
        let programs = self.programs.iter();
        copied.programs = programs.map(|(p, name)| (p.0, name.clone())).collect();
        copied.policy = Some(engine.policy());
        let room = engine.ledger().room();
        (copied.room_bytes, copied.host_room_bytes) = (room.device_bytes, room.host_bytes);
        copied.lanes = engine.lane_counts();
        copied.made = self.ring.written();
        copied.now = now;
    }
}

impl Open {
    /// What it is in the middle of, as if it ended now.
    fn ongoing(&self, now: Time, engine: &Engine) -> impl Iterator<Item = Record> {
        let (session, ended) = (self.card.session, now);
        let waits = self.request.as_ref().map(|request| Record::Waited {
            session,
            ready: request.at,
            until: now,
            memory: request.waited_for_memory(now, session, engine),
        });
        let moves = self.paging_out.map(|(asked_bytes, began)| Record::Moved {
            session,
            out: true,
            asked_bytes,
            bytes: 0,
            began,
            ended,
        });
        let paused = self.paused.map(|began| Record::Paused {
            session,
            began,
            ended,
        });
        let (compiling, began) = self.compiling;
        let compiles = (compiling > 0).then_some(Record::Compiled {
            session,
            began,
            ended,
        });
        [waits, moves, paused, compiles].into_iter().flatten()
    }
}

impl Iteration {
    /// An iteration that its lane has not begun: it waited to be handed over, and waits for the lane.
    fn waits(&self, now: Time) -> [Record; 2] {
        let waited = |ready, until, memory| Record::Waited {
            session: self.session,
            ready,
            until,
            memory,
        };
        [
            waited(self.ready, self.started, self.memory),
            waited(self.started, now, Duration(0)),
        ]
    }
}

impl Record {
    /// When what it records ended.
    pub(crate) fn ended(&self) -> Time {
        match *self {
            Self::Iteration(Iteration { ended, .. })
            | Self::Waited { until: ended, .. }
            | Self::Moved { ended, .. }
            | Self::Paused { ended, .. }
            | Self::Compiled { ended, .. }
            | Self::Refused { at: ended, .. }
            | Self::PolicyChanged { at: ended, .. }
            | Self::Memory(Memory { at: ended, .. }) => ended,
        }
    }
}

impl Copied {
    /// Memory for all records, touched once, so that nothing but copying is done under the lock.
    pub(crate) fn with_room() -> Self {
        let mut records = vec![Record::Memory(Memory::default()); RECORDS + PART_RECORDS];
        records.clear();
        Self {
            records,
            ..Self::default()
        }
    }

    /// Leaves out the names of other users' jobs and programs. That they ran, and when, stays: it is why
    /// this user's jobs waited.
    pub(crate) fn hide_names_from(&mut self, uid: u32) {
        let own = self.cards.iter().filter(|card| card.uid == uid);
        let own: BTreeSet<SessionId> = own.map(|card| card.session).collect();
        for card in self.cards.iter_mut().filter(|card| card.uid != uid) {
            card.name = format!("a job of {}", card.user);
            card.pid = 0;
        }
        let ran = self.records.iter().filter_map(|record| match record {
            Record::Iteration(one) if own.contains(&one.session) => Some(one.program.0),
            _ => None,
        });
        let ran: BTreeSet<u64> = ran.collect();
        self.programs.retain(|(program, _)| ran.contains(program));
    }

    /// The trace as it is sent. `seconds` is how far back it goes; 0 is as far as is known.
    pub(crate) fn recording(mut self, device: &Description, seconds: u32) -> Recording {
        let from = self.from(seconds);
        self.cards
            .retain(|card| card.closed.is_none_or(|closed| closed >= from));
        let mut recording = Recording {
            began_unix_ns: 0,
            from_ns: from.0,
            until_ns: self.now.0,
            platform: device.platform_name.clone(),
            kind: device.kind.clone(),
            policy: self.policy.map_or("", Policy::name).into(),
            room_bytes: self.room_bytes,
            host_room_bytes: self.host_room_bytes,
            lanes: self.lanes.0,
            width: self.lanes.1,
            records_made: self.made,
            records_forgotten: self.forgotten,
            sessions: self.cards.into_iter().map(session).collect(),
            programs: self.programs,
            iterations: Vec::new(),
            waits: Vec::new(),
            moves: Vec::new(),
            pauses: Vec::new(),
            compilations: Vec::new(),
            refusals: Vec::new(),
            policies: Vec::new(),
            memory: Vec::new(),
        };
        let mut before = self.memory_before;
        for record in self.records {
            match record {
                // The last one before the beginning says what holds there.
                Record::Memory(memory) if memory.at <= from => before = memory,
                record if record.ended() >= from => add(&mut recording, record),
                _ => {}
            }
        }
        before.at = from;
        recording.memory.insert(0, self::memory(before));
        recording
    }

    /// From when on everything that is asked for is known.
    fn from(&self, seconds: u32) -> Time {
        // Memory may be noted late.
        let mut timely = self.records.iter();
        let oldest = timely.find(|record| !matches!(record, Record::Memory(_)));
        let known = match self.is_whole {
            true => self.cards.iter().map(|card| card.opened).min(),
            false => oldest.map(Record::ended),
        };
        let known = known.unwrap_or(self.now);
        let back = u64::from(seconds) * 1_000_000_000;
        match seconds {
            0 => known,
            _ => known.max(Time(self.now.0.saturating_sub(back))),
        }
    }
}

fn session(card: Card) -> RecordedSession {
    RecordedSession {
        session: card.session.0,
        name: card.name,
        pid: card.pid,
        opened_ns: card.opened.0,
        closed_ns: card.closed.map(|closed| closed.0),
        settings: card.settings,
        recalled_ns: card.recalled.map(|total| total.0),
        peak_bytes: card.peak_bytes,
        scratch_bytes: card.scratch_bytes,
    }
}

fn memory(memory: Memory) -> RecordedMemory {
    RecordedMemory {
        at_ns: memory.at.0,
        resident_bytes: memory.resident_bytes,
        paged_bytes: memory.paged_bytes,
        scratch_bytes: memory.scratch_bytes,
    }
}

fn span(session: SessionId, began: Time, ended: Time) -> RecordedSpan {
    RecordedSpan {
        session: session.0,
        began_ns: began.0,
        ended_ns: ended.0,
    }
}

fn add(to: &mut Recording, record: Record) {
    match record {
        Record::Iteration(i) => to.iterations.push(RecordedIteration {
            session: i.session.0,
            lane: i.lane.0,
            program: i.program.0,
            ready_ns: i.ready.0,
            started_ns: i.started.0,
            memory_ns: i.memory.0,
            began_ns: i.began.0,
            ended_ns: i.ended.0,
            runs: i.runs,
            reads: i.reads,
        }),
        Record::Waited {
            session,
            ready,
            until,
            memory,
        } => to.waits.push(RecordedWait {
            session: session.0,
            ready_ns: ready.0,
            until_ns: until.0,
            memory_ns: memory.0,
        }),
        Record::Moved {
            session,
            out,
            asked_bytes,
            bytes,
            began,
            ended,
        } => to.moves.push(RecordedMove {
            session: session.0,
            out,
            asked_bytes,
            bytes,
            began_ns: began.0,
            ended_ns: ended.0,
        }),
        Record::Paused {
            session,
            began,
            ended,
        } => to.pauses.push(span(session, began, ended)),
        Record::Compiled {
            session,
            began,
            ended,
        } => to.compilations.push(span(session, began, ended)),
        Record::Refused { session, at, why } => to.refusals.push(RecordedRefusal {
            session: session.0,
            at_ns: at.0,
            why: reason(why),
        }),
        Record::PolicyChanged { at, policy } => to.policies.push((at.0, policy.name().into())),
        Record::Memory(noted) => to.memory.push(memory(noted)),
    }
}

fn reason(why: Refusal) -> String {
    let (needs, has, what) = why.numbers();
    format!("it needs {:.2}, and {what} {:.2}", Bytes(needs), Bytes(has))
}
