use std::{cmp::Reverse, collections::BTreeSet};

use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::{
    policy::load,
    quarantine::{NodeState, NodeView},
};

const T0: i64 = 1_772_366_400;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(T0 + second).unwrap()
}

/// Three of the fleet, two of a pool, half of a pool stays healthy, four within ten minutes.
fn config() -> Config {
    let text = "\
release: {require: [resolved]}
guard:
  max_isolated: {count: 3, percent: 0}
  pools: {label: pool, max_isolated: {count: 2, percent: 0}, min_healthy: 50}
  max_new_isolations: {count: 4, within: 10m}
policies:
  - {name: plain, match: [a=b], action: isolate}
  - {name: heavy, match: [a=c], action: isolate, weight: 5}
  - {name: free, match: [a=d], action: isolate, guard: {exempt: true}}
  - {name: own, match: [a=e], action: isolate, guard: {max_isolated: {count: 5}, pools: {max_isolated: {count: 5}}}}
";
    load("config.yaml", text).unwrap()
}

fn turn(policy: &str, weight: i32, since: i64) -> Turn {
    Turn {
        rank: Rank { weight: Reverse(weight), severity: Reverse(None), since: at(since) },
        policy: policy.to_owned(),
        also: Vec::new(),
    }
}

fn name(name: &str) -> NodeName {
    NodeName::parse(name).unwrap()
}

fn node(n: &str, pool: &str) -> NodeView {
    let labels = [("pool", pool), ("nvidia.com/gpu.present", "true")];
    let facts = NodeFacts { labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(), ..NodeFacts::bare(n) };
    NodeView::of(&facts, &config(), at(0))
}

fn isolated(n: &str, pool: &str, since: i64) -> NodeView {
    NodeView { isolated: true, isolated_at: Some(at(since)), state: NodeState::Isolated, ..node(n, pool) }
}

fn pending(n: &str, pool: &str, turn: Turn) -> NodeView {
    NodeView { turn: Some(turn), state: NodeState::Pending, ..node(n, pool) }
}

/// A pool of so many nodes of which nothing is told.
fn fill(muster: &mut Muster, pool: &str, nodes: usize) {
    (0..nodes).for_each(|n| muster.see(&node(&format!("{pool}-idle-{n}"), pool), at(0)));
}

fn refusal(muster: &Muster, n: &str, pool: &str, turn: &Turn, now: i64) -> Option<String> {
    muster.refusal(&Candidate { node: &name(n), pool, healthy: true, turn }, &config(), at(now))
}

#[test]
fn each_limit_refuses_by_its_own_name() {
    let plain = turn("plain", 0, 0);
    let mut muster = Muster::new();
    fill(&mut muster, "p", 20);
    fill(&mut muster, "q", 20);
    fill(&mut muster, "r", 1);
    assert_eq!(refusal(&muster, "p-idle-0", "p", &plain, 0), None);
    muster.see(&isolated("p-idle-0", "p", -6_000), at(0));
    muster.see(&isolated("p-idle-1", "p", -6_000), at(0));
    assert_eq!(
        refusal(&muster, "p-idle-2", "p", &plain, 0).unwrap(),
        "guard.pools.max_isolated: 2 of 2 nodes of pool p are isolated, number 1 in the queue"
    );
    assert_eq!(refusal(&muster, "q-idle-0", "q", &plain, 0), None, "another pool has room");
    muster.see(&isolated("q-idle-0", "q", -6_000), at(0));
    assert_eq!(
        refusal(&muster, "q-idle-1", "q", &plain, 0).unwrap(),
        "guard.max_isolated: 3 of 3 nodes are isolated, number 1 in the queue"
    );
    assert_eq!(refusal(&muster, "q-idle-1", "q", &turn("free", 0, 0), 0), None, "nothing limits an exempt policy");
    assert_eq!(refusal(&muster, "p-idle-2", "p", &turn("own", 0, 0), 0), None, "it has limits of its own");
    muster.see(&node("p-idle-1", "p"), at(0));
    for n in 2..9 {
        muster.see(&NodeView { healthy: false, ..node(&format!("p-idle-{n}"), "p") }, at(0));
    }
    assert_eq!(refusal(&muster, "p-idle-9", "p", &plain, 0), None, "12 are healthy, and 10 are to stay so");
    for n in 9..11 {
        muster.see(&NodeView { healthy: false, ..node(&format!("p-idle-{n}"), "p") }, at(0));
    }
    assert_eq!(
        refusal(&muster, "p-idle-19", "p", &plain, 0).unwrap(),
        "guard.pools.min_healthy: 10 of 20 nodes of pool p are healthy, and 50 % (10) stay so, number 1 in the queue"
    );
    let of_no_use = Candidate { node: &name("p-idle-2"), pool: "p", healthy: false, turn: &plain };
    assert_eq!(muster.refusal(&of_no_use, &config(), at(0)), None, "it takes nothing healthy away");
    assert_eq!(refusal(&muster, "r-idle-0", "r", &plain, 0), None, "the only node of a pool can be isolated");
    assert_eq!(refusal(&Muster::new(), "new", "", &plain, 0), None, "a fleet of none has room for the first");
}

