//! `when_cordoned`: what is done on a node that somebody else cordoned first.

use gpu_quarantine::{
    alert::Alert,
    policy::{Config, load},
    quarantine::{Outcome, Verdict},
};
use proptest::{collection::vec, prelude::*};
use serde_json::Value;

use crate::bench::{Bench, HOLD, NO_ROOM, ROOM, at, cases, firing, plain_node, resolved};

/// `bold` isolates whatever was cordoned, `shy` does not.
fn config(cordon: bool) -> Config {
    let text = format!(
        "isolation: {{cordon: {cordon}}}\nrelease: {{after: 10m, require: [resolved]}}\npolicies:\n  \
         - {{name: shy, match: ['remediation=\"shy\"'], action: isolate, when_cordoned: observe}}\n  \
         - {{name: bold, match: ['remediation=\"bold\"'], action: isolate, when_cordoned: isolate}}\n"
    );
    load("config.yaml", &text).expect("the configuration is valid")
}

fn alert(policy: &str, gpu: u8) -> Alert {
    firing(&[("alertname", "GpuLost"), ("gpu", &gpu.to_string())], policy, at(0))
}

fn cordon(bench: &Bench, lies: bool) {
    bench.edit(|node| node["spec"]["unschedulable"] = if lies { true.into() } else { Value::Null });
}

fn outcome(bench: &mut Bench, alert: &Alert) -> Verdict {
    bench.hear(std::slice::from_ref(alert), false).verdicts.remove(0)
}

#[test]
fn nothing_is_begun_on_a_cordoned_node_until_the_cordon_is_lifted() {
    let mut bench = Bench::new(&plain_node(), config(false));
    cordon(&bench, true);
    for _ in 0..2 {
        let verdict = outcome(&mut bench, &alert("shy", 3));
        assert_eq!(verdict.outcome, Outcome::Observed);
        assert!(verdict.reason.contains("when_cordoned of policy shy is observe"), "{}", verdict.reason);
        assert_eq!(bench.record(), None);
    }
    cordon(&bench, false);
    assert_eq!(bench.tick().patch, None, "nothing is on record");
    assert_eq!(outcome(&mut bench, &alert("shy", 3)).outcome, Outcome::Recorded, "the next delivery isolates");
}

#[test]
fn another_policy_of_the_same_body_isolates_in_either_order() {
    for order in [["shy", "bold"], ["bold", "shy"]] {
        let mut bench = Bench::new(&plain_node(), config(true));
        cordon(&bench, true);
        let body = [alert(order[0], 3), alert(order[1], 4)];
        let verdicts = bench.hear(&body, false).verdicts;
        assert_eq!(verdicts.iter().map(|v| v.outcome).collect::<Vec<_>>(), [Outcome::Recorded; 2], "{order:?}");
    }
}

proptest! {
    #![proptest_config(cases(400))]

    /// Our own cordon, or one laid after us, changes nothing for claims that stand.
    #[test]
    fn a_cordon_changes_nothing_about_claims_that_stand(
        ours in any::<bool>(), room in any::<bool>(), story in vec((0_u8..3, any::<bool>(), 0..HOLD / 4), 1..8),
    ) {
        let mut cordoned = Bench::new(&plain_node(), config(ours));
        let mut not = Bench::new(&plain_node(), config(ours));
        for bench in [&mut cordoned, &mut not] {
            bench.room = if room { ROOM } else { NO_ROOM };
            drop(bench.hear(&[alert("shy", 0)], false));
        }
        cordon(&cordoned, true);
        for (gpu, fires, wait) in story {
            for bench in [&mut cordoned, &mut not] {
                bench.wait(wait);
                // The first alert fires on, so that the node stays isolated, or waits.
                let told = if fires || gpu == 0 { alert("shy", gpu) } else { resolved(&alert("shy", gpu), at(10)) };
                drop(bench.hear(&[told], false));
            }
            prop_assert_eq!(cordoned.record().map(|r| r.claims), not.record().map(|r| r.claims));
            prop_assert_eq!(cordoned.isolated(), room);
        }
    }
}
