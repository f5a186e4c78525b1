//! What was planned and put on record is done: each pod is looked at again just before it is asked.

use std::{net::IpAddr, sync::Arc, time::Duration};

use super::look::Seen;
use crate::{
    cluster::Workloads,
    engine::{Engine, lock, node::Written, steps::PodStep},
    locate::{NodeFacts, NodeName, PodFacts, PodName},
    policy::Config,
    quarantine::eviction::{Act, Call, Came, EvictionAnswer, Plan, Resident, may_touch, note_came, still},
};

impl Engine {
    pub(super) async fn act(&self, workloads: &dyn Workloads, node: &NodeFacts, seen: &Seen, plan: &Plan, config: &Arc<Config>) {
        let asks = plan.acts.iter().any(|act| !matches!(act, Act::Checkpoint { .. }));
        let evidence =
            if asks && self.shadow.is_none() { self.keep_evidence(workloads, node, seen, plan, config).await } else { None };
        let mut came: Vec<(String, Came)> = Vec::new();
        let mut steps: Vec<PodStep> = plan.news.iter().map(|pod| PodStep::of(pod, plan)).collect();
        for act in &plan.acts {
            let (pod, uid, delete) = match act {
                Act::Checkpoint { uid, call, within, .. } => {
                    self.call(&node.name, seen, uid, call, *within);
                    continue;
                }
                Act::Evict { pod, uid } => (pod, uid, false),
                Act::Delete { pod, uid } => (pod, uid, true),
            };
            let outcome =
                if self.shadow.is_some() { Came::Observed } else { self.ask(workloads, node, seen, pod, uid, delete).await };
            if let Came::Answered(answer) = &outcome {
                self.metrics.evicted(answer.as_str());
            }
            // A budget that refuses again is no news.
            if !plan.record.as_ref().is_some_and(|evicting| evicting.repeats(uid, &outcome, self.clock.now())) {
                steps.push(PodStep::after(pod, &outcome, delete));
            }
            came.push((uid.clone(), outcome));
        }
        let all_left = plan.by.is_some() && steps.is_empty() && lock(&self.evictions).tells(&node.name);
        self.tell_evicted(node, plan, steps, all_left, evidence.as_deref(), config);
        if came.is_empty() {
            return;
        }
        let written = self
            .write_alone(&node.name, |fresh, config, now| {
                // Another Node of that name has nothing to do with it.
                if fresh.uid != node.uid {
                    return Ok(None);
                }
                note_came(fresh, config, &came, evidence.as_deref(), now)
            })
            .await;
        if matches!(written, Written::Failed) {
            tracing::warn!(node = %node.name, "What became of an eviction is not on record; the pods themselves tell at the next look.");
        }
    }

    /// Ask one pod to leave, or delete it, if it is still to go.
    async fn ask(
        &self,
        workloads: &dyn Workloads,
        node: &NodeFacts,
        seen: &Seen,
        pod: &PodName,
        uid: &str,
        delete: bool,
    ) -> Came {
        if let Err(came) = self.look_again(workloads, node, seen, pod, uid).await {
            return came;
        }
        Came::Answered(if delete { workloads.delete(pod, uid).await } else { workloads.evict(pod, uid).await })
    }

