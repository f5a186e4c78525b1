//! The whole of a snapshot: files in, patches and other writers, files out.

use rstest::rstest;
use serde_json::json;

use super::*;

const DOMAIN: &str = "gpu-quarantine.dev";
const PROD_A: &str = include_str!("../../../fixtures/clusters/prod-a.yaml");

fn load(text: &str) -> Result<SnapshotCluster, LoadError> {
    SnapshotCluster::load("cluster.yaml", text, DOMAIN)
}

fn prod_a() -> SnapshotCluster {
    load(PROD_A).unwrap()
}

fn name(text: &str) -> NodeName {
    NodeName::parse(text).unwrap()
}

fn facts(cluster: &SnapshotCluster, node: &str) -> NodeFacts {
    cluster.read(&name(node)).unwrap().unwrap()
}

fn version(cluster: &SnapshotCluster, node: &str) -> String {
    facts(cluster, node).resource_version
}

/// The inventory must never differ from the truth.
fn assert_in_step(cluster: &SnapshotCluster) {
    let truth: Vec<_> = cluster.nodes_json().iter().map(|raw| node_facts(raw, DOMAIN).unwrap()).collect();
    let inventory = cluster.inventory().read().unwrap();
    assert!(inventory.iter().map(|facts| &**facts).eq(&truth));
    assert_eq!(inventory.len(), truth.len());
}

