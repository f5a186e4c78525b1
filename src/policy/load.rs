//! From the text of a file to a [`Config`], whole or not at all.
//!
//! All semantic problems of a file are reported together, each with its place. Nothing here panics, whatever the text.

use std::{collections::BTreeSet, time::Duration};

use serde_saphyr::Spanned;

pub use self::report::{ConfigError, Problem};
use self::{
    policies::Fallback,
    report::{MAX_PROBLEMS, Place, Source},
};
use super::{
    Config, Events, Isolation, Locate, ManagerPattern, Release, Requirement, Scope, Selector, SelectorError,
    names::{flaw_in_domain, flaw_in_key, flaw_in_value},
    raw::{Opt, RawConfig, RawEvents, RawFlapping, RawIsolation, RawLocate, RawPeople, RawRelease, RawScope, RawTaint, Texts},
};
use crate::alert::{Matcher, MatcherError};

mod alertmanagers;
mod eviction;
mod guard;
mod http_client;
mod policies;
mod prometheus;
mod recurrence;
mod report;
#[cfg(test)]
mod tests;
mod yaml;

const DEFAULT_INSTANCE: &str = "default";
const DEFAULT_DOMAIN: &str = "gpu-quarantine.dev";
const DEFAULT_NODES: &str = "nvidia.com/gpu.present=true";
const DEFAULT_EXPORTER_PODS: [&str; 2] = ["app.kubernetes.io/name=dcgm-exporter", "app=nvidia-dcgm-exporter"];
const DEFAULT_AFTER: Duration = Duration::from_secs(10 * 60);
const MAX_AFTER: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// kubectl names itself after its subcommand: `kubectl-taint`, `kubectl-edit`, `kubectl-patch`.
const DEFAULT_HUMAN_MANAGER: &str = "kubectl*";
const DEFAULT_EVENTS: &str = "default";
const REQUIREMENTS: &str = "`resolved` (Alertmanager reported the alerts as resolved), `evidence` (Prometheus shows that the fault is \
                            gone) and `manual` (a person releases the node)";

/// Read a configuration.
///
/// `file` is only the name shown in errors; `text` is what it holds.
///
/// # Errors
///
/// With every problem found and its place: either one of shape (not YAML, an unknown key, a list where a text belongs),
/// or all of meaning. There always is at least one.
pub fn load(file: &str, text: &str) -> Result<Config, ConfigError> {
    // The parser does not count a byte order mark as a column; without it the snippets agree.
    let text = text.strip_prefix('\u{FEFF}').unwrap_or(text);
    let source = Source::new(file, text);
    let raw = yaml::parse(text).map_err(|problem| ConfigError::new(&source, vec![problem]))?;
    let mut check = Check { source, problems: Vec::new(), has_prometheus: false };
    match check.config(raw) {
        Some(config) if check.problems.is_empty() => Ok(config),
        _ => Err(ConfigError::new(&source, check.problems)),
    }
}

/// Why a text is refused.
struct Flaw {
    /// Where in the text, in characters from 1.
    column: usize,
    message: String,
}

impl From<String> for Flaw {
    fn from(message: String) -> Self {
        Self { column: 1, message }
    }
}

impl From<MatcherError> for Flaw {
    fn from(error: MatcherError) -> Self {
        Self { column: error.column(), message: error.message().to_owned() }
    }
}

impl From<SelectorError> for Flaw {
    fn from(error: SelectorError) -> Self {
        Self { column: error.column(), message: error.message().to_owned() }
    }
}

/// Turns raw parts into real ones and notes what is wrong. Each method gives `None` only after a problem was noted.
struct Check<'a> {
    source: Source<'a>,
    problems: Vec<Problem>,
    /// Whether there is anybody to ask for evidence.
    has_prometheus: bool,
}

