//! The alerting rules of `alert-rules/`, and what is written about them: labels that steer the receiver, series that are there,
//! numbers in one place, generated files that do not drift. Whether an expression is valid and fires when it should is for
//! promtool (`.ci/rules`); this needs nothing but Rust.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of tests fail as tests do")]

#[allow(dead_code, reason = "other tests use more of it")]
#[path = "support/bodies.rs"]
mod bodies;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "support/command.rs"]
mod command;

#[path = "rule_pack/pack.rs"]
mod pack;
#[path = "rule_pack/promql.rs"]
mod promql;

#[path = "rule_pack/documents.rs"]
mod documents;
#[path = "rule_pack/exported.rs"]
mod exported;
#[path = "rule_pack/fold.rs"]
mod fold;
#[path = "rule_pack/identity.rs"]
mod identity;
#[path = "rule_pack/operator.rs"]
mod operator;
#[path = "rule_pack/receiver.rs"]
mod receiver;
#[path = "rule_pack/series.rs"]
mod series;
#[path = "rule_pack/shape.rs"]
mod shape;
#[path = "rule_pack/thresholds.rs"]
mod thresholds;
#[path = "rule_pack/xid.rs"]
mod xid;
