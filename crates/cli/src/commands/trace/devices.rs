//! The timelines of all devices of a service on one axis.
//!
//! Each device host counts from its own beginning; what they have in common is the time since 1970.

use std::time::Duration;

use salus_daemon::log::tame;
use salus_wire::Recording;

use super::timeline::Timeline;

pub(super) struct Devices {
    pub(super) all: Vec<OneDevice>,
    /// From the first thing that is shown of any to the last.
    pub(super) length_ns: u64,
}

pub(super) struct OneDevice {
    /// Where there are several.
    pub(super) name: Option<String>,
    pub(super) timeline: Timeline,
    /// Where the axis begins, by this device's own clock.
    pub(super) origin: i128,
}

impl OneDevice {
    /// How long after the beginning of the axis it is.
    pub(super) fn since(&self, at: u64) -> u64 {
        u64::try_from(i128::from(at) - self.origin).unwrap_or(0)
    }

    /// ` on cuda:1` where there are several.
    pub(super) fn on(&self) -> String {
        let name = self.name.as_ref();
        name.map_or_else(String::new, |name| format!(" on {name}"))
    }
}

impl Devices {
    /// By their names. `last`: no more than that of each.
    pub(super) fn of(recordings: Vec<(String, Recording)>, last: Option<Duration>) -> Self {
        let several = recordings.len() > 1;
        let mut all = Vec::new();
        let (mut from, mut until) = (i128::MAX, i128::MIN);
        for (name, recording) in recordings {
            let began = i128::from(recording.began_unix_ns);
            let kind = tame(&recording.kind);
            let mut timeline = Timeline::of(recording, last);
            let name = several.then(|| tame(&name));
            if let Some(name) = &name {
                timeline.device = format!("{name} ({kind})");
            }
            from = from.min(began + i128::from(timeline.from));
            until = until.max(began + i128::from(timeline.until));
            all.push((began, name, timeline));
        }
        let one = |(began, name, timeline)| OneDevice {
            name,
            timeline,
            origin: from - began,
        };
        Self {
            all: all.into_iter().map(one).collect(),
            length_ns: u64::try_from(until.saturating_sub(from)).unwrap_or(0),
        }
    }

    pub(super) fn iterations(&self) -> usize {
        self.all.iter().map(|one| one.timeline.iterations()).sum()
    }

    pub(super) fn jobs(&self) -> usize {
        self.all.iter().map(|one| one.timeline.jobs.len()).sum()
    }

    /// `cuda:0 (A100), cuda:1 (A100)`.
    pub(super) fn names(&self) -> String {
        let names = self.all.iter().map(|one| one.timeline.device.as_str());
        names.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::timeline::tests::recording;
    use super::*;

    /// The same jobs on one device, and on two of which the second began 5 ms later.
    pub(crate) fn one() -> Devices {
        Devices::of(vec![("cpu".into(), recording())], None)
    }

    pub(crate) fn two() -> Devices {
        let mut second = recording();
        second.began_unix_ns += 5_000_000;
        let both = [("cuda:0", recording()), ("cuda:1", second)];
        let both = both.map(|(name, recording)| (name.to_owned(), recording));
        Devices::of(both.to_vec(), None)
    }

    #[test]
    fn devices_whose_hosts_began_at_different_times_are_on_one_axis() {
        let devices = two();
        let [first, second] = devices.all.as_slice() else {
            panic!("there are two");
        };
        let began = first.timeline.from;
        assert_eq!((first.since(began), second.since(began)), (0, 5_000_000));
        assert_eq!(devices.length_ns, one().length_ns + 5_000_000);
        assert_eq!(devices.names(), "cuda:0 (Host CPU), cuda:1 (Host CPU)");
        assert_eq!(one().names(), "cpu (Host CPU)");
    }
}