impl Check<'_> {
    fn refuse<T>(&mut self, Place { line, column }: Place, message: impl Into<String>) -> Option<T> {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(Problem { line, column, message: message.into() });
        }
        None
    }

    fn text<T, E: Into<Flaw>>(&mut self, raw: &Spanned<String>, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
        match parse(&raw.value).map_err(Into::into) {
            Ok(value) => Some(value),
            Err(_) if self.problems.len() >= MAX_PROBLEMS => None,
            Err(Flaw { column, message }) => {
                let place = self.source.inside(Place::of(raw), &raw.value, column);
                self.refuse(place, message)
            }
        }
    }

    /// All items, so that each wrong one is noted; `Some` only if none is.
    fn texts<C: FromIterator<T>, T, E: Into<Flaw>>(
        &mut self,
        raw: &[Spanned<String>],
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<C> {
        let items: Vec<Option<T>> = raw.iter().map(|item| self.text(item, &parse)).collect();
        items.into_iter().collect()
    }

    /// A text with a default in the syntax of the file.
    fn text_or<T, E: Into<Flaw>>(&mut self, raw: Opt<String>, default: &str, parse: impl Fn(&str) -> Result<T, E>) -> Option<T> {
        self.text(&raw.unwrap_or_else(|| placeless(default)), parse)
    }

    fn config(&mut self, raw: RawConfig) -> Option<Config> {
        let sources = raw.sources.unwrap_or_default();
        self.has_prometheus = sources.prometheus.is_some();
        let instance = self.text_or(raw.instance, DEFAULT_INSTANCE, |t| label_value("instance", t));
        let domain = self.text_or(raw.domain, DEFAULT_DOMAIN, domain);
        let scope = self.scope(raw.scope.unwrap_or_default());
        let isolation = self.isolation(raw.isolation.unwrap_or_default(), domain.as_deref().unwrap_or(DEFAULT_DOMAIN));
        let release = self.release(raw.release.as_ref());
        let flapping = raw.release.as_ref().and_then(|r| r.value.flapping.as_ref());
        let flapping = self.flapping(flapping.map_or(&RawFlapping::default(), |f| &f.value));
        let ledger = self.ledger(raw.ledger.unwrap_or_default());
        let locate = self.locate(raw.locate.unwrap_or_default());
        let guard = self.guard(raw.guard.unwrap_or_default());
        let human_managers = self.human_managers(raw.people.unwrap_or_default());
        let events = self.events(raw.events.unwrap_or_default());
        let alertmanagers = sources.alertmanagers.map(|raw| self.alertmanagers(raw));
        let prometheus = sources.prometheus.map(|raw| self.prometheus(raw));
        let eviction = self.eviction(raw.eviction.unwrap_or_default(), domain.as_deref().unwrap_or(DEFAULT_DOMAIN));
        let fallback = Fallback {
            release: release.as_ref(),
            eviction: eviction.as_ref().map(|e| &e.rules),
            limits: guard.as_ref().map(|g| &g.limits),
        };
        let policies = self.policies(raw.policies, &fallback);
        let alertmanagers = match alertmanagers {
            Some(alertmanagers) => Some(alertmanagers?),
            None => None,
        };
        let prometheus = match prometheus {
            Some(prometheus) => Some(prometheus?),
            None => None,
        };
        Some(Config {
            instance: instance?,
            domain: domain?,
            scope: scope?,
            isolation: isolation?,
            release: release?,
            eviction: eviction?,
            flapping: flapping?,
            health_label: raw.health_label.unwrap_or(false),
            ledger: ledger?,
            locate: locate?,
            guard: guard?,
            human_managers: human_managers?,
            events: events?,
            alertmanagers,
            prometheus,
            policies: policies?,
        })
    }

    fn scope(&mut self, raw: RawScope) -> Option<Scope> {
        let nodes = self.text_or(raw.nodes, DEFAULT_NODES, Selector::parse);
        let alerts = self.texts(&raw.alerts.unwrap_or_default(), Matcher::parse);
        let never = self.texts(&raw.never.unwrap_or_default(), Selector::parse);
        Some(Scope { nodes: nodes?, alerts: alerts?, never: never? })
    }

    fn isolation(&mut self, raw: RawIsolation, domain: &str) -> Option<Isolation> {
        let RawTaint { key, effect } = raw.taint.unwrap_or_default();
        let key = self.text_or(key, &format!("{domain}/isolated"), taint_key);
        let effect = self.text_or(effect, "NoSchedule", taint_effect);
        let former_keys = self.texts(&raw.former_keys.unwrap_or_default(), taint_key);
        effect?;
        Some(Isolation { taint_key: key?, cordon: raw.cordon.unwrap_or(false), former_keys: former_keys? })
    }

    /// The release rules of the whole configuration, which must say what a release requires.
    fn release(&mut self, raw: Option<&Spanned<RawRelease>>) -> Option<Release> {
        let after = match raw.and_then(|r| r.value.after.as_ref()) {
            Some(after) => self.text(after, hold_down),
            None => Some(DEFAULT_AFTER),
        };
        let require = match raw.and_then(|r| r.value.require.as_ref()) {
            Some(require) => self.require(require),
            None => self.refuse(
                raw.map_or(Place::START, Place::of),
                format!("release.require is missing and has no default: write what a release needs, of {REQUIREMENTS}"),
            ),
        };
        Some(Release { after: after?, require: require? })
    }

    fn require(&mut self, raw: &Spanned<Texts>) -> Option<BTreeSet<Requirement>> {
        if raw.value.is_empty() {
            let message = format!("require is empty, so nodes would return on time alone; list at least one of {REQUIREMENTS}");
            return self.refuse(Place::of(raw), message);
        }
        let has_prometheus = self.has_prometheus;
        self.texts(&raw.value, |text| requirement(text, has_prometheus))
    }

    fn locate(&mut self, raw: RawLocate) -> Option<Locate> {
        let node_labels = self.labels(raw.node_labels, &["node", "kubernetes_node", "nodename", "k8s_node_name"]);
        let hostname_labels = self.labels(raw.hostname_labels, &["node", "Hostname", "hostname", "exported_hostname"]);
        let instance_labels = self.labels(raw.instance_labels, &["instance"]);
        let uuid_labels = self.labels(raw.uuid_labels, &["UUID", "uuid", "gpu_uuid"]);
        let pci_labels = self.labels(raw.pci_labels, &["pci_bus_id"]);
        let index_labels = self.labels(raw.index_labels, &["gpu", "device"]);
        let exporter_pods = raw.exporter_pods.unwrap_or_else(|| DEFAULT_EXPORTER_PODS.map(placeless).into());
        let exporter_pods = self.texts(&exporter_pods, Selector::parse);
        Some(Locate {
            node_labels: node_labels?,
            hostname_labels: hostname_labels?,
            instance_labels: instance_labels?,
            exporter_pod_labels: raw.exporter_pod_labels.unwrap_or(true),
            uuid_labels: uuid_labels?,
            pci_labels: pci_labels?,
            index_labels: index_labels?,
            exporter_pods: exporter_pods?,
        })
    }

    fn labels(&mut self, raw: Option<Texts>, default: &[&str]) -> Option<Vec<String>> {
        let raw = raw.unwrap_or_else(|| default.iter().map(|name| placeless(name)).collect());
        self.texts(&raw, label_name)
    }

    fn human_managers(&mut self, raw: RawPeople) -> Option<Vec<ManagerPattern>> {
        let raw = raw.field_managers.unwrap_or_else(|| vec![placeless(DEFAULT_HUMAN_MANAGER)]);
        self.texts(&raw, ManagerPattern::parse)
    }

    fn events(&mut self, raw: RawEvents) -> Option<Events> {
        let namespace = self.text_or(raw.namespace, DEFAULT_EVENTS, event_namespace);
        Some(Events { enabled: raw.enabled.unwrap_or(true), namespace: namespace? })
    }
}

