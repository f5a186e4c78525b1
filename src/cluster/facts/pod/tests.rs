use rstest::rstest;
use serde_json::json;

use super::*;

const FIRST: &str = "GPU-00000000-8a3e-5c1d-b7a1-000000000001";
const SECOND: &str = "GPU-00000000-8a3e-5c1d-b7a1-000000000002";

fn pod() -> Value {
    json!({
        "metadata": {
            "namespace": "team-a", "name": "rank-3", "uid": "u-1", "creationTimestamp": "2026-03-01T08:00:00Z",
            "labels": {"gpu-quarantine.dev/evict": "true"}, "annotations": {"other/y": "3"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u-c"},
                {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u-2", "controller": true},
            ],
        },
        "spec": {
            "nodeName": "gpu-07", "priority": -5, "terminationGracePeriodSeconds": 120, "restartPolicy": "Never",
            "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}, {"key": "a", "value": "b"}],
            "initContainers": [{"name": "fetch", "image": "registry.example.com/fetch:1"}],
            "containers": [
                {"name": "train", "image": "registry.example.com/train:7",
                 "resources": {"limits": {"nvidia.com/gpu": "2", "cpu": "8"}, "requests": {"nvidia.com/gpu": "2"}}},
                {"name": "side", "image": "registry.example.com/fetch:1"},
            ],
            "schedulingGroup": {"podGroupName": "llm"},
        },
        "status": {"phase": "Running", "podIP": "10.244.7.5", "podIPs": [{"ip": "10.244.7.5"}, {"ip": "fd00::5"}]},
    })
}

fn with(at: &str, value: Value) -> Value {
    let mut raw = pod();
    let (parent, key) = at.rsplit_once('/').unwrap();
    raw.pointer_mut(parent).unwrap()[key] = value;
    raw
}

fn gpus(names: &[&str]) -> Vec<Gpu> {
    names.iter().map(|name| Gpu::parse(name).unwrap()).collect()
}

#[test]
fn a_pod_is_reduced_to_its_facts() {
    let facts = pod_facts(&pod()).unwrap();
    assert_eq!((facts.name.to_string().as_str(), facts.uid.as_str()), ("team-a/rank-3", "u-1"));
    assert_eq!(facts.node.as_ref().map(NodeName::as_str), Some("gpu-07"));
    assert_eq!((facts.created, facts.deleted), (Some("2026-03-01T08:00:00Z".parse().unwrap()), None));
    assert_eq!(facts.labels["gpu-quarantine.dev/evict"], "true");
    assert_eq!(facts.annotations["other/y"], "3", "all annotations, not only ours");
    let job = Owner { api_version: "batch/v1".into(), kind: "Job".into(), name: "train".into(), uid: "u-2".into() };
    assert_eq!(facts.controller, Some(job), "an owner that does not control is none");
    assert_eq!((facts.phase, facts.priority, facts.grace_seconds), (PodPhase::Running, -5, Some(120)));
    assert_eq!(facts.restart_policy, "Never");
    let tolerations: Vec<_> =
        facts.tolerations.iter().map(|t| (t.key.as_str(), t.operator.as_str(), t.value.as_str(), t.effect.as_str())).collect();
    assert_eq!(tolerations, [("nvidia.com/gpu", "Exists", "", "NoSchedule"), ("a", "", "b", "")]);
    assert_eq!((facts.gpus, facts.devices, facts.claims), (2, None, vec![]));
    assert_eq!(facts.ip, Some("10.244.7.5".parse().unwrap()));
    assert_eq!(facts.images, ["registry.example.com/train:7", "registry.example.com/fetch:1"]);
    assert_eq!(facts.pod_group.as_deref(), Some("llm"));
}

#[test]
fn a_pod_of_two_fields_is_one() {
    let facts = pod_facts(&json!({"metadata": {"name": "p", "uid": "u"}, "spec": null, "status": {"phase": null}})).unwrap();
    assert_eq!(facts.name.to_string(), "default/p");
    assert_eq!((facts.node, facts.controller, facts.phase), (None, None, PodPhase::Pending));
    assert_eq!((facts.priority, facts.grace_seconds, facts.restart_policy.as_str()), (0, None, "Always"));
    assert_eq!((facts.gpus, facts.devices, facts.ip, facts.pod_group), (0, None, None, None));
}

#[rstest]
#[case("/metadata/name", json!("P_1"), r#"Pod P_1: metadata.name is "P_1"; expected an RFC 1123 subdomain in a namespace"#)]
#[case("/metadata/namespace", json!("a.b"), r#"Pod rank-3: metadata.name is "rank-3"; expected an RFC 1123 subdomain in"#)]
#[case("/metadata/uid", json!(""), r#"Pod rank-3: metadata.uid is ""; expected a string that is not empty"#)]
#[case("/metadata/labels", json!({"a": 1}), r#"Pod rank-3: metadata.labels["a"] is the number 1; expected a string"#)]
#[case("/metadata/annotations", json!([]), "Pod rank-3: metadata.annotations is a list; expected a map")]
#[case("/metadata/deletionTimestamp", json!("soon"), r#"Pod rank-3: metadata.deletionTimestamp is "soon"; expected a time"#)]
#[case("/metadata/ownerReferences", json!([{"controller": true, "kind": "DaemonSet"}]),
    "Pod rank-3: metadata.ownerReferences[0].apiVersion is absent; expected a string")]
