//! The program against a real API server (and a real Alertmanager). All tests share one API server, or a second one, taken in
//! turns, that may be paused and killed. `KUBEBUILDER_ASSETS` names the directory with `kube-apiserver` and `etcd`; Alertmanager is
//! found in the `PATH`.

#[cfg(test)]
mod alertmanager;
#[cfg(test)]
mod commands;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod hands;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/harness.rs"]
mod harness;
#[cfg(test)]
mod isolate;
#[cfg(test)]
mod ledger;
#[cfg(test)]
#[path = "../support/kubernetes/nodes.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod nodes;
#[cfg(test)]
mod others;
#[cfg(test)]
mod pause;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/process.rs"]
mod process;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod seen;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/service.rs"]
mod service;
#[cfg(test)]
mod uninstall;
#[cfg(test)]
mod workloads;