#[tokio::test]
async fn the_fixture_is_a_cluster_of_sixteen_gpu_workers() {
    let cluster = prod_a();
    assert_in_step(&cluster);
    assert!(cluster.ready());
    let gpus = Selector::parse("nvidia.com/gpu.present=true,!node-role.kubernetes.io/control-plane").unwrap();
    assert_eq!(cluster.inventory().read().unwrap().iter().filter(|node| gpus.matches(&node.labels)).count(), 16);
    let exporters = cluster.exporter_pods(&[Selector::parse("app=nvidia-dcgm-exporter").unwrap()]).await.unwrap();
    assert_eq!(exporters.len(), 17, "one per GPU node and one on the control plane");
    let seven = exporters.iter().find(|pod| pod.node == name("gpu-node-07")).unwrap();
    assert_eq!(seven.ips, ["10.244.7.5".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(facts(&cluster, "gpu-node-07").internal_ips, ["10.12.0.7".parse::<std::net::IpAddr>().unwrap()]);
    assert!(facts(&cluster, "gpu-node-19").unschedulable);
    assert_eq!(facts(&cluster, "gpu-node-12").taints[0].key, "example.com/dedicated");
}

#[test]
fn what_was_loaded_is_kept_word_for_word() {
    let file: Value = serde_saphyr::from_str(PROD_A).unwrap();
    let mut nodes: Vec<Value> = file["items"].as_array().unwrap().iter().filter(|o| o["kind"] == "Node").cloned().collect();
    nodes.sort_by_key(|node| node["metadata"]["name"].to_string());
    assert_eq!(prod_a().nodes_json(), nodes);
    let as_json = load(&serde_json::to_string_pretty(&file).unwrap()).unwrap();
    assert_eq!(as_json.nodes_json(), nodes, "JSON is YAML");
}

#[rstest]
#[case::documents("kind: Node\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Node\nmetadata: {name: b}\n")]
#[case::empty_documents("---\n# nothing\n---\nkind: Node\nmetadata: {name: a}\n---\n---\nkind: Node\nmetadata: {name: b}\n---\n")]
#[case::list("kind: List\nitems:\n- {kind: Node, metadata: {name: a}}\n- {kind: Node, metadata: {name: b}}\n")]
#[case::typed_list("apiVersion: v1\nkind: NodeList\nitems:\n- {metadata: {name: a}}\n- {kind: Node, metadata: {name: b}}\n")]
#[case::lists(
    "kind: PodList\nitems: null\n---\nkind: NodeList\nitems: [{metadata: {name: b}}]\n---\nkind: Node\nmetadata: {name: a}\n"
)]
fn every_form_of_a_list_is_read(#[case] text: &str) {
    let nodes = load(text).unwrap().nodes_json();
    let names: Vec<_> = nodes.iter().map(|node| node["metadata"]["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(nodes.iter().all(|node| node["kind"] == "Node" && node["apiVersion"] == "v1"));
}

#[test]
fn missing_versions_and_uids_are_made_up_the_same_way_each_time() {
    let text = "kind: Node\nmetadata: {name: a}\n---\nkind: Node\nmetadata: {name: b, resourceVersion: '70', uid: u}\n";
    let cluster = load(text).unwrap();
    assert_eq!(version(&cluster, "a"), "71");
    assert_eq!(cluster.nodes_json(), load(text).unwrap().nodes_json());
    assert_ne!(facts(&cluster, "a").uid, facts(&cluster, "b").uid);
}

#[rstest]
#[case("kind: Job\nmetadata: {name: j}\n", "document 1 (Job j): apiVersion is absent")]
#[case("kind: 5\nmetadata: {name: j}\n", "document 1: kind is not a string, or empty")]
#[case(
    "kind: JobList\nitems: []\n",
    "document 1 (JobList without a name): a JobList is not understood; write List, as kubectl prints it"
)]
#[case("apiVersion: batch/v1\nkind: Job\n", "document 1 (Job without a name): metadata.name is absent; expected a string")]
#[case(
    "apiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n---\napiVersion: batch/v1\nkind: Job\nmetadata: {name: j}\n",
    "document 2 (Job j): there is another object of this kind and name"
)]
#[case(
    "apiVersion: policy/v1beta1\nkind: PodDisruptionBudget\nmetadata: {name: b}\n",
    "document 1 (PodDisruptionBudget b): apiVersion is \"policy/v1beta1\"; expected \"policy/v1\""
)]
#[case(
    "kind: PodDisruptionBudget\nmetadata: {name: b}\nspec: {minAvailable: half}\n",
    "document 1 (PodDisruptionBudget b): spec.minAvailable is \"half\"; expected a number or a percentage"
)]
#[case("5\n", "document 1: not a map; expected an object of Kubernetes")]
#[case("kind: List\nitems: 5\n", "document 1 (List without a name): items is not a list")]
#[case("kind: NodeList\nitems: [{kind: 5, metadata: {name: a}}]\n", "document 1, item 1: an item of a NodeList of another kind")]
#[case("{}\n---\n", "document 1: kind is absent; expected an object of Kubernetes")]
#[case(
    "kind: PodList\nitems: [{kind: Node, metadata: {name: a}}]\n",
    "document 1, item 1 (Node a): an item of a PodList of another kind"
)]
#[case(
    "apiVersion: config.example.io/v1\nkind: Node\nmetadata: {name: a}\n",
    "document 1 (Node a): apiVersion is \"config.example.io/v1\"; expected \"v1\""
)]
#[case(
    "kind: NodeList\nitems: [{metadata: {name: a}}, {metadata: {name: a}}]\n",
    "document 1, item 2 (Node a): there is another Node of this name"
)]
#[case(
    "kind: Pod\nmetadata: {name: p}\n---\nkind: Pod\nmetadata: {name: p, namespace: default}\n",
    "document 2 (Pod default/p): there is another Pod of this name in its namespace"
)]
#[case(
    "kind: Node\nmetadata: {name: 7}\n",
    "document 1 (Node without a name): metadata.name is the number 7; expected a string (in YAML: put it in quotes)"
)]
#[case(
    "kind: Node\nmetadata: {name: a, annotations: {b: yes}}\n",
    "document 1 (Node a): metadata.annotations[\"b\"] is the boolean true; expected a string (in YAML"
)]
#[case(
    "kind: Node\nmetadata: {name: a, resourceVersion: 12}\n",
    "document 1 (Node a): metadata.resourceVersion is the number 12; expected a string"
)]
#[case(
    "kind: Node\nmetadata: {name: a, resourceVersion: x1}\n",
    "document 1 (Node a): metadata.resourceVersion is \"x1\"; expected a decimal"
)]
#[case(
    "kind: Node\nmetadata: {name: a, resourceVersion: '18446744073709551615'}\n",
    "document 1 (Node a): metadata.resourceVersion is"
)]
#[case(
    "kind: Node\nmetadata: {name: a}\nspec: {taints: [{key: k, effect: NoSchedul}]}\n",
    "document 1 (Node a): spec.taints[0].effect: \"NoSchedul\""
)]
#[case(
    "kind: Pod\nmetadata: {name: p, labels: {a: 1}}\n",
    "document 1 (Pod p): metadata.labels[\"a\"] is the number 1; expected a string"
)]
fn an_error_says_where_and_what(#[case] text: &str, #[case] message: &str) {
    let error = load(text).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cluster.yaml: {message}")), "{error}");
}

