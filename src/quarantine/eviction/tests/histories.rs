//! Whatever happens in between: no pod is asked that must not be, none twice after it left, and none is forgotten.

use std::{collections::BTreeSet, time::Duration};

use proptest::prelude::*;

use super::world::{World, blocked, gang_of, pod};
use crate::{
    locate::NodeName,
    quarantine::{
        MAX_BYTES,
        eviction::{EvicteeState, EvictionAnswer, Framework, Loss},
    },
};

const HOLD: &str = "gpu-quarantine.dev/hold";

/// What happens in one step.
#[derive(Debug, Clone)]
enum Event {
    /// A look at the node; all that are asked get this answer.
    Look(EvictionAnswer),
    /// The process dies after it wrote its plan; of those that it meant to ask, so many were asked.
    Killed(usize),
    /// Those that terminate are gone, perhaps only those elsewhere; controllers make these again.
    Gone(bool),
    /// A person holds the node, or no longer does.
    Hold(bool),
    /// Nothing new is begun, or it may be again.
    Pause(bool),
    /// Time passes, in seconds.
    Pass(i64),
}

fn answers() -> impl Strategy<Value = EvictionAnswer> {
    prop_oneof![
        3 => Just(EvictionAnswer::Accepted),
        1 => Just(EvictionAnswer::Gone),
        2 => Just(blocked("b")),
        1 => Just(EvictionAnswer::Throttled { retry_after: Some(Duration::from_secs(1)) }),
        1 => Just(EvictionAnswer::Unknown { message: "?".to_owned() }),
        1 => Just(EvictionAnswer::Refused { message: "?".to_owned() }),
    ]
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => answers().prop_map(Event::Look),
        2 => (0_usize..4).prop_map(Event::Killed),
        3 => any::<bool>().prop_map(Event::Gone),
        1 => any::<bool>().prop_map(Event::Hold),
        1 => any::<bool>().prop_map(Event::Pause),
        4 => (1_i64..60).prop_map(Event::Pass),
    ]
}

/// The world, and who left in it.
struct History {
    world: World,
    /// UIDs of those that were made to leave.
    left: BTreeSet<String>,
    made: usize,
}

impl History {
    /// Pods of three groups: one whose pods are replaced one by one, one that restarts as a whole, and one of which all must go and
    /// that has a pod elsewhere for each here.
    fn of(kinds: &[u8]) -> Self {
        let mut world = World::new("max_restarts_per_hour: 1000");
        for (number, kind) in kinds.iter().enumerate() {
            let loss = match kind {
                0 => Loss::Each,
                1 => Loss::Whole,
                _ => Loss::All,
            };
            let gang = gang_of(&format!("Job team-a/{kind}"), Framework::Job, loss.clone());
            let mut here = pod(&format!("p{number}"));
            here.gang = gang.clone();
            world.here.push(here);
            if loss == Loss::All {
                let mut there = pod(&format!("e{number}")).change(|p| p.node = NodeName::parse("gpu-2").ok());
                there.gang = gang;
                world.elsewhere.push(there);
            }
        }
        Self { world, left: BTreeSet::new(), made: 0 }
    }

    /// The UIDs of pods that were there before anything happened, and are not terminating.
    fn originals(&self) -> impl Iterator<Item = &str> {
        let all = self.world.here.iter().chain(&self.world.elsewhere);
        all.filter(|r| r.pod.deleted.is_none() && !r.pod.name.name().starts_with("again")).map(|r| r.pod.uid.as_str())
    }

