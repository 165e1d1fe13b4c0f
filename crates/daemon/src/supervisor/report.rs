//! The report for `salus ps`: the device host's, with what only the supervisor knows.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Instant;

use salus_channel::with_text;
use salus_engine::Policy;
use salus_wire::{Answer, Error, ErrorCode, limits};
use serde_json::{Map, Value, json};

/// What the supervisor remembers of a session: enough to name it.
#[derive(Debug, Clone)]
pub(super) struct Card {
    pub(super) name: String,
    pub(super) pid: i32,
    /// Whose it is.
    pub(super) uid: u32,
    /// What that user is called, which says nothing of who it is: names may be changed, shared, and
    /// look like others' numbers.
    pub(super) user: String,
    /// The place of its device among those of the service.
    pub(super) device: usize,
}

/// Of a job's name in a label.
const LABEL_CHARS: usize = 80;

impl Card {
    /// ``session 7 (`train.py`, pid 4121, anna)``.
    pub(super) fn label(&self, session: u64) -> String {
        let name: String = self.name.chars().take(LABEL_CHARS).collect();
        format!(
            "session {session} (`{name}`, pid {}, {})",
            self.pid, self.user
        )
    }

    /// `session 7 of anna`: what others may know.
    pub(super) fn whose(&self, session: u64) -> String {
        format!("session {session} of {}", self.user)
    }
}

/// Open sessions by id; ids grow and are never reused.
pub(super) type Sessions = BTreeMap<u64, Card>;

/// The supervisor's own part of a report.
#[derive(Debug)]
pub(super) struct ServicePart<'a> {
    pub(super) socket: &'a Path,
    pub(super) started: Instant,
    /// Programs that ended a device host.
    pub(super) convicted: Value,
    pub(super) waiting_jobs: usize,
    /// Those that hold, by their names in the configuration.
    pub(super) limits: Value,
}

/// One device: what its device host says, and what the supervisor knows.
#[derive(Debug)]
pub(super) struct DevicePart<'a> {
    pub(super) name: String,
    /// The device host's JSON, or why there is none.
    pub(super) answer: Result<&'a str, &'a str>,
    pub(super) host_pid: Option<i32>,
    pub(super) restarts: u64,
    /// The policy that the device host has, or gets when it listens.
    pub(super) policy: Policy,
    /// Why it is not served any more.
    pub(super) given_up: Option<String>,
}

impl DevicePart<'_> {
    fn report(&self, own: &Sessions) -> Map<String, Value> {
        let parsed = self.answer.and_then(|text| {
            serde_json::from_str::<Map<String, Value>>(text).map_err(|_| "not answering")
        });
        parsed.unwrap_or_else(|state| {
            let mut report = Map::new();
            report.insert("device".into(), unknown_device(state, self.policy));
            report.insert("sessions".into(), list(own, "unknown"));
            report
        })
    }

    /// As it is listed among the others.
    fn listed(&self, device: &Value) -> Value {
        let mut listed = Map::new();
        listed.insert("name".into(), json!(self.name));
        let said = device.as_object().cloned().unwrap_or_default();
        listed.extend(said);
        listed.insert("device_host_pid".into(), json!(self.host_pid));
        listed.insert("restarts".into(), json!(self.restarts));
        if let Some(why) = &self.given_up {
            listed.insert("given_up".into(), json!(why));
        }
        Value::Object(listed)
    }
}

