//! `salus policy`: in which order jobs are served, and changing it while they run.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use salus_daemon::log::tame;
use salus_daemon::paths::Places;
use salus_engine::Policy;
use salus_wire::Request;
use serde_json::{Value, json};

use crate::arguments::parse_policy;
use crate::{Format, NO, Outcome, Where, ask, output};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    place: Where,
    /// How to print it
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(subcommand)]
    change: Option<Change>,
}

#[derive(Subcommand)]
enum Change {
    /// Serve by this policy from the next boundary on
    Set {
        #[arg(value_name = "NAME", value_parser = parse_policy)]
        policy: Policy,
        /// Of this device alone, where the service has several: cuda:1
        #[arg(long, value_name = "NAME")]
        device: Option<String>,
    },
}

pub(crate) fn policy(arguments: &Arguments) -> Outcome {
    let places = Places::of_this_process();
    let named = arguments.place.socket.as_deref();
    let request = match &arguments.change {
        None => Request::Report,
        Some(Change::Set { policy, device }) => Request::Policy {
            name: policy.name().into(),
            device: device.clone().unwrap_or_default(),
        },
    };
    let answered = match ask::find(&places, named)? {
        Some(socket) => ask::ask(&socket, request)?,
        None => None,
    };
    let Some(answered) = answered else {
        output::failure(&ask::nobody(&places, named));
        return Ok(NO);
    };
    let now = answered.json["device"]["policy"].as_str();
    if let Some(Change::Set { policy, device }) = &arguments.change {
        let on = device
            .as_ref()
            .map_or_else(String::new, |device| format!(" on {device}"));
        let alone = policy.co_runs() && answered.json["device"]["lanes"] == 1;
        let but = match alone {
            true => "; this device has one lane, so nothing runs side by side",
            false => "",
        };
        let policy = policy.name();
        output::say(&format!(
            "jobs{on} are served by `{policy}` from now on{but}"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    let none = Vec::new();
    let devices = answered.json["devices"].as_array().unwrap_or(&none);
    let devices: Vec<Value> = devices
        .iter()
        .map(|device| json!({ "name": device["name"], "policy": device["policy"] }))
        .collect();
    let policies = Policy::ALL.map(|policy| (policy.name(), policy.what()));
    output::data(&match arguments.output {
        Format::Json => {
            let all = policies.map(|(name, what)| json!({ "name": name, "what": what }));
            format!(
                "{:#}\n",
                json!({ "policy": now, "policies": all, "devices": devices })
            )
        }
        Format::Table => {
            let line = |(name, what): (&str, &str)| {
                let by = devices.iter().filter(|device| device["policy"] == name);
                let by: Vec<String> = by
                    .map(|d| tame(d["name"].as_str().unwrap_or("?")))
                    .collect();
                let (mark, of) = match by.is_empty() {
                    true => (" ", String::new()),
                    false if devices.len() == 1 => ("*", String::new()),
                    false => ("*", format!(" ({})", by.join(", "))),
                };
                format!("{mark} {name:<10}  {what}{of}\n")
            };
            policies.map(line).concat()
        }
    });
    Ok(ExitCode::SUCCESS)
}
