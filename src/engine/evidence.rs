//! Evidence: what is to be asked about the nodes that wait for it, and what becomes of the answers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::PoisonError,
};

use jiff::{SignedDuration, Timestamp};

use super::{Engine, lock};
use crate::{
    alert::{ALERTNAME, Alert, Fingerprint, Labels, Status},
    locate::{Inventory, NodeFacts, NodeName, names_in_monitoring},
    policy::{Config, Requirement},
    quarantine::{
        Heard, Known, NodeView,
        evidence::{Question, Shown, question},
    },
    sources::ActiveAlert,
};

/// How long an alert is looked for among those that Prometheus shows. It shows them within one evaluation of their rule.
const LOOKED_FOR: SignedDuration = SignedDuration::from_mins(10);
/// Alerts that are looked for at once; beyond that, what was posted has to do.
const MOST_LOOKED_FOR: usize = 10_000;

/// What is known beyond the nodes and what was posted.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// What was last shown about each node.
    shown: BTreeMap<NodeName, Shown>,
    /// Alerts that hold a node, until Prometheus has shown how it renders them.
    unrendered: HashMap<Fingerprint, Unrendered>,
    /// Those that it has shown. When there are too many they are looked for again.
    known: HashSet<Fingerprint>,
    /// What Prometheus rendered and is not written yet.
    rendered: BTreeMap<NodeName, Vec<(Fingerprint, String)>>,
}

#[derive(Debug)]
struct Unrendered {
    node: NodeName,
    labels: Labels,
    since: Timestamp,
}

impl Evidence {
    /// An alert stands on a node.
    fn note(&mut self, node: &NodeName, alert: &Alert, now: Timestamp) {
        if self.unrendered.len() < MOST_LOOKED_FOR && !self.known.contains(&alert.fingerprint) {
            let labels = alert.labels.clone();
            self.unrendered.entry(alert.fingerprint).or_insert_with(|| Unrendered { node: node.clone(), labels, since: now });
        }
    }
}

impl Engine {
    /// Release nothing before the first complete pull, if there is anybody to pull from: what was not pushed while nobody was here
    /// may fire.
    #[must_use]
    pub fn after_a_pull(mut self) -> Self {
        self.after_a_pull = true;
        self
    }

    /// Look at a node, with all that is known about it.
    pub(super) fn view(&self, node: &NodeFacts, config: &Config, now: Timestamp) -> NodeView {
        self.knowing(node, config, |known| NodeView::knowing(node, config, known, now))
    }

