//! `gpu-quarantine` turns a GPU alert into a bounded, owned, reversible action on a Kubernetes node.
//!
//! The house, from the outside in:
//!
//! - [`cli`]: the commands, one module each.
//! - [`server`]: HTTP; the webhook, health, metrics and the node list.
//! - [`engine`]: alerts in, one decision and one write per node out.
//! - [`cluster`]: the trait for a cluster and the embedded one.
//! - [`sources`]: what others know: Alertmanager's own view of what fires.
//! - [`quarantine`]: record, claims, decision, guard and release. Pure: no I/O, no clock, no randomness.
//! - [`notice`]: what people are told, and how often. Pure.
//! - [`locate`]: the labels of an alert to a node and a GPU.
//! - [`policy`]: the configuration: types, loading, validation.
//! - [`alert`]: the wire format, alerts and Alertmanager's matchers.
//! - [`metrics`]: what is counted, and how it is shown.

pub mod alert;
pub mod cli;
pub mod cluster;
pub mod engine;
pub mod locate;
pub mod metrics;
pub mod notice;
pub mod policy;
pub mod quarantine;
pub mod server;
pub mod sources;
