//! Prometheus asked whether faults are gone: range queries about one node, and the rules that fire.

mod answer;
mod present;
mod query;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use futures::{StreamExt as _, stream};
use http::StatusCode;
use serde::{Deserialize, Serialize};

use self::answer::Found;
use super::http_client::{About, AskError, HttpClient, Reply, query_value};
use crate::{
    alert::{Labels, RecoveryQuery},
    metrics::Metrics,
    policy::{Locate, PeerUrl, Prometheus},
    quarantine::evidence::{NodeAnswers, Question, Range, Series},
};

/// How many queries about one node are under way at once.
const AT_ONCE: usize = 4;

static ABOUT: About = About {
    section: "sources.prometheus",
    // 4,000 steps of 200 series; or the rules and firing alerts of a large fleet.
    max_body: 32 << 20,
    too_large: "give this service a Prometheus with fewer series or rules: see query_url, rules_url and selector",
    busy: "it is starting or has too much to do; it is asked again in the next round",
    explains_errors: true,
};

/// Where evidence comes from.
#[derive(Debug, Clone)]
pub struct Evidence {
    settings: Arc<Prometheus>,
    locate: Arc<Locate>,
    metrics: Arc<Metrics>,
}

/// A client for one round: what its files held when it was made.
#[derive(Debug)]
pub struct EvidenceClient {
    evidence: Evidence,
    http: HttpClient,
}

/// What the rules API shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// The alerts that fire and have a `recovery_query`.
    pub alerts: Vec<ActiveAlert>,
    /// The rules that could not be evaluated, and those that read from them: what they recorded is old for up to 5 minutes, and then
    /// missing.
    pub failing: Vec<FailingRule>,
}

/// An alert that fires, as the rules API shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveAlert {
    /// Its labels, without the external labels of its Prometheus.
    pub labels: Labels,
    /// Its annotation `recovery_query`, as Prometheus rendered it.
    pub recovery_query: String,
}

/// A rule that could not be evaluated the last time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingRule {
    /// Its name.
    pub name: String,
    /// What Prometheus says of it.
    pub error: String,
}

impl fmt::Display for FailingRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the rule {} fails: {}", self.name, self.error)
    }
}

impl Evidence {
    /// From a Prometheus of the configuration. Nothing is asked yet.
    #[must_use]
    pub fn new(settings: Prometheus, locate: Locate, metrics: Arc<Metrics>) -> Self {
        Self { settings: Arc::new(settings), locate: Arc::new(locate), metrics }
    }

    /// How it is asked.
    #[must_use]
    pub fn settings(&self) -> &Prometheus {
        &self.settings
    }

    /// Read secrets and certificates, and make a client of them.
    ///
    /// # Errors
    /// If a file cannot be used, as a clause.
    pub async fn client(&self) -> Result<EvidenceClient, String> {
        let settings = Arc::clone(&self.settings);
        let read_files = move || {
            let use_tls = settings.query_url.is_https() || settings.rules_url.is_https();
            HttpClient::new(&settings.http, use_tls, None, settings.timeout, &ABOUT)
        };
        let client = match tokio::task::spawn_blocking(read_files).await {
            Ok(Ok(http)) => Ok(EvidenceClient { evidence: self.clone(), http }),
            Ok(Err(e)) => Err(format!("Prometheus was not asked: {e}")),
            Err(e) => Err(format!("the files of sources.prometheus.http were not read: {e}")),
        };
        if client.is_err() {
            self.metrics.evidence_query(false);
        }
        client
    }
}

impl EvidenceClient {
    /// Ask about one node, which labels may call by any of the names in `hosts`, in any case. What cannot be had says why, as a
    /// clause.
    pub async fn ask(&self, question: &Question, hosts: &[String]) -> NodeAnswers {
        let not_asked = || Err("it was not asked".to_owned());
        let distinct: BTreeSet<&RecoveryQuery> = question.claims.iter().flat_map(|claim| &claim.queries).collect();
        let mut texts = vec![query::presence(self.settings(), &self.evidence.locate, hosts)];
        texts.extend(distinct.iter().map(|query| Ok(query::recovery(query))));
        let answers = self.ask_all(texts, &question.range).await;
        match answers.iter().find_map(|answer| answer.as_ref().err()) {
            None => self.evidence.metrics.evidence_answered(question.range.to),
            Some(reason) => tracing::warn!(node = %question.node, %reason, "Not all evidence about a node could be had."),
        }
        let mut answers = answers.into_iter();
        let presence = answers.next().unwrap_or_else(|| Err("it was not asked".to_owned()));
        let answered: BTreeMap<&RecoveryQuery, Result<Series, String>> =
            distinct.into_iter().zip(answers.map(|found| found.map(any))).collect();
        let of = |query: &RecoveryQuery| answered.get(query).cloned().unwrap_or_else(not_asked);
        NodeAnswers {
            present: presence.map(|found| present::present(found, &self.evidence.locate)),
            claims: question.claims.iter().map(|claim| claim.queries.iter().map(of).collect()).collect(),
        }
    }

