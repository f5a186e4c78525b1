//! The whole pipeline of real programs: DCGM exporters (simulated, from recorded outputs), Prometheus with the shipped rules,
//! Alertmanager with the shipped route, the service, and kube-apiserver. Times are compressed by configuration. Prometheus and
//! Alertmanager are found in the `PATH`, kube-apiserver and etcd by `KUBEBUILDER_ASSETS`.

#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/harness.rs"]
mod harness;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/nodes.rs"]
mod nodes;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/process.rs"]
mod process;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/service.rs"]
mod service;

#[cfg(test)]
mod alertmanager;
#[cfg(test)]
mod duplicates;
#[cfg(test)]
mod evidence;
#[cfg(test)]
mod exporter;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod latency;
#[cfg(test)]
mod muted;
#[cfg(test)]
mod pipeline;
#[cfg(test)]
mod prometheus;
#[cfg(test)]
mod relay;
#[cfg(test)]
mod repairs;
#[cfg(test)]
mod restarts;
#[cfg(test)]
mod sources;
#[cfg(test)]
mod times;
#[cfg(test)]
mod watcher;
#[cfg(test)]
mod web;
#[cfg(test)]
mod webhook;