#[test]
fn so_many_are_isolated_within_the_window_although_they_were_released_since() {
    let plain = turn("plain", 0, 0);
    let mut muster = Muster::new();
    fill(&mut muster, "p", 20);
    for n in 0..4 {
        muster.see(&isolated(&format!("p-idle-{n}"), "p", n * 10), at(n * 10));
        muster.see(&node(&format!("p-idle-{n}"), "p"), at(0));
    }
    let why = refusal(&muster, "p-idle-9", "p", &plain, 60).unwrap();
    let next = at(600);
    assert_eq!(
        why,
        format!(
            "guard.max_new_isolations: 4 of 4 nodes were isolated within 10m, the next may be at {next}, number 1 in the queue"
        )
    );
    assert_eq!(muster.next_room(&config(), at(60)), None, "nobody waits");
    muster.see(&pending("p-idle-9", "p", plain.clone()), at(0));
    assert_eq!(muster.next_room(&config(), at(60)), Some(next));
    assert!(refusal(&muster, "p-idle-9", "p", &plain, 599).is_some());
    assert_eq!(refusal(&muster, "p-idle-9", "p", &plain, 600), None);
    assert_eq!(muster.next_in(&BTreeSet::new(), &config(), at(600)), Some(name("p-idle-9")));
}

#[test]
fn the_heavier_the_graver_and_the_older_come_first_and_a_full_pool_keeps_no_other_waiting() {
    let mut muster = Muster::new();
    fill(&mut muster, "p", 20);
    fill(&mut muster, "q", 20);
    muster.see(&isolated("p-a", "p", -6_000), at(0));
    muster.see(&isolated("p-b", "p", -6_000), at(0));
    let grave = |severity| {
        let mut turn = turn("plain", 0, 50);
        turn.rank.severity = Reverse(Some(severity));
        turn
    };
    muster.see(&pending("p-heavy", "p", turn("heavy", 5, 100)), at(0));
    muster.see(&pending("q-old", "q", turn("plain", 0, 10)), at(0));
    muster.see(&pending("q-grave", "q", grave(Severity::Critical)), at(0));
    muster.see(&pending("q-less", "q", grave(Severity::Warning)), at(0));
    let mut order = Vec::new();
    let mut not = BTreeSet::new();
    while let Some(next) = muster.next_in(&not, &config(), at(200)) {
        not.insert(next.clone());
        order.push(next.to_string());
    }
    assert_eq!(order, ["q-grave", "q-less", "q-old"], "the one of the full pool is passed over");
    let of = |n: &str| muster.refused(&name(n), &config(), at(200)).map(muster::sentence);
    assert_eq!(of("q-grave"), None);
    assert_eq!(of("q-less").unwrap(), "guard.max_isolated: 2 of 3 nodes are isolated, number 3 in the queue");
    assert_eq!(of("p-heavy").unwrap(), "guard.pools.max_isolated: 2 of 2 nodes of pool p are isolated, number 1 in the queue");
    assert_eq!(
        refusal(&muster, "q-new", "q", &turn("heavy", 5, 300), 300),
        None,
        "who is heavier than all for whom there is room does not wait for them"
    );
}

#[test]
fn what_is_being_written_counts_once() {
    let plain = turn("plain", 0, 0);
    let mut muster = Muster::new();
    fill(&mut muster, "p", 20);
    for n in ["p-idle-0", "p-idle-1"] {
        assert_eq!(refusal(&muster, n, "p", &plain, 0), None);
        muster.reserve(&name(n));
    }
    assert!(refusal(&muster, "p-idle-2", "p", &plain, 0).is_some(), "two of its pool are on their way");
    assert_eq!(refusal(&muster, "p-idle-0", "p", &plain, 0), None, "the room is its own");
    muster.see(&isolated("p-idle-0", "p", 0), at(0));
    muster.unreserve(&name("p-idle-1"));
    assert_eq!(refusal(&muster, "p-idle-2", "p", &plain, 0), None, "one stands and is not counted twice");
}

#[test]
fn the_limits_of_one_of_the_policies_that_want_it_isolated_are_enough() {
    let mut muster = Muster::new();
    fill(&mut muster, "p", 20);
    fill(&mut muster, "q", 20);
    for n in ["p-a", "p-b", "q-a"] {
        muster.see(&isolated(n, "p", -6_000), at(0));
    }
    let also = |policy: &str| Turn { also: vec![policy.to_owned()], ..turn("plain", 0, 0) };
    assert!(refusal(&muster, "q-idle-0", "q", &also("heavy"), 0).is_some(), "neither has room");
    assert_eq!(refusal(&muster, "q-idle-0", "q", &also("free"), 0), None, "nothing limits the other");
    assert_eq!(refusal(&muster, "q-idle-0", "q", &also("own"), 0), None, "the other has room");
    muster.see(&pending("q-idle-1", "q", also("free")), at(0));
    assert_eq!(muster.next_in(&BTreeSet::new(), &config(), at(0)), Some(name("q-idle-1")));
    muster.reserve(&name("q-idle-1"));
    assert_eq!(muster.next_in(&BTreeSet::new(), &config(), at(0)), None, "it is being written");
}

