//! Launches as an `XSpace`, the format in which XLA's profilers collect what they saw.
//!
//! Written on the level of protobuf's wire format; field numbers are XLA's (`xplane.proto`).
//! Not here: where the launches come from ([`crate::calls::profiler`]).

use salus_wire::Profile;

/// Tools show planes with this prefix as devices.
const PLANE: &str = "/device:CUSTOM:salus";
/// How long a launch waited between being asked for and beginning, as tools show it.
const WAITED: &str = "waited_us";
const WAITED_ID: u64 = 1;

/// A protobuf message that is being written.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number > 0x7f {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn number(&mut self, field: u64, number: u64) -> &mut Self {
        self.varint(field << 3);
        self.varint(number);
        self
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) -> &mut Self {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
        self
    }

    fn text(&mut self, field: u64, text: &str) -> &mut Self {
        self.bytes(field, text.as_bytes())
    }

    fn message(&mut self, field: u64, message: &Message) -> &mut Self {
        self.bytes(field, &message.0)
    }
}

/// One session's device, for the time since the profile began.
pub(crate) struct Plane<'a> {
    pub(crate) number: usize,
    /// `cpu`, `cuda`, ….
    pub(crate) platform: &'a str,
    pub(crate) since_ns: u64,
    pub(crate) profile: &'a Profile,
}

/// An `XSpace` of planes; empty if there are none.
pub(crate) fn space(planes: &[Plane<'_>]) -> Vec<u8> {
    let mut space = Message::default();
    for plane in planes {
        space.message(1, &plane.message());
    }
    space.0
}

impl Plane<'_> {
    fn message(&self) -> Message {
        let mut plane = Message::default();
        let name = format!("{PLANE}:{} ({})", self.number, self.platform);
        plane.number(1, self.number as u64).text(2, &name);
        let launches = &self.profile.launches;
        let mut lanes: Vec<u32> = launches.iter().map(|launch| launch.lane).collect();
        lanes.sort_unstable();
        lanes.dedup();
        for &lane in &lanes {
            plane.message(3, &self.line(lane));
        }
        let unknown = self.unknown();
        if let Some(line) = &unknown {
            plane.message(3, line);
        }
        for (index, name) in self.profile.programs.iter().enumerate() {
            plane.message(4, &named(index as u64 + 1, name));
        }
        if unknown.is_some() {
            let forgotten = "the service no longer knows what ran here";
            plane.message(4, &named(self.unknown_id(), forgotten));
        }
        plane.message(5, &named(WAITED_ID, WAITED));
        plane
    }

    /// A timeline: what ran in one lane.
    fn line(&self, lane: u32) -> Message {
        let mut line = self.empty_line(u64::from(lane) + 1, &format!("lane {lane}"));
        for launch in &self.profile.launches {
            if launch.lane != lane {
                continue;
            }
            // What ran when the profile began is shown from there on.
            let began = launch.began_ns.max(self.since_ns);
            let waited_us = launch.began_ns.saturating_sub(launch.ready_ns) / 1000;
            let mut waited = Message::default();
            waited.number(1, WAITED_ID).number(4, waited_us);
            let mut event = event(
                u64::from(launch.program) + 1,
                began - self.since_ns,
                launch.ended_ns.saturating_sub(began),
            );
            event.message(4, &waited);
            line.message(4, &event);
        }
        line
    }

    /// The time of which the service has forgotten what ran, if any.
    fn unknown(&self) -> Option<Message> {
        let unknown_ns = self.profile.from_ns.saturating_sub(self.since_ns);
        if unknown_ns == 0 {
            return None;
        }
        let mut line = self.empty_line(0, "not known");
        line.message(4, &event(self.unknown_id(), 0, unknown_ns));
        Some(line)
    }

    fn unknown_id(&self) -> u64 {
        self.profile.programs.len() as u64 + 1
    }

    fn empty_line(&self, id: u64, name: &str) -> Message {
        let mut line = Message::default();
        line.number(1, id).text(2, name).number(3, self.since_ns);
        line
    }
}

/// An entry of a map from ids to metadata of events or statistics.
fn named(id: u64, name: &str) -> Message {
    let mut metadata = Message::default();
    metadata.number(1, id).text(2, name);
    let mut entry = Message::default();
    entry.number(1, id).message(2, &metadata);
    entry
}

/// Picoseconds, because XLA counts them.
fn event(metadata: u64, offset_ns: u64, duration_ns: u64) -> Message {
    let picoseconds = |ns: u64| ns.saturating_mul(1000);
    let mut event = Message::default();
    event
        .number(1, metadata)
        .number(2, picoseconds(offset_ns))
        .number(3, picoseconds(duration_ns));
    event
}

#[cfg(test)]
mod tests {
    use salus_wire::ProfiledLaunch;

    use super::*;

    #[test]
    fn a_space_is_protobuf() {
        let launch = ProfiledLaunch {
            lane: 1,
            program: 0,
            ready_ns: 1_000,
            began_ns: 4_000,
            ended_ns: 4_002,
        };
        let profile = Profile {
            from_ns: 0,
            programs: vec!["f".into()],
            launches: vec![launch],
        };
        let plane = Plane {
            number: 0,
            platform: "cpu",
            since_ns: 3_999,
            profile: &profile,
        };
        let name = b"/device:CUSTOM:salus:0 (cpu)";
        let mut expected: Vec<u8> = vec![10, 0, 8, 0, 18, name.len() as u8];
        expected.extend_from_slice(name);
        // A line `lane 1` from 3999 ns on, whose only event lasts 2000 ps and waited 3 µs.
        expected.extend_from_slice(&[26, 29, 8, 2, 18, 6]);
        expected.extend_from_slice(b"lane 1");
        expected.extend_from_slice(&[24, 0x9f, 0x1f, 34, 14]);
        expected.extend_from_slice(&[8, 1, 16, 0xe8, 7, 24, 0xd0, 15, 34, 4, 8, 1, 32, 3]);
        expected.extend_from_slice(&[34, 9, 8, 1, 18, 5, 8, 1, 18, 1, b'f']);
        expected.extend_from_slice(&[42, 17, 8, 1, 18, 13, 8, 1, 18, 9]);
        expected.extend_from_slice(b"waited_us");
        expected[1] = (expected.len() - 2) as u8;
        assert_eq!(space(&[plane]), expected);
        assert!(space(&[]).is_empty());
    }

    #[test]
    fn what_is_not_known_is_said() {
        let profile = Profile {
            from_ns: 5_000,
            programs: Vec::new(),
            launches: Vec::new(),
        };
        let plane = Plane {
            number: 0,
            platform: "cpu",
            since_ns: 1_000,
            profile: &profile,
        };
        let space = space(&[plane]);
        let said = b"the service no longer knows what ran here";
        assert!(space.windows(said.len()).any(|part| part == said));
    }
}
