//! `deploy/prometheus-operator/`: the same rules as objects of the Prometheus operator.

use serde::Deserialize;

use crate::pack::{BLESS, Group, RuleFile, check_generated, files_in, pack};

const DIRECTORY: &str = "deploy/prometheus-operator";

/// The rule file under `spec`, comments and all.
fn rule_object(file: &RuleFile) -> String {
    let name = &file.name;
    let indented = |line: &str| if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") };
    let spec: String = file.text.lines().map(indented).collect();
    format!(
        "# Generated from alert-rules/{name}.yaml by `{BLESS}`: do not edit.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: gpu-quarantine-{name}
  labels:
    role: alert-rules
    app.kubernetes.io/part-of: gpu-quarantine
spec:
{spec}"
    )
}

fn kustomization() -> String {
    let resources: Vec<_> = pack().files.iter().map(|f| format!("  - {}.yaml", f.name)).collect();
    let resources = resources.join("\n");
    format!(
        "# Generated from the files of alert-rules/ by `{BLESS}`: do not edit.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
{resources}
"
    )
}

#[test]
fn the_objects_of_the_prometheus_operator_are_what_the_rules_say() {
    for file in &pack().files {
        check_generated(&format!("{DIRECTORY}/{}.yaml", file.name), &rule_object(file));
    }
    check_generated(&format!("{DIRECTORY}/kustomization.yaml"), &kustomization());
}

#[test]
fn there_is_no_object_of_a_rule_file_that_is_gone() {
    let mut wanted: Vec<_> = pack().files.iter().map(|f| format!("{DIRECTORY}/{}.yaml", f.name)).collect();
    wanted.push(format!("{DIRECTORY}/kustomization.yaml"));
    wanted.sort();
    assert_eq!(files_in(DIRECTORY, "yaml"), wanted, "remove what alert-rules/ no longer has, or run `{BLESS}`");
}

#[derive(Deserialize)]
struct Object {
    spec: Spec,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    groups: Vec<Group>,
}

#[test]
fn an_object_holds_the_same_rules_as_its_file() {
    for file in &pack().files {
        let object: Object = serde_saphyr::from_str(&rule_object(file)).unwrap_or_else(|e| panic!("{}: {e}", file.name));
        assert!(object.spec.groups == file.groups, "alert-rules/{}.yaml changes when it is indented", file.name);
    }
}
