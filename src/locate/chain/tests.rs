//! The rules of the chain, one table each. What the recorded exporters say is in `samples`.

mod samples;

use proptest::prelude::*;
use rstest::rstest;

use super::*;
use crate::locate::{
    Gpu, gpu_of,
    inventory::tests::{inventory, node},
};

/// The defaults of the configuration.
pub(in crate::locate) fn rules() -> policy::Locate {
    let list = |names: &[&str]| names.iter().map(|&n| n.to_owned()).collect();
    policy::Locate {
        node_labels: list(&["node", "kubernetes_node", "nodename", "k8s_node_name"]),
        hostname_labels: list(&["node", "Hostname", "hostname", "exported_hostname"]),
        instance_labels: list(&["instance"]),
        exporter_pod_labels: true,
        uuid_labels: list(&["UUID", "uuid", "gpu_uuid"]),
        pci_labels: list(&["pci_bus_id"]),
        index_labels: list(&["gpu", "device"]),
        exporter_pods: Vec::new(),
    }
}

fn exporter(name: &str, node: &str, ip: &str) -> ExporterPod {
    ExporterPod {
        namespace: "gpu-operator".to_owned(),
        name: name.to_owned(),
        node: NodeName::parse(node).unwrap(),
        ips: vec![ip.parse().unwrap()],
    }
}

/// `a1` and `b1.x.y` are what they seem; `c1`'s host goes by another name; `twin-*` are told apart by their own names only.
fn fleet() -> Inventory {
    inventory([
        node("a1", Some("a1"), &["10.0.0.1", "fd00::1"]),
        node("b1.x.y", Some("b1.x.y"), &["10.0.0.2"]),
        node("c1", Some("Rack-C"), &["10.0.0.3"]),
        node("twin-1", Some("twin"), &["10.0.0.9"]),
        node("twin-2", Some("twin"), &["10.0.0.9"]),
        node("d1.x.y", None, &[]),
        node("d1.x.z", None, &[]),
        node("10.0.0.77", Some("10.0.0.77"), &["10.0.0.77"]),
        node("localhost", Some("localhost"), &["127.0.0.1"]),
    ])
}

fn exporters() -> Vec<ExporterPod> {
    vec![
        exporter("dcgm-a", "a1", "10.244.0.1"),
        exporter("dcgm-b", "b1.x.y", "10.244.0.2"),
        exporter("dcgm-gone", "gone", "10.244.0.3"),
        exporter("dcgm-twice", "a1", "10.244.0.4"),
        exporter("dcgm-twice", "c1", "10.244.0.4"),
        exporter("dcgm-host", "c1", "10.0.0.3"),
    ]
}

/// `node: link`, or the reason.
fn ask(pairs: &[(&str, &str)], pods: Option<&[ExporterPod]>) -> String {
    match locate(&pairs.iter().copied().collect(), &rules(), &fleet(), pods) {
        Ok(located) => format!("{}: {}", located.node, located.link),
        Err(unmapped) => unmapped.reason.to_string(),
    }
}

#[rstest]
#[case("node", "a1", "a1: label node is the name of a Node")]
#[case("kubernetes_node", "b1.x.y", "b1.x.y: label kubernetes_node is the name of a Node")]
#[case("nodename", "A1", "no_such_node")]
#[case("k8s_node_name", "b1", "no_such_node")]
#[case("nodename", "Rack-C", "no_such_node")]
#[case("node", "a1/status", "no_such_node")]
#[case("node", "../a1", "no_such_node")]
#[case("node", "a1\n", "no_such_node")]
#[case("node", "10.0.0.1:9400", "no_such_node")]
fn a_node_label_is_the_exact_name_of_a_node(#[case] label: &str, #[case] value: &str, #[case] expected: &str) {
    assert_eq!(ask(&[(label, value)], Some(&exporters())), expected);
}

#[rstest]
#[case("a1", "a1: label node is the name of a Node")]
#[case("rack-c", "c1: label node is the kubernetes.io/hostname of Node c1")]
#[case("a1.example.com", "a1: label node is the full name of Node a1")]
#[case("dcgm-b", "b1.x.y: label node is the exporter pod gpu-operator/dcgm-b on Node b1.x.y")]
#[case("twin", "ambiguous")]
fn the_label_node_may_also_be_a_host_name_as_the_shipped_rules_write_it(#[case] value: &str, #[case] expected: &str) {
    assert_eq!(ask(&[("node", value)], Some(&exporters())), expected);
}

