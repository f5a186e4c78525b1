//! Bounds and shapes: the ledger stays small, and health is a number between 0 and 100 that says what it says.

use gpu_quarantine::{
    locate::NodeFacts,
    quarantine::{Episode, Ledger, MAX_LEDGER_BYTES, Machine, StoredLedger, health, machine_key},
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};

const NOW: &str = "2026-11-29T20:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

fn episode(hours_ago: i64) -> Episode {
    let to = now() - SignedDuration::from_hours(hours_ago);
    let from = to - SignedDuration::from_mins(30);
    serde_json::from_value(json!({"alert": "GpuLost", "from": from, "to": to, "by": "resolved"})).unwrap()
}

fn machine(at_hours_ago: i64, open: bool, padding: usize) -> Machine {
    let at = now() - SignedDuration::from_hours(at_hours_ago);
    let mut machine = json!({"node": "a", "at": at, "episodes": [episode(at_hours_ago)], "padding": "x".repeat(padding)});
    if open {
        let claim = json!({"alert": "A", "policy": "p", "action": "isolate", "state": "firing", "since": at, "members": []});
        machine["open"] = json!({"node": "a", "uid": "u", "isolated": true, "claims": [claim]});
    }
    serde_json::from_value(machine).unwrap()
}

#[test]
fn what_is_old_goes_first_then_what_is_oldest_and_open_claims_last() {
    let mut ledger = Ledger::new("default");
    ledger.machines.insert("old".to_owned(), machine(91 * 24, false, 0));
    ledger.machines.insert("old-open".to_owned(), machine(200 * 24, true, 0));
    ledger.machines.insert("young".to_owned(), machine(1, false, 0));
    ledger.fit(now());
    assert_eq!(ledger.machines.keys().collect::<Vec<_>>(), ["old-open", "young"]);

    for i in 0..20 {
        ledger.machines.insert(format!("m{i:02}"), machine(100 - i, i % 2 == 0, 40_000));
    }
    let text = ledger.fit(now());
    assert!(text.len() <= MAX_LEDGER_BYTES && text.len() > MAX_LEDGER_BYTES - 80_000, "{}", text.len());
    let left: Vec<_> = ledger.machines.keys().map(String::as_str).collect();
    assert!((0..20).step_by(2).all(|i| left.contains(&format!("m{i:02}").as_str())), "{left:?}");
    assert!(!left.contains(&"m01") && left.contains(&"old-open"), "{left:?}");

    for i in 20..60 {
        ledger.machines.insert(format!("m{i}"), machine(100 - i, true, 40_000));
    }
    assert!(ledger.fit(now()).len() <= MAX_LEDGER_BYTES);
    assert!(!ledger.machines.contains_key("old-open") && ledger.machines.contains_key("m59"));
}

#[test]
fn unknown_fields_survive() {
    let text = json!({"v": 1, "owner": "a", "new": 1, "machines": {"m": {"node": "n", "at": NOW, "newer": [2]}}}).to_string();
    let StoredLedger::Ours(mut ledger) = Ledger::read(&text, "a") else { panic!() };
    let again: Value = serde_json::from_str(&ledger.fit(now())).unwrap();
    assert_eq!((&again["new"], &again["machines"]["m"]["newer"]), (&json!(1), &json!([2])));
}

#[test]
fn a_system_uuid_that_makers_share_is_none() {
    let node = |uuid: Option<&str>| NodeFacts { system_uuid: uuid.map(str::to_owned), ..facts() };
    let own = "3C7A55FA-3B87-49D9-AB49-E1BDF29B1CCE";
    assert_eq!(machine_key(&node(Some(own))), own.to_lowercase());
    for none in [
        None,
        Some(""),
        Some("00000000-0000-0000-0000-000000000000"),
        Some("ffffffff-ffff-ffff-ffff-ffffffffffff"),
        Some("03000200-0400-0500-0006-000700080009"),
        Some("Not Settable"),
        Some("To be filled by O.E.M."),
    ] {
        assert_eq!(machine_key(&node(none)), "node:gpu-1", "{none:?}");
    }
}

fn facts() -> NodeFacts {
    let raw = json!({"metadata": {"name": "gpu-1", "uid": "u", "resourceVersion": "1"}});
    gpu_quarantine::cluster::node_facts(&raw, "gpu-quarantine.dev").unwrap()
}

#[test]
fn health_is_as_documented() {
    let of = |ages: &[i64]| health(&ages.iter().map(|h| episode(*h)).collect::<Vec<_>>(), now());
    assert_eq!(of(&[]), 100);
    assert_eq!(of(&[0]), 80);
    assert_eq!(of(&[0, 1]), 64);
    assert_eq!(of(&[7 * 24]), 89);
    assert_eq!(of(&[365 * 24]), 100);
    let mut false_alarm = episode(0);
    false_alarm.verdict = Some("false-alarm".to_owned());
    assert_eq!(health(&[false_alarm], now()), 100);
    assert_eq!(health(&[episode(3), episode(3)], now()), health(&[episode(3)], now()), "claims of one release count once");
}

proptest! {
    #[test]
    fn health_is_in_range_falls_with_episodes_and_rises_with_time(ages in prop::collection::vec(0_i64..10_000, 0..40), later in 0_i64..10_000) {
        let past: Vec<Episode> = ages.iter().map(|h| episode(*h)).collect();
        let is = health(&past, now());
        prop_assert!(is <= 100);
        prop_assert!(health(&past, now() + SignedDuration::from_hours(later)) >= is);
        if let Some((_, fewer)) = past.split_first() {
            prop_assert!(health(fewer, now()) >= is);
        }
        prop_assert_eq!(health(&past, now() + SignedDuration::from_hours(24 * 365 * 5)), 100);
    }
}
