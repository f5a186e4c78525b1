use rstest::rstest;
use serde_json::json;

use super::*;

const FIRST: &str = "GPU-00000000-8a3e-5c1d-b7a1-000000000001";
const SECOND: &str = "GPU-00000000-8a3e-5c1d-b7a1-000000000002";
const MIG: &str = "MIG-00000000-8a3e-5c1d-b7a1-00000000000a";

fn claim(results: &Value) -> Value {
    json!({"status": {"allocation": {"devices": {"results": results}}}})
}

fn slice(generation: i64, devices: &Value) -> Value {
    let pool = json!({"name": "gpu-07", "generation": generation, "resourceSliceCount": 1});
    json!({"spec": {"driver": CLAIM_DRIVER, "nodeName": "gpu-07", "pool": pool, "devices": devices}})
}

fn result(device: &str) -> Value {
    json!({"request": "r", "driver": CLAIM_DRIVER, "pool": "gpu-07", "device": device})
}

fn node() -> Vec<Value> {
    vec![
        slice(
            2,
            &json!([
                {"name": "gpu-0", "attributes": {"uuid": {"string": FIRST}, "index": {"int": 0}}},
                {"name": "gpu-0-mig-1g12gb-19-0", "attributes": {"uuid": {"string": MIG}, "parentUUID": {"string": FIRST}}},
                {"name": "gpu-2-mig-1g12gb-19-0", "attributes": {"uuid": {"string": MIG}}},
                {"name": "gpu-3"},
            ]),
        ),
        slice(
            2,
            &json!([{"name": "gpu-1", "basic": {"attributes": {"gpu.nvidia.com/uuid": {"string": SECOND.to_uppercase()}}}}]),
        ),
        slice(
            1,
            &json!([{"name": "gpu-1", "attributes": {"uuid": {"string": FIRST}}}, {"name": "gpu-9", "attributes": {"uuid": {"string": FIRST}}}]),
        ),
        json!({"spec": {"driver": "nic.example.com", "pool": {"name": "gpu-07", "generation": 9}, "devices": [{"name": "gpu-0"}]}}),
        json!({"spec": {"driver": CLAIM_DRIVER}}),
    ]
}

#[rstest]
#[case::none(json!([]), Some(vec![]))]
#[case::one(json!([result("gpu-0")]), Some(vec![FIRST]))]
#[case::by_the_attributes_of_an_older_version(json!([result("gpu-1")]), Some(vec![SECOND]))]
#[case::each_once(json!([result("gpu-1"), result("gpu-0"), result("gpu-0")]), Some(vec![FIRST, SECOND]))]
#[case::a_slice_of_a_gpu(json!([result("gpu-0-mig-1g12gb-19-0")]), Some(vec![FIRST]))]
#[case::a_slice_of_who_knows(json!([result("gpu-0"), result("gpu-2-mig-1g12gb-19-0")]), None)]
#[case::a_device_without_attributes(json!([result("gpu-3")]), None)]
#[case::a_device_that_is_not_there(json!([result("gpu-8")]), None)]
#[case::a_device_of_a_former_generation(json!([result("gpu-9")]), None)]
#[case::a_device_without_a_name(json!([{"driver": CLAIM_DRIVER, "pool": "gpu-07"}]), None)]
#[case::of_another_driver(json!([{"driver": "nic.example.com", "pool": "gpu-07", "device": "gpu-0"}]), Some(vec![]))]
#[case::for_monitoring_only(json!([{"driver": CLAIM_DRIVER, "pool": "gpu-07", "device": "gpu-0", "adminAccess": true}]), Some(vec![]))]
fn claims_are_led_back_to_gpus(#[case] results: Value, #[case] gpus: Option<Vec<&str>>) {
    let slices = node();
    let expected = gpus.map(|all| all.iter().map(|gpu| Gpu::parse(gpu).unwrap()).collect());
    let found = claimed_gpus(&[&claim(&results)], &slices.iter().collect::<Vec<_>>());
    assert_eq!(found, expected.map_or(Claimed::Unknown, Claimed::Gpus));
}

#[test]
fn the_claims_of_a_pod_add_up_and_one_that_is_not_allocated_holds_nothing() {
    let slices = node();
    let claims = [claim(&json!([result("gpu-1")])), json!({"status": {}}), claim(&json!([result("gpu-0")]))];
    let found = claimed_gpus(&claims.iter().collect::<Vec<_>>(), &slices.iter().collect::<Vec<_>>());
    assert_eq!(found, Claimed::Gpus([FIRST, SECOND].map(|gpu| Gpu::parse(gpu).unwrap()).into()));
}

#[test]
fn what_is_not_wholly_known_is_not_known() {
    let (first, second) = (Gpu::parse(FIRST).unwrap(), Gpu::parse(SECOND).unwrap());
    let claimed = || Claimed::Gpus([second.clone()].into());
    assert_eq!(claimed().beside(None, 0), Some(vec![second.clone()]));
    assert_eq!(claimed().beside(Some(vec![first.clone()]), 1), Some(vec![first.clone(), second.clone()]));
    assert_eq!(claimed().beside(None, 1), None);
    assert_eq!(Claimed::Unknown.beside(Some(vec![first]), 1), None);
}
