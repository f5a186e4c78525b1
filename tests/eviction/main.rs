//! Eviction where it counts: the service on a real kube-apiserver with the controllers and the scheduler of Kubernetes, and a kubelet
//! that runs pods in name. `KUBEBUILDER_ASSETS` names the directory with `kube-apiserver`, `etcd`, `kube-controller-manager` and
//! `kube-scheduler`.

#[cfg(test)]
#[path = "../support/kubernetes/audit.rs"]
mod audit;
#[cfg(test)]
#[path = "../support/kubernetes/container.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod container;
#[cfg(test)]
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
mod answers;
#[cfg(test)]
mod budgets;
#[cfg(test)]
mod by_hand;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod gateway;
#[cfg(test)]
mod job;
#[cfg(test)]
mod meanwhile;
#[cfg(test)]
#[path = "../pipeline/web.rs"]
#[allow(dead_code, reason = "other tests use more of it")]
mod web;
#[cfg(test)]
mod world;
