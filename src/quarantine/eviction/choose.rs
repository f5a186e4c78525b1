//! Who is to go: of the pods on an isolated node, those that opted in and that a claim is about.

use super::gang::Gang;
use crate::{
    locate::{Gpu, NodeFacts, PodFacts, PodPhase},
    policy::{Action, Config, EvictionRules, UnknownGpu},
    quarantine::{
        claim::{Claim, ClaimState},
        reach::{GpuScope, MAX_WORKLOADS},
        record::Record,
    },
};

/// A pod with the group that it belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct Resident {
    /// The pod.
    pub pod: PodFacts,
    /// Its group.
    pub gang: Gang,
    /// The kinds of what controls it, the nearest first.
    pub kinds: Vec<String>,
    /// Why nobody knows what its group bears, as a clause: a controller could not be read just now.
    pub unread: Option<String>,
}

/// Why a pod is left where it is, as a clause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spared {
    /// In one word, for programs.
    pub reason: &'static str,
    /// For people.
    pub why: String,
}

impl Spared {
    /// Whether it would go if somebody knew better: it waits for that.
    #[must_use]
    pub fn is_puzzling(&self) -> bool {
        matches!(self.reason, "unknown_gpu" | "unread")
    }

    /// Whether people may wonder why it is left. That a DaemonSet's pod is, or one without a GPU, nobody does.
    #[must_use]
    pub fn is_worth_telling(&self) -> bool {
        !matches!(self.reason, "finished" | "mirror" | "daemonset" | "no_gpu" | "returned") && !self.is_puzzling()
    }
}

/// Every word of [`Spared::reason`].
pub const SPARED: [&str; 13] = [
    "finished",
    "mirror",
    "daemonset",
    "own",
    "namespace",
    "protected",
    "not_opted_in",
    "owner",
    "no_gpu",
    "unread",
    "other_gpu",
    "unknown_gpu",
    "returned",
];

fn spared(reason: &'static str, why: impl Into<String>) -> Spared {
    Spared { reason, why: why.into() }
}

/// The claims for which pods are evicted now: they fire, nobody muted them, and their policy evicts.
pub(super) fn evicting(record: &Record) -> impl Iterator<Item = &Claim> {
    record.claims.iter().filter(|c| c.state == ClaimState::Firing && c.action == Action::Evict && !c.is_muted())
}

/// What a pod is, whatever the claims say: `Err` if it is never evicted.
pub(super) fn may_go(resident: &Resident, config: &Config) -> Result<(), Spared> {
    let (pod, eviction) = (&resident.pod, &config.eviction);
    let namespace = pod.name.namespace();
    if matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed) {
        return Err(spared("finished", "it is finished"));
    }
    if pod.is_mirror() {
        return Err(spared("mirror", "its node runs it by itself (a mirror pod)"));
    }
    if pod.controller.as_ref().is_some_and(|c| c.kind == "DaemonSet") {
        return Err(spared("daemonset", "a DaemonSet runs it on every node"));
    }
    if namespace == config.ledger.namespace {
        return Err(spared("own", "it is in our own namespace"));
    }
    let elsewhere = !eviction.namespaces.is_empty() && !eviction.namespaces.contains(namespace);
    if elsewhere || eviction.never_namespaces.contains(namespace) {
        return Err(spared("namespace", format!("nothing is evicted from namespace {namespace}")));
    }
    if let Some(protect) = eviction.protect.iter().find(|s| s.matches(&pod.labels)) {
        return Err(spared("protected", format!("eviction.protect {protect} matches it")));
    }
    if !eviction.pods.matches(&pod.labels) {
        return Err(spared("not_opted_in", format!("it has not opted in ({})", eviction.pods)));
    }
    if !eviction.owners.is_empty() && !resident.kinds.iter().any(|kind| eviction.owners.contains(kind)) {
        return Err(spared("owner", "none of eviction.owners controls it"));
    }
    if !pod.uses_gpus() {
        return Err(spared("no_gpu", "it uses no GPU"));
    }
    if let Some(why) = &resident.unread {
        return Err(spared("unread", format!("nobody knows what its group bears: {why}")));
    }
    Ok(())
}

