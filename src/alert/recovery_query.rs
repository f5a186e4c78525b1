//! The annotation `recovery_query`: PromQL that returns a sample only when the fault of its alert is gone.

use promql_parser::parser::{self, Expr};
use serde::{Deserialize, Serialize};

/// The longest query, in bytes.
const MAX_BYTES: usize = 1024;
/// The deepest nesting of brackets and signs; deeper ones would need a deep stack, and nobody writes them.
const MAX_NESTING: usize = 32;

/// A query that can prove the end of a fault: valid PromQL that selects at least one series. `vector(1)` proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecoveryQuery(String);

impl RecoveryQuery {
    /// Parse a query, as Prometheus rendered it.
    ///
    /// # Errors
    /// If it is longer than 1 KiB, is no PromQL, does not return an instant vector, or selects no series. As a clause.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() > MAX_BYTES {
            return Err(format!("its recovery_query is {} bytes long, more than {MAX_BYTES}", text.len()));
        }
        if nesting(text) > MAX_NESTING {
            return Err("its recovery_query is nested too deeply".to_owned());
        }
        let expr = parser::parse(text).map_err(|e| {
            let why: String = e.chars().filter(|c| !c.is_control()).take(100).collect();
            format!("its recovery_query is not PromQL: {why}")
        })?;
        if expr.value_type() != parser::value::ValueType::Vector {
            return Err("its recovery_query does not return an instant vector".to_owned());
        }
        if !selects(&expr) {
            return Err("its recovery_query selects no series, so it proves nothing".to_owned());
        }
        Ok(Self(text.to_owned()))
    }

    /// The PromQL.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether that metric is read, or at least its name stands there.
    #[must_use]
    pub fn reads(&self, metric: &str) -> bool {
        let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
        !metric.is_empty() && self.0.split(|c| !in_name(c)).any(|word| word == metric)
    }
}

/// How deep the parser goes at most: brackets, signs in a row, and operators, each of which holds what is left of it.
fn nesting(text: &str) -> usize {
    let (mut depth, mut deepest) = (0_usize, 0);
    for c in text.chars() {
        match c {
            '(' | '{' | '[' => depth += 1,
            ')' | '}' | ']' => depth = depth.saturating_sub(1),
            '-' | '+' => deepest += 1,
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    deepest
}

/// Whether a series is selected anywhere.
fn selects(expr: &Expr) -> bool {
    match expr {
        Expr::VectorSelector(_) | Expr::MatrixSelector(_) => true,
        Expr::Aggregate(e) => selects(&e.expr),
        Expr::Unary(e) => selects(&e.expr),
        Expr::Binary(e) => selects(&e.lhs) || selects(&e.rhs),
        Expr::Paren(e) => selects(&e.expr),
        Expr::Subquery(e) => selects(&e.expr),
        Expr::Call(e) => e.args.args.iter().any(|e| selects(e)),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => false,
    }
}
