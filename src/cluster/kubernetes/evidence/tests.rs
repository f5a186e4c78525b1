//! What is read of a document. `tests/kubernetes` keeps and reads them on a real API server.

use serde_json::Value;

use super::*;

fn map(labels: &Value, data: &Value) -> ConfigMap {
    let raw = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "e", "labels": labels}, "data": data});
    serde_json::from_value(raw).unwrap()
}

#[test]
fn only_a_document_that_bears_our_label_is_read() {
    let (ours, document) = (json!({"gpu-quarantine.dev/evidence": "true"}), json!({"evidence.json": "{}"}));
    let read = |labels: &Value, data: &Value| text_of(Some(map(labels, data)), "gpu-quarantine.dev");
    assert_eq!(read(&ours, &document).as_deref(), Some("{}"));
    assert_eq!(read(&json!({"other.dev/evidence": "true"}), &document), None);
    assert_eq!(read(&json!({"gpu-quarantine.dev/evidence": "false"}), &document), None);
    assert_eq!(read(&ours, &json!({"other": "{}"})), None);
    assert_eq!(text_of(None, "gpu-quarantine.dev"), None);
}

#[tokio::test]
async fn a_command_asks_for_no_name_that_is_none_and_says_when_nobody_answers() {
    let place = LedgerPlace { namespace: "ns".to_owned(), name: "ledger".to_owned() };
    let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
    let direct = DirectEvidence::new(config, place, "gpu-quarantine.dev").unwrap();
    let error = async |name: &str| direct.read(name).await.unwrap_err().to_string();
    assert_eq!(error("a/b").await, "cannot read evidence in ConfigMap ns/a/b: that is no name of a ConfigMap");
    let unreachable = error("a").await;
    assert!(
        unreachable.starts_with("cannot read evidence in ConfigMap ns/a: ") && !unreachable.contains("no name"),
        "{unreachable}"
    );
}
