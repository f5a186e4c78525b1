//! From who is to go to what is done now, group by group and pod by pod.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    checkpoint::Time,
    choose::Resident,
    gang::{Framework, Loss},
    plan::{Act, Chosen, Look},
    state::{Evictee, EvicteeState, Evicting, HOUR, MAX_LEFT, Restart},
};
use crate::{
    policy::OnDeadline,
    quarantine::{record::Record, release::later},
};

/// For so long the other pods of a group are left to their framework once one is gone.
const REGROUP: Duration = Duration::from_secs(60);
/// Nodes are looked at so often while nothing is to be done: pods come back.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How soon a terminating pod is looked at again.
const LOOK_SOON: Duration = Duration::from_secs(2);
/// A pod that terminates for so long beyond its grace may never end: the GPU of its node hangs, or the node does.
const SLOW: Duration = Duration::from_secs(60);

/// What a plan grows from.
pub(super) struct Work<'a> {
    look: &'a Look<'a>,
    /// Since when the node has been isolated; the beginning of time if it is not any more.
    isolated: Timestamp,
    /// How much the record has for pods, in bytes.
    room: usize,
    /// What is to stand on record.
    pub(super) new: Evicting,
    /// The groups that are restarted by it.
    pub(super) restarted: Vec<Restart>,
    /// What is to be done then.
    pub(super) acts: Vec<Act>,
    /// When to look again.
    pub(super) next: Timestamp,
}

