//! `guard`: each limit, its use, what waits and why. Straight against the API server, so that it works when the service is down.

use super::{Failure, LiveSources, Output, nodes, printable, runtime, table::table};
use crate::{
    policy::Config,
    quarantine::{GuardReport, LimitUse, Waiting},
};

/// Each limit of the guard, its use, and who waits for what.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    sources: LiveSources,
    /// For people or for programs.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (config, report) = runtime()?.block_on(nodes::guard(&args.sources))?;
    let text = match args.output {
        Output::Json => nodes::json(&report)?,
        Output::Text => text(&report, &config),
    };
    print!("{text}");
    Ok(())
}

fn text(report: &GuardReport, config: &Config) -> String {
    let mut lines = Vec::new();
    if let Some(pause) = &report.paused {
        lines.push(format!("Nothing new is begun: {pause}."));
        lines.push(String::new());
    }
    let head = ["LIMIT", "WHOSE", "NOW", "MAY BE", "ROOM"];
    lines.extend(table(head, report.limits.iter().map(|limit| row(limit, config))));
    if !report.exempt.is_empty() {
        lines.push(String::new());
        lines.push(format!("Not limited: {}.", report.exempt.join(", ")));
    }
    lines.push(String::new());
    if report.waiting == 0 {
        lines.push("Nobody waits.".to_owned());
    } else {
        let head = ["NUMBER", "NODE", "POLICY", "SINCE", "REFUSED BY"];
        lines.extend(table(head, report.queue.iter().map(waiting)));
        let more = report.waiting - report.queue.len();
        if more > 0 {
            lines.push(format!("and {more} more"));
        }
    }
    lines.iter().map(|line| printable(line.trim_end()) + "\n").collect()
}

fn row(limit: &LimitUse, config: &Config) -> [String; 5] {
    let pool = limit
        .pool
        .as_deref()
        .map(|pool| if pool.is_empty() { format!("nodes without {}", config.guard.pool_label) } else { format!("pool {pool}") });
    let policy = limit.policy.as_deref().map(|policy| format!("policy {policy}"));
    let whose: Vec<String> = policy.into_iter().chain(pool).collect();
    let whose = if whose.is_empty() { "all".to_owned() } else { whose.join(", ") };
    let now = limit.nodes.map_or_else(|| limit.value.to_string(), |nodes| format!("{} of {nodes}", limit.value));
    let bound = match limit.limit {
        "guard.pools.min_healthy" => format!("at least {}", limit.bound),
        _ => format!("at most {}", limit.bound),
    };
    let room = match (limit.full, limit.room_at) {
        (false, _) => "yes".to_owned(),
        (true, Some(at)) => format!("not before {at}"),
        (true, None) => "no".to_owned(),
    };
    [limit.limit.to_owned(), whose, now, bound, room]
}

fn waiting(waiting: &Waiting) -> [String; 5] {
    let refused = waiting.refused.clone().unwrap_or_else(|| "nothing: there is room".to_owned());
    [waiting.number.to_string(), waiting.node.to_string(), waiting.policy.clone(), waiting.since.to_string(), refused]
}