#[test]
fn one_that_is_being_written_and_still_queued_takes_room_once() {
    let mut muster = Muster::new();
    fill(&mut muster, "p", 20);
    muster.see(&pending("p-idle-0", "p", turn("plain", 0, 0)), at(0));
    muster.reserve(&name("p-idle-0"));
    assert_eq!(refusal(&muster, "p-idle-1", "p", &turn("plain", 0, 1), 1), None, "two may be, and one is");
}

#[test]
fn a_node_that_was_seen_cordoned_last_and_is_not_any_more_counts_as_it_is() {
    let mut muster = Muster::new();
    muster.see(&NodeView { healthy: false, ..node("only", "p") }, at(0));
    assert_eq!(refusal(&muster, "only", "p", &turn("plain", 0, 0), 0), None, "the only node of a pool can be isolated");
}

#[test]
fn an_isolation_that_another_clock_dated_into_the_future_hides_no_other() {
    let plain = turn("plain", 0, 0);
    let mut muster = Muster::new();
    fill(&mut muster, "p", 20);
    for n in 0..4 {
        muster.see(&isolated(&format!("p-idle-{n}"), "p", n), at(10));
        muster.see(&node(&format!("p-idle-{n}"), "p"), at(10));
    }
    muster.see(&isolated("p-idle-5", "p", 100_000), at(20));
    assert!(refusal(&muster, "p-idle-9", "p", &plain, 30).unwrap().contains("5 of 4 nodes were isolated within 10m"));
    muster.see(&node("p-idle-5", "p"), at(700));
    assert_eq!(refusal(&muster, "p-idle-9", "p", &plain, 700), None);
}

/// What happens to a fleet of two pools and nodes without one.
#[derive(Debug, Clone)]
enum Event {
    Fault { node: usize, policy: usize },
    Over(usize),
    Sick(usize),
    Admit,
    Later(i64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        4 => (0_usize..24, 0_usize..2).prop_map(|(node, policy)| Event::Fault { node, policy }),
        2 => (0_usize..24).prop_map(Event::Over),
        1 => (0_usize..24).prop_map(Event::Sick),
        3 => Just(Event::Admit),
        1 => (1_i64..900).prop_map(Event::Later),
    ];
    proptest::collection::vec(event, 1..120)
}

proptest! {
    #[test]
    fn no_limit_is_ever_exceeded_and_who_is_let_in_waited_for_it(events in events()) {
        let config = config();
        let pool = |n: usize| ["p", "q", ""][n % 3];
        let id = |n: usize| format!("n-{n}");
        let mut muster = Muster::new();
        let mut views: Vec<NodeView> = (0..24).map(|n| node(&id(n), pool(n))).collect();
        for view in &views {
            muster.see(view, at(0));
        }
        // One that is let in twice at one instant is counted once.
        let (mut now, mut begun) = (0, BTreeSet::new());
        for event in events {
            match event {
                Event::Fault { node, policy } if !views[node].isolated && views[node].turn.is_none() => {
                    let (policy, weight) = [("plain", 0), ("heavy", 5)][policy];
                    views[node].turn = Some(turn(policy, weight, now));
                }
                Event::Fault { .. } => {}
                Event::Over(node) => {
                    (views[node].turn, views[node].isolated, views[node].isolated_at) = (None, false, None);
                }
                Event::Sick(node) => views[node].healthy = !views[node].healthy,
                Event::Later(seconds) => now += seconds,
                Event::Admit => {
                    while let Some(next) = muster.next_in(&BTreeSet::new(), &config, at(now)) {
                        let view = views.iter_mut().find(|view| view.name == next).unwrap();
                        prop_assert!(view.turn.is_some(), "it waited");
                        prop_assert_eq!(muster.refused(&next, &config, at(now)), None, "and nobody stood before it");
                        (view.turn, view.isolated, view.isolated_at) = (None, true, Some(at(now)));
                        muster.see(view, at(now));
                        begun.insert((now, next.clone()));
                        let isolated = views.iter().filter(|v| v.isolated).count();
                        prop_assert!(isolated <= 3, "{isolated} of 3");
                        let this = views.iter().find(|view| view.name == next).unwrap();
                        let same = || views.iter().filter(|v| v.pool == this.pool);
                        prop_assert!(same().filter(|v| v.isolated).count() <= 2);
                        let healthy = same().filter(|v| v.healthy && !v.isolated).count();
                        prop_assert!(!this.healthy || healthy >= 4, "{healthy} of 8 are left");
                        let lately = begun.iter().filter(|(at, _)| *at > now - 600).count();
                        prop_assert!(lately <= 4, "{lately} within ten minutes");
                    }
                }
            }
            for view in &views {
            muster.see(view, at(now));
        }
        }
    }
}