#[rstest]
#[case::name("a1", "a1: label Hostname is the name of a Node")]
#[case::name_in_capitals("A1", "a1: label Hostname is the name of a Node")]
#[case::host_name_label("rack-c", "c1: label Hostname is the kubernetes.io/hostname of Node c1")]
#[case::short_name("b1", "b1.x.y: label Hostname is the short name of Node b1.x.y")]
#[case::full_name("a1.example.com", "a1: label Hostname is the full name of Node a1")]
#[case::full_name_of_no_node("c1.example.com", "c1: label Hostname is the full name of Node c1")]
#[case::full_name_of_the_host("RACK-C.example.com", "c1: label Hostname is the full name of Node c1")]
#[case::two_domains("b1.x.z", "no_such_node")]
#[case::two_of_one_host_name("twin", "ambiguous")]
#[case::two_of_one_full_name("twin.x.y", "ambiguous")]
#[case::two_of_one_short_name("d1", "ambiguous")]
#[case::first_part_of_an_address("10", "no_such_node")]
#[case::an_address_that_is_a_name("10.0.0.77", "10.0.0.77: label Hostname is the name of a Node")]
#[case::an_internal_ip_is_no_host_name("10.0.0.1", "no_such_node")]
#[case::exporter_pod("dcgm-a", "a1: label Hostname is the exporter pod gpu-operator/dcgm-a on Node a1")]
#[case::exporter_pod_on_a_node_that_is_gone("dcgm-gone", "no_such_node")]
#[case::two_exporter_pods_of_one_name("dcgm-twice", "ambiguous")]
#[case::container_id("3f546054f69d", "no_such_node")]
#[case::hostile("a1/status", "no_such_node")]
fn a_host_name_is_looked_for_in_the_order_of_certainty(#[case] value: &str, #[case] expected: &str) {
    assert_eq!(ask(&[("Hostname", value)], Some(&exporters())), expected);
}

#[test]
fn a_full_name_is_not_that_of_a_node_whose_host_has_another_domain() {
    let nodes = inventory([node("gpu-07", Some("gpu-07.a.com"), &[])]);
    let found = |host: &str| locate(&[("Hostname", host)].into_iter().collect(), &rules(), &nodes, Some(&[])).is_ok();
    assert_eq!((found("gpu-07.a.com"), found("gpu-07.b.com")), (true, false));
}

#[rstest]
#[case("localhost")]
#[case("LocalHost")]
#[case("localhost.localdomain")]
#[case("gpu.localhost")]
#[case("localhost4.localdomain4")]
#[case("127.0.0.1")]
#[case("127.1.2.3")]
#[case("::1")]
#[case("[::1]")]
#[case("::ffff:127.0.0.1")]
#[case("0.0.0.0")]
fn localhost_is_never_a_node_by_whatever_label(#[case] value: &str) {
    for label in ["node", "Hostname", "hostname", "instance"] {
        assert_eq!(ask(&[(label, value)], None), "localhost", "{label}");
    }
    assert_eq!(
        ask(&[("hostname", value), ("exported_hostname", "a1")], None),
        "a1: label exported_hostname is the name of a Node"
    );
}

#[rstest]
#[case::address_and_port("10.0.0.1:9400", "a1: label instance is the InternalIP of Node a1")]
#[case::bare_address("10.0.0.1", "a1: label instance is the InternalIP of Node a1")]
#[case::v6_and_port("[fd00::1]:9400", "a1: label instance is the InternalIP of Node a1")]
#[case::bare_v6("fd00:0::1", "a1: label instance is the InternalIP of Node a1")]
#[case::v4_in_v6("[::ffff:10.0.0.1]:9400", "a1: label instance is the InternalIP of Node a1")]
#[case::pod("10.244.0.2:9400", "b1.x.y: label instance is the address of the exporter pod gpu-operator/dcgm-b on Node b1.x.y")]
#[case::pod_on_the_host_network("10.0.0.3:9400", "c1: label instance is the InternalIP of Node c1")]
#[case::pod_on_a_node_that_is_gone("10.244.0.3:9400", "no_such_node")]
#[case::two_pods_of_one_address("10.244.0.4:9400", "ambiguous")]
#[case::two_nodes_of_one_address("10.0.0.9:9400", "ambiguous")]
#[case::nobody("192.0.2.1:9400", "no_such_address")]
#[case::service("nvidia-dcgm-exporter.gpu-operator:9400", "not_an_address")]
#[case::node_name("a1:9400", "not_an_address")]
#[case::port_too_large("10.0.0.1:99999", "not_an_address")]
#[case::url("http://10.0.0.1:9400/metrics", "not_an_address")]
#[case::localhost("localhost:9400", "localhost")]
#[case::loopback("[::1]:9400", "localhost")]
fn an_instance_is_the_address_of_a_node_or_of_an_exporter_pod(#[case] value: &str, #[case] expected: &str) {
    assert_eq!(ask(&[("instance", value)], Some(&exporters())), expected);
}

