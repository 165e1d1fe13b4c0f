//! `salus policy`: in which order jobs are served, and changing it while they run.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use salus_daemon::paths::Places;
use salus_engine::Policy;
use salus_wire::Request;
use serde_json::json;

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
    },
}

pub(crate) fn policy(arguments: &Arguments) -> Outcome {
    let places = Places::of_this_process();
    let named = arguments.place.socket.as_deref();
    let request = match &arguments.change {
        None => Request::Report,
        Some(Change::Set { policy }) => Request::Policy {
            name: policy.name().into(),
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
    if let (Some(Change::Set { .. }), Some(now)) = (&arguments.change, now) {
        let co_runs = Policy::named(now).is_some_and(Policy::co_runs);
        let alone = co_runs && answered.json["device"]["lanes"] == 1;
        let but = match alone {
            true => "; this device has one lane, so nothing runs side by side",
            false => "",
        };
        output::say(&format!("jobs are served by `{now}` from now on{but}"));
        return Ok(ExitCode::SUCCESS);
    }
    let policies = Policy::ALL.map(|policy| (policy.name(), policy.what()));
    output::data(&match arguments.output {
        Format::Json => {
            let all = policies.map(|(name, what)| json!({ "name": name, "what": what }));
            format!("{:#}\n", json!({ "policy": now, "policies": all }))
        }
        Format::Table => {
            let line = |(name, what): (&str, &str)| {
                let mark = if Some(name) == now { "*" } else { " " };
                format!("{mark} {name:<10}  {what}\n")
            };
            policies.map(line).concat()
        }
    });
    Ok(ExitCode::SUCCESS)
}
