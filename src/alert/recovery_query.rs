//! The annotation `recovery_query`: PromQL that returns a sample only when the fault of its alert is gone.

mod scan;
#[cfg(test)]
mod tests;

use promql_parser::parser::{self, Expr};
use serde::{Deserialize, Serialize};

/// The longest query, in bytes.
const MAX_BYTES: usize = 1024;
/// The deepest tree. The parser and the walks over its tree recurse, so that deeper ones would need a deep stack, and nobody writes
/// them.
const MAX_DEPTH: usize = 64;

/// A query that can prove the end of a fault: valid PromQL that selects at least one series. `vector(1)` proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RecoveryQuery(String);

impl RecoveryQuery {
    /// Parse a query, as Prometheus rendered it. What Prometheus 3.5 takes is taken, experimental functions too, but for underscores
    /// in numbers (`1_000`). Newer functions than those of Prometheus 3.8 are not known.
    ///
    /// # Errors
    /// If it is longer than 1 KiB, is no PromQL, does not return an instant vector, or selects no series. As a clause.
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() > MAX_BYTES {
            return Err(format!("its recovery_query is {} bytes long, more than {MAX_BYTES}", text.len()));
        }
        let scanned = scan::scan(text);
        if scanned.depth > MAX_DEPTH {
            return Err("its recovery_query has too many brackets and operators".to_owned());
        }
        if scanned.too_long {
            return Err("its recovery_query has a duration that is too long".to_owned());
        }
        let expr = parser::parse(&scanned.text).map_err(|e| {
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

    /// Whether a name with a colon stands there, as recording rules give. One in a label value or in `[1h:1m]` is none.
    #[must_use]
    pub fn reads_recorded(&self) -> bool {
        scan::scan(&self.0).recorded
    }

    /// Whether that metric is read, or at least its name stands there.
    #[must_use]
    pub fn reads(&self, metric: &str) -> bool {
        reads(&self.0, metric)
    }
}

/// Whether that metric is read by this PromQL, or at least its name stands there.
#[must_use]
pub fn reads(promql: &str, metric: &str) -> bool {
    let in_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | ':');
    !metric.is_empty() && promql.split(|c| !in_name(c)).any(|word| word == metric)
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