    /// Node and pod as they are now; an error says why the pod is not asked.
    async fn look_again(
        &self,
        workloads: &dyn Workloads,
        node: &NodeFacts,
        seen: &Seen,
        pod: &PodName,
        uid: &str,
    ) -> Result<(), Came> {
        let withheld = |why: String| Came::Withheld(format!("not now: {why}"));
        let fresh = match self.cluster.get(&node.name).await {
            Ok(Some(fresh)) if fresh.uid == node.uid => fresh,
            Ok(_) => return Err(withheld("the node is not there any more".to_owned())),
            Err(error) => return Err(withheld(error.to_string())),
        };
        let now = match workloads.pod(pod).await {
            Err(error) => return Err(withheld(error.to_string())),
            Ok(None) => return Err(Came::Answered(EvictionAnswer::Gone)),
            Ok(Some(now)) if now.uid != uid => return Err(Came::Answered(EvictionAnswer::AnotherPod)),
            Ok(Some(now)) if now.deleted.is_some() => return Err(Came::Answered(EvictionAnswer::Accepted)),
            Ok(Some(now)) => now,
        };
        let config = self.config();
        // It goes with its group, from a node that is not ours to empty: unless that node is to be left alone.
        if let Some(other) = now.node.as_ref().filter(|other| **other != node.name) {
            match self.cluster.get(other).await {
                Ok(Some(other)) if may_touch(&other, &config) => {}
                Ok(_) => return Err(withheld(format!("nothing is done on its node {other}"))),
                Err(error) => return Err(withheld(error.to_string())),
            }
        }
        let Some(known) = seen.here.iter().chain(&seen.elsewhere).find(|r| r.pod.uid == uid) else {
            return Err(withheld("it was not among the pods that were looked at".to_owned()));
        };
        still(&fresh, &Resident { pod: now, ..known.clone() }, &seen.here, &config).map_err(withheld)
    }

    /// Call a pod that asks for time. What comes of it is noted when the node is looked at next, which is at once then.
    fn call(&self, node: &NodeName, seen: &Seen, uid: &str, call: &Call, within: Duration) {
        let pod = seen.here.iter().chain(&seen.elsewhere).map(|r| &r.pod).find(|pod| pod.uid == uid);
        let (evictions, moved, clock) = (Arc::clone(&self.evictions), Arc::clone(&self.evictions_moved), Arc::clone(&self.clock));
        let (node, called) = (node.clone(), uid.to_owned());
        let begins = match pod.map(callable) {
            Some(Ok(ip)) if self.shadow.is_none() => match &self.aids {
                Some(aids) if lock(&self.evictions).begin_call(&node, uid) => Ok(aids.checkpoint(ip, call.clone(), within)),
                Some(_) => Err("too many pods are being called"),
                None => Err("nobody is here to call it"),
            },
            Some(Ok(_)) => Err("the service only observes"),
            Some(Err(why)) => Err(why),
            None => Err("the pod is not there"),
        };
        let told = move |came: String| {
            lock(&evictions).called(&node, &called, came, clock.now());
            moved.notify_one();
        };
        match begins {
            Ok(asked) => drop(tokio::spawn(async move { told(asked.await) })),
            Err(why) => told(format!("not asked for: {why}")),
        }
    }
}

/// The address of a pod, if it is one of the pod's own: an annotation must not send us to a node's agents, to ourselves or to a cloud's
/// metadata.
fn callable(pod: &PodFacts) -> Result<IpAddr, &'static str> {
    let ip = pod.ip.ok_or("the pod has no address")?.to_canonical();
    let link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if pod.host_network {
        return Err("the pod has no address of its own (hostNetwork)");
    }
    if ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || link_local {
        return Err("its address is not one of a pod");
    }
    Ok(ip)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::cluster::pod_facts;

    #[rstest]
    #[case("10.0.0.7", false, true)]
    #[case("fd00::7", false, true)]
    #[case("10.0.0.7", true, false)]
    #[case("127.0.0.1", false, false)]
    #[case("::ffff:127.0.0.1", false, false)]
    #[case("169.254.169.254", false, false)]
    #[case("fe80::1", false, false)]
    #[case("0.0.0.0", false, false)]
    #[case("224.0.0.1", false, false)]
    fn only_an_address_of_the_pods_own_is_called(#[case] ip: &str, #[case] host_network: bool, #[case] want: bool) {
        let raw = json!({
            "metadata": { "name": "p", "uid": "u" }, "spec": { "hostNetwork": host_network }, "status": { "podIP": ip },
        });
        assert_eq!(callable(&pod_facts(&raw).unwrap()).is_ok(), want);
    }
}
