//! Evictions with what they need besides the cluster: calls to pods, the last values of monitoring; and without any effect.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use futures::future::BoxFuture;
use gpu_quarantine::{
    cluster::{Cluster, Workloads},
    engine::{Aids, Engine, VirtualClock},
    metrics::Metrics,
    policy::{Config, LedgerPlace},
    quarantine::eviction::Call,
};
use serde_json::{Value, json};

use crate::{
    evictions::{BEGIN, EVICTING, POD, cluster, delivery, edit, lost, start},
    harness::{Faulty, RECORD, at, config},
};

#[tokio::test]
async fn a_service_that_only_observes_evicts_nobody_and_says_whom_it_would() {
    let steps = Arc::new(Mutex::new(Vec::new()));
    let (sink, clock) = (Arc::clone(&steps), Arc::new(VirtualClock::at(at(BEGIN))));
    let cluster = Arc::new(Faulty::around(cluster()));
    let engine = Engine::new(
        Arc::clone(&cluster) as Arc<dyn Cluster>,
        config(EVICTING),
        Arc::clone(&clock) as Arc<_>,
        Arc::new(Metrics::new()),
        Box::new(move |step| sink.lock().unwrap().push(step)),
    )
    .observing();
    engine.refresh().await;
    drop(engine.deliver(delivery()).await);
    clock.advance_to(at("2026-11-29T20:16:11Z"));
    engine.run_evictions().await;
    engine.run_evictions().await;
    assert!(cluster.evictions.asked().is_empty());
    assert!(cluster.raw("gpu-1")["metadata"]["annotations"][RECORD].is_null());
    let would: Vec<String> = steps
        .lock()
        .unwrap()
        .iter()
        .filter(|s| s.action == "would_evict")
        .flat_map(|s| s.pods.iter().filter(|p| p.outcome == "would_evict").map(|p| p.pod.to_string()).collect::<Vec<_>>())
        .collect();
    assert_eq!(would, [POD, "team-b/chat-5d9c-x2x4t", "team-d/license-server-0"]);
}

/// Counts calls to pods, and answers them.
#[derive(Default)]
struct Calls {
    made: AtomicUsize,
}

impl Aids for Calls {
    fn checkpoint(&self, ip: std::net::IpAddr, call: Call, _: std::time::Duration) -> BoxFuture<'static, String> {
        self.made.fetch_add(1, Ordering::SeqCst);
        Box::pin(async move { format!("HTTP 200 from POST http://{ip}:{}{}", call.port, call.path) })
    }

    fn last_values(&self, _: Arc<Config>, names: Vec<String>) -> BoxFuture<'_, Result<Vec<Value>, String>> {
        Box::pin(std::future::ready(Ok(vec![json!({ "metric": { "node": names[0] }, "value": [0, "79"] })])))
    }
}

#[tokio::test]
async fn a_pod_is_called_for_its_checkpoint_and_the_evidence_is_kept_before_it_goes() {
    let cluster = cluster();
    edit(&cluster, POD, |pod| {
        pod["metadata"]["annotations"] = json!({ "gpu-quarantine.dev/checkpoint": "8080/save" });
        pod["status"]["podIP"] = json!("10.0.0.7");
    });
    let cluster = Arc::new(Faulty::around(cluster));
    let aids = Arc::new(Calls::default());
    let clock = Arc::new(VirtualClock::at(at(BEGIN)));
    let engine = Engine::new(
        Arc::clone(&cluster) as Arc<dyn Cluster>,
        config(EVICTING),
        Arc::clone(&clock) as Arc<_>,
        Arc::new(Metrics::new()),
        Box::new(|_| ()),
    )
    .aided(Arc::clone(&aids) as Arc<dyn Aids>);
    engine.refresh().await;
    drop(engine.deliver(delivery()).await);
    clock.advance_to(at("2026-11-29T20:16:10Z"));
    engine.run_evictions().await;
    assert_eq!(aids.made.load(Ordering::SeqCst), 1);
    // The answer comes from a task of its own.
    engine.eviction_moved().await;
    tokio::task::yield_now().await;
    clock.advance_to(at("2026-11-29T20:16:13Z"));
    engine.run_evictions().await;
    clock.advance_to(at("2026-11-29T20:16:16Z"));
    engine.run_evictions().await;
    assert_eq!(aids.made.load(Ordering::SeqCst), 1, "once");
    let record: Value = serde_json::from_str(cluster.raw("gpu-1")["metadata"]["annotations"][RECORD].as_str().unwrap()).unwrap();
    let llm = record["eviction"]["pods"].as_array().unwrap().iter().find(|p| p["pod"] == POD).unwrap().clone();
    assert_eq!(llm["checkpoint"], "HTTP 200 from POST http://10.0.0.7:8080/save");
    assert_eq!(llm["state"], "gone");
    let place = LedgerPlace { namespace: "gpu-quarantine".to_owned(), name: "gpu-quarantine-ledger".to_owned() };
    let document = cluster.inner.read_evidence(&place, record["eviction"]["evidence"].as_str().unwrap()).await.unwrap().unwrap();
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["node"]["uid"], "11111111-0000-4000-8000-000000000001");
    assert_eq!(document["claims"][0]["alert"], "GpuLost");
    assert_eq!(document["series"][0]["metric"]["node"], "gpu-1");
    assert_eq!(document["missing"], json!([]));
    let pods = document["pods"].as_array().unwrap();
    assert!(pods.iter().any(|p| p["name"] == "chat-5d9c-x2x4t" && p["owners"][0]["kind"] == "ReplicaSet"), "{document}");
}

#[tokio::test]
async fn evidence_that_cannot_be_kept_holds_up_nobody() {
    let service = start().await;
    service.cluster.evictions.fail_evidence(Some("HTTP 403"));
    service.outcomes(&[lost()]).await;
    service.pass("1m").await;
    assert_eq!(service.state_of(POD), "gone");
    assert!(service.record("gpu-1").unwrap()["eviction"]["evidence"].is_null());
}