#[rstest]
#[case::exporter(&[("namespace", "gpu-operator"), ("pod", "dcgm-a")], "a1: labels namespace and pod are the exporter pod gpu-operator/dcgm-a on Node a1")]
#[case::workload(&[("namespace", "ml"), ("pod", "train-0")], "not_an_exporter")]
#[case::same_name_elsewhere(&[("namespace", "ml"), ("pod", "dcgm-a")], "not_an_exporter")]
#[case::gone(&[("namespace", "gpu-operator"), ("pod", "dcgm-gone")], "no_such_node")]
#[case::no_namespace(&[("pod", "dcgm-a")], "no_label")]
#[case::exported_labels_are_the_workloads(&[("exported_namespace", "gpu-operator"), ("exported_pod", "dcgm-a")], "no_label")]
#[case::with_its_address(&[("instance", "10.244.0.1:9400"), ("namespace", "gpu-operator"), ("pod", "dcgm-a")], "a1: label instance is the address of the exporter pod gpu-operator/dcgm-a on Node a1")]
#[case::workload_and_an_address(&[("instance", "10.0.0.1:9400"), ("namespace", "ml"), ("pod", "train-0")], "a1: label instance is the InternalIP of Node a1")]
#[case::service_and_exporter(&[("instance", "dcgm.svc:9400"), ("namespace", "gpu-operator"), ("pod", "dcgm-b")], "b1.x.y: labels namespace and pod are the exporter pod gpu-operator/dcgm-b on Node b1.x.y")]
#[case::another_address(&[("instance", "10.0.0.2:9400"), ("namespace", "gpu-operator"), ("pod", "dcgm-a")], "disagree")]
#[case::one_of_two_addresses(&[("instance", "10.244.0.4:9400"), ("namespace", "gpu-operator"), ("pod", "dcgm-a")], "a1: labels namespace and pod are the exporter pod gpu-operator/dcgm-a on Node a1")]
#[case::neither_of_two_addresses(&[("instance", "10.0.0.9:9400"), ("namespace", "gpu-operator"), ("pod", "dcgm-a")], "disagree")]
fn the_pod_counts_only_if_it_is_an_exporter(#[case] labels: &[(&str, &str)], #[case] expected: &str) {
    assert_eq!(ask(labels, Some(&exporters())), expected);
}

