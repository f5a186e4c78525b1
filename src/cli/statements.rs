//! `evidence:FILE` of `replay`: what Prometheus would say, stated by a person.
//!
//! A file states how nodes are from then on, until a later one states otherwise. It is asked at the interval of the configuration, in
//! the same words, and judged by the same rules as in the service.

use jiff::Timestamp;
use serde::Deserialize;

use super::{Failure, read_file};
use crate::{
    locate::{Gpu, NodeName},
    quarantine::evidence::{Asked, NodeAnswers, PresentGpu, Question, Series},
};

/// One file.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Statements {
    /// Since when it is so; without it, since the step is taken.
    #[serde(default)]
    pub(super) at: Option<Timestamp>,
    nodes: Vec<Statement>,
}

/// How one node is.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Statement {
    node: NodeName,
    #[serde(default)]
    exporter: Exporter,
    /// GPUs that the exporter does not show.
    #[serde(default)]
    missing: Vec<Gpu>,
    /// GPUs in whose place there is another.
    #[serde(default)]
    replaced: Vec<Gpu>,
    /// Alerts whose recovery query returns something, by name.
    #[serde(default)]
    gone: Vec<String>,
    /// Why Prometheus does not answer, if it does not.
    #[serde(default)]
    unknown: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Exporter {
    #[default]
    Up,
    Down,
}

/// Read a file.
pub(super) fn read(path: &str) -> Result<Statements, Failure> {
    let text = read_file(path.as_ref())?;
    serde_saphyr::from_str(&text).map_err(|e| Failure::input(format!("{path}: {e}")))
}

/// What was stated so far, the latest last.
#[derive(Debug, Default)]
pub(super) struct Stated(Vec<(Timestamp, Statements)>);

impl Stated {
    /// It is so from `at` on.
    pub(super) fn add(&mut self, at: Timestamp, statements: Statements) {
        self.0.push((at, statements));
    }

    /// Whether anything was stated.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, node: &NodeName, at: Timestamp) -> Option<&Statement> {
        let until = self.0.iter().rev().filter(|(since, _)| *since <= at);
        until.flat_map(|(_, statements)| &statements.nodes).find(|statement| statement.node == *node)
    }

    /// The answer to a question that is asked now.
    pub(super) fn answer(&self, question: &Question) -> NodeAnswers {
        let now = self.of(&question.node, question.at);
        if let Some(why) = now.and_then(|statement| statement.unknown.as_ref()) {
            return NodeAnswers { present: Err(why.clone()), claims: Vec::new() };
        }
        let steps: Vec<(Timestamp, &Statement)> = question
            .range
            .steps()
            .filter_map(|at| Some((at, self.of(&question.node, at).filter(|s| s.unknown.is_none())?)))
            .collect();
        let when =
            |so: &dyn Fn(&Statement) -> bool| -> Series { steps.iter().filter(|(_, s)| so(s)).map(|(at, _)| *at).collect() };
        let up = |s: &Statement| s.exporter == Exporter::Up;
        let mut known: Vec<&Gpu> = question.claims.iter().filter_map(|c| c.gpu.as_ref()).collect();
        known.sort();
        known.dedup();
        let mut present: Vec<PresentGpu> = Vec::new();
        for (n, gpu) in known.iter().enumerate() {
            let is_there = |s: &Statement| up(s) && !s.missing.contains(gpu) && !s.replaced.contains(gpu);
            present.push(PresentGpu { names: vec![(*gpu).clone()], at: when(&is_there) });
            let other = |s: &Statement| up(s) && s.replaced.contains(gpu);
            present.extend(unnamed(1000 + n).map(|name| PresentGpu { names: vec![name], at: when(&other) }));
        }
        // The others, of which nobody says more than that they are there.
        let all = question.gpus.and_then(|n| usize::try_from(n).ok()).unwrap_or(1);
        for n in known.len()..all.max(known.len()) {
            let there = |s: &Statement| up(s) && n >= known.len() + s.missing.iter().filter(|gpu| !known.contains(gpu)).count();
            present.extend(unnamed(n).map(|name| PresentGpu { names: vec![name], at: when(&there) }));
        }
        let gone = |asked: &Asked| when(&|s: &Statement| s.gone.contains(&asked.alert));
        let claims = question.claims.iter().map(|asked| asked.queries.iter().map(|_| Ok(gone(asked))).collect()).collect();
        NodeAnswers { present: Ok(present), claims }
    }
}

/// The UUID of a GPU that has no name in the question.
fn unnamed(n: usize) -> Option<Gpu> {
    Gpu::parse(&format!("GPU-00000000-0000-0000-0000-{n:012}")).ok()
}