/// The whole report. Of several devices, `device` is the first; `devices` are all, and each session
/// says which is its own.
pub(super) fn merge(
    devices: &[DevicePart<'_>],
    sessions: &Sessions,
    service: &ServicePart<'_>,
    now: Instant,
) -> Value {
    let mut report = Map::new();
    let (mut listed, mut all) = (Vec::new(), Vec::new());
    for (place, device) in devices.iter().enumerate() {
        let own = sessions.iter().filter(|(_, card)| card.device == place);
        let own: Sessions = own.map(|(id, card)| (*id, card.clone())).collect();
        let mut part = device.report(&own);
        listed.push(device.listed(part.get("device").unwrap_or(&Value::Null)));
        if let Some(Value::Array(own)) = part.get_mut("sessions").map(Value::take) {
            all.extend(own.into_iter().map(|mut session| {
                session["device"] = json!(device.name);
                session
            }));
        }
        if place == 0 {
            report = part;
        }
    }
    all.sort_by_key(|session| session["id"].as_u64());
    report.insert("sessions".into(), Value::Array(all));
    report.insert("service".into(), service.value(devices, now));
    report.insert("devices".into(), Value::Array(listed));
    Value::Object(report)
}

impl ServicePart<'_> {
    fn value(&self, devices: &[DevicePart<'_>], now: Instant) -> Value {
        json!({
            "pid": std::process::id(),
            "version": env!("CARGO_PKG_VERSION"),
            "socket": self.socket,
            "uptime_s": now.duration_since(self.started).as_secs(),
            "device_host_pid": devices.first().and_then(|device| device.host_pid),
            "restarts": devices.iter().map(|device| device.restarts).sum::<u64>(),
            "convicted": self.convicted,
            "waiting_jobs": self.waiting_jobs,
            "limits": self.limits,
        })
    }
}

fn list(sessions: &Sessions, state: &str) -> Value {
    let one = |(id, card): (&u64, &Card)| {
        json!({
            "id": id, "name": card.name, "pid": card.pid, "user": card.user, "state": state,
        })
    };
    Value::Array(sessions.iter().map(one).collect())
}

/// Leaves out of a report what jobs and programs of others than this user are called, and their
/// processes. That they are there, what they hold and how long they ran is why this user's jobs wait.
pub(super) fn hide_names(report: &mut Value, sessions: &Sessions, uid: u32) {
    let own = |id: &Value| {
        let card = id.as_u64().and_then(|id| sessions.get(&id));
        card.is_some_and(|card| card.uid == uid)
    };
    let listed = report["sessions"].as_array_mut().into_iter().flatten();
    for session in listed.filter(|session| !own(&session["id"])) {
        session["name"] = Value::Null;
        session["pid"] = Value::Null;
    }
    let convicted = report["service"]["convicted"].as_array_mut();
    for one in convicted.into_iter().flatten() {
        if one["uid"] != json!(uid) {
            one["name"] = Value::Null;
            one["session"] = one["whose"].take();
        }
    }
}

/// The answer to `salus stop` before the service ends.
pub(super) fn farewell(sessions: &Sessions) -> Value {
    json!({ "pid": std::process::id(), "sessions": list(sessions, "ended") })
}

/// A report as an answer, and the memory that holds it if no frame does.
pub(super) fn answer(report: &Value) -> Result<(Answer, Option<OwnedFd>), Error> {
    let text = report.to_string();
    let bytes = text.len();
    match with_text(text, limits::JSON_BYTES) {
        Ok((json, blob)) => Ok((Answer { json }, blob)),
        Err(e) => Err(Error::new(
            ErrorCode::ResourceExhausted,
            format!("there is no memory for a report of {bytes} bytes: {e}"),
        )),
    }
}

/// The keys that scripts rely on are always there; what is not known is `null`.
fn unknown_device(state: &str, policy: Policy) -> Value {
    json!({
        "state": state,
        "policy": policy.name(),
        "platform": null,
        "kind": null,
        "capacity_bytes": null,
        "resident_bytes": null,
        "peak_bytes": null,
        "lanes": null,
    })
}

#[cfg(test)]
mod tests {
    use salus_channel::text_of;

    use super::*;

    fn service(started: Instant) -> ServicePart<'static> {
        ServicePart {
            socket: Path::new("/run/salus/salus.sock"),
            started,
            convicted: json!([]),
            waiting_jobs: 0,
            limits: json!({ "sessions": 4096 }),
        }
    }

    fn device<'a>(name: &str, answer: Result<&'a str, &'a str>) -> DevicePart<'a> {
        DevicePart {
            name: name.into(),
            answer,
            host_pid: Some(42),
            restarts: 1,
            policy: Policy::Srtf,
            given_up: None,
        }
    }

    fn one_session() -> Sessions {
        let card = Card {
            name: "train.py".into(),
            pid: 4121,
            uid: 1000,
            user: "anna".into(),
            device: 0,
        };
        Sessions::from([(7, card)])
    }

    #[test]
    fn the_hosts_report_stays_as_it_is_and_the_service_is_added() {
        let now = Instant::now();
        let report = merge(
            &[device(
                "cpu",
                Ok(r#"{"device":{"platform":"cpu","kind":"x"},"sessions":[]}"#),
            )],
            &one_session(),
            &service(now),
            now,
        );
        let text = report.to_string();
        let expected = r#"{"device":{"platform":"cpu","kind":"x"},"sessions":[],"service":{"pid":"#;
        assert!(text.starts_with(expected), "{text}");
        assert_eq!(report["service"]["device_host_pid"], 42);
        assert_eq!(report["devices"][0]["name"], "cpu");
        assert_eq!(report["devices"][0]["kind"], "x");
        assert_eq!(report["service"]["limits"]["sessions"], 4096);
        assert_eq!(report["service"]["socket"], "/run/salus/salus.sock");
    }

    #[test]
    fn a_host_that_does_not_answer_leaves_what_is_known() {
        let now = Instant::now();
        for from_host in [Err("not answering"), Ok("nonsense"), Ok("[]")] {
            let report = merge(
                &[device("cpu", from_host)],
                &one_session(),
                &service(now),
                now,
            );
            assert_eq!(report["device"]["state"], "not answering");
            assert_eq!(report["device"]["policy"], "srtf");
            assert_eq!(report["sessions"][0]["name"], "train.py");
            assert_eq!(report["sessions"][0]["state"], "unknown");
        }
    }

    #[test]
    fn several_devices_are_listed_and_sessions_say_which_is_theirs() {
        let now = Instant::now();
        let mut sessions = one_session();
        let other = Card {
            device: 1,
            ..sessions[&7].clone()
        };
        sessions.insert(8, other);
        let first = r#"{"device":{"kind":"x"},"sessions":[{"id":7,"name":"train.py"}]}"#;
        let parts = [
            device("cuda:0", Ok(first)),
            device("cuda:1", Err("starting again")),
        ];
        let report = merge(&parts, &sessions, &service(now), now);
        assert_eq!(report["device"]["kind"], "x");
        let states = report["devices"].as_array().expect("a list").iter();
        let states: Vec<_> = states
            .map(|d| (d["name"].clone(), d["state"].clone()))
            .collect();
        let again = (json!("cuda:1"), json!("starting again"));
        assert_eq!(states, [(json!("cuda:0"), Value::Null), again]);
        let sessions = report["sessions"].as_array().expect("a list").iter();
        let places: Vec<_> = sessions
            .map(|s| (s["id"].clone(), s["device"].clone()))
            .collect();
        let expected = [(json!(7), json!("cuda:0")), (json!(8), json!("cuda:1"))];
        assert_eq!(places, expected);
        assert_eq!(report["service"]["restarts"], 2);
    }

    #[test]
    fn a_report_that_no_frame_holds_comes_in_memory_of_its_own() {
        let long = "x".repeat(2 * limits::JSON_BYTES);
        let (inside, blob) = answer(&json!(long)).expect("there is memory");
        assert_eq!((inside.json.as_str(), blob.is_some()), ("", true));
        let text = text_of(inside.json, blob, limits::REPORT_BYTES).expect("it is text");
        assert_eq!(text, json!(long).to_string());

        let (inside, blob) = answer(&json!("short")).expect("it fits");
        assert_eq!((inside.json.as_str(), blob.is_none()), ("\"short\"", true));

        let (inside, blob) = answer(&json!(long)).expect("there is memory");
        let error = text_of(inside.json, blob, limits::JSON_BYTES).expect_err("too long");
        assert_eq!(
            error.to_string(),
            "a text of 1048578 bytes, and 524288 is the limit"
        );
    }

    #[test]
    fn other_users_jobs_are_there_without_their_names() {
        let mut sessions = one_session();
        let other = Card {
            name: "secret.py".into(),
            pid: 5,
            uid: 1001,
            user: "bert".into(),
            device: 0,
        };
        sessions.insert(8, other);
        let now = Instant::now();
        let convicted = json!([
            { "name": "jit_a", "session": "session 3 (`a.py`, …)", "uid": 1000, "whose": "session 3 of anna" },
            { "name": "jit_b", "session": "session 4 (`b.py`, …)", "uid": 1001, "whose": "session 4 of bert" },
            { "name": "jit_old", "session": "session 5 (`c.py`, …)" },
        ]);
        let service = ServicePart {
            convicted,
            ..service(now)
        };
        let mut report = merge(&[device("cpu", Err("starting"))], &sessions, &service, now);
        // One that only the device host knows of.
        let unknown = json!({ "id": 9, "name": "gone.py", "pid": 6 });
        let list = report["sessions"].as_array_mut().expect("a list");
        list.push(unknown);
        hide_names(&mut report, &sessions, 1000);
        let shown = |n: usize, key: &str| report["sessions"][n][key].clone();
        assert_eq!(shown(0, "name"), "train.py");
        assert_eq!(
            (shown(1, "name"), shown(1, "pid")),
            (Value::Null, Value::Null)
        );
        assert_eq!(
            (shown(1, "user"), shown(1, "state")),
            (json!("bert"), json!("unknown"))
        );
        assert_eq!(shown(2, "name"), Value::Null);
        let convicted = &report["service"]["convicted"];
        assert_eq!(convicted[0]["name"], "jit_a");
        assert_eq!(convicted[1]["name"], Value::Null);
        assert_eq!(convicted[1]["session"], "session 4 of bert");
        assert_eq!(convicted[2]["session"], Value::Null);
    }
}