#[test]
fn a_syntax_error_has_line_and_column() {
    let error = load("kind: Node\nmetadata:\n  name: a\n  name: b\n").unwrap_err();
    assert!(matches!(error, LoadError::Syntax { line: 4, column: 3, .. }), "{error:?}");
    assert!(error.to_string().starts_with("cluster.yaml:4:3: duplicate mapping key `name` is not allowed here\n"), "{error}");
    assert!(error.to_string().contains("4 |   name: b\n  |   ^"), "the line is shown: {error}");
    assert!(matches!(load("a: [1\n").unwrap_err(), LoadError::Syntax { line: 1.., .. }));
    let bomb = load("a: &a [x, x]\nb: [*a, *a]\n").unwrap_err().to_string();
    assert!(bomb.starts_with("cluster.yaml:2:"), "aliases are not read: {bomb}");
}

#[rstest]
#[case("")]
#[case("# nothing\n")]
#[case("kind: List\nitems: []\n")]
#[case("kind: Pod\nmetadata: {name: p}\n")]
fn a_cluster_has_nodes(#[case] text: &str) {
    assert_eq!(load(text).unwrap_err().to_string(), "cluster.yaml: no Node in it");
}

#[test]
fn two_thousand_nodes_of_20_kb_are_read() {
    use std::fmt::Write;
    let mut text = String::from("kind: NodeList\nitems:\n");
    for n in 0..2_000 {
        write!(text, "- metadata: {{name: gpu-{n}}}\n  status:\n    images:\n").unwrap();
        for image in 0..250 {
            writeln!(text, "    - names: [registry.example.com/team/project/image-{image}]\n      sizeBytes: {image}12345")
                .unwrap();
        }
    }
    assert!(text.len() > 2_000 * 19_000, "{}", text.len());
    assert_eq!(load(&text).unwrap().nodes_json().len(), 2_000);
}

#[tokio::test]
async fn a_patch_gives_a_new_version_to_its_node_and_tells_the_readers() {
    let cluster = prod_a();
    let mut changes = cluster.changes();
    let greatest = cluster.lock().version;
    let node = name("gpu-node-07");
    let taints = json!([{"key": "gpu-quarantine.dev/isolated", "value": "gpu-lost", "effect": "NoSchedule"}]);
    let patch = json!({
        "metadata": {"resourceVersion": version(&cluster, "gpu-node-07"), "annotations": {"gpu-quarantine.dev/record": "{}"}},
        "spec": {"taints": taints},
    });
    let after = cluster.patch(&node, &patch).await.unwrap();
    assert_eq!(after.resource_version, (greatest + 1).to_string());
    assert_eq!(cluster.get(&node).await.unwrap().unwrap(), after);
    assert!(changes.has_changed().unwrap());
    changes.mark_unchanged();
    assert_in_step(&cluster);

    assert_eq!(cluster.patch(&node, &patch).await, Err(ClusterError::Conflict { node: node.clone() }), "the version is used up");
    let again = json!({"metadata": {"resourceVersion": after.resource_version}, "spec": {"taints": taints}});
    assert_eq!(cluster.patch(&node, &again).await.unwrap(), after, "what changes nothing keeps the version");
    assert!(!changes.has_changed().unwrap());
    let nobody = name("nobody");
    assert_eq!(cluster.patch(&nobody, &patch).await, Err(ClusterError::NotFound { node: nobody.clone() }));
    assert_eq!(cluster.get(&nobody).await, Ok(None));
}

#[rstest]
#[case(json!({"metadata": {"uid": "other"}}), "metadata.uid: field is immutable")]
#[case(json!({"metadata": {"annotations": {"a": 5}}}), "metadata.annotations[\"a\"] is the number 5; expected a string")]
#[case(json!({"metadata": {"labels": {"a": {}}}}), "metadata.labels[\"a\"] is a map; expected a string")]
#[case(json!({"metadata": {"annotations": {"a": "x".repeat(256 * 1024)}}}), "metadata.annotations: 262")]
#[case(json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoSchedule"}]}}),
    "spec.taints[1]: taints must be unique by key and effect pair")]
#[case(json!({"spec": {"taints": [null]}}), "spec.taints[0] is null; expected a map")]
#[case(json!({"spec": {"unschedulable": "true"}}), "spec.unschedulable is \"true\"; expected true or false")]
fn a_patch_that_makes_no_valid_node_is_refused_and_changes_nothing(#[case] mut patch: Value, #[case] message: &str) {
    let (cluster, node) = (prod_a(), name("gpu-node-12"));
    let before = cluster.nodes_json();
    patch::merge(&mut patch, &json!({"metadata": {"resourceVersion": version(&cluster, "gpu-node-12")}}));
    let Err(ClusterError::Refused { message: said, .. }) = cluster.write(&node, &patch) else { panic!("must be refused") };
    assert!(said.starts_with(message), "{said}");
    assert_eq!(cluster.nodes_json(), before);
    assert_in_step(&cluster);
}

