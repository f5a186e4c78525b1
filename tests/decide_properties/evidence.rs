//! P4: where evidence is required, only evidence releases, or a person.

use std::time::Duration;

use gpu_quarantine::{
    alert::Alert,
    policy::load,
    quarantine::{
        Effect, NodeState, NodeView,
        evidence::{ClaimShown, Finding, Shown, question},
    },
};
use proptest::{collection::vec, prelude::*};
use rstest::rstest;
use serde_json::json;

use crate::bench::{Bench, HOLD, at, cases, firing, plain_node, resolved};

const QUERY: &str = "gpu:row_remap_pending:max{node=\"gpu-07\"} == 0";
const GPU: &str = "GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab";

fn bench() -> Bench {
    let text = "release: {after: 10m, require: [evidence]}\nsources: {prometheus: {query_url: \"http://prometheus:9090\"}}\n";
    let mut node = plain_node();
    node["metadata"]["labels"]["nvidia.com/gpu.count"] = "8".into();
    Bench::new(&node, load("config.yaml", text).expect("the configuration is valid"))
}

/// A fault of one GPU with that label `recovery` and that annotation `recovery_query`.
fn fault(recovery: Option<&str>, query: Option<&str>) -> Alert {
    let mut labels = vec![("alertname", "GpuBroken"), ("UUID", GPU)];
    labels.extend(recovery.map(|r| ("recovery", r)));
    let mut alert = firing(&labels, "isolate", at(0));
    if let Some(query) = query {
        alert.annotations.insert("recovery_query", query);
    }
    alert
}

/// What Prometheus shows of the one claim now, if it was good for so many seconds.
fn show(bench: &mut Bench, lasted: i64, now: &Finding, replaced: bool) {
    let asked = question(&bench.facts(), &bench.config, &[], bench.now);
    let claims = asked.iter().flat_map(|q| &q.claims).map(|asked| ClaimShown {
        alert: asked.alert.clone(),
        gpu: asked.gpu.clone(),
        since: asked.since,
        queries: asked.queries.len(),
        lasted: Duration::from_secs(u64::try_from(lasted).expect("a duration")),
        now: now.clone(),
        replaced,
    });
    bench.shown = Some(Shown { uid: bench.facts().uid, at: bench.now, claims: claims.collect(), no_exporter: false });
}

fn reboot(bench: &Bench) {
    bench.edit(|node| node["status"]["nodeInfo"]["bootID"] = "b-2".into());
}

fn exchange(bench: &Bench) {
    bench.edit(|node| node["status"]["nodeInfo"] = json!({ "bootID": "b-2", "systemUUID": "s-2" }));
}

fn view(bench: &Bench) -> NodeView {
    let known = gpu_quarantine::quarantine::Known { shown: bench.shown.as_ref(), ..Default::default() };
    NodeView::knowing(&bench.facts(), &bench.config, known, bench.now)
}

/// What happened to the machine while its alert was still firing.
#[derive(Debug, Clone, Copy)]
enum Machine {
    Same,
    Rebooted,
    Exchanged,
}

/// The alert ended, the hold-down is over, and everything is seen to be good all the time since.
#[rstest]
#[case::auto_with_a_query(Some("auto"), Some(QUERY), Machine::Same, false, None)]
#[case::auto_without_a_query(Some("auto"), None, Machine::Same, false, Some("no annotation recovery_query"))]
#[case::query_that_selects_nothing(Some("auto"), Some("vector(1)"), Machine::Same, false, Some("selects no series"))]
#[case::query_that_is_none(Some("auto"), Some("up =="), Machine::Same, false, Some("is not PromQL"))]
#[case::no_label(None, Some(QUERY), Machine::Same, false, Some("no label recovery"))]
#[case::manual(Some("manual"), Some(QUERY), Machine::Exchanged, true, Some("asks for recovery manual"))]
#[case::unknown_word(Some("hope"), Some(QUERY), Machine::Exchanged, true, Some("asks for recovery manual"))]
#[case::reboot_without_one(Some("reboot"), Some(QUERY), Machine::Same, false, Some("reboot the machine"))]
#[case::reboot(Some("reboot"), Some(QUERY), Machine::Rebooted, false, None)]
#[case::reboot_and_nothing_to_ask(Some("reboot"), None, Machine::Rebooted, false, None)]
#[case::reboot_by_exchange(Some("reboot"), None, Machine::Exchanged, false, None)]
#[case::replace_without_one(Some("replace"), Some(QUERY), Machine::Same, false, Some("replace the GPU or the machine"))]
#[case::replace_and_only_rebooted(Some("replace"), None, Machine::Rebooted, false, Some("replace the GPU or the machine"))]
#[case::replace_of_the_gpu(Some("replace"), None, Machine::Rebooted, true, None)]
#[case::replace_of_the_machine(Some("replace"), None, Machine::Exchanged, false, None)]
#[case::another_gpu_has_nothing_of_the_old_fault(None, None, Machine::Rebooted, true, None)]
fn what_a_release_needs(
    #[case] recovery: Option<&str>,
    #[case] query: Option<&str>,
    #[case] machine: Machine,
    #[case] replaced: bool,
    #[case] waits_for: Option<&str>,
) {
    let mut bench = bench();
    let alert = fault(recovery, query);
    drop(bench.hear(std::slice::from_ref(&alert), false));
    assert!(bench.isolated());
    match machine {
        Machine::Same => {}
        Machine::Rebooted => reboot(&bench),
        Machine::Exchanged => exchange(&bench),
    }
    drop(bench.tick());
    bench.wait(60);
    drop(bench.hear(&[resolved(&alert, at(60))], false));
    bench.wait(HOLD);
    show(&mut bench, HOLD, &Finding::Gone, replaced);
    let view = view(&bench);
    let effect = bench.tick().effect;
    match waits_for {
        None => {
            assert!(matches!(effect, Some((Effect::Release, ..))), "{}", view.waiting_for);
            assert_eq!(bench.record().expect("it has a history").history[0].by, "evidence");
        }
        Some(words) => {
            assert_eq!(effect, None);
            assert!(view.waiting_for.contains(words) && view.waiting_for.starts_with("a person to "), "{}", view.waiting_for);
            assert!(view.held_back.is_some());
        }
    }
}

