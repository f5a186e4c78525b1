//! The list of policies: each by itself, and what only shows when they stand side by side.

use std::collections::{BTreeMap, BTreeSet};

use serde_saphyr::Spanned;

use super::{Check, hold_down, label_value, report::Place};
use crate::{
    alert::Matcher,
    policy::{
        Action, EvictionRules, Limits, Policy, Release, WhenCordoned,
        raw::{RawEvictionRules, RawPolicy, RawRelease},
    },
};

/// Name, matcher and action of the policies that hold when none are given.
const DEFAULT_POLICIES: [(&str, &str, Action); 5] = [
    // Before `observe`, whose label the watchdog of alert-rules/ has as well.
    ("heartbeat", r#"alertname=~"Watchdog|GpuQuarantineWatchdog""#, Action::Heartbeat),
    ("evict", r#"remediation="evict""#, Action::Evict),
    ("isolate", r#"remediation="isolate""#, Action::Isolate),
    ("freeze", r#"remediation="freeze""#, Action::Freeze),
    ("observe", r#"remediation="observe""#, Action::Observe),
];

impl Check<'_> {
    pub(super) fn policies(&mut self, raw: Option<Vec<Spanned<RawPolicy>>>, fallback: &Fallback<'_>) -> Option<Vec<Policy>> {
        let Some(raw) = raw else { return self.default_policies() };
        let mut policies = Vec::with_capacity(raw.len());
        let mut seen = Seen::default();
        for item in &raw {
            policies.push(self.policy(item, fallback, &mut seen));
        }
        policies.into_iter().collect()
    }

    fn default_policies(&mut self) -> Option<Vec<Policy>> {
        let policies = DEFAULT_POLICIES.map(|(name, matcher, action)| {
            let matchers = vec![self.text(&super::placeless(matcher), Matcher::parse)?];
            let when_cordoned = WhenCordoned::default();
            Some(Policy {
                name: name.to_owned(),
                matchers,
                action,
                release: None,
                eviction: None,
                guard: None,
                weight: 0,
                when_cordoned,
            })
        });
        policies.into_iter().collect()
    }

    fn policy(&mut self, item: &Spanned<RawPolicy>, fallback: &Fallback<'_>, seen: &mut Seen) -> Option<Policy> {
        let raw = &item.value;
        let name = match &raw.name {
            Some(name) => self.text(name, |t| label_value("the policy name", t)),
            None => self.refuse(Place::of(item), "this policy has no name; add `name: ...`, which is written into the taint"),
        };
        let matchers: Option<Vec<Matcher>> = match &raw.matchers {
            Some(list) if list.value.is_empty() => self.refuse(
                Place::of(list),
                "match is empty, so every alert would match; list at least one matcher, such as 'alertname=\"GpuLost\"'",
            ),
            Some(list) => self.texts(&list.value, Matcher::parse),
            None => self.refuse(
                Place::of(item),
                "this policy has no match; add `match: [...]` with at least one matcher, such as 'alertname=\"GpuLost\"'",
            ),
        };
        let action = match &raw.action {
            Some(action) => self.text(action, parse_action),
            None => self.refuse(
                Place::of(item),
                "this policy has no action; add `action: ...` with one of observe, freeze, isolate, evict, heartbeat",
            ),
        };
        let release = raw.release.as_ref().map(|r| self.policy_release(&r.value, fallback.release));
        let eviction = raw.eviction.as_ref().map(|e| self.policy_eviction(e, action, fallback.eviction));
        let guard = self.policy_guard(raw.guard.as_ref(), action, fallback.limits);
        let weight = self.weight(raw, action);
        self.compare(item, name.as_deref(), matchers.as_deref(), seen);
        let release = match release {
            Some(release) => Some(release?),
            None => None,
        };
        let eviction = match eviction {
            Some(eviction) => Some(eviction?),
            None => None,
        };
        let guard = match guard {
            Some(guard) => Some(guard?),
            None => None,
        };
        let when_cordoned = self.when_cordoned(raw, action);
        Some(Policy {
            name: name?,
            matchers: matchers?,
            action: action?,
            release,
            eviction,
            guard,
            weight: weight?,
            when_cordoned: when_cordoned?,
        })
    }

    fn when_cordoned(&mut self, raw: &RawPolicy, action: Option<Action>) -> Option<WhenCordoned> {
        let Some(text) = &raw.when_cordoned else { return Some(WhenCordoned::default()) };
        let when = self.text(text, parse_when_cordoned);
        match action.filter(|action| !action.isolates()) {
            Some(action) => {
                let message = format!("when_cordoned is for policies that isolate, and this one has action {action}; remove it");
                self.refuse(Place::of(text), message)
            }
            None => when,
        }
    }

    fn policy_eviction(
        &mut self,
        raw: &Spanned<RawEvictionRules>,
        action: Option<Action>,
        fallback: Option<&EvictionRules>,
    ) -> Option<EvictionRules> {
        match action.filter(|action| *action != Action::Evict) {
            Some(action) => {
                let message = format!("eviction is for policies that evict, and this one has action {action}; remove it");
                self.refuse(Place::of(raw), message)
            }
            None => self.eviction_rules(&raw.value, fallback),
        }
    }

    fn policy_release(&mut self, raw: &RawRelease, fallback: Option<&Release>) -> Option<Release> {
        if let Some(flapping) = &raw.flapping {
            return self.refuse(
                Place::of(flapping),
                "flapping is a matter of the machine, not of one policy; write it below the `release` of the whole configuration",
            );
        }
        let after = match &raw.after {
            Some(after) => self.text(after, hold_down),
            None => fallback.map(|r| r.after),
        };
        let require = match &raw.require {
            Some(require) => self.require(require),
            None => fallback.map(|r| r.require.clone()),
        };
        Some(Release { after: after?, require: require? })
    }

    /// Against the policies before it: its name must be new, and it must be able to match something that they do not.
    fn compare(&mut self, item: &Spanned<RawPolicy>, name: Option<&str>, matchers: Option<&[Matcher]>, seen: &mut Seen) {
        let (line, raw) = (Place::of(item).line, &item.value);
        if let Some((name, raw)) = name.zip(raw.name.as_ref())
            && let Some(earlier) = seen.names.insert(name.to_owned(), line)
        {
            let message = format!("the policy name {name:?} is already used on line {earlier}; each policy needs its own");
            self.refuse::<()>(Place::of(raw), message);
        }
        let Some((matchers, raw)) = matchers.zip(raw.matchers.as_ref()) else { return };
        // All must match, so neither order nor repetition of the matchers matters.
        let matchers: BTreeSet<String> = matchers.iter().map(ToString::to_string).collect();
        let title = name.map_or_else(|| "without a name".to_owned(), |n| format!("{n:?}"));
        if let Some((earlier, line)) = seen.matchers.get(&matchers) {
            let message = format!(
                "the policy {title} can never be reached: the policy {earlier} on line {line} has the same matchers and \
                 comes first; change or remove one"
            );
            self.refuse::<()>(Place::of(raw), message);
        } else {
            seen.matchers.insert(matchers, (title, line));
        }
    }
}

/// What a policy's own rules leave out; without it there already is a problem.
pub(super) struct Fallback<'a> {
    pub(super) release: Option<&'a Release>,
    pub(super) eviction: Option<&'a EvictionRules>,
    pub(super) limits: Option<&'a Limits>,
}

/// What later policies are compared with; each with the line of its policy.
#[derive(Default)]
struct Seen {
    names: BTreeMap<String, usize>,
    matchers: BTreeMap<BTreeSet<String>, (String, usize)>,
}

fn parse_when_cordoned(text: &str) -> Result<WhenCordoned, String> {
    match text {
        "isolate" => Ok(WhenCordoned::Isolate),
        "observe" => Ok(WhenCordoned::Observe),
        other => Err(format!("{other:?} is not a value of when_cordoned; use isolate (the default) or observe")),
    }
}

fn parse_action(text: &str) -> Result<Action, String> {
    match text {
        "observe" => Ok(Action::Observe),
        "freeze" => Ok(Action::Freeze),
        "isolate" => Ok(Action::Isolate),
        "heartbeat" => Ok(Action::Heartbeat),
        "evict" => Ok(Action::Evict),
        other => Err(format!("{other:?} is not an action; use observe, freeze, isolate, evict or heartbeat")),
    }
}