/// Whether the loss of one of these pods restarts their group as a whole. Pods of one group may differ in that.
fn is_whole(group: &[Chosen<'_>]) -> bool {
    group.iter().any(|chosen| matches!(chosen.resident.gang.loss, Loss::Whole | Loss::All))
}

impl<'a> Work<'a> {
    pub(super) fn on(record: &Record, look: &'a Look<'a>) -> Self {
        Self {
            look,
            isolated: record.added.as_ref().map_or(Timestamp::MIN, |added| added.at),
            room: record.room_for_pods(),
            new: record.eviction.clone().unwrap_or_else(|| Evicting::begun(look.now)),
            restarted: Vec::new(),
            acts: Vec::new(),
            next: later(look.now, LOOK_AGAIN),
        }
    }

    fn wake(&mut self, at: Timestamp) {
        self.next = self.next.min(at.max(self.look.now));
    }

    /// The pods on record that are gone by now; who is not to go now is put off, and why. Whether any terminates as it should.
    pub(super) fn follow(&mut self, is_to_go: impl Fn(&str) -> bool, why: &str) -> bool {
        let now = self.look.now;
        let mut soon = false;
        for pod in &mut self.new.pods {
            let resident = self.look.here.iter().chain(self.look.elsewhere).find(|r| r.pod.uid == pod.uid);
            let itself = |words: &'static str| pod.asked.is_none().then_some(words);
            match (resident, resident.and_then(|r| r.pod.deleted)) {
                // The API server said so, and yet it is there.
                (Some(_), None) if pod.state == EvicteeState::Gone => {
                    pod.put_off("it is still there", now);
                    pod.next = Some(later(now, LOOK_AGAIN));
                }
                _ if pod.state.is_over() => {}
                (None, _) => pod.move_to(EvicteeState::Gone, itself("it went by itself"), now),
                (Some(_), Some(deleted)) if later(deleted, SLOW) <= now => {
                    let stuck = format!("it should have ended at {deleted} and has not: its node may be unable to end it");
                    pod.move_to(EvicteeState::Leaving, Some(&stuck), now);
                }
                (Some(_), Some(_)) => {
                    if pod.state != EvicteeState::Leaving {
                        pod.move_to(EvicteeState::Leaving, itself("it terminates by itself"), now);
                    }
                    soon = true;
                }
                (Some(_), None) if pod.state == EvicteeState::Leaving => soon = true,
                (Some(_), None) => {
                    if !is_to_go(&pod.uid) {
                        pod.put_off(why, now);
                    }
                }
            }
        }
        if soon {
            self.wake(later(now, LOOK_SOON));
        }
        soon
    }

    /// What stands on record about a pod, which is added if it is new and there is room.
    fn entry(&mut self, resident: &Resident) -> Option<&mut Evictee> {
        let at = self.new.pods.iter().position(|p| p.uid == resident.pod.uid);
        if let Some(at) = at {
            return self.new.pods.get_mut(at);
        }
        let new = Evictee::new(resident.pod.name.clone(), &resident.pod.uid, &resident.gang.key, self.look.now);
        while !self.new.has_room_for(&new, self.room) {
            // Those that are over and not here any more are not there to be forgotten.
            let here = |uid: &str| self.look.here.iter().any(|r| r.pod.uid == uid);
            let over = self.new.pods.iter().position(|p| p.state.is_over() && !here(&p.uid))?;
            self.new.pods.remove(over);
        }
        self.new.pods.push(new);
        self.new.pods.last_mut()
    }

    pub(super) fn note(&mut self, resident: &Resident, state: EvicteeState, why: &str) {
        let now = self.look.now;
        let known = self.new.of(&resident.pod.uid).is_some();
        // They must not take the room of those that are to go.
        let left = self.new.pods.iter().filter(|p| matches!(p.state, EvicteeState::Left | EvicteeState::Returned)).count();
        if !known && state.is_over() && left >= MAX_LEFT {
            return;
        }
        if let Some(pod) = self.entry(resident) {
            let was = pod.state;
            if !was.is_over() || state == EvicteeState::Left || was == state {
                pod.move_to(state, Some(why), now);
            }
        }
    }

    /// Pods of one group that come again and again are told of once.
    pub(super) fn returned(&mut self, resident: &Resident, why: &str) {
        let told = |p: &Evictee| p.state == EvicteeState::Returned && p.group == resident.gang.key && p.uid != resident.pod.uid;
        if !self.new.pods.iter().any(told) {
            self.note(resident, EvicteeState::Returned, why);
        }
    }

    /// One group is one action.
    pub(super) fn group(&mut self, group: &[Chosen<'_>]) {
        // Pods of one group may differ: without its head a Ray cluster is lost, without a worker it is not.
        let mut goes: Vec<Chosen<'_>> = Vec::new();
        for chosen in group {
            let gang = &chosen.resident.gang;
            match &gang.loss {
                Loss::Fails(why) if chosen.resident.pod.deleted.is_none() => {
                    self.note(chosen.resident, EvicteeState::Left, &format!("{} would fail for good: {why}", gang.key));
                }
                Loss::Fails(_) => {}
                // What is over takes no part in it any more.
                Loss::Each | Loss::Whole | Loss::All => {
                    if self.new.of(&chosen.resident.pod.uid).is_none_or(|p| !p.state.is_over()) {
                        goes.push(*chosen);
                    }
                }
            }
        }
        self.going(&goes);
    }

    /// Those of a group that may go.
    fn going(&mut self, group: &[Chosen<'_>]) {
        let Some(first) = group.first() else { return };
        let gang = &first.resident.gang;
        let began = self.asked_any(&gang.key);
        if !began && self.is_held_back(group) {
            return;
        }
        match gang.loss {
            Loss::Whole => self.one_of(group, began),
            Loss::Each => self.each_of(group),
            Loss::All | Loss::Fails(_) => group.iter().for_each(|chosen| self.pod(chosen)),
        }
        // Counted before the first is asked: a crash in between counts one too many, never one too few.
        if !began && self.asked_any(&gang.key) {
            self.restarted.push(Restart::of(&gang.key, is_whole(group), self.look.now));
        }
    }

    fn asked_any(&self, group: &str) -> bool {
        self.new.pods.iter().any(|p| p.group == group && p.asked.is_some())
    }

    /// When we restarted a group, on any node, as far as it counts.
    fn restarts_of(&self, group: &str) -> impl Iterator<Item = Timestamp> {
        let counts = move |r: &&Restart| r.group == group && later(r.at, HOUR) > self.look.now;
        self.look.restarts.iter().filter(counts).map(|r| r.at)
    }

    /// Why no other group may be made to restart as a whole, of all nodes, if so, and until when if time alone ends that.
    fn gangs_full(&self) -> Option<(String, Option<Timestamp>)> {
        let rate = self.look.config.guard.max_evicted_gangs;
        let window = Restart::window(self.look.restarts.iter().chain(&self.restarted), rate, self.look.now);
        let within = humantime::format_duration(rate.within);
        let why = match window.room_at {
            Some(until) => {
                let most = window.most;
                format!("guard.max_evicted_gangs: {most} groups were restarted as a whole within {within}: not before {until}")
            }
            None => "guard.max_evicted_gangs: no group may be restarted as a whole".to_owned(),
        };
        window.is_full().then_some((why, window.room_at))
    }

    /// Whether a group of which nobody was asked yet must wait as a whole.
    fn is_held_back(&mut self, group: &[Chosen<'_>]) -> bool {
        let Some(gang) = group.first().map(|c| &c.resident.gang) else { return true };
        let most = usize::try_from(self.look.config.eviction.max_restarts_per_hour).unwrap_or(usize::MAX);
        let (restarts, first) = (self.restarts_of(&gang.key).count(), self.restarts_of(&gang.key).min());
        // Replicas do not need each other: nothing restarts but the pod itself.
        if let Some(first) = first.filter(|_| restarts >= most && gang.framework != Framework::Replicas) {
            let until = later(first, HOUR);
            self.all_wait(group, &format!("{} was restarted {restarts} times within an hour: not before {until}", gang.key));
            self.wake(until);
            return true;
        }
        if let Some((why, until)) = self.gangs_full().filter(|_| is_whole(group)) {
            self.all_wait(group, &why);
            if let Some(until) = until {
                self.wake(until);
            }
            return true;
        }
        if let Some(pause) = self.look.paused {
            self.all_wait(group, &format!("nothing new is begun: {pause}"));
            return true;
        }
        // A checkpoint of ranks that belong together is written by all of them, before the first is asked. All that they wait for is begun.
        let ready: Vec<bool> = group.iter().map(|chosen| gang.loss == Loss::Each || self.is_ready(chosen)).collect();
        ready.contains(&false)
    }

    fn all_wait(&mut self, group: &[Chosen<'_>], why: &str) {
        for chosen in group.iter().filter(|c| c.resident.pod.deleted.is_none()) {
            self.note(chosen.resident, EvicteeState::Waiting, why);
        }
    }

    /// One gone is enough, from this node or another: the framework takes the others. Those that it leaves are asked, too.
    fn one_of(&mut self, group: &[Chosen<'_>], began: bool) {
        let Some(gang) = group.first().map(|c| &c.resident.gang) else { return };
        let elsewhere = self.restarts_of(&gang.key).max().filter(|_| !began);
        let others_from = self.first_gone(&gang.key).or(elsewhere).map(|gone| later(gone, REGROUP));
        let now = self.look.now;
        for (number, chosen) in group.iter().enumerate() {
            if others_from.map_or(number == 0, |from| from <= now) {
                self.pod(chosen);
            } else {
                self.all_wait(&[*chosen], &format!("{} restarts as a whole once one of its pods is gone", gang.key));
                self.wake(others_from.unwrap_or_else(|| later(now, LOOK_SOON)));
            }
        }
    }

    /// As many as the group bears.
    fn each_of(&mut self, group: &[Chosen<'_>]) {
        let Some(gang) = group.first().map(|c| &c.resident.gang) else { return };
        // What terminates may not be counted by its framework yet.
        let is_going = |work: &Self, chosen: &Chosen<'_>| {
            chosen.resident.pod.deleted.is_some() || work.new.of(&chosen.resident.pod.uid).is_some_and(Evictee::is_going)
        };
        let here = u64::try_from(group.iter().filter(|c| is_going(self, c)).count()).unwrap_or(u64::MAX);
        let elsewhere = self.look.going.get(&gang.key).copied().unwrap_or(0);
        let mut spare = gang.spare.map(|spare| spare.saturating_sub(here.saturating_add(elsewhere)));
        for chosen in group {
            if !is_going(self, chosen) {
                if spare == Some(0) {
                    self.all_wait(&[*chosen], &format!("{} bears no more losses now and would fail for good", gang.key));
                    continue;
                }
                spare = spare.map(|spare| spare - 1);
            }
            self.pod(chosen);
        }
    }

    /// When the first of a group left because we had asked it.
    fn first_gone(&self, key: &str) -> Option<Timestamp> {
        let left = |p: &&Evictee| p.group == key && matches!(p.state, EvicteeState::Leaving | EvicteeState::Gone);
        self.new.pods.iter().filter(left).filter(|p| p.asked.is_some()).map(|p| p.at).min()
    }

    /// Whether nothing comes before a pod is asked. What it waits for is begun.
    fn is_ready(&mut self, chosen: &Chosen<'_>) -> bool {
        let now = self.look.now;
        let resident = chosen.resident;
        let (rules, config) = (chosen.rules, self.look.config);
        let called = self.look.called.get(&resident.pod.uid).map(String::as_str);
        let isolated = self.isolated;
        let settled = later(isolated.max(chosen.since), rules.settle);
        if resident.pod.deleted.is_some() {
            return true;
        }
        let Some(pod) = self.entry(resident) else {
            self.wake(later(now, LOOK_SOON));
            return false;
        };
        if pod.state.is_over() || pod.state == EvicteeState::Leaving || pod.asked.is_some() {
            return true;
        }
        if settled > now {
            pod.move_to(EvicteeState::Waiting, Some(&format!("the isolation settles until {settled}")), now);
            self.wake(settled);
            return false;
        }
        let Some(time) = pod.wait_for_checkpoint(&resident.pod, chosen, called, config, isolated, now) else { return true };
        let until = match time {
            Time::Until(until) => until,
            Time::Call(call, until) => {
                let (pod, uid) = (resident.pod.name.clone(), resident.pod.uid.clone());
                self.acts.push(Act::Checkpoint { pod, uid, call, within: rules.checkpoint });
                until
            }
        };
        self.wake(until.min(later(now, LOOK_SOON)));
        false
    }

    fn pod(&mut self, chosen: &Chosen<'_>) {
        let now = self.look.now;
        let (resident, rules) = (chosen.resident, chosen.rules);
        if resident.pod.deleted.is_some() || !self.is_ready(chosen) {
            return;
        }
        let Some(pod) = self.entry(resident) else { return };
        if pod.state.is_over() || pod.state == EvicteeState::Leaving {
            return;
        }
        if let Some(next) = pod.next.filter(|next| *next > now) {
            self.wake(next);
            return;
        }
        let over = pod.is_past(rules.deadline, now);
        // To delete it, somebody must have said no: where nobody answers, nobody knows what is wrong.
        if over && (rules.on_deadline == OnDeadline::Leave || pod.state != EvicteeState::Blocked) {
            let why = format!(
                "not gone within {}: {}",
                humantime::format_duration(rules.deadline),
                pod.why.clone().unwrap_or_default()
            );
            pod.move_to(EvicteeState::Left, Some(&why), now);
            return;
        }
        // What was said last tells whether the next answer is news.
        let asked = pod.tries > 0 && pod.state != EvicteeState::Checkpoint;
        let last = pod.why.clone().filter(|_| asked);
        pod.move_to(EvicteeState::Asking, last.as_deref(), now);
        pod.asked.get_or_insert(now);
        pod.from.get_or_insert(now);
        pod.tries = pod.tries.saturating_add(1);
        pod.next = None;
        let (pod, uid) = (resident.pod.name.clone(), resident.pod.uid.clone());
        self.acts.push(if over { Act::Delete { pod, uid } } else { Act::Evict { pod, uid } });
        self.wake(later(now, LOOK_SOON));
    }
}
