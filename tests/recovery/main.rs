//! A training run survives the loss of a GPU, with everything real but the GPUs: workers that train, Prometheus with the shipped rules,
//! Alertmanager with the shipped route, the service, kube-apiserver, kube-controller-manager and kube-scheduler, and a kubelet that
//! starts a process per pod. `make demo-recovery` shows it. Prometheus and Alertmanager are found in the `PATH`, the programs of
//! Kubernetes by `KUBEBUILDER_ASSETS`.

#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/container.rs"]
mod container;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/controllers.rs"]
mod controllers;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/harness.rs"]
mod harness;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/kubelet.rs"]
mod kubelet;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/nodes.rs"]
mod nodes;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/pods.rs"]
mod pods;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/process.rs"]
mod process;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../support/kubernetes/service.rs"]
mod service;
#[cfg(test)]
#[path = "../support/kubernetes/story.rs"]
mod story;

#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../pipeline/alertmanager.rs"]
mod alertmanager;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../pipeline/exporter.rs"]
mod exporter;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../pipeline/pipeline.rs"]
mod pipeline;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../pipeline/prometheus.rs"]
mod prometheus;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../pipeline/relay.rs"]
mod relay;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../pipeline/times.rs"]
mod times;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../pipeline/watcher.rs"]
mod watcher;
#[cfg(test)]
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../pipeline/web.rs"]
mod web;

#[cfg(test)]
mod demo;
#[cfg(test)]
mod worker;