#[rstest]
#[case::all_agree(&[("node", "a1"), ("Hostname", "a1.example.com"), ("hostname", "dcgm-a")], "a1: label node is the name of a Node")]
#[case::two_nodes(&[("node", "a1"), ("Hostname", "b1")], "disagree")]
#[case::two_node_labels(&[("node", "a1"), ("nodename", "c1")], "disagree")]
#[case::pod_elsewhere(&[("node", "a1"), ("Hostname", "dcgm-b")], "disagree")]
#[case::what_resolves_counts(&[("node", "a1"), ("Hostname", "3f546054f69d")], "a1: label node is the name of a Node")]
#[case::node_gone_but_host_known(&[("node", "gone"), ("Hostname", "b1")], "b1.x.y: label Hostname is the short name of Node b1.x.y")]
#[case::node_gone_and_address_known(&[("node", "gone"), ("instance", "10.0.0.1:9400")], "no_such_node")]
#[case::host_unknown_and_address_known(&[("Hostname", "3f546054f69d"), ("instance", "10.0.0.1:9400")], "no_such_node")]
#[case::localhost_and_address_known(&[("Hostname", "localhost"), ("instance", "10.0.0.1:9400")], "localhost")]
#[case::host_unknown_and_pod_known(&[("Hostname", "x"), ("namespace", "gpu-operator"), ("pod", "dcgm-a")], "no_such_node")]
#[case::address_elsewhere_is_not_asked(&[("node", "a1"), ("instance", "10.0.0.2:9400")], "a1: label node is the name of a Node")]
#[case::one_of_twins(&[("node", "twin-2"), ("Hostname", "twin")], "twin-2: label node is the name of a Node")]
#[case::neither_of_twins(&[("node", "a1"), ("Hostname", "twin")], "disagree")]
#[case::twins_twice(&[("Hostname", "twin"), ("hostname", "twin.x.y")], "ambiguous")]
#[case::twins_of_a_gone_node(&[("node", "gone"), ("Hostname", "twin")], "ambiguous")]
#[case::empty_is_absent(&[("node", ""), ("Hostname", ""), ("instance", "10.0.0.1:9400")], "a1: label instance is the InternalIP of Node a1")]
#[case::nothing(&[("alertname", "GpuLost"), ("gpu", "0")], "no_label")]
fn labels_must_agree_and_names_leave_no_word_to_addresses(#[case] labels: &[(&str, &str)], #[case] expected: &str) {
    assert_eq!(ask(labels, Some(&exporters())), expected);
}

#[rstest]
#[case::host_may_be_a_pod(&[("Hostname", "dcgm-a")], true)]
#[case::host_may_be_a_pod_elsewhere(&[("node", "a1"), ("Hostname", "dcgm-a")], true)]
#[case::address_may_be_a_pod(&[("instance", "10.244.0.1:9400")], true)]
#[case::pod_may_be_an_exporter(&[("instance", "10.0.0.1:9400"), ("namespace", "ml"), ("pod", "train-0")], true)]
#[case::node_is_known(&[("node", "a1"), ("namespace", "ml"), ("pod", "train-0")], false)]
#[case::host_is_known(&[("Hostname", "b1"), ("instance", "10.244.0.1:9400")], false)]
#[case::no_pod_has_such_a_name(&[("Hostname", "Not A Pod")], false)]
#[case::address_is_known(&[("instance", "10.0.0.1:9400")], false)]
#[case::nodes_disagree_already(&[("node", "a1"), ("nodename", "c1"), ("Hostname", "dcgm-a")], false)]
#[case::twins_exclude_it_already(&[("node", "a1"), ("Hostname", "twin"), ("hostname", "dcgm-a")], false)]
fn exporter_pods_are_asked_for_only_where_they_matter(#[case] labels: &[(&str, &str)], #[case] needed: bool) {
    let answer = locate(&labels.iter().copied().collect(), &rules(), &fleet(), None);
    assert_eq!(answer.is_err_and(|u| u.reason.needs_pods()), needed);
}

#[test]
fn an_empty_list_turns_its_link_off() {
    let labels = [("node", "a1"), ("Hostname", "c1"), ("instance", "10.0.0.2"), ("pod", "dcgm-a"), ("namespace", "gpu-operator")];
    let labels = labels.into_iter().collect();
    let ask = |rules: &policy::Locate| locate(&labels, rules, &fleet(), Some(&exporters())).map(|l| l.node.to_string());
    let mut rules = rules();
    assert_eq!(ask(&rules).unwrap_err().reason, UnmappedReason::Disagree);
    rules.node_labels.clear();
    rules.hostname_labels.retain(|l| l != "node");
    assert_eq!(ask(&rules).unwrap(), "c1");
    rules.hostname_labels.clear();
    assert_eq!(ask(&rules).unwrap_err().reason, UnmappedReason::Disagree);
    rules.exporter_pod_labels = false;
    assert_eq!(ask(&rules).unwrap(), "b1.x.y");
    rules.instance_labels.clear();
    assert_eq!(ask(&rules).unwrap_err().reason, UnmappedReason::NoLabel);
}

