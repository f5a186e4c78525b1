//! Prometheus as far as its alerts go. The facts are those of `prometheus/rules/alerting.go` and `manager.go`, version 3.

use std::collections::BTreeMap;

/// `evaluation_interval`.
const EVALUATES: i64 = 15;
/// `--rules.alert.resend-delay`; with the evaluation that follows it, every 60 to 75 s.
const RESENDS: i64 = 60;
/// What Prometheus calls `validUntil`: four times the resend delay after each report.
const LEASE: i64 = 240;
/// `resolvedRetention`: a resolve is told again for so long.
const RETAINS: i64 = 900;

/// What it tells Alertmanager of one alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Report {
    pub(crate) alert: usize,
    pub(crate) starts: i64,
    /// The end of the lease while it fires.
    pub(crate) ends: i64,
}

#[derive(Debug, Clone, Copy)]
struct Active {
    fired: i64,
    resolved: Option<i64>,
    sent: Option<i64>,
}

/// One Prometheus, with a rule per alert and `for: 0s`.
#[derive(Debug, Default)]
pub(crate) struct Prometheus {
    active: BTreeMap<usize, Active>,
}

impl Prometheus {
    /// The alerts that fire, as the rules API shows them.
    pub(crate) fn fires(&self) -> impl Iterator<Item = usize> {
        self.active.iter().filter(|(_, active)| active.resolved.is_none()).map(|(alert, _)| *alert)
    }

    /// What it reports at `now`. `fires` is what its series show.
    pub(crate) fn tick(&mut self, now: i64, up: bool, fires: impl Fn(usize) -> bool, alerts: usize) -> Vec<Report> {
        if !up {
            // Rules with `for` below ten minutes are not restored (rules/group.go): it starts afresh, and what it had not told is lost.
            self.active.clear();
            return Vec::new();
        }
        if now % EVALUATES != 0 {
            return Vec::new();
        }
        let mut reports = Vec::new();
        for alert in 0..alerts {
            match (self.active.get_mut(&alert), fires(alert)) {
                (None, true) => drop(self.active.insert(alert, Active { fired: now, resolved: None, sent: None })),
                (Some(was), true) if was.resolved.is_some() => *was = Active { fired: now, resolved: None, sent: None },
                (Some(was), false) if was.resolved.is_none() => was.resolved = Some(now),
                (Some(was), false) if was.resolved.is_some_and(|at| now - at > RETAINS) => drop(self.active.remove(&alert)),
                _ => {}
            }
            let Some(active) = self.active.get_mut(&alert) else { continue };
            // needsSending: a resolve that was not told yet goes out at once.
            let untold = active.sent.is_none_or(|sent| active.resolved.is_some_and(|at| at > sent));
            if untold || active.sent.is_some_and(|sent| now - sent >= RESENDS) {
                active.sent = Some(now);
                reports.push(Report { alert, starts: active.fired, ends: active.resolved.unwrap_or(now + LEASE) });
            }
        }
        reports
    }
}
