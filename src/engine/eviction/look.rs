//! What an eviction is planned from: the pods of a node, with their groups.

use std::collections::{BTreeSet, HashMap};

use crate::{
    cluster::{PodsError, Workloads},
    locate::{NodeName, Owner, OwnerObject, PodFacts, PodName},
    policy::Config,
    quarantine::eviction::{Loss, Resident, gang},
};

/// How many controllers are looked up one above the other: `StatefulSet`, leader pod, `StatefulSet`, `LeaderWorkerSet` are the longest.
const LONGEST_CHAIN: usize = 4;
/// The most pods of one group. Of one that is larger nobody elsewhere is asked.
const MOST_ELSEWHERE: usize = 512;

/// The pods of a node.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) here: Vec<Resident>,
    /// Pods on other nodes, of groups of which all must go.
    pub(super) elsewhere: Vec<Resident>,
    /// What controls each pod here, the nearest first.
    pub(super) chains: HashMap<String, Vec<OwnerObject>>,
}

/// Controllers as they were read in this round.
struct Owners<'a> {
    workloads: &'a dyn Workloads,
    read: HashMap<(String, String), Result<Option<OwnerObject>, String>>,
}

/// Look at the pods of a node, and at those elsewhere that leave with them: `unfinished` are pods that stand on its record, `may_touch` tells
/// whether pods of that node may be asked at all.
pub(super) async fn look(
    workloads: &dyn Workloads,
    name: &NodeName,
    unfinished: &[(PodName, String)],
    may_touch: &(dyn Fn(&NodeName) -> bool + Send + Sync),
    config: &Config,
) -> Result<Seen, PodsError> {
    let pods = workloads.pods_on(name).await?;
    let mut owners = Owners { workloads, read: HashMap::new() };
    let mut seen = Seen { here: Vec::new(), elsewhere: Vec::new(), chains: HashMap::new() };
    for pod in pods {
        let resident = owners.resident(pod, config, &mut seen.chains).await;
        seen.here.push(resident);
    }
    let mut groups = BTreeSet::new();
    for resident in seen.here.iter().filter(|r| r.gang.loss == Loss::All) {
        let Some(selector) = resident.gang.members.clone() else { continue };
        groups.insert((resident.pod.name.namespace().to_owned(), selector));
    }
    let mut elsewhere: Vec<PodFacts> = Vec::new();
    for (namespace, selector) in groups {
        let members = workloads.pods_of(&namespace, &selector, MOST_ELSEWHERE + 1).await?;
        if members.len() > MOST_ELSEWHERE {
            tracing::warn!(%namespace, %selector, "A group has more than {MOST_ELSEWHERE} pods; those on other nodes are left to it.");
            continue;
        }
        elsewhere.extend(members.into_iter().filter(|pod| pod.node.as_ref().is_some_and(|n| n != name && may_touch(n))));
    }
    // What stands on record and was not listed is looked up, before anybody takes it for gone.
    for (pod, uid) in unfinished {
        let listed = |p: &PodFacts| p.uid == *uid;
        if seen.here.iter().any(|r| listed(&r.pod)) || elsewhere.iter().any(listed) {
            continue;
        }
        elsewhere.extend(workloads.pod(pod).await?.filter(listed));
    }
    for pod in elsewhere {
        let resident = owners.resident(pod, config, &mut seen.chains).await;
        seen.elsewhere.push(resident);
    }
    Ok(seen)
}

fn resident(pod: PodFacts, chain: &[OwnerObject], config: &Config) -> Resident {
    let gang = gang(&pod, chain, config.eviction.group_label.as_deref());
    let nearest = pod.controller.iter().map(|c| c.kind.clone());
    let above = chain.iter().filter_map(|o| o.controller.as_ref()).map(|c| c.kind.clone());
    let kinds = nearest.chain(above).collect();
    Resident { pod, gang, kinds, unread: None }
}

impl Owners<'_> {
    /// A pod with its group. Of pods that are never evicted in any case nothing more is asked.
    async fn resident(&mut self, pod: PodFacts, config: &Config, chains: &mut HashMap<String, Vec<OwnerObject>>) -> Resident {
        if !config.eviction.pods.matches(&pod.labels) {
            return resident(pod, &[], config);
        }
        let (chain, unread) = self.chain(&pod).await;
        chains.insert(pod.uid.clone(), chain.clone());
        Resident { unread, ..resident(pod, &chain, config) }
    }

    /// What controls a pod, the nearest first, and why more could not be read, if so.
    async fn chain(&mut self, pod: &PodFacts) -> (Vec<OwnerObject>, Option<String>) {
        let mut chain: Vec<OwnerObject> = Vec::new();
        let mut next = pod.controller.clone();
        while let Some(owner) = next.take().filter(|_| chain.len() < LONGEST_CHAIN) {
            match self.read(pod.name.namespace(), &owner).await {
                Ok(Some(object)) => {
                    next.clone_from(&object.controller);
                    chain.push(object);
                }
                Ok(None) => break,
                Err(why) => return (chain, Some(why)),
            }
        }
        (chain, None)
    }

    async fn read(&mut self, namespace: &str, owner: &Owner) -> Result<Option<OwnerObject>, String> {
        let key = (namespace.to_owned(), owner.uid.clone());
        if let Some(known) = self.read.get(&key) {
            return known.clone();
        }
        let object = self.workloads.owner(namespace, owner).await.map_err(|error| error.to_string());
        self.read.insert(key, object.clone());
        object
    }
}