    /// A few at a time. Once one is late no more are sent: what is overloaded gets no more to do, and nobody waits for each of them.
    async fn ask_all(&self, texts: Vec<Result<String, String>>, range: &Range) -> Vec<Result<Vec<Found>, String>> {
        let late = &AtomicBool::new(false);
        let ask = |text: Result<String, String>| async move {
            let text = text?;
            if late.load(Ordering::Relaxed) {
                return Err(format!("Prometheus at {} did not answer an earlier query in time", self.settings().query_url));
            }
            self.matrix(&text, range, late).await
        };
        stream::iter(texts).map(ask).buffered(AT_ONCE).collect().await
    }

    /// Which alerts fire, and which rules fail.
    ///
    /// # Errors
    /// If that cannot be had, as a clause.
    pub async fn rules(&self) -> Result<Rules, String> {
        // Recording rules as well: what a recovery query reads of them is old while they fail.
        let url = format!("{}/api/v1/rules", self.settings().rules_url);
        let reply = self.http.get(&url).await;
        self.read(&self.settings().rules_url, &url, reply, |body| answer::rules(body, &self.settings().selector))
    }

    /// The last values of everything that exporters show of the GPUs of a node, which labels may call by any of the names in `hosts`: a
    /// series each, as the HTTP API gives them.
    ///
    /// # Errors
    /// If they cannot be had, as a clause.
    pub async fn last_values(&self, hosts: &[String]) -> Result<Vec<serde_json::Value>, String> {
        let text = query::last_values(self.settings(), &self.evidence.locate, hosts)?;
        let base = &self.settings().query_url;
        let url = format!("{base}/api/v1/query");
        let reply = self.http.post_form(&url, format!("query={}", query_value(&text))).await;
        self.read(base, &url, reply, answer::vector)
    }

    fn settings(&self) -> &Prometheus {
        &self.evidence.settings
    }

    async fn matrix(&self, text: &str, range: &Range, late: &AtomicBool) -> Result<Vec<Found>, String> {
        let base = &self.settings().query_url;
        let url = format!("{base}/api/v1/query_range");
        let form = format!(
            "query={}&start={}&end={}&step={}&timeout={}ms",
            query_value(text),
            range.from.as_second(),
            range.to.as_second(),
            range.step.as_secs(),
            self.settings().timeout.as_millis(),
        );
        // In the body, since a URL may not be as long as a query.
        let reply = self.http.post_form(&url, form).await;
        late.fetch_or(matches!(reply, Err(AskError::Timeout { .. })), Ordering::Relaxed);
        self.read(base, &url, reply, |body| answer::matrix(body, range))
    }

    fn read<T>(
        &self,
        base: &PeerUrl,
        url: &str,
        reply: Result<Reply, AskError>,
        parse: impl FnOnce(&[u8]) -> Result<T, String>,
    ) -> Result<T, String> {
        let answer = match reply {
            Err(AskError::Timeout { after, section, .. }) => Err(format!(
                "Prometheus at {base} did not answer within {}; check that it runs and can be reached, or raise {section}.timeout",
                humantime::format_duration(after)
            )),
            Err(e) => Err(e.to_string()),
            Ok(reply) if reply.status == StatusCode::OK => {
                parse(&reply.body).map_err(|why| format!("Prometheus at {base}: {why}"))
            }
            Ok(reply) => Err(match answer::explanation(&reply.body) {
                Some(why) => format!("Prometheus at {base} says: {why}"),
                None => self.http.refused(url, reply.status).to_string(),
            }),
        };
        self.evidence.metrics.evidence_query(answer.is_ok());
        answer
    }
}

/// When any of the series had a number.
fn any(found: Vec<Found>) -> Series {
    found.into_iter().fold(Series::default(), |mut all, (_, series)| {
        all.join(&series);
        all
    })
}
