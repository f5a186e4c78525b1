//! What comes several times over.

use std::{collections::BTreeSet, time::Duration};

use crate::{
    exporter::Edit,
    nodes::{record, version},
    pipeline::{ALERT, FAULT, Pipeline, Plan},
    process::eventually,
};

#[tokio::test]
async fn two_peers_and_two_routes_that_tell_the_same_again_and_again_change_nothing_after_the_first_write() {
    let second = "    - {receiver: gpu-quarantine, matchers: ['fault=~\"memory.*\"'], continue: true, group_by: [alertname],\n       \
                  group_wait: 1s, group_interval: 2s, repeat_interval: 3s}\n    - receiver: default";
    let plan = Plan { alertmanagers: 2, ..Plan::default() };
    let plan = plan.route("    - receiver: default", second).route("repeat_interval: 5m", "repeat_interval: 3s");
    let Some(pipe) = Pipeline::start(plan).await else { return };
    // A peer that waits for this answer longer than peer-timeout has its own body sent by the other one as well.
    pipe.relay.answer_late(Duration::from_millis(1500));
    pipe.edit(FAULT);
    let first = pipe.wait_isolated(pipe.node(), 1).await;
    eventually("both peers and both routes have told it eight times", Duration::from_secs(90), async || {
        let told = pipe.relay.passed().into_iter().filter(|p| p.tells(ALERT, pipe.node(), "firing")).collect::<Vec<_>>();
        let kinds: BTreeSet<String> = told.iter().map(|p| format!("{} {}", p.body["externalURL"], p.body["groupKey"])).collect();
        if told.len() >= 8 && kinds.len() == 4 { Ok(()) } else { Err(format!("{} bodies: {kinds:#?}", told.len())) }
    })
    .await;
    let now = pipe.nodes.get(pipe.node()).await;
    assert_eq!(version(&now), version(&first), "{:?}\n{:?}", record(&first), record(&now));

    pipe.relay.answer_late(Duration::ZERO);
    pipe.edit(Edit::Clear);
    let free = pipe.wait_free(pipe.node()).await;
    let history = record(&free).expect("a record")["history"].clone();
    assert_eq!(history.as_array().map(Vec::len), Some(1), "one episode: {history}");
}