/// A default that takes the same way as a text of the file.
fn placeless(text: &str) -> Spanned<String> {
    Spanned::new(text.to_owned(), serde_saphyr::Location::UNKNOWN, serde_saphyr::Location::UNKNOWN)
}

/// A non-empty text that may stand as the value of a label or taint.
fn label_value(what: &str, text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err(format!("{what} is empty; write a name of 1 to 63 letters, digits, '-', '_' or '.'"));
    }
    flaw_in_value(text).map_or_else(|| Ok(text.to_owned()), |flaw| Err(format!("{what} {text:?} {flaw}")))
}

fn domain(text: &str) -> Result<String, String> {
    flaw_in_domain(text).map_or_else(|| Ok(text.to_owned()), |flaw| Err(format!("domain {text:?} {flaw}")))
}

fn taint_key(text: &str) -> Result<String, String> {
    if let Some(flaw) = flaw_in_key(text) {
        return Err(format!("taint key {text:?} {flaw}"));
    }
    if text == "nvidia.com/gpu" {
        return Err("the taint key nvidia.com/gpu does not isolate: GPU pods tolerate it through the admission plugin \
             ExtendedResourceToleration; choose a key of your own, such as gpu-quarantine.dev/isolated"
            .to_owned());
    }
    if text.starts_with("node.kubernetes.io/") {
        return Err(format!(
            "the taint key {text} belongs to Kubernetes, which adds and removes it by itself; choose a key of your own, \
             such as gpu-quarantine.dev/isolated"
        ));
    }
    Ok(text.to_owned())
}

