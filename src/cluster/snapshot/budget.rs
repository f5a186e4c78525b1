//! What a `PodDisruptionBudget` allows, by the rules of the API server and of its disruption controller. Pure.

use serde_json::{Map, Value};

use super::Pod;
use crate::{
    cluster::EvictionAnswer,
    locate::{NodeName, PodFacts, PodPhase},
    policy::Selector,
};

#[cfg(test)]
mod tests;

/// A `PodDisruptionBudget` of `policy/v1`.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) namespace: String,
    pub(super) name: String,
    pods: Pods,
    limit: Limit,
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`.
    always_allow: bool,
    /// The most pods that were there at once. The real controller asks the pods' controllers how many there should be; nobody here
    /// makes new ones in the place of those that left.
    expected: u64,
}

/// Which pods it is about.
#[derive(Debug)]
enum Pods {
    /// Without a selector.
    None,
    /// With an empty one.
    All,
    Matching(Selector),
}

#[derive(Debug, Clone, Copy)]
enum Limit {
    /// Neither of the two: no pod may leave, as the controller expects none.
    Absent,
    MinAvailable(Amount),
    MaxUnavailable(Amount),
}

#[derive(Debug, Clone, Copy)]
enum Amount {
    Count(u64),
    Percent(u64),
}

impl Amount {
    /// Percents are rounded up, for both limits.
    fn of(self, expected: u64) -> u64 {
        match self {
            Self::Count(count) => count,
            Self::Percent(percent) => percent.saturating_mul(expected).div_ceil(100),
        }
    }
}

impl Budget {
    /// Read it. The error is the field and what is wrong with it.
    pub(super) fn read(raw: &Value) -> Result<Self, String> {
        let text = |path: &str| raw.pointer(path).and_then(Value::as_str);
        let name = text("/metadata/name").filter(|name| NodeName::parse(name).is_ok());
        let amount = |field: &str| match raw.pointer(&format!("/spec/{field}")) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => {
                amount(value).map(Some).ok_or_else(|| format!("spec.{field} is {value}; expected a number or a percentage"))
            }
        };
        let limit = match (amount("minAvailable")?, amount("maxUnavailable")?) {
            (None, None) => Limit::Absent,
            (Some(least), None) => Limit::MinAvailable(least),
            (None, Some(most)) => Limit::MaxUnavailable(most),
            (Some(_), Some(_)) => return Err("spec: minAvailable and maxUnavailable cannot be both set".to_owned()),
        };
        Ok(Self {
            namespace: text("/metadata/namespace").unwrap_or("default").to_owned(),
            name: name.ok_or("metadata.name is absent, or no name")?.to_owned(),
            pods: match raw.pointer("/spec/selector") {
                None | Some(Value::Null) => Pods::None,
                Some(Value::Object(selector)) => pods(selector)?,
                Some(_) => return Err("spec.selector is not a map".to_owned()),
            },
            limit,
            always_allow: text("/spec/unhealthyPodEvictionPolicy") == Some("AlwaysAllow"),
            expected: 0,
        })
    }

    fn is_about(&self, pod: &PodFacts) -> bool {
        let matches = match &self.pods {
            Pods::None => false,
            Pods::All => true,
            Pods::Matching(selector) => selector.matches(&pod.labels),
        };
        matches && pod.name.namespace() == self.namespace
    }

    /// Take note of the pods that are there now.
    pub(super) fn expect<'a>(&mut self, pods: impl Iterator<Item = &'a Pod>) {
        let there = pods.filter(|pod| self.is_about(&pod.facts) && !is_finished(&pod.facts)).count();
        self.expected = self.expected.max(there as u64);
    }

    /// How many healthy pods it wants, and how many there are.
    fn balance<'a>(&self, pods: impl Iterator<Item = &'a Pod>) -> (u64, u64) {
        let healthy = pods.filter(|pod| self.is_about(&pod.facts) && pod.facts.deleted.is_none() && is_healthy(pod)).count();
        let desired = match self.limit {
            Limit::Absent => 0,
            Limit::MinAvailable(least) => least.of(self.expected),
            Limit::MaxUnavailable(most) => self.expected.saturating_sub(most.of(self.expected)),
        };
        (desired, healthy as u64)
    }

    fn allows<'a>(&self, pod: &Pod, pods: impl Iterator<Item = &'a Pod>) -> Result<(), EvictionAnswer> {
        let (desired, healthy) = self.balance(pods);
        let unready = !is_healthy(pod) && (self.always_allow || (healthy >= desired && desired > 0));
        if unready || (!matches!(self.limit, Limit::Absent) && healthy > desired) {
            return Ok(());
        }
        let name = &self.name;
        let message = format!(
            "Cannot evict pod as it would violate the pod's disruption budget. The disruption budget {name} needs {desired} healthy pods \
             and has {healthy} currently"
        );
        Err(EvictionAnswer::Blocked { budget: Some(name.clone()), message })
    }
}

/// Whether the budgets let a pod go; else the answer of the API server. It looks at them before it looks at the UID.
pub(super) fn check<'a>(pod: &Pod, budgets: &[Budget], pods: impl Iterator<Item = &'a Pod>) -> Result<(), EvictionAnswer> {
    if is_finished(&pod.facts) || pod.facts.phase == PodPhase::Pending || pod.facts.deleted.is_some() {
        return Ok(());
    }
    let mut about = budgets.iter().filter(|budget| budget.is_about(&pod.facts));
    match (about.next(), about.next()) {
        (None, _) => Ok(()),
        (Some(budget), None) => budget.allows(pod, pods),
        (Some(_), Some(_)) => Err(EvictionAnswer::ManyBudgets {
            message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
                .to_owned(),
        }),
    }
}

fn is_finished(pod: &PodFacts) -> bool {
    matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed)
}

/// Ready; without conditions, as hand-written pods are, running.
fn is_healthy(pod: &Pod) -> bool {
    match pod.raw.pointer("/status/conditions").and_then(Value::as_array) {
        Some(conditions) if !conditions.is_empty() => {
            let is = |condition: &Value, key: &str, value: &str| condition.get(key).and_then(Value::as_str) == Some(value);
            conditions.iter().any(|c| is(c, "type", "Ready") && is(c, "status", "True"))
        }
        _ => pod.facts.phase == PodPhase::Running,
    }
}

fn amount(value: &Value) -> Option<Amount> {
    match value {
        Value::String(text) => text.strip_suffix('%')?.parse().ok().map(Amount::Percent),
        other => other.as_u64().map(Amount::Count),
    }
}

/// A selector of labels as objects have it, in the syntax that we parse.
fn pods(selector: &Map<String, Value>) -> Result<Pods, String> {
    let labels = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let equal = labels.map(|(key, value)| match value {
        Value::String(value) => Ok(format!("{key}={value}")),
        _ => Err(format!("spec.selector.matchLabels[{key:?}] is not a string")),
    });
    let expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    let requirements = equal.chain(expressions.map(requirement)).collect::<Result<Vec<_>, _>>()?;
    if requirements.is_empty() {
        return Ok(Pods::All);
    }
    Selector::parse(&requirements.join(",")).map(Pods::Matching).map_err(|e| format!("spec.selector: {}", e.message()))
}

fn requirement(expression: &Value) -> Result<String, String> {
    let text = |key: &str| expression.get(key).and_then(Value::as_str).unwrap_or_default();
    let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
    let values = values.filter_map(Value::as_str).collect::<Vec<_>>().join(",");
    let key = text("key");
    match text("operator") {
        "In" => Ok(format!("{key} in ({values})")),
        "NotIn" => Ok(format!("{key} notin ({values})")),
        "Exists" => Ok(key.to_owned()),
        "DoesNotExist" => Ok(format!("!{key}")),
        other => Err(format!("spec.selector.matchExpressions: {other:?} is none of In, NotIn, Exists and DoesNotExist")),
    }
}