    /// Do something with all that is known about a node.
    pub(super) fn knowing<T>(&self, node: &NodeFacts, config: &Config, then: impl FnOnce(Known<'_>) -> T) -> T {
        let (name, unheard) = (&node.name, self.unheard(config));
        let of_machine = self.of_machine(node);
        // Copies, which only few nodes have: deciding under the lock would put all nodes in a row.
        let (shown, rendered) = {
            let evidence = lock(&self.evidence);
            (evidence.shown.get(name).cloned(), evidence.rendered.get(name).cloned().unwrap_or_default())
        };
        then(Known { shown: shown.as_ref(), unheard: unheard.as_deref(), rendered: &rendered, ..of_machine.known() })
    }

    fn unheard(&self, config: &Config) -> Option<String> {
        if !self.after_a_pull || config.alertmanagers.is_none() || *lock(&self.heard_all) {
            return None;
        }
        let why = self.taken.borrow().as_ref().and_then(|last| last.incomplete.clone());
        let why = why.unwrap_or_else(|| "none was taken yet".to_owned());
        Some(format!("no complete pull since this process started ({why})"))
    }

    /// What is to be asked now, and the names that each node has in monitoring. Answers about nodes that are not asked about any more
    /// are forgotten.
    #[must_use]
    pub fn questions(&self) -> Vec<(Question, Vec<String>)> {
        let (config, now) = (self.config(), self.clock.now());
        if config.prometheus.is_none() {
            return Vec::new();
        }
        let isolated = lock(&self.fleet).isolated();
        let questions: Vec<_> = {
            let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
            isolated.iter().filter_map(|name| self.question(name, &nodes, &config, now)).collect()
        };
        let asked: BTreeSet<&NodeName> = questions.iter().map(|(question, _)| &question.node).collect();
        lock(&self.evidence).shown.retain(|name, _| asked.contains(name));
        questions
    }

    /// What is to be asked now about one node.
    #[must_use]
    pub fn question_about(&self, name: &NodeName) -> Option<Question> {
        let (config, now) = (self.config(), self.clock.now());
        let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
        self.question(name, &nodes, &config, now).map(|(question, _)| question)
    }

    fn question(&self, name: &NodeName, nodes: &Inventory, config: &Config, now: Timestamp) -> Option<(Question, Vec<String>)> {
        let node = nodes.get(name)?;
        let past = self.past_of(node);
        let question = match &self.shadow {
            Some(shadow) => question(&lock(shadow).over(node, config), config, &past, now),
            None => question(node, config, &past, now),
        };
        Some((question?, names_in_monitoring(node, nodes)))
    }

    /// Take what was shown about nodes; what they waited for may have come.
    pub fn take_shown(&self, name: &NodeName, shown: Shown) {
        lock(&self.evidence).shown.insert(name.clone(), shown);
        let config = self.config();
        let node = {
            let nodes = self.cluster.inventory().read().unwrap_or_else(PoisonError::into_inner);
            nodes.get(name).cloned()
        };
        let Some(node) = node else { return };
        let over = match &self.shadow {
            Some(shadow) => lock(shadow).over(&node, &config),
            None => (*node).clone(),
        };
        self.seen(&over, &config);
        self.timers.notify_one();
    }

    /// What was shown was asked by another configuration, perhaps of another Prometheus.
    pub(super) fn forget_shown(&self) {
        lock(&self.evidence).shown.clear();
    }

    /// Whether anybody should ask Prometheus how it renders alerts.
    #[must_use]
    pub fn looks_for_rendered(&self) -> bool {
        let now = self.clock.now();
        let mut evidence = lock(&self.evidence);
        evidence.unrendered.retain(|_, u| now.duration_since(u.since) < LOOKED_FOR);
        !evidence.unrendered.is_empty()
    }

    /// Take how Prometheus renders the alerts that fire: their queries count besides those that were posted.
    pub async fn take_rendered(&self, rendered: &[ActiveAlert]) {
        let nodes: Vec<NodeName> = {
            let mut evidence = lock(&self.evidence);
            let mut by_name: HashMap<&str, Vec<&ActiveAlert>> = HashMap::new();
            for alert in rendered {
                by_name.entry(alert.labels.get(ALERTNAME).unwrap_or_default()).or_default().push(alert);
            }
            let mut found = Vec::new();
            for (fp, looked_for) in &evidence.unrendered {
                let name = looked_for.labels.get(ALERTNAME).unwrap_or_default();
                let same = |r: &&&ActiveAlert| {
                    r.labels.iter().all(|(name, value)| looked_for.labels.get(name).unwrap_or_default() == value)
                };
                if let Some(it) = by_name.get(name).into_iter().flatten().find(same) {
                    found.push((*fp, looked_for.node.clone(), it.recovery_query.clone()));
                }
            }
            for (fp, node, query) in &found {
                evidence.unrendered.remove(fp);
                if evidence.known.len() >= MOST_LOOKED_FOR {
                    evidence.known.clear();
                }
                evidence.known.insert(*fp);
                evidence.rendered.entry(node.clone()).or_default().push((*fp, query.clone()));
            }
            evidence.rendered.keys().cloned().collect()
        };
        for (name, done) in nodes.iter().zip(self.decide_each(&nodes).await) {
            // One that could not be written is tried in the next round.
            if !done.failed {
                lock(&self.evidence).rendered.remove(name);
            }
        }
    }

    /// The alerts that now stand on a node, where evidence will be asked for.
    pub(super) fn note_unrendered(&self, node: &NodeName, heard: &[Heard<'_>], config: &Config) {
        if config.prometheus.is_none() {
            return;
        }
        let needs = |policy: &str| config.release_for(policy).require.contains(&Requirement::Evidence);
        let now = self.clock.now();
        let fires = heard.iter().filter(|h| h.alert.status == Status::Firing && h.rule.is_some_and(|rule| needs(rule.policy)));
        let mut evidence = lock(&self.evidence);
        evidence.unrendered.retain(|_, u| now.duration_since(u.since) < LOOKED_FOR);
        for heard in fires {
            evidence.note(node, heard.alert, now);
        }
    }
}