#[test]
fn another_writer_makes_our_patch_a_conflict() {
    let (cluster, node) = (prod_a(), name("gpu-node-03"));
    let patch = json!({"metadata": {"resourceVersion": version(&cluster, "gpu-node-03")}, "spec": {"unschedulable": true}});
    cluster.edit(&node, |_| ()).unwrap();
    assert_eq!(cluster.write(&node, &patch), Err(ClusterError::Conflict { node: node.clone() }));
    cluster.edit(&node, |raw| raw["status"]["nodeInfo"]["bootID"] = json!("rebooted")).unwrap();
    assert_eq!(facts(&cluster, "gpu-node-03").boot_id.as_deref(), Some("rebooted"));
    for broken in [Value::Null, json!({"metadata": {"name": "other"}})] {
        assert!(matches!(cluster.edit(&node, |raw| *raw = broken), Err(ClusterError::Refused { .. })));
    }
    assert!(matches!(cluster.edit(&name("nobody"), |_| ()), Err(ClusterError::NotFound { .. })));
    assert_in_step(&cluster);
}

#[test]
fn a_node_that_comes_back_is_another_node() {
    let (cluster, node) = (prod_a(), name("gpu-node-03"));
    let raw = json!({"kind": "Node", "metadata": {"name": "gpu-node-03", "resourceVersion": "1"}});
    assert!(cluster.create(raw.clone()).unwrap_err().contains("another Node of this name"));
    let patch = json!({"metadata": {"resourceVersion": version(&cluster, "gpu-node-03")}, "spec": {"unschedulable": true}});
    let mut uids = vec![facts(&cluster, "gpu-node-03").uid];
    for _ in 0..3 {
        cluster.delete(&node).unwrap();
        assert!(cluster.delete(&node).is_err());
        assert_in_step(&cluster);
        cluster.create(raw.clone()).unwrap();
        let uid = facts(&cluster, "gpu-node-03").uid;
        assert!(!uids.contains(&uid));
        uids.push(uid);
        assert_eq!(cluster.write(&node, &patch), Err(ClusterError::Conflict { node: node.clone() }));
    }
    assert_in_step(&cluster);
}

#[test]
fn a_writer_that_panics_changes_nothing_and_stops_nobody() {
    let (cluster, node) = (prod_a(), name("gpu-node-03"));
    let before = cluster.nodes_json();
    let edit = || {
        cluster.edit(&node, |raw| {
            *raw = Value::Null;
            panic!("in the middle")
        })
    };
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(edit)).is_err());
    assert_eq!(cluster.nodes_json(), before);
    cluster.edit(&node, |_| ()).unwrap();
}

/// xorshift64: the same mutations on every run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit.max(1) as u64).unwrap()
    }
}

#[test]
fn ten_thousand_mutations_of_a_file_never_panic() {
    const TOKENS: [&str; 16] =
        ["---\n", "null", "5", "true", "[", "]", "{", "}", "- ", ": ", "&a ", "*a", "\t", "\u{0}", "\"", "!!int "];
    let small = "apiVersion: v1\nkind: List\nitems:\n- kind: Node\n  metadata:\n    name: a\n    resourceVersion: \"4\"\n    \
        labels: {x: \"1\"}\n  spec:\n    taints:\n    - {key: k, value: v, effect: NoSchedule}\n    unschedulable: true\n- kind: Pod\n  \
        metadata: {name: p, namespace: ml}\n  spec: {nodeName: a}\n  status: {podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}]}\n---\n\
        kind: Node\nmetadata: {name: b, uid: u}\n";
    load(small).unwrap();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut loaded = 0;
    for _ in 0..10_000 {
        let mut text: Vec<char> = small.chars().collect();
        for _ in 0..=random.below(3) {
            let at = random.below(text.len());
            let until = (at + random.below(12)).min(text.len());
            let token: Vec<char> = TOKENS[random.below(TOKENS.len())].chars().collect();
            match random.below(3) {
                0 => drop(text.splice(at..at, token)),
                1 => drop(text.splice(at..until, token)),
                _ => drop(text.drain(at..until)),
            }
        }
        match load(&text.into_iter().collect::<String>()) {
            Ok(cluster) => {
                assert_in_step(&cluster);
                loaded += 1;
            }
            Err(error) => assert!(error.to_string().starts_with("cluster.yaml:"), "{error}"),
        }
    }
    assert!(loaded > 100, "the mutations must not all be caught by the parser: {loaded}");
}