fn taint_effect(text: &str) -> Result<(), String> {
    match text {
        "NoSchedule" => Ok(()),
        "NoExecute" => Err("the effect NoExecute is refused: it deletes pods past their disruption budgets (PDBs) and kills \
             the DCGM exporter, whose silence then looks like recovery; use NoSchedule"
            .to_owned()),
        "PreferNoSchedule" => {
            Err("the effect PreferNoSchedule is refused: it does not isolate, since pods are still scheduled when no other \
             node fits; use NoSchedule"
                .to_owned())
        }
        other => Err(format!("{other:?} is not an effect of a taint; the only one allowed is NoSchedule")),
    }
}

/// An Event about an object without a namespace, as a Node is, is taken in these two only
/// (<https://github.com/kubernetes/kubernetes/blob/v1.33.0/pkg/apis/core/validation/events.go>).
fn event_namespace(text: &str) -> Result<String, String> {
    match text {
        "default" | "kube-system" => Ok(text.to_owned()),
        _ => Err(format!(
            "namespace {text:?} cannot hold Events about nodes: Kubernetes takes them in default and kube-system only; write one \
             of these, or `enabled: false`"
        )),
    }
}

fn hold_down(text: &str) -> Result<Duration, String> {
    let after = humantime::parse_duration(text)
        .map_err(|e| format!("after {text:?} is not a duration ({e}); write a number with a unit, such as 10m or 1h 30m"))?;
    if after > MAX_AFTER {
        return Err(format!("after {text:?} is longer than 30 days; write 0s to 30d, and use `manual` in require instead"));
    }
    Ok(after)
}

fn requirement(text: &str, has_prometheus: bool) -> Result<Requirement, String> {
    match text {
        "resolved" => Ok(Requirement::Resolved),
        "evidence" if has_prometheus => Ok(Requirement::Evidence),
        "evidence" => {
            Err("evidence needs a Prometheus that can be asked for it; add `sources: {prometheus: {query_url: ...}}`, or \
                           require something else"
                .to_owned())
        }
        "manual" => Ok(Requirement::Manual),
        other => Err(format!("{other:?} is not a requirement; this version knows {REQUIREMENTS}")),
    }
}

fn label_name(text: &str) -> Result<String, String> {
    if text.is_empty() || text.trim() != text || text.chars().any(char::is_control) {
        return Err(format!("{text:?} is not the name of a label; write it as the alert has it, without spaces around it"));
    }
    Ok(text.to_owned())
}
