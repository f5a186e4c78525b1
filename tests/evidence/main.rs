//! What a real Prometheus answers to the questions for evidence. It is found in the `PATH`, with promtool.

#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/process.rs"]
mod process;
#[cfg(test)]
#[path = "../pipeline/web.rs"]
mod web;

#[cfg(test)]
mod answers;
#[cfg(test)]
mod prometheus;