/// Whether it came here after the node was isolated, past our taint, or in the place of one that was evicted.
pub(super) fn came_back(resident: &Resident, record: &Record) -> bool {
    let Some(added) = &record.added else { return false };
    if resident.pod.created.is_none_or(|created| created <= added.at) {
        return false;
    }
    let tolerates = added.taint.as_ref().is_some_and(|taint| resident.pod.tolerates(taint))
        || record.before.as_ref().and_then(|b| b.taint.as_ref()).is_some_and(|taint| resident.pod.tolerates(taint));
    // Its controller binds pods by itself, past the scheduler; one that the scheduler had bound just before is no such pod.
    let replaces = |pod: &super::Evictee| {
        pod.group == resident.gang.key && pod.asked.is_some_and(|asked| resident.pod.created.is_some_and(|c| c > asked))
    };
    tolerates || record.eviction.as_ref().is_some_and(|e| e.pods.iter().any(replaces))
}

/// Which claims ask a pod to leave, by the rules of the first of them; `Err` if none does.
pub(super) fn asked_by<'a>(
    resident: &Resident,
    node: &NodeFacts,
    all: &[Resident],
    record: &'a Record,
    config: &'a Config,
) -> Result<(&'a Claim, &'a EvictionRules), Spared> {
    let mut why = spared("other_gpu", "no fault that evicts is about it");
    for claim in evicting(record) {
        let rules = config.eviction_for(&claim.policy);
        let place = Place { node, all, gpus: record.gpus };
        match about(claim, resident, &place, rules.unknown_gpu) {
            Ok(()) => return Ok((claim, rules)),
            // That nobody knows is what a person can do something about.
            Err(spared) if why.reason != "unknown_gpu" => why = spared,
            Err(_) => {}
        }
    }
    Err(why)
}

/// Where a fault is looked for.
struct Place<'a> {
    node: &'a NodeFacts,
    /// The pods on it.
    all: &'a [Resident],
    /// The most GPUs that it was known to have.
    gpus: Option<u32>,
}

fn about(claim: &Claim, resident: &Resident, place: &Place<'_>, unknown: UnknownGpu) -> Result<(), Spared> {
    let reach = claim.scope.unwrap_or(if claim.gpu.is_some() { GpuScope::Gpu } else { GpuScope::Node });
    if reach == GpuScope::Node {
        return Ok(());
    }
    let subject = claim.subject();
    match users(claim, place) {
        Some(users) if users.iter().any(|uid| *uid == resident.pod.uid) => Ok(()),
        Some(_) => Err(spared("other_gpu", format!("it does not use the GPU of {subject}"))),
        None if unknown == UnknownGpu::Node => Ok(()),
        None => Err(spared("unknown_gpu", format!("nobody knows which pod uses the GPU of {subject}"))),
    }
}

/// The UIDs of the pods that use the GPU of a claim; `None` if nobody knows.
fn users<'a>(claim: &Claim, place: &Place<'a>) -> Option<Vec<&'a str>> {
    let runs = |pod: &PodFacts| !matches!(pod.phase, PodPhase::Succeeded | PodPhase::Failed);
    let here = || place.all.iter().map(|r| &r.pod).filter(|pod| pod.uses_gpus() && runs(pod));
    let is_told = |pod: &PodFacts| claim.gpu.as_ref().is_some_and(|gpu| pod.devices.iter().flatten().any(|d| d == gpu));
    // What the kubelet tells of a pod counts before the labels of an alert. These are as old as the fault: a younger pod of that name is
    // another one, perhaps with another GPU. And where more pods were named than are kept, some may be missing.
    let named = |pod: &PodFacts| {
        let as_old = pod.created.is_none_or(|created| created <= claim.since);
        as_old && claim.workloads.contains(&pod.name) && claim.workloads.len() < MAX_WORKLOADS
    };
    // Whoever has all GPUs of the node has this one, unless some were lost to Kubernetes meanwhile.
    let asked: u64 = here().map(|pod| pod.whole_gpus).sum();
    let all =
        place.node.whole_gpus.map(u64::from).filter(|all| *all >= asked && place.gpus.is_none_or(|most| *all >= u64::from(most)));
    let has_all = |pod: &PodFacts| all.is_some_and(|all| pod.whole_gpus >= all);
    let uses = |pod: &&PodFacts| is_told(pod) || (pod.devices.is_none() && (named(pod) || has_all(pod)));
    let found: Vec<&str> = here().filter(uses).map(|pod| pod.uid.as_str()).collect();
    let all_told = || matches!(claim.gpu, Some(Gpu::Uuid(_))) && here().all(|pod| pod.devices.is_some());
    (!found.is_empty() || all_told()).then_some(found)
}

/// Whether no progress is possible with what a claim is about, so that nothing can be saved.
pub(super) fn is_hopeless(claim: &Claim, config: &Config) -> bool {
    claim.fault.as_ref().is_some_and(|fault| config.eviction.no_progress.contains(fault))
}