#[case("/spec/nodeName", json!("gpu/07"), r#"Pod rank-3: spec.nodeName is "gpu/07"; expected an RFC 1123"#)]
#[case("/status/phase", json!(5), "Pod rank-3: status.phase is the number 5; expected a string")]
fn what_decides_about_an_eviction_must_be_readable(#[case] at: &str, #[case] value: Value, #[case] message: &str) {
    let error = pod_facts(&with(at, value)).unwrap_err().to_string();
    assert!(error.starts_with(message), "{error}");
}

#[rstest]
#[case("Pending", PodPhase::Pending)]
#[case("", PodPhase::Pending)]
#[case("Succeeded", PodPhase::Succeeded)]
#[case("Failed", PodPhase::Failed)]
#[case("Unknown", PodPhase::Unknown)]
#[case("Thinking", PodPhase::Unknown)]
fn each_phase_is_known(#[case] phase: &str, #[case] expected: PodPhase) {
    assert_eq!(pod_facts(&with("/status/phase", json!(phase))).unwrap().phase, expected);
}

#[test]
fn a_pod_that_is_being_deleted_says_since_when() {
    let facts = pod_facts(&with("/metadata/deletionTimestamp", json!("2026-03-01T12:00:00Z"))).unwrap();
    assert_eq!(facts.deleted, Some("2026-03-01T12:00:00Z".parse().unwrap()));
}

#[rstest]
#[case::nothing(json!([{}]), json!([]), 0)]
#[case::other_resources(json!([{"resources": {"limits": {"cpu": "1", "amd.com/gpu": "1"}}}]), json!([]), 0)]
#[case::limits(json!([{"resources": {"limits": {"nvidia.com/gpu": "4"}}}]), json!([]), 4)]
#[case::requests_alone(json!([{"resources": {"requests": {"nvidia.com/gpu": "4"}}}]), json!([]), 4)]
#[case::both_are_the_same(json!([{"resources": {"requests": {"nvidia.com/gpu": "3"}, "limits": {"nvidia.com/gpu": "4"}}}]), json!([]), 4)]
#[case::a_number_of_yaml(json!([{"resources": {"limits": {"nvidia.com/gpu": 2}}}]), json!([]), 2)]
#[case::slices_and_shares(
    json!([{"resources": {"limits": {"nvidia.com/mig-1g.10gb": "2", "nvidia.com/gpu.shared": "1"}}}]), json!([]), 3)]
#[case::all_containers(
    json!([{"resources": {"limits": {"nvidia.com/gpu": "1"}}}, {"resources": {"limits": {"nvidia.com/gpu": "1"}}}]),
    json!([{"resources": {"limits": {"nvidia.com/gpu": "1"}}}]), 3)]
#[case::none_asked_for(json!([{"resources": {"limits": {"nvidia.com/gpu": "0"}}}]), json!([]), 0)]
#[case::an_odd_spelling(json!([{"resources": {"limits": {"nvidia.com/gpu": "1k"}}}]), json!([]), 1)]
fn gpus_are_summed_over_containers(#[case] containers: Value, #[case] init: Value, #[case] sum: u64) {
    let raw = json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": containers, "initContainers": init}});
    assert_eq!(pod_facts(&raw).unwrap().gpus, sum);
}

/// The status of one container.
fn status(name: &str, resource: &str, ids: &[&str]) -> Value {
    let resources: Vec<Value> = ids.iter().map(|id| json!({"resourceID": id, "health": "Healthy"})).collect();
    json!({"name": name, "allocatedResourcesStatus": [{"name": resource, "resources": resources}]})
}

#[rstest]
#[case::uuids(vec![status("train", "nvidia.com/gpu", &[SECOND, FIRST])], Some(vec![FIRST, SECOND]))]
#[case::shares_of_one(vec![status("train", "nvidia.com/gpu.shared", &[&format!("{FIRST}::0"), &format!("{FIRST}::3")])], Some(vec![FIRST]))]
#[case::a_slice_of_who_knows(vec![status("train", "nvidia.com/mig-1g.10gb", &[FIRST, "MIG-00000000-8a3e-5c1d-b7a1-00000000000a"])], None)]
#[case::a_claim_is_told_elsewhere(vec![status("train", "claim:gpus/r", &["gpu.nvidia.com/gpu-07/gpu-0"])], None)]
#[case::another_container(vec![status("side", "nvidia.com/gpu", &[FIRST])], None)]
#[case::another_container_too(
    vec![status("side", "nvidia.com/gpu", &[FIRST]), status("train", "nvidia.com/gpu", &[SECOND])], Some(vec![FIRST, SECOND]))]
