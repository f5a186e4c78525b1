//! Asks for evidence as long as the service runs, by the configuration in force.

use std::{future::pending, sync::Arc};

use futures::{StreamExt as _, stream};
use tokio::time::{Instant, sleep_until};

use super::recording::Recording;
use crate::{
    engine::{Clock as _, Engine, SystemClock},
    locate::NodeName,
    metrics::Metrics,
    quarantine::evidence::{NodeAnswers, Question, Series, Shown, judge},
    sources::{ActiveAlert, Evidence, EvidenceClient, FailingRule},
};

/// Nodes that are asked about at once. Prometheus runs 20 queries at a time (`--query.max-concurrency`), for everybody.
const SIDE_BY_SIDE: usize = 2;

/// Never ends by itself.
pub(super) async fn prove_for_ever(engine: Arc<Engine>, metrics: Arc<Metrics>, recording: Option<Arc<Recording>>) {
    let mut reloads = engine.reloads();
    loop {
        reloads.mark_unchanged();
        let config = engine.config();
        let rounds = async {
            let Some(settings) = config.prometheus.clone() else { return pending().await };
            let interval = settings.poll_interval;
            let evidence = Evidence::new(settings, config.locate.clone(), Arc::clone(&metrics));
            loop {
                let begun = Instant::now();
                let (engine, recording, evidence) = (Arc::clone(&engine), recording.clone(), evidence.clone());
                // A task of its own: a reload ends the loop, and a node half decided helps nobody.
                let done = tokio::spawn(async move { round(&engine, recording.as_deref(), &evidence).await }).await;
                if let Err(error) = done {
                    tracing::error!(%error, "The work on evidence ended abnormally.");
                }
                sleep_until(begun + interval).await;
            }
        };
        tokio::select! {
            () = rounds => {}
            // The sender is the engine, which is there.
            _ = reloads.changed() => {}
        }
    }
}

/// Ask once about every node that waits for evidence.
async fn round(engine: &Engine, recording: Option<&Recording>, evidence: &Evidence) {
    let mut questions = engine.questions();
    if !questions.is_empty() {
        name_after_pods(engine, &mut questions).await;
    }
    let looks_for_rendered = engine.looks_for_rendered();
    if questions.is_empty() && !looks_for_rendered {
        return;
    }
    let Proof { mut shown, alerts } = prove(evidence, questions).await;
    for (node, shown) in &mut shown {
        explain(engine, node, shown).await;
    }
    if let Some(recording) = recording {
        recording.begin(&**engine.cluster(), &engine.config()).await;
        let now = SystemClock.now();
        if looks_for_rendered {
            recording.rendered(&alerts, now);
        }
        for (node, shown) in &shown {
            recording.shown(node, shown, now);
        }
    }
    if looks_for_rendered {
        engine.take_rendered(&alerts).await;
    }
    engine.take_shown(shown);
}

/// Exporters before 3.1.3 put the name of their pod where later ones put that of the host.
async fn name_after_pods(engine: &Engine, questions: &mut [(Question, Vec<String>)]) {
    let config = engine.config();
    match engine.cluster().exporter_pods(&config.locate.exporter_pods).await {
        Ok(pods) => {
            for (question, names) in questions {
                names.extend(pods.iter().filter(|pod| pod.node == question.node).map(|pod| pod.name.clone()));
            }
        }
        Err(why) => tracing::warn!(%why, "The exporter pods are not known, so GPUs that monitoring calls by them are not seen."),
    }
}

/// What Prometheus said.
pub(super) struct Proof {
    /// What it shows about each node that was asked about.
    pub(super) shown: Vec<(NodeName, Shown)>,
    /// How it renders the alerts that fire, as far as it says.
    alerts: Vec<ActiveAlert>,
}

/// Ask once. The second of a pair are the names of the node in monitoring.
pub(super) async fn prove(evidence: &Evidence, questions: Vec<(Question, Vec<String>)>) -> Proof {
    let client = evidence.client().await;
    if let Err(why) = &client {
        tracing::warn!(%why, "No evidence can be had, so no node that needs it is released.");
    }
    let rules = match &client {
        Ok(client) => client.rules().await.map_err(|why| {
            tracing::warn!(%why, "The rules of Prometheus are not known, so the recovery queries as they were posted have to do.");
        }),
        Err(_) => Err(()),
    };
    let (alerts, failing) = rules.map(|rules| (rules.alerts, rules.failing)).unwrap_or_default();
    let shown = stream::iter(questions)
        .map(|(question, names)| {
            let (client, failing) = (client.as_ref(), &failing);
            async move {
                let answers = ask(client, &question, &names, failing).await;
                let shown = judge(&question, &answers);
                (question.node, shown)
            }
        })
        .buffer_unordered(SIDE_BY_SIDE)
        .collect()
        .await;
    Proof { shown, alerts }
}

async fn ask(
    client: Result<&EvidenceClient, &String>,
    question: &Question,
    names: &[String],
    failing: &[FailingRule],
) -> NodeAnswers {
    let mut answers = match client {
        Ok(client) => client.ask(question, names).await,
        Err(why) => NodeAnswers { present: Err(why.clone()), claims: Vec::new() },
    };
    // What a query reads from a rule that fails is missing, or as old as Prometheus looks back: it says nothing about the fault.
    for (asked, answered) in question.claims.iter().zip(&mut answers.claims) {
        for (query, answer) in asked.queries.iter().zip(answered) {
            if let Some(rule) = failing.iter().find(|rule| query.reads(&rule.name)) {
                *answer = Err::<Series, _>(rule.to_string());
            }
        }
    }
    answers
}

/// Why no GPU is seen, if it is we who keep the exporter away.
async fn explain(engine: &Engine, node: &NodeName, shown: &mut Shown) {
    if !shown.no_exporter {
        return;
    }
    let config = engine.config();
    let taint = {
        let nodes = engine.cluster().inventory().read().unwrap_or_else(std::sync::PoisonError::into_inner);
        nodes.get(node).and_then(|node| node.taints.iter().find(|t| t.key == config.isolation.taint_key).cloned())
    };
    let Some(taint) = taint else { return };
    let sets = engine.cluster().not_tolerating(&config.locate.exporter_pods, &taint, SystemClock.now()).await;
    if let Some(set) = sets.first() {
        shown.explain(&format!("its pod cannot run here, DaemonSet {set} does not tolerate the taint {}", taint.key));
    }
}
