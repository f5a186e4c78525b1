//! Asks for evidence as long as the service runs, by the configuration in force.

use std::{future::pending, sync::Arc};

use futures::{StreamExt as _, stream};
use tokio::time::{Instant, sleep_until};

use super::recording::Recording;
use crate::{
    alert::RecoveryQuery,
    engine::{Clock as _, Engine, SystemClock},
    locate::NodeName,
    metrics::Metrics,
    quarantine::evidence::{NodeAnswers, Question, Series, Shown, judge},
    sources::{Evidence, EvidenceClient, Rules},
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

/// Ask once about every node that waits for evidence. What is shown of one is taken before the others are asked about.
async fn round(engine: &Engine, recording: Option<&Recording>, evidence: &Evidence) {
    let reload = *engine.reloads().borrow();
    let mut questions = engine.questions();
    if !questions.is_empty() {
        name_after_pods(engine, &mut questions).await;
    }
    let looks_for_rendered = engine.looks_for_rendered();
    if questions.is_empty() && !looks_for_rendered {
        return;
    }
    let asker = Asker::of(evidence).await;
    if let Some(recording) = recording {
        recording.begin(&**engine.cluster(), &engine.config()).await;
    }
    if looks_for_rendered && *engine.reloads().borrow() == reload {
        let alerts = asker.rules.as_ref().map_or(&[][..], |rules| &rules.alerts);
        if let Some(recording) = recording {
            recording.rendered(alerts, SystemClock.now());
        }
        engine.take_rendered(alerts).await;
    }
    let asker = &asker;
    let rounds = stream::iter(questions).map(|(question, names)| async move {
        // As it is now: with many nodes the question was made a while ago.
        let Some(question) = engine.question_about(&question.node) else { return };
        let mut shown = asker.prove(&question, &names).await;
        explain(engine, &question.node, &mut shown).await;
        // An answer to another configuration is none.
        if *engine.reloads().borrow() == reload {
            if let Some(recording) = recording {
                recording.shown(&question.node, &shown, SystemClock.now());
            }
            engine.take_shown(&question.node, shown);
        }
    });
    rounds.buffer_unordered(SIDE_BY_SIDE).for_each(|()| async {}).await;
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

/// Prometheus as it is in one round.
pub(super) struct Asker {
    client: Result<EvidenceClient, String>,
    /// Its rules, or why they are not known, as a clause.
    rules: Result<Rules, String>,
}

impl Asker {
    pub(super) async fn of(evidence: &Evidence) -> Self {
        let client = evidence.client().await;
        let rules = match &client {
            Ok(client) => client.rules().await.map_err(|why| {
                tracing::warn!(%why, "The rules of Prometheus are not known, so what they record proves nothing.");
                format!("nobody knows whether its rules work: {why}")
            }),
            Err(why) => {
                tracing::warn!(%why, "No evidence can be had, so no node that needs it is released.");
                Err(why.clone())
            }
        };
        Self { client, rules }
    }

    /// Ask about one node, which has those names in monitoring.
    pub(super) async fn prove(&self, question: &Question, names: &[String]) -> Shown {
        let mut answers = match &self.client {
            Ok(client) => client.ask(question, names).await,
            Err(why) => NodeAnswers { present: Err(why.clone()), claims: Vec::new() },
        };
        for (asked, answered) in question.claims.iter().zip(&mut answers.claims) {
            for (query, answer) in asked.queries.iter().zip(answered) {
                if let Some(why) = self.distrust(query) {
                    *answer = Err::<Series, _>(why);
                }
            }
        }
        judge(question, &answers)
    }

    /// What a query reads from a rule that fails is missing, or as old as Prometheus looks back: it says nothing about the fault.
    fn distrust(&self, query: &RecoveryQuery) -> Option<String> {
        match &self.rules {
            Ok(rules) => rules.failing.iter().find(|rule| query.reads(&rule.name)).map(ToString::to_string),
            // By convention the name of what a rule records, and of nothing else, has a colon
            // (https://prometheus.io/docs/practices/rules/).
            Err(why) => query.reads_recorded().then(|| why.clone()),
        }
    }
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
