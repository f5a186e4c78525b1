//! What is counted of evictions. `tests/webhook/metrics.rs` has the others, over HTTP.

use std::sync::Arc;

use super::*;
use crate::{
    alert::parse_body,
    cluster::{Cluster, snapshot::SnapshotCluster},
    engine::{Clock, Engine, VirtualClock},
    policy,
    quarantine::eviction::{EvicteeState, EvictionAnswer},
};

#[tokio::test]
async fn evictions_are_counted_by_what_was_answered_and_pods_by_where_they_stand() {
    let config = policy::load("config.yaml", include_str!("../../fixtures/eviction/config.yaml")).unwrap();
    let cluster = include_str!("../../fixtures/eviction/cluster.yaml");
    let cluster: Arc<dyn Cluster> = Arc::new(SnapshotCluster::load("cluster.yaml", cluster, &config.domain).unwrap());
    let clock = Arc::new(VirtualClock::at("2026-11-29T10:00:00Z".parse().unwrap()));
    let metrics = Arc::new(Metrics::new());
    let told = Arc::clone(&clock) as Arc<dyn Clock>;
    let engine = Engine::new(cluster, config, told, Arc::clone(&metrics), Box::new(drop)).one_at_a_time();
    engine.refresh().await;
    let shown = |of: &str| -> Vec<String> {
        let text = metrics.render(&engine);
        let lines = text.lines().filter_map(|line| line.strip_prefix(&format!("gpu_quarantine_{of}{{")));
        let mut lines: Vec<String> =
            lines.filter(|line| !line.ends_with("} 0")).map(|line| line.replace(['}', '"'], "")).collect();
        lines.sort();
        lines
    };
    assert!(shown("evictions_total").is_empty() && shown("evicted_pods").is_empty());
    let all = metrics.render(&engine);
    for answer in EvictionAnswer::ALL {
        assert!(all.contains(&format!("gpu_quarantine_evictions_total{{answer=\"{answer}\"}} 0\n")), "{answer}");
    }
    for state in EvicteeState::ALL.map(EvicteeState::as_str) {
        assert!(all.contains(&format!("gpu_quarantine_evicted_pods{{state=\"{state}\"}} 0\n")), "{state}");
    }

    engine.deliver(parse_body(include_bytes!("../../fixtures/eviction/01-gpu-lost.json")).unwrap()).await;
    engine.run_evictions().await;
    assert_eq!(shown("evicted_pods"), ["state=left 1", "state=waiting 2"]);
    assert!(shown("evictions_total").is_empty(), "nobody was asked yet");
    // Asked after 10 s, refused by a budget, and asked again after 5 s and 10 s more.
    let until = clock.now() + jiff::SignedDuration::from_secs(30);
    while let Some(next) = engine.next_eviction().filter(|next| *next <= until) {
        clock.advance_to(next);
        engine.run_evictions().await;
    }
    assert_eq!(shown("evictions_total"), ["answer=accepted 1", "answer=blocked 3"]);
    assert_eq!(shown("evicted_pods"), ["state=blocked 1", "state=gone 1", "state=left 1"]);
}