#[rstest]
#[case(&[("node", "a1"), ("Hostname", "b1")], "the labels lead to different nodes: label node=\"a1\" means Node a1; label Hostname=\"b1\" means Node b1.x.y")]
#[case(&[("Hostname", "many")], "the labels do not lead to one node: label Hostname=\"many\" fits 5 nodes (many-0, many-1, many-2, ...)")]
#[case(&[("nodename", "a\u{1b}[2J")], "the labels lead to no known node: label nodename=\"a\\u{1b}[2J\" names no Node")]
#[case(&[("Hostname", "x1")], "the exporter pods are needed to find the node: label Hostname=\"x1\" may mean an exporter pod")]
#[case(&[("instance", "dcgm:9400")], "the labels lead to no known node: label instance=\"dcgm:9400\" is no IP address with or without a port")]
#[case(&[("Hostname", "localhost")], "the labels lead to no known node: label Hostname=\"localhost\" is whatever host it is read on")]
#[case(&[], "the alert has none of the labels that lead to a node: node, kubernetes_node, nodename, k8s_node_name, Hostname, hostname, exported_hostname, instance, pod with namespace")]
fn the_message_names_the_labels_with_their_values(#[case] labels: &[(&str, &str)], #[case] expected: &str) {
    let mut nodes = fleet();
    (0..5).for_each(|i| nodes.insert(node(&format!("many-{i}"), Some("many"), &[])));
    let answer = locate(&labels.iter().copied().collect(), &rules(), &nodes, None);
    assert_eq!(answer.unwrap_err().to_string(), expected);
}

#[test]
fn a_value_of_megabytes_is_shown_by_its_first_64_characters() {
    for (label, value) in [("node", "ü".repeat(1 << 20)), ("Hostname", "a1.".repeat(1 << 20)), ("instance", "1".repeat(1 << 20))]
    {
        let message = locate(&[(label, value.clone())].into_iter().collect(), &rules(), &fleet(), None).unwrap_err().message;
        let shown: String = value.chars().take(64).collect();
        assert!(message.contains(&format!("{shown:?}...")) && message.len() < 400, "{message}");
    }
}

/// Values that mean something somewhere, and rubbish.
fn value() -> impl Strategy<Value = String> {
    let known = "a1|b1|b1\\.x\\.y|c1|d1|twin|twin-[12]|rack-c|gone|localhost|a1\\.x|dcgm-(a|b|gone|twice|host)|gpu-operator";
    prop_oneof![
        6 => known,
        3 => "(10\\.0\\.0\\.[0-9]|10\\.244\\.0\\.[0-5]|\\[fd00::1\\]|127\\.0\\.0\\.1)(:9400)?",
        2 => "\\PC{0,20}",
        1 => any::<String>(),
        1 => "[a-z./%\\[\\]:\u{0}\n-]{0,300}",
        1 => "[ax]{60000}",
    ]
}

fn labels() -> impl Strategy<Value = Labels> {
    let names = ["node", "nodename", "Hostname", "hostname", "exported_hostname", "instance", "pod", "namespace", "gpu", "UUID"];
    prop::collection::vec((prop::sample::select(names.to_vec()), value()), 0..4).prop_map(|pairs| pairs.into_iter().collect())
}

proptest! {
    #[test]
    fn whatever_the_labels_only_nodes_of_the_inventory_come_out(labels in labels(), given in any::<bool>()) {
        let (nodes, pods) = (fleet(), exporters());
        match locate(&labels, &rules(), &nodes, given.then_some(pods.as_slice())) {
            Ok(located) => prop_assert!(nodes.get(&located.node).is_some() && located.node.as_str() != "localhost"),
            Err(unmapped) => {
                prop_assert!(unmapped.message.len() < 6000 && !unmapped.message.contains(char::is_control));
                prop_assert!(!(given && unmapped.reason.needs_pods()));
            }
        }
        if let Some(gpu) = gpu_of(&labels, &rules()) {
            prop_assert_eq!(Gpu::parse(&gpu.to_string()), Ok(gpu));
        }
    }

    /// What is answered without the pods needs no second look.
    #[test]
    fn an_answer_without_the_pods_is_the_answer_with_any(labels in labels(), some in prop::sample::subsequence(exporters(), 0..=6)) {
        let ask = |pods| locate(&labels, &rules(), &fleet(), pods).map_err(|u| u.reason);
        let early = ask(None);
        if early != Err(UnmappedReason::ExporterPodsUnknown) {
            prop_assert_eq!(early, ask(Some(&some)));
        }
    }
}
