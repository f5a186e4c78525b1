//! `eviction`, and what a policy may have of its own.

use std::{collections::BTreeSet, ops::RangeInclusive, time::Duration};

use serde_saphyr::Spanned;

use super::{Check, alertmanagers::duration, label_name, placeless, recurrence::object_name};
use crate::policy::{
    Eviction, EvictionRules, OnDeadline, OrderBy, Selector, UnknownGpu,
    names::flaw_in_key,
    raw::{RawEviction, RawEvictionRules, Texts},
};

const DEFAULT_PODS: &str = "evict=true";
const DEFAULT_NEVER_NAMESPACES: [&str; 1] = ["kube-system"];
const DEFAULT_ORDER: [&str; 2] = ["priority", "batch"];
const DEFAULT_RESTARTS: &str = "2";
/// The fault classes of alert-rules/ in which the program cannot go on.
const DEFAULT_NO_PROGRESS: [&str; 2] = ["gpu-lost", "gpu-missing"];
const DEFAULT_KEEP: &str = "200";
const DEFAULT_KEEP_FOR: &str = "30d";
const DEFAULT_SETTLE: &str = "5s";
const DEFAULT_DEADLINE: &str = "30m";
const DEFAULT_ON_DEADLINE: &str = "leave";
const DEFAULT_UNKNOWN_GPU: &str = "refuse";
const DEFAULT_CHECKPOINT: &str = "2m";
const SETTLES: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60 * 60);
const DEADLINES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(7 * 24 * 60 * 60);
const CHECKPOINTS: RangeInclusive<Duration> = Duration::ZERO..=Duration::from_secs(60 * 60);
const AGES: RangeInclusive<Duration> = Duration::from_secs(60 * 60)..=Duration::from_secs(366 * 24 * 60 * 60);
/// As many of at most 900 KiB are what a small etcd bears.
const MOST_KEPT: usize = 1_000;

