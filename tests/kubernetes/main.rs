//! The program against a real API server (and a real Alertmanager). All tests share one API server, or a second one, taken in
//! turns, that may be paused and killed. `KUBEBUILDER_ASSETS` names the directory with `kube-apiserver` and `etcd`; Alertmanager is
//! found in the `PATH`.

#[cfg(test)]
mod alertmanager;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod hands;
#[cfg(test)]
mod harness;
#[cfg(test)]
mod isolate;
#[cfg(test)]
mod nodes;
#[cfg(test)]
mod others;
#[cfg(test)]
mod process;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod seen;
#[cfg(test)]
mod service;