/// How the node looks after its hold-down, if this is shown.
#[rstest]
#[case::not_asked(None, NodeState::Suspect, "Prometheus has not answered yet")]
#[case::no_data(Some((HOLD, Finding::Nothing("no scrape".into()))), NodeState::Suspect, "GpuBroken on GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab: no scrape")]
#[case::faulty(Some((0, Finding::Fault("its recovery_query returns nothing".into()))), NodeState::Clearing, "the fault to be gone: GpuBroken")]
#[case::not_long_enough(Some((HOLD - 30, Finding::Gone)), NodeState::Clearing, "was seen to be gone for 9m 30s of 10m")]
fn what_is_missing_is_said(#[case] shown: Option<(i64, Finding)>, #[case] state: NodeState, #[case] words: &str) {
    let mut bench = bench();
    let alert = fault(Some("auto"), Some(QUERY));
    drop(bench.hear(std::slice::from_ref(&alert), false));
    drop(bench.hear(&[resolved(&alert, at(60))], false));
    bench.wait(HOLD);
    if let Some((lasted, now)) = shown {
        show(&mut bench, lasted, &now, false);
    }
    let view = view(&bench);
    assert_eq!(view.state, state);
    assert!(view.waiting_for.contains(words), "{}", view.waiting_for);
    assert_eq!(bench.tick().effect, None);
}

#[test]
fn what_was_shown_too_long_ago_or_of_another_node_or_before_it_fired_again_is_nothing() {
    let mut bench = bench();
    let alert = fault(Some("auto"), Some(QUERY));
    drop(bench.hear(std::slice::from_ref(&alert), false));
    drop(bench.hear(&[resolved(&alert, at(60))], false));
    bench.wait(HOLD);
    show(&mut bench, HOLD, &Finding::Gone, false);
    let good = bench.shown.clone();

    bench.wait(61);
    assert_eq!(bench.tick().effect, None, "it is older than two intervals");
    assert!(view(&bench).waiting_for.contains("has not answered since"), "{}", view(&bench).waiting_for);

    show(&mut bench, HOLD, &Finding::Gone, false);
    let mut of_another = bench.shown.clone();
    if let Some(shown) = &mut of_another {
        shown.uid = "u-2".to_owned();
    }
    bench.shown = of_another;
    assert_eq!(bench.tick().effect, None, "it is about another node of that name");

    let again = firing(&[("alertname", "GpuBroken"), ("UUID", GPU), ("recovery", "auto")], "isolate", at(2000));
    bench.shown.clone_from(&good);
    drop(bench.hear(std::slice::from_ref(&again), false));
    bench.wait(HOLD);
    drop(bench.hear(&[resolved(&again, at(2100))], false));
    bench.shown = good.map(|shown| Shown { at: bench.now, ..shown });
    bench.wait(1);
    assert!(!matches!(bench.tick().effect, Some((Effect::Release, ..))), "it was shown before the fault came again");
}