impl Check<'_> {
    pub(super) fn eviction(&mut self, raw: RawEviction, domain: &str) -> Option<Eviction> {
        let pods = self.text_or(raw.pods, &format!("{domain}/{DEFAULT_PODS}"), Selector::parse);
        let namespaces = self.texts(&raw.namespaces.unwrap_or_default(), namespace);
        let never = raw.never_namespaces.unwrap_or_else(|| DEFAULT_NEVER_NAMESPACES.map(placeless).into());
        let never_namespaces = self.texts(&never, namespace);
        let owners = self.texts(&raw.owners.unwrap_or_default(), kind);
        let protect = self.texts(&raw.protect.unwrap_or_default(), Selector::parse);
        let group_label = raw.group_label.as_ref().map(|label| self.text(label, label_key));
        let order = raw.order.unwrap_or_else(|| DEFAULT_ORDER.map(placeless).into());
        let order = self.order(&order);
        let max_restarts_per_hour = self.text_or(raw.max_restarts_per_hour, DEFAULT_RESTARTS, restarts);
        let no_progress = raw.no_progress.unwrap_or_else(|| DEFAULT_NO_PROGRESS.map(placeless).into());
        let no_progress: Option<BTreeSet<String>> = self.texts(&no_progress, label_name);
        let evidence = raw.evidence.unwrap_or_default();
        let evidence_count = self.text_or(evidence.keep, DEFAULT_KEEP, kept);
        let evidence_age = self.text_or(evidence.keep_for, DEFAULT_KEEP_FOR, |t| duration("keep_for", t, &AGES));
        let rules = RawEvictionRules {
            settle: raw.settle,
            deadline: raw.deadline,
            on_deadline: raw.on_deadline,
            unknown_gpu: raw.unknown_gpu,
            checkpoint: raw.checkpoint,
        };
        let rules = self.eviction_rules(&rules, None);
        let group_label = match group_label {
            Some(label) => Some(label?),
            None => None,
        };
        Some(Eviction {
            pods: pods?,
            namespaces: namespaces?,
            never_namespaces: never_namespaces?,
            owners: owners?,
            protect: protect?,
            group_label,
            order: order?,
            max_restarts_per_hour: max_restarts_per_hour?,
            no_progress: no_progress?,
            evidence_count: evidence_count?,
            evidence_age: evidence_age?,
            rules: rules?,
        })
    }

    /// What is left out is as in `fallback`, or as by default.
    pub(super) fn eviction_rules(&mut self, raw: &RawEvictionRules, fallback: Option<&EvictionRules>) -> Option<EvictionRules> {
        let settle =
            self.rule(raw.settle.as_ref(), DEFAULT_SETTLE, fallback.map(|f| f.settle), |t| duration("settle", t, &SETTLES));
        let deadline = self
            .rule(raw.deadline.as_ref(), DEFAULT_DEADLINE, fallback.map(|f| f.deadline), |t| duration("deadline", t, &DEADLINES));
        let on_deadline = self.rule(raw.on_deadline.as_ref(), DEFAULT_ON_DEADLINE, fallback.map(|f| f.on_deadline), on_deadline);
        let unknown_gpu = self.rule(raw.unknown_gpu.as_ref(), DEFAULT_UNKNOWN_GPU, fallback.map(|f| f.unknown_gpu), unknown_gpu);
        let checkpoint = self.rule(raw.checkpoint.as_ref(), DEFAULT_CHECKPOINT, fallback.map(|f| f.checkpoint), |t| {
            duration("checkpoint", t, &CHECKPOINTS)
        });
        Some(EvictionRules {
            settle: settle?,
            deadline: deadline?,
            on_deadline: on_deadline?,
            unknown_gpu: unknown_gpu?,
            checkpoint: checkpoint?,
        })
    }

    fn rule<T, E: Into<super::Flaw>>(
        &mut self,
        raw: Option<&Spanned<String>>,
        default: &str,
        fallback: Option<T>,
        parse: impl Fn(&str) -> Result<T, E>,
    ) -> Option<T> {
        match (raw, fallback) {
            (Some(raw), _) => self.text(raw, parse),
            (None, Some(fallback)) => Some(fallback),
            (None, None) => self.text(&placeless(default), parse),
        }
    }

    fn order(&mut self, raw: &Texts) -> Option<Vec<OrderBy>> {
        self.texts(raw, |text| match text {
            "priority" => Ok(OrderBy::Priority),
            "batch" => Ok(OrderBy::Batch),
            other => Err(format!("{other:?} is nothing to put groups in order by; use priority or batch")),
        })
    }
}

fn namespace(text: &str) -> Result<String, String> {
    object_name("namespace", text)
}

/// A label of pods, unlike those of alerts.
fn label_key(text: &str) -> Result<String, String> {
    flaw_in_key(text).map_or_else(|| Ok(text.to_owned()), |flaw| Err(format!("group_label {text:?} {flaw}")))
}

fn kind(text: &str) -> Result<String, String> {
    if !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric()) && text.starts_with(|c: char| c.is_ascii_uppercase()) {
        return Ok(text.to_owned());
    }
    Err(format!("{text:?} is not a kind; write it as in ownerReferences, such as Job or JobSet"))
}

fn restarts(text: &str) -> Result<u32, String> {
    text.parse()
        .ok()
        .filter(|n| (1..=1_000).contains(n))
        .ok_or_else(|| format!("max_restarts_per_hour {text:?} is not a number of restarts; write 1 to 1000"))
}

fn kept(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|n| *n <= MOST_KEPT)
        .ok_or_else(|| format!("keep {text:?} is not a number of documents; write 0 (for none) to {MOST_KEPT}"))
}

fn on_deadline(text: &str) -> Result<OnDeadline, String> {
    match text {
        "leave" => Ok(OnDeadline::Leave),
        "delete" => Ok(OnDeadline::Delete),
        other => Err(format!(
            "{other:?} is nothing to do at the deadline; use leave (the default), or delete, which goes past disruption budgets"
        )),
    }
}

fn unknown_gpu(text: &str) -> Result<UnknownGpu, String> {
    match text {
        "node" => Ok(UnknownGpu::Node),
        "refuse" => Ok(UnknownGpu::Refuse),
        other => Err(format!("{other:?} is not a value of unknown_gpu; use refuse (the default) or node")),
    }
}
