//! `guard`, and what a policy may have of its own of it.

use std::{ops::RangeInclusive, str::FromStr, time::Duration};

use serde_saphyr::Spanned;

use super::{Check, alertmanagers::duration, placeless, report::Place};
use crate::policy::{
    Action, Guard, Limits, Percent, PolicyGuard, Rate, Share,
    names::flaw_in_key,
    raw::{Opt, RawGuard, RawPolicy, RawPolicyGuard, RawRate, RawShare},
};

const DEFAULT_POOL_LABEL: &str = "node.kubernetes.io/instance-type";
const DEFAULT_SHARE: Share = Share { count: 3, percent: Percent::whole(10) };
const DEFAULT_RATE: Rate = Rate { count: 5, within: Duration::from_secs(10 * 60) };
const DEFAULT_LIMITS: Limits =
    Limits { fleet: DEFAULT_SHARE, pool: DEFAULT_SHARE, min_healthy: Percent::whole(50), new: DEFAULT_RATE };
const WINDOWS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(60 * 60);
const WEIGHTS: RangeInclusive<i32> = -1_000..=1_000;

impl Check<'_> {
    pub(super) fn guard(&mut self, raw: RawGuard) -> Option<Guard> {
        let pools = raw.pools.unwrap_or_default();
        let pool_label = self.text(&pools.label.unwrap_or_else(|| placeless(DEFAULT_POOL_LABEL)), pool_label);
        let limits = Given {
            fleet: raw.max_isolated,
            pool: pools.max_isolated,
            min_healthy: pools.min_healthy,
            new: raw.max_new_isolations,
        };
        let limits = self.limits(limits, DEFAULT_LIMITS);
        let max_evicted_gangs = self.rate(raw.max_evicted_gangs, DEFAULT_RATE);
        Some(Guard { pool_label: pool_label?, limits: limits?, max_evicted_gangs: max_evicted_gangs? })
    }

    /// What a policy has of its own; what it leaves out is as for all. `None` if it has nothing, `Some(None)` after a problem.
    #[expect(clippy::option_option, reason = "left out, or wrong")]
    pub(super) fn policy_guard(
        &mut self,
        raw: Option<&Spanned<RawPolicyGuard>>,
        action: Option<Action>,
        all: Option<&Limits>,
    ) -> Option<Option<PolicyGuard>> {
        let raw = raw?;
        if let Some(action) = action.filter(|action| !action.isolates()) {
            let message = format!("guard is for policies that isolate, and this one has action {action}; remove it");
            return Some(self.refuse(Place::of(raw), message));
        }
        let RawPolicyGuard { exempt, max_isolated, pools, max_new_isolations } = raw.value.clone();
        let pools = pools.unwrap_or_default();
        let given =
            Given { fleet: max_isolated, pool: pools.max_isolated, min_healthy: pools.min_healthy, new: max_new_isolations };
        if exempt == Some(true) {
            if given.is_some() {
                return Some(self.refuse(Place::of(raw), "exempt: true leaves no limit; remove it or the limits beside it"));
            }
            return Some(Some(PolicyGuard::Exempt));
        }
        Some(all.and_then(|all| self.limits(given, *all)).map(PolicyGuard::Limits))
    }

    pub(super) fn weight(&mut self, raw: &RawPolicy, action: Option<Action>) -> Option<i32> {
        let Some(text) = &raw.weight else { return Some(0) };
        let weight = self.text(text, weight);
        match action.filter(|action| !action.isolates()) {
            Some(action) => {
                let message = format!("weight is for policies that isolate, and this one has action {action}; remove it");
                self.refuse(Place::of(text), message)
            }
            None => weight,
        }
    }

    fn limits(&mut self, given: Given, fallback: Limits) -> Option<Limits> {
        let fleet = self.share(given.fleet, fallback.fleet);
        let pool = self.share(given.pool, fallback.pool);
        let min_healthy = self.or("min_healthy", given.min_healthy, fallback.min_healthy, percentage);
        let new = self.rate(given.new, fallback.new);
        Some(Limits { fleet: fleet?, pool: pool?, min_healthy: min_healthy?, new: new? })
    }

    fn share(&mut self, raw: Option<RawShare>, fallback: Share) -> Option<Share> {
        let raw = raw.unwrap_or_default();
        let count = self.or("count", raw.count, fallback.count, |_, text| count(text, "nodes"));
        let percent = self.or("percent", raw.percent, fallback.percent, percentage);
        Some(Share { count: count?, percent: percent? })
    }

    fn rate(&mut self, raw: Option<RawRate>, fallback: Rate) -> Option<Rate> {
        let raw = raw.unwrap_or_default();
        let count = self.or("count", raw.count, fallback.count, |_, text| count(text, "them"));
        let within = self.or("within", raw.within, fallback.within, |name, text| duration(name, text, &WINDOWS));
        Some(Rate { count: count?, within: within? })
    }

    fn or<T>(&mut self, name: &str, raw: Opt<String>, fallback: T, parse: impl Fn(&str, &str) -> Result<T, String>) -> Option<T> {
        raw.map_or(Some(fallback), |raw| self.text(&raw, |text| parse(name, text)))
    }
}

/// The limits that are written down.
struct Given {
    fleet: Option<RawShare>,
    pool: Option<RawShare>,
    min_healthy: Opt<String>,
    new: Option<RawRate>,
}

impl Given {
    fn is_some(&self) -> bool {
        self.fleet.is_some() || self.pool.is_some() || self.min_healthy.is_some() || self.new.is_some()
    }
}

fn pool_label(text: &str) -> Result<String, String> {
    flaw_in_key(text).map_or_else(|| Ok(text.to_owned()), |flaw| Err(format!("label {text:?} {flaw}")))
}

fn count(text: &str, of: &str) -> Result<u32, String> {
    u32::from_str(text).map_err(|_| format!("count {text:?} is not a whole number of {of}; write 0 to {}", u32::MAX))
}

fn percentage(name: &str, text: &str) -> Result<Percent, String> {
    text.parse().map_err(|()| format!("{name} {text:?} is not a number from 0 to 100; write it without a % sign"))
}

fn weight(text: &str) -> Result<i32, String> {
    let (least, most) = (WEIGHTS.start(), WEIGHTS.end());
    let weight = text.parse().ok().filter(|weight| WEIGHTS.contains(weight));
    weight.ok_or_else(|| format!("weight {text:?} is not a whole number from {least} to {most}"))
}