#[test]
fn a_forged_post_makes_a_release_only_harder() {
    let mut bench = bench();
    let alert = fault(Some("auto"), Some(QUERY));
    drop(bench.hear(std::slice::from_ref(&alert), false));
    for forged in ["vector(1)", "up", "up", "vector(1)"] {
        drop(bench.hear(&[fault(Some("auto"), Some(forged))], false));
    }
    let claim = bench.record().expect("a record").claims.remove(0);
    let queries: Vec<&str> = claim.queries.iter().map(gpu_quarantine::alert::RecoveryQuery::as_str).collect();
    assert_eq!(queries, [QUERY, "up"]);
    assert!(claim.unproven.is_some());
    drop(bench.hear(&[fault(None, None)], false));
    assert!(bench.record().expect("a record").claims[0].unlabelled, "nor does one without its label");
}

#[test]
fn a_reboot_before_the_fault_was_seen_again_is_no_repair() {
    let mut bench = bench();
    let alert = fault(Some("reboot"), None);
    drop(bench.hear(std::slice::from_ref(&alert), false));
    reboot(&bench);
    drop(bench.tick());
    assert!(bench.record().expect("a record").claims[0].machine.is_some());
    let again = Alert { starts_at: at(90), ..alert };
    drop(bench.hear(std::slice::from_ref(&again), false));
    assert_eq!(bench.record().expect("a record").claims[0].machine, None);
}

#[test]
fn the_hold_down_begins_anew_at_a_reboot() {
    let mut bench = bench();
    let alert = fault(Some("auto"), Some(QUERY));
    drop(bench.hear(std::slice::from_ref(&alert), false));
    drop(bench.hear(&[resolved(&alert, at(60))], false));
    bench.wait(HOLD - 1);
    show(&mut bench, HOLD, &Finding::Gone, false);
    reboot(&bench);
    drop(bench.tick());
    bench.wait(1);
    assert_eq!(bench.tick().effect, None);
    show(&mut bench, HOLD, &Finding::Gone, false);
    assert!(view(&bench).waiting_for.starts_with("the hold-down"), "{}", view(&bench).waiting_for);
}

#[test]
fn a_gpu_that_kubernetes_lost_meanwhile_is_still_expected() {
    let mut bench = bench();
    let alert = fault(Some("auto"), Some(QUERY));
    drop(bench.hear(std::slice::from_ref(&alert), false));
    bench.edit(|node| node["metadata"]["labels"]["nvidia.com/gpu.count"] = "7".into());
    drop(bench.hear(&[resolved(&alert, at(60))], false));
    bench.wait(120);
    let question = question(&bench.facts(), &bench.config, &[], bench.now).expect("evidence is wanted");
    assert_eq!(question.gpus, Some(8));
}

#[derive(Debug, Clone)]
enum Then {
    Fires,
    Resolves,
    Waits(i64),
    Reboots,
    Shows(i64, u8),
}

proptest! {
    #![proptest_config(cases(400))]

    /// Whatever happens, nothing but evidence for the whole hold-down, given a moment ago about this very clearing, releases the node.
    #[test]
    fn nothing_else_releases(story in vec(prop_oneof![
        2 => Just(Then::Fires), 3 => Just(Then::Resolves), 3 => (1..2 * HOLD).prop_map(Then::Waits), 1 => Just(Then::Reboots),
        4 => (0..2 * HOLD, 0_u8..5).prop_map(|(lasted, what)| Then::Shows(lasted, what)),
    ], 1..20)) {
        let mut bench = bench();
        let alert = fault(Some("auto"), Some(QUERY));
        drop(bench.hear(std::slice::from_ref(&alert), false));
        let mut boots = 1;
        for then in story {
            let mut good = false;
            let decision = match then {
                Then::Fires => bench.hear(std::slice::from_ref(&alert), false),
                Then::Resolves => bench.hear(&[resolved(&alert, at(1))], false),
                Then::Waits(seconds) => {
                    bench.wait(seconds);
                    bench.tick()
                }
                Then::Reboots => {
                    boots += 1;
                    bench.edit(|node| node["status"]["nodeInfo"]["bootID"] = format!("b-{boots}").into());
                    bench.tick()
                }
                Then::Shows(lasted, what) => {
                    let now = match what {
                        0 => Finding::Fault("a clause".to_owned()),
                        1 => Finding::Nothing("a clause".to_owned()),
                        _ => Finding::Gone,
                    };
                    show(&mut bench, lasted, &now, false);
                    good = what > 1 && lasted >= HOLD;
                    bench.tick()
                }
            };
            if matches!(decision.effect, Some((Effect::Release, ..))) {
                prop_assert!(good || bench.shown.as_ref().is_some_and(|s| s.claims.iter().all(|c| c.lasted >= Duration::from_secs(600) && c.now == Finding::Gone) && bench.now.duration_since(s.at).as_secs() <= 60));
                drop(bench.hear(std::slice::from_ref(&alert), false));
            }
        }
    }
}
