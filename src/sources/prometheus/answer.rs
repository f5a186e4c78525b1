//! What Prometheus answers.

use std::{borrow::Cow, collections::BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, de::IgnoredAny};

use super::{ActiveAlert, FailingRule, Rules};
use crate::{
    alert::{Labels, Matcher, reads},
    quarantine::evidence::{Range, Series},
};

/// The most series of one answer: a node with 16 GPUs has no more than some hundreds of sets of names.
pub(super) const MOST_SERIES: usize = 512;
/// The most series that are kept of an instant query: sixteen GPUs with a hundred fields each.
const MOST_VALUES: usize = 1_600;
/// What is shown of a text that others wrote, in characters.
const SHOWN: usize = 200;

/// The frame of every answer. `warnings` come with partial answers (Thanos, a failed remote read), `isPartial` from `VictoriaMetrics`.
#[derive(Deserialize)]
struct Frame<'a, T> {
    #[serde(borrow)]
    status: Cow<'a, str>,
    data: Option<T>,
    error: Option<String>,
    #[serde(default)]
    warnings: Option<Vec<String>>,
    #[serde(default, rename = "isPartial")]
    is_partial: bool,
}

#[derive(Deserialize)]
struct Matrix<'a> {
    #[serde(borrow, rename = "resultType")]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    result: Vec<Row<'a>>,
}

#[derive(Deserialize)]
struct Vector {
    #[serde(rename = "resultType")]
    kind: String,
    result: Vec<serde_json::Value>,
}

#[derive(Deserialize)]
struct Row<'a> {
    metric: Labels,
    #[serde(borrow, default)]
    values: Vec<(f64, Cow<'a, str>)>,
}

/// A series of an answer: its labels, and when it had a number.
pub(super) type Found = (Labels, Series);

/// The series of an answer to a range query.
///
/// # Errors
/// As a clause, if it is an error, partial, cut, about other times, or none.
pub(super) fn matrix(body: &[u8], range: &Range) -> Result<Vec<Found>, String> {
    let data: Matrix<'_> = whole(body)?;
    if data.kind != "matrix" {
        return Err("it did not answer with a matrix".to_owned());
    }
    if data.result.len() > MOST_SERIES {
        return Err(format!("the answer has {} series, more than {MOST_SERIES}", data.result.len()));
    }
    let steps: BTreeSet<Timestamp> = range.steps().collect();
    let series = |row: Row<'_>| {
        let numbers = row.values.iter().filter(|(_, value)| value.parse::<f64>().is_ok_and(|v| !v.is_nan()));
        let at = numbers.map(|(at, _)| {
            step(*at).filter(|at| steps.contains(at)).ok_or_else(|| {
                "it answered for other times than it was asked for; if a query frontend aligns them with the step, turn that off \
                 (Thanos: --no-query-range.align-range-with-step)"
                    .to_owned()
            })
        });
        Ok((row.metric, at.collect::<Result<Series, String>>()?))
    };
    data.result.into_iter().map(series).collect()
}

/// The series of an answer to an instant query, as they are; not more than are of use to a person.
///
/// # Errors
/// As a clause, if it is an error, partial, or none.
pub(super) fn vector(body: &[u8]) -> Result<Vec<serde_json::Value>, String> {
    let mut data: Vector = whole(body)?;
    if data.kind != "vector" {
        return Err("it did not answer with a vector".to_owned());
    }
    data.result.truncate(MOST_VALUES);
    Ok(data.result)
}

/// Times are seconds, with a fraction if need be. Ours are whole.
#[expect(clippy::cast_possible_truncation, reason = "a float converts to the nearest i64, and what is no time is refused then")]
fn step(at: f64) -> Option<Timestamp> {
    let whole = at.fract().abs() < f64::EPSILON;
    Timestamp::from_second(at as i64).ok().filter(|_| whole)
}

/// What the body of an error says.
pub(super) fn explanation(body: &[u8]) -> Option<String> {
    serde_json::from_slice::<Frame<'_, IgnoredAny>>(body).ok()?.error.map(|e| shown(&e))
}

fn whole<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    let frame: Frame<'a, T> =
        serde_json::from_slice(body).map_err(|e| format!("the answer is not that of Prometheus' HTTP API v1 ({e})"))?;
    if frame.status != "success" {
        return Err(format!("it says: {}", frame.error.map_or_else(|| "an error".to_owned(), |e| shown(&e))));
    }
    if let Some(warning) = frame.warnings.and_then(|w| w.into_iter().next()) {
        return Err(format!("the answer may be partial, it warns: {}", shown(&warning)));
    }
    if frame.is_partial {
        return Err("the answer is partial".to_owned());
    }
    frame.data.ok_or_else(|| "the answer is not that of Prometheus' HTTP API v1 (it has no data)".to_owned())
}

#[derive(Deserialize)]
struct Groups {
    groups: Vec<Group>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    rules: Vec<Rule>,
}

#[derive(Deserialize)]
struct Rule {
    #[serde(default)]
    name: String,
    #[serde(default)]
    query: String,
    #[serde(default)]
    health: String,
    #[serde(default, rename = "lastError")]
    last_error: String,
    #[serde(default)]
    alerts: Option<Vec<Active>>,
}

#[derive(Deserialize)]
struct Active {
    #[serde(default)]
    state: String,
    #[serde(default)]
    labels: Labels,
    #[serde(default)]
    annotations: Labels,
}

/// What an answer of the rules API says. An alert that contradicts the selector is another cluster's; one without such a label need
/// not be, since Prometheus shows alerts without its external labels.
pub(super) fn rules(body: &[u8], selector: &[Matcher]) -> Result<Rules, String> {
    let data: Groups = whole(body)?;
    let mut rules = Rules { alerts: Vec::new(), failing: Vec::new() };
    let mut others: Vec<(String, String)> = Vec::new();
    for rule in data.groups.into_iter().flat_map(|group| group.rules) {
        if rule.health == "err" {
            rules.failing.push(FailingRule { name: shown(&rule.name), error: shown(&rule.last_error) });
        } else {
            others.push((rule.name, rule.query));
        }
        for alert in rule.alerts.into_iter().flatten().filter(|alert| alert.state == "firing") {
            let foreign = selector.iter().any(|m| alert.labels.get(m.name()).is_some() && !m.matches(&alert.labels));
            if let Some(query) = alert.annotations.get(RECOVERY_QUERY).filter(|_| !foreign) {
                rules.alerts.push(ActiveAlert { recovery_query: query.to_owned(), labels: alert.labels });
            }
        }
    }
    add_readers(&mut rules.failing, others);
    Ok(rules)
}

/// A rule that reads what a failing one records goes on with what is old. `others` are those that do not fail, with their expressions.
fn add_readers(failing: &mut Vec<FailingRule>, mut others: Vec<(String, String)>) {
    let mut next = 0;
    while let Some(failed) = failing.get(next).cloned() {
        next += 1;
        let (readers, rest) = others.into_iter().partition::<Vec<_>, _>(|(_, query)| reads(query, &failed.name));
        others = rest;
        let error = format!("it reads {}, which fails", failed.name);
        failing.extend(readers.into_iter().map(|(name, _)| FailingRule { name: shown(&name), error: error.clone() }));
    }
}

const RECOVERY_QUERY: &str = "recovery_query";

/// On one line, and not too long.
fn shown(text: &str) -> String {
    let line: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(SHOWN).collect();
    line.trim().to_owned()
}
