use rstest::rstest;
use serde_json::json;

use super::{super::workloads::tests::behind, *};
use crate::{cluster::Workloads, locate::Gpu};

const GPU: &str = "GPU-00000000-8a3e-5c1d-b7a1-000000000001";

/// The versions that a server offers, the code of its claims, and what is known then.
#[rstest]
#[case::today(&["v1"], 200, true)]
#[case::several(&["v1beta1", "v1"], 200, true)]
#[case::older(&["v1beta2", "v1beta1"], 200, true)]
#[case::oldest(&["v1beta1"], 200, true)]
#[case::too_old(&["v1alpha3"], 200, false)]
#[case::none(&[], 200, false)]
#[case::not_there(&["v1"], 404, false)]
#[case::forbidden(&["v1"], 403, false)]
#[tokio::test]
async fn devices_come_from_claims_and_slices_if_all_can_be_read(
    #[case] versions: &'static [&'static str],
    #[case] code: u16,
    #[case] known: bool,
) {
    let best = VERSIONS.into_iter().find(|v| versions.contains(v)).unwrap_or("none");
    let cluster = behind(move |uri| {
        let below = format!("/apis/{GROUP}/{best}/");
        let pods = json!([
            {"metadata": {"namespace": "ml", "name": "claimant", "uid": "u"},
             "spec": {"nodeName": "gpu-07", "resourceClaims": [{"name": "g", "resourceClaimName": "mine"}]}},
            {"metadata": {"namespace": "ml", "name": "other", "uid": "u"}, "spec": {"nodeName": "gpu-07"}},
        ]);
        let device = json!({"name": "gpu-0", "attributes": {"uuid": {"string": GPU}}});
        let pool = json!({"name": "gpu-07", "generation": 3, "resourceSliceCount": 1});
        let slice = json!({"metadata": {"name": "s"}, "spec": {"driver": CLAIM_DRIVER, "pool": pool, "devices": [device]}});
        let result = json!({"request": "r", "driver": CLAIM_DRIVER, "pool": "gpu-07", "device": "gpu-0"});
        let claim = json!({"metadata": {"name": "mine"}, "status": {"allocation": {"devices": {"results": [result]}}}});
        let list = |items: Value| Some((200, json!({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": items})));
        let path = uri.path();
        if path == "/api/v1/pods" {
            list(pods)
        } else if path == "/apis/resource.k8s.io" && !versions.is_empty() {
            let versions: Vec<Value> =
                versions.iter().map(|v| json!({"groupVersion": format!("{GROUP}/{v}"), "version": v})).collect();
            Some((200, json!({"kind": "APIGroup", "apiVersion": "v1", "name": GROUP, "versions": versions})))
        } else if path == format!("{below}resourceslices") {
            let query = uri.query().unwrap_or_default();
            assert!(query.contains("spec.nodeName%3Dgpu-07%2Cspec.driver%3Dgpu.nvidia.com"), "{query}");
            list(json!([slice]))
        } else if path == format!("{below}namespaces/ml/resourceclaims/mine") {
            let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": "NotFound"});
            Some((code, if code == 200 { claim } else { status }))
        } else {
            None
        }
    })
    .await;
    let pods = cluster.pods_on(&NodeName::parse("gpu-07").unwrap()).await.unwrap();
    assert_eq!(pods[0].devices, known.then(|| vec![Gpu::parse(GPU).unwrap()]));
    assert_eq!((pods[1].devices.as_ref(), pods.len()), (None, 2));
}