#[case::nothing(vec![json!({"name": "train"})], None)]
fn the_status_tells_which_gpus_a_pod_has(#[case] statuses: Vec<Value>, #[case] expected: Option<Vec<&str>>) {
    let facts = pod_facts(&with("/status/containerStatuses", json!(statuses))).unwrap();
    assert_eq!(facts.devices, expected.map(|names| gpus(&names)));
    assert!(facts.uses_gpus());
}

#[rstest]
#[case(json!({"devices": {"nvidia.com/gpu": [FIRST.to_uppercase(), SECOND]}}).to_string(), Some(vec![FIRST, SECOND]))]
#[case(json!({"devices": {"nvidia.com/gpu": [], "other.com/x": [FIRST]}}).to_string(), None)]
#[case(json!({"devices": {"nvidia.com/gpu": [FIRST, "MIG-00000000-8a3e-5c1d-b7a1-00000000000a"]}}).to_string(), None)]
#[case(json!({"devices": {"nvidia.com/gpu": [FIRST, 5]}}).to_string(), None)]
#[case("{".to_owned(), None)]
fn an_annotation_tells_it_where_the_status_does_not(#[case] text: String, #[case] expected: Option<Vec<&str>>) {
    let raw = with("/metadata/annotations", json!({DEVICES_ANNOTATION: text}));
    assert_eq!(pod_facts(&raw).unwrap().devices, expected.map(|names| gpus(&names)));
}

#[test]
fn claims_are_named_in_three_places() {
    let mut raw = with(
        "/spec/resourceClaims",
        json!([{"name": "a", "resourceClaimName": "mine"}, {"name": "b", "resourceClaimTemplateName": "t"}]),
    );
    raw["status"]["resourceClaimStatuses"] =
        json!([{"name": "b", "resourceClaimName": "rank-3-b-x7"}, {"name": "a", "resourceClaimName": "mine"}]);
    raw["status"]["extendedResourceClaimStatus"] = json!({"resourceClaimName": "rank-3-extended", "requestMappings": []});
    assert_eq!(pod_facts(&raw).unwrap().claims, ["mine", "rank-3-b-x7", "rank-3-extended"]);
}

#[test]
fn a_claim_counts_as_a_gpu_until_it_is_known_to_be_for_something_else() {
    let raw =
        json!({"metadata": {"name": "p", "uid": "u"}, "spec": {"resourceClaims": [{"name": "a", "resourceClaimName": "mine"}]}});
    let unknown = pod_facts(&raw).unwrap();
    assert_eq!((unknown.devices.as_ref(), unknown.uses_gpus()), (None, true));
    let of = |devices: Vec<Gpu>| PodFacts { devices: Some(devices), ..unknown.clone() };
    assert!(!of(vec![]).uses_gpus() && of(gpus(&[FIRST])).uses_gpus());
}

#[test]
fn an_owner_is_read_with_what_controls_it() {
    let raw = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "train-0", "uid": "u-2", "ownerReferences": [
            {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "train", "uid": "u-3", "controller": true},
        ]},
        "spec": {"parallelism": 4},
    });
    let object = owner_object(&raw).unwrap();
    assert_eq!((object.owner.kind.as_str(), object.owner.uid.as_str()), ("Job", "u-2"));
    assert_eq!(object.controller.map(|o| o.kind).as_deref(), Some("JobSet"));
    assert_eq!(object.raw, raw);
    let error =
        owner_object(&json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}})).unwrap_err().to_string();
    assert_eq!(error, "Job x: metadata.uid is absent; expected a string that is not empty");
}

#[test]
fn an_exporter_pod_has_each_address_once() {
    let pod = json!({
        "metadata": {"namespace": "gpu-operator", "name": "dcgm-x"}, "spec": {"nodeName": "gpu-07"},
        "status": {"podIP": "10.244.7.5", "podIPs": [{"ip": "10.244.7.5"}, {"ip": "fd00::5"}, {}, 5]},
    });
    let facts = exporter_pod(&pod).unwrap();
    assert_eq!(facts.ips, ["10.244.7.5".parse::<IpAddr>().unwrap(), "fd00::5".parse().unwrap()]);
    assert_eq!((facts.namespace.as_str(), facts.name.as_str(), facts.node.as_str()), ("gpu-operator", "dcgm-x", "gpu-07"));
    assert_eq!(exporter_pod(&json!({"metadata": {"name": "waiting"}, "spec": {}})), None);
}
