//! `explain`: which policy, which node, why, and what would be done.

use std::sync::PoisonError;

use serde::Serialize;

use super::{Failure, Output, Sources, incident::Incident, read_body, runtime};
use crate::{
    alert::{Alert, parse_body},
    cluster::Cluster,
    engine::{AlertResult, Plan, Step},
    locate::ExporterPod,
    policy::Config,
    quarantine::Outcome,
};

/// Explain a webhook body.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    sources: Sources,
    /// How the result is printed.
    #[arg(long, value_enum, default_value = "text")]
    output: Output,
    /// A file with a webhook body, or `-` for standard input.
    #[arg(value_name = "BODY.json")]
    body: String,
}

/// The explanation of one alert.
#[derive(Debug, Serialize)]
struct Explained {
    #[serde(flatten)]
    result: AlertResult,
    /// Why that policy matches, or why none does.
    policy_because: String,
    /// Which link named the node, or why none did.
    node_because: String,
    /// The GPU that the labels name.
    gpu: Option<String>,
}

#[derive(Debug, Serialize)]
struct Explanation {
    alerts: Vec<Explained>,
    /// What would be done.
    steps: Vec<Step>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let body = read_body(&args.body)?;
    let delivery = parse_body(&body).map_err(|e| Failure::input(format!("{}: {e}", args.body)))?;
    let (config, cluster) = args.sources.load()?;
    let explanation = runtime()?.block_on(async {
        let pods = cluster.exporter_pods(&config.locate.exporter_pods).await.map_err(Failure::unreachable)?;
        let because: Vec<_> =
            delivery.alerts.iter().map(|a| a.as_ref().ok().map(|a| because(a, &config, &cluster, &pods))).collect();
        let mut incident = Incident::begin(config, cluster).await;
        incident.new_steps();
        let answer = incident.deliver(delivery).await;
        let explain = |(result, because): (AlertResult, Option<[Option<String>; 3]>)| {
            let [policy, node, gpu] = because.unwrap_or_default();
            Explained { result, policy_because: policy.unwrap_or_default(), node_because: node.unwrap_or_default(), gpu }
        };
        let alerts = answer.results.into_iter().zip(because).map(explain).collect();
        Ok::<_, Failure>(Explanation { alerts, steps: incident.new_steps(), warnings: answer.warnings })
    })?;
    match args.output {
        Output::Json => {
            let json = serde_json::to_string_pretty(&explanation);
            println!("{}", json.map_err(|e| Failure::input(format!("cannot write JSON: {e}")))?);
        }
        Output::Text => print!("{}", explanation.text()),
    }
    Ok(())
}

/// Why this policy, why this node, which GPU.
fn because(alert: &Alert, config: &Config, cluster: &dyn Cluster, pods: &[ExporterPod]) -> [Option<String>; 3] {
    let nodes = cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
    let plan = Plan::of(alert, config, &nodes, Some(pods));
    let policy = match (plan.policy, &plan.passive) {
        (Some(policy), _) => {
            let met: Vec<String> = policy.matchers.iter().map(ToString::to_string).collect();
            format!("{} ({}), since {} matches", policy.name, policy.action, met.join(" and "))
        }
        (None, Some((Outcome::OutOfScope, why))) => format!("none: {why}"),
        (None, _) => {
            let unmet = config
                .policies
                .iter()
                .filter_map(|p| p.matchers.iter().find(|m| !m.matches(&alert.labels)).map(|m| format!("{} wants {m}", p.name)));
            format!("none: {}", unmet.collect::<Vec<_>>().join(", "))
        }
    };
    let node = match &plan.target {
        Ok((node, link)) => format!("{node}, since {link}"),
        Err(unmapped) => format!("none ({}): {}", unmapped.reason.as_str(), unmapped.message),
    };
    [Some(policy), Some(node), plan.gpu.map(|g| g.to_string())]
}

impl Explanation {
    fn text(&self) -> String {
        let mut text = String::new();
        for alert in &self.alerts {
            let result = &alert.result;
            let fingerprint = result.fingerprint.map(|f| f.to_string()).unwrap_or_default();
            let rows = [
                ("policy", alert.policy_because.as_str()),
                ("node", alert.node_because.as_str()),
                ("gpu", alert.gpu.as_deref().unwrap_or("none named: the node as a whole")),
            ];
            text += &format!("{} {fingerprint}\n", result.alertname.as_deref().unwrap_or("(no name)"));
            for (what, value) in rows.into_iter().filter(|(_, v)| !v.is_empty()) {
                text += &format!("  {what:<8} {value}\n");
            }
            text += &format!("  {:<8} {}, {}\n", "outcome", result.outcome.as_str(), result.reason);
        }
        for warning in &self.warnings {
            text += &format!("warning: {warning}\n");
        }
        if self.steps.is_empty() {
            text.push_str("No node would change.\n");
        }
        for step in &self.steps {
            text += &format!("Would {} {}: {}\n", step.action, step.node, step.reason);
            if let Some(patch) = &step.patch {
                text += &format!("  with the merge patch {patch}\n");
            }
        }
        text
    }
}
