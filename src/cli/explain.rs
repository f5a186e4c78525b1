//! `explain`: which policy, which node, why, and what would be done.

use std::sync::PoisonError;

use serde::Serialize;

use super::{Failure, Output, Sources, incident::Incident, printable, read_delivery, runtime};
use crate::{
    alert::Alert,
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

/// The explanation of one alert. An alert that cannot be read has nothing to explain but its result.
#[derive(Debug, Serialize)]
struct Explained {
    #[serde(flatten)]
    result: AlertResult,
    #[serde(flatten)]
    because: Option<Why>,
}

#[derive(Debug, Serialize)]
struct Why {
    /// Whether it fires or is over.
    status: &'static str,
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
    let delivery = read_delivery(&args.body)?;
    let (config, cluster) = args.sources.load()?;
    let explanation = runtime()?.block_on(async {
        let pods = cluster.exporter_pods(&config.locate.exporter_pods).await.map_err(Failure::unreachable)?;
        let because: Vec<_> =
            delivery.alerts.iter().map(|a| a.as_ref().ok().map(|a| because(a, &config, &cluster, &pods))).collect();
        let mut incident = Incident::begin(config, cluster).await;
        incident.new_steps();
        let answer = incident.deliver(delivery).await;
        let alerts = answer.results.into_iter().zip(because).map(|(result, because)| Explained { result, because }).collect();
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

fn because(alert: &Alert, config: &Config, cluster: &dyn Cluster, pods: &[ExporterPod]) -> Why {
    let nodes = cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
    let plan = Plan::of(alert, config, &nodes, Some(pods));
    let policy_because = match (plan.policy, &plan.passive) {
        (Some(policy), _) => {
            let met: Vec<String> = policy.matchers.iter().map(ToString::to_string).collect();
            format!("{} ({}), since {} matches", policy.name, policy.action, met.join(" and "))
        }
        (None, Some((Outcome::OutOfScope, why))) => format!("none is looked for: {why}"),
        (None, _) => {
            let unmet = config
                .policies
                .iter()
                .filter_map(|p| p.matchers.iter().find(|m| !m.matches(&alert.labels)).map(|m| format!("{} wants {m}", p.name)));
            format!("none: {}", unmet.collect::<Vec<_>>().join(", "))
        }
    };
    let node_because = match &plan.target {
        _ if plan.is_foreign() => "none is looked for: the alert is out of scope".to_owned(),
        Ok((node, link)) => format!("{node}, since {link}"),
        Err(unmapped) => format!("none ({}): {}", unmapped.reason.as_str(), unmapped.message),
    };
    Why { status: alert.status.as_str(), policy_because, node_because, gpu: plan.gpu.map(|g| g.to_string()) }
}

impl Explanation {
    fn text(&self) -> String {
        let mut lines = Vec::new();
        for Explained { result, because } in &self.alerts {
            let fingerprint = result.fingerprint.map(|f| f.to_string()).unwrap_or_default();
            let status = because.as_ref().map_or("not readable", |b| b.status);
            lines.push(format!("{} {fingerprint}, {status}", result.alertname.as_deref().unwrap_or("(no name)")));
            if let Some(because) = because {
                lines.push(format!("  policy   {}", because.policy_because));
                lines.push(format!("  node     {}", because.node_because));
                lines.push(format!("  gpu      {}", because.gpu.as_deref().unwrap_or("none named: the node as a whole")));
            }
            // What the rows above have said already is not said again.
            let said = because
                .as_ref()
                .is_some_and(|b| [&b.policy_because, &b.node_because].iter().any(|t| t.ends_with(&result.reason)));
            let reason = if said { String::new() } else { format!(": {}", result.reason) };
            lines.push(format!("  outcome  {}{reason}", result.outcome.as_str()));
            lines.push(String::new());
        }
        lines.extend(self.warnings.iter().map(|warning| format!("warning: {warning}")));
        if self.steps.is_empty() {
            lines.push("No node would be isolated or released.".to_owned());
        }
        for step in &self.steps {
            lines.push(format!("Would {} {}: {}", step.action, step.node, step.reason));
            if let Some(patch) = &step.patch {
                lines.push(format!("  with the merge patch {patch}"));
            }
        }
        lines.iter().map(|line| printable(line) + "\n").collect()
    }
}
