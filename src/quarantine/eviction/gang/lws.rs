//! `LeaderWorkerSet`s: each of their groups is one of ours.
//!
//! With `RecreateGroupOnPodRestart`, the default, and `RecreateGroupAfterStart` a group is created anew when one of its pods is; with
//! `None`, once called `Default`, the pod alone is
//! (<https://github.com/kubernetes-sigs/lws/blob/main/api/leaderworkerset/v1/leaderworkerset_types.go>).

#[cfg(test)]
mod tests;

use super::{Framework, Gang, Loss, chain::Chain, owners::Kind, selector};
use crate::locate::PodFacts;

/// The label that names the set.
pub(super) const NAME: &str = "leaderworkerset.sigs.k8s.io/name";
/// The label that numbers its groups.
const GROUP: &str = "leaderworkerset.sigs.k8s.io/group-index";

/// The group of a pod that belongs to a `LeaderWorkerSet`.
pub(super) fn gang(pod: &PodFacts, chain: &Chain<'_>) -> Gang {
    let link = chain.of(Kind::LeaderWorkerSet);
    let set = link.and_then(|link| link.raw);
    let name = link.map(|link| link.owner.name.as_str()).or_else(|| pod.labels.get(NAME).map(String::as_str)).unwrap_or_default();
    let policy = set.and_then(|set| set["spec"]["leaderWorkerTemplate"]["restartPolicy"].as_str());
    let group = pod.labels.get(GROUP);
    // Of a pod without a group it is not known which others go with it.
    let alone = group.is_none() || matches!(policy, Some("None" | "Default"));
    let loss = if alone { Loss::Each } else { Loss::Whole };
    let name = group.map_or_else(|| name.to_owned(), |group| format!("{name}/{group}"));
    Gang {
        members: selector(pod, &[NAME, GROUP]),
        unread: set.is_none(),
        ..Gang::new(pod, Framework::LeaderWorkerSet, "LeaderWorkerSet", &name, loss)
    }
}