    fn happen(&mut self, event: &Event) -> Result<(), TestCaseError> {
        let (held, paused) = (self.world.node.annotations.contains_key(HOLD), self.world.paused.is_some());
        let begun = self.world.record().eviction.is_some_and(|e| e.pods.iter().any(|p| p.asked.is_some()));
        let asked = match event {
            Event::Look(answer) => self.world.step(answer),
            Event::Killed(asked) => {
                let meant = self.world.begin();
                let now = self.world.now;
                let uids: Vec<String> = meant.iter().take(*asked).map(|name| format!("uid of {name}")).collect();
                self.world.here.iter_mut().chain(&mut self.world.elsewhere).filter(|r| uids.contains(&r.pod.uid)).for_each(|r| {
                    r.pod.deleted = Some(now);
                });
                self.left.extend(uids);
                return Ok(());
            }
            Event::Gone(all) => {
                self.gone(*all);
                return Ok(());
            }
            Event::Hold(true) => {
                self.world.node.annotations.insert(HOLD.to_owned(), "mine".to_owned());
                return Ok(());
            }
            Event::Hold(false) => {
                self.world.node.annotations.remove(HOLD);
                return Ok(());
            }
            Event::Pause(pause) => {
                self.world.paused = pause.then(|| "by ann".to_owned());
                return Ok(());
            }
            Event::Pass(seconds) => {
                self.world.pass(*seconds);
                return Ok(());
            }
        };
        prop_assert!(!held || asked.is_empty(), "held, and yet {asked:?}");
        prop_assert!(!paused || begun || asked.is_empty(), "paused, and yet {asked:?}");
        for name in asked {
            prop_assert!(!name.starts_with("again"), "{name} is what it is done for");
            let uid = format!("uid of {name}");
            prop_assert!(!self.left.contains(&uid), "{name} was asked again after it had left");
            if matches!(event, Event::Look(EvictionAnswer::Accepted | EvictionAnswer::Gone)) {
                self.left.insert(uid);
            }
        }
        prop_assert!(self.world.node.annotations["gpu-quarantine.dev/record"].len() <= MAX_BYTES);
        Ok(())
    }

    /// Those elsewhere are made again under another UID, and nobody wants them to go.
    fn gone(&mut self, all: bool) {
        let again: Vec<_> = self.world.elsewhere.iter().filter(|r| r.pod.deleted.is_some()).cloned().collect();
        if all {
            self.world.here.retain(|r| r.pod.deleted.is_none());
        }
        self.world.elsewhere.retain(|r| r.pod.deleted.is_none());
        for mut pod in again {
            self.made += 1;
            let name = format!("again{}", self.made);
            pod.pod.name = crate::locate::PodName::new("team-a", &name).unwrap();
            (pod.pod.uid, pod.pod.deleted, pod.pod.created) = (format!("uid of {name}"), None, Some(self.world.now));
            self.world.elsewhere.push(pod);
        }
    }
}

/// `make soak` runs more of them.
fn cases() -> u32 {
    128 * std::env::var("GPU_QUARANTINE_SOAK").map_or(1, |times| times.parse().expect("a whole number"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(cases()))]
    #[test]
    fn whatever_happens_no_pod_is_asked_that_must_not_be_and_none_is_forgotten(
        kinds in prop::collection::vec(0_u8..3, 1..10),
        events in prop::collection::vec(events(), 1..60),
    ) {
        let mut history = History::of(&kinds);
        for event in &events {
            history.happen(event)?;
        }
        // From here on all is well.
        history.happen(&Event::Hold(false))?;
        history.happen(&Event::Pause(false))?;
        for _ in 0..40 {
            history.happen(&Event::Look(EvictionAnswer::Accepted))?;
            history.gone(true);
            history.world.pass(20);
        }
        let record = history.world.record().eviction;
        let state = |uid: &str| record.as_ref().and_then(|e| e.of(uid)).map(|p| p.state);
        let stays: Vec<_> = history.originals().map(|uid| (uid, state(uid))).collect();
        prop_assert!(stays.iter().all(|(_, state)| *state == Some(EvicteeState::Left)), "{stays:?}");
        let again = history.world.plan();
        prop_assert!(again.record.is_none() && again.acts.is_empty(), "{again:?}");
    }
}
