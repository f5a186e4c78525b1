//! Label sets that exporters and Prometheus were seen to produce, each with the node and the GPU that it means. The numbers are
//! those of the recorded outputs in `fixtures/dcgm-samples`, whose headers name the sources.

use rstest::rstest;

use super::{exporter, rules};
use crate::locate::{
    gpu_of,
    inventory::tests::{inventory, node},
    locate,
};

/// `node gpu`, or `reason gpu`.
fn ask(labels: &str) -> String {
    let labels = labels.split(',').map(|l| l.split_once('=').unwrap()).map(|(n, v)| (n, v.trim_matches('"'))).collect();
    let names = ["ip-10-0-0-11", "k8s-gpu1", "lke-node-01", "gh200-node-01", "node-01", "node-02", "node-a30-03", "node-h100-01"];
    let names = names.into_iter().chain(["node-mig-01", "node-mig-02", "vks-np-1", "vks-worker-01", "workstation"]);
    let nodes = inventory(names.map(|n| node(n, Some(n), &[])));
    let pods = [
        exporter("nvidia-dcgm-exporter-abcde", "ip-10-0-0-11", "10.244.0.5"),
        exporter("dcgm-exporter-aaaaa", "node-02", "10.244.0.6"),
        exporter("nvidia-dcgm-exporter-24v75", "node-01", "10.244.0.9"),
    ];
    let node = match locate(&labels, &rules(), &nodes, Some(&pods)) {
        Ok(located) => located.node.to_string(),
        Err(unmapped) => unmapped.reason.to_string(),
    };
    format!("{node} {}", gpu_of(&labels, &rules()).map_or("whole".to_owned(), |g| g.to_string()))
}

#[rstest]
#[case::s01_v2_knows_no_host(
    r#"gpu="0",UUID="GPU-c0b5694b-2b5d-6b20-f903-558341437f6b",container="",namespace="",pod="""#,
    "no_label GPU-c0b5694b-2b5d-6b20-f903-558341437f6b"
)]
#[case::s01_v2_names_the_workload(
    r#"gpu="1",UUID="GPU-fbe0b676-9b79-be59-aad5-7e7560a23b26",container="test1",namespace="default",pod="gpu-test-pod""#,
    "not_an_exporter GPU-fbe0b676-9b79-be59-aad5-7e7560a23b26"
)]
#[case::s02_host_is_the_pod(
    r#"gpu="0",UUID="GPU-4c226d4d-8129-a7cf-fecd-daa9018b4b48",device="nvidia0",modelName="Tesla T4",Hostname="nvidia-dcgm-exporter-abcde",DCGM_FI_DRIVER_VERSION="525.60.13",container="",namespace="",pod="""#,
    "ip-10-0-0-11 GPU-4c226d4d-8129-a7cf-fecd-daa9018b4b48"
)]
#[case::s02b_host_is_the_node(
    r#"gpu="0",UUID="GPU-4c226d4d-8129-a7cf-fecd-daa9018b4b48",device="nvidia0",modelName="Tesla T4",Hostname="ip-10-0-0-11",DCGM_FI_DRIVER_VERSION="525.60.13",container="",namespace="",pod="""#,
    "ip-10-0-0-11 GPU-4c226d4d-8129-a7cf-fecd-daa9018b4b48"
)]
#[case::s03_old_namespace(
    r#"gpu="0",UUID="GPU-c1f38265-5e7c-0a81-14a0-240a35ea8160",device="nvidia0",Hostname="dcgm-exporter-aaaaa",container="",namespace="",pod="""#,
    "node-02 GPU-c1f38265-5e7c-0a81-14a0-240a35ea8160"
)]
#[case::s03_old_namespace_with_lower_case_uuid_and_mig(
    r#"gpu="3",uuid="GPU-af2c63a8-8c8b-21cc-581a-bab6bba89d08",device="nvidia3",modelName="NVIDIA A100 80GB PCIe",GPU_I_PROFILE="4g.40gb",GPU_I_ID="1",container_name="",pod_name="",pod_namespace="""#,
    "no_label GPU-af2c63a8-8c8b-21cc-581a-bab6bba89d08"
)]
#[case::s04_mig_row_belongs_to_its_parent(
    r#"gpu="0",UUID="GPU-1f027ee8-6e1e-2b8c-0108-3d370e5f0418",device="nvidia0",modelName="NVIDIA A800-SXM4-80GB",GPU_I_PROFILE="2g.20gb",GPU_I_ID="3",Hostname="node-mig-01",DCGM_FI_DRIVER_VERSION="535.129.03",DCGM_FI_PROCESS_NAME="/usr/bin/dcgm-exporter""#,
    "node-mig-01 GPU-1f027ee8-6e1e-2b8c-0108-3d370e5f0418"
)]
#[case::s05_xid_count(
    r#"gpu="0",UUID="GPU-b9f9e81b-bee7-34bc-af17-132ef6592740",device="nvidia0",modelName="NVIDIA T400 4GB",Hostname="workstation",DCGM_FI_DRIVER_VERSION="545.29.02",window_size_in_ms="300000",xid="42""#,
    "workstation GPU-b9f9e81b-bee7-34bc-af17-132ef6592740"
)]
#[case::s06_the_workload_is_not_asked(
    r#"gpu="0",UUID="GPU-8b2281de-6d3c-22ed-0ec8-d3b864870b8b",pci_bus_id="00000000:8D:00.0",device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="node-h100-01",container="dcgmproftester2",namespace="default",pod="dcgmproftester2""#,
    "node-h100-01 GPU-8b2281de-6d3c-22ed-0ec8-d3b864870b8b"
)]
#[case::s07_mig_with_bus_id(
    r#"gpu="0",UUID="GPU-153bdcb7-df30-40e2-3f2c-379902ba72fa",pci_bus_id="00000000:00:06.0",device="nvidia0",modelName="NVIDIA H100 NVL",GPU_I_PROFILE="1g.11gb",GPU_I_ID="7",Hostname="node-mig-02",DCGM_FI_DRIVER_VERSION="535.230.02""#,
    "node-mig-02 GPU-153bdcb7-df30-40e2-3f2c-379902ba72fa"
)]
#[case::s08_vgpu(
    r#"gpu="0",UUID="GPU-f809e614-a528-4083-acbf-334600000000",pci_bus_id="00000000:03:00.0",device="nvidia0",modelName="GRID A100-8C",Hostname="vks-worker-01",err_code="0",err_msg="No Error""#,
    "vks-worker-01 GPU-f809e614-a528-4083-acbf-334600000000"
)]
#[case::s09_pod_uid_is_empty(
    r#"gpu="0",UUID="GPU-a8394b51-c086-568a-9f1a-c1e1c934c44c",pci_bus_id="00000000:00:02.0",device="nvidia0",Hostname="lke-node-01",container="cuda",namespace="default",pod="cuda-75454ffb9f-aaaaa",pod_uid="""#,
    "lke-node-01 GPU-a8394b51-c086-568a-9f1a-c1e1c934c44c"
)]
#[case::s10_shared_claim(
    r#"gpu="0",UUID="GPU-a4f34abc-7715-3560-dcea-7238b9611a45",pci_bus_id="00000009:01:00.0",device="nvidia0",Hostname="gh200-node-01",container="ctr",dra_claim_name="single-gpu",dra_device_name="gpu-0",dra_pool_name="gh200-node-01",namespace="gpu-test3",pod="pod1""#,
    "gh200-node-01 GPU-a4f34abc-7715-3560-dcea-7238b9611a45"
)]
#[case::s11_host_is_a_container_id(
    r#"gpu="0",UUID="GPU-2e2b6342-3996-51b9-5480-e20df571e09c",pci_bus_id="00000008:01:00.0",device="nvidia0",modelName="NVIDIA GB200",Hostname="3f546054f69d""#,
    "no_such_node GPU-2e2b6342-3996-51b9-5480-e20df571e09c"
)]
#[case::s12_host_in_lower_case(
    r#"gpu="0",UUID="GPU-00000000-0000-0000-0000-000000000000",pci_bus_id="00000000:8D:00.0",device="nvidia0",hostname="node-h100-01",err_code="94",err_msg="Contained ECC error""#,
    "node-h100-01 GPU-00000000-0000-0000-0000-000000000000"
)]
#[case::s12_nvlink_row(
    r#"nvlink="0",gpu="0",gpu_uuid="GPU-00000000-0000-0000-0000-000000000000",pci_bus_id="00000000:8D:00.0",device="nvidia0",model_name="NVIDIA H100 80GB HBM3",hostname="node-h100-01""#,
    "node-h100-01 GPU-00000000-0000-0000-0000-000000000000"
)]
#[case::s12_nvswitch_row_is_of_the_whole_node(r#"nvswitch="nvswitch0",hostname="node-h100-01""#, "node-h100-01 whole")]
#[case::s13a_the_exporters_own_pod_is_gone(
    r#"UUID="GPU-00000000-0000-0000-0000-000000000001",container="exporter",device="nvidia0",gpu="0",instance="10.244.0.7:9400",job="release-gpu-dcgm-exporter",namespace="monitoring",pod="release-gpu-dcgm-exporter-vfbhl",service="release-gpu-dcgm-exporter""#,
    "no_such_address GPU-00000000-0000-0000-0000-000000000001"
)]
#[case::s13a_the_exporters_own_pod(
    r#"UUID="GPU-00000000-0000-0000-0000-000000000001",device="nvidia0",gpu="0",instance="10.244.0.9:9400",namespace="gpu-operator",pod="nvidia-dcgm-exporter-24v75""#,
    "node-01 GPU-00000000-0000-0000-0000-000000000001"
)]
#[case::s13b_the_workload_is_exported(
    r#"UUID="GPU-00000000-0000-0000-0000-000000000002",Hostname="node-01",container="nvidia-dcgm-exporter",device="nvidia1",exported_namespace="ml",exported_pod="train-0",gpu="1",instance="10.244.0.9:9400",namespace="gpu-operator",pod="nvidia-dcgm-exporter-24v75""#,
    "node-01 GPU-00000000-0000-0000-0000-000000000002"
)]
#[case::s13c_node_by_service_endpoints(
    r#"Hostname="k8s-gpu1",UUID="GPU-00000000-0000-0000-0000-000000000003",container="train",device="nvidia0",gpu="0",instance="10.16.0.27:9400",namespace="ml",node="k8s-gpu1",pod="train-1",service="dcgm-exporter""#,
    "k8s-gpu1 GPU-00000000-0000-0000-0000-000000000003"
)]
#[case::s13d_kubernetes_node(
    r#"Hostname="vks-np-1",UUID="GPU-a0acdf3c-24b2-4dcd-853c-b19000000000",device="nvidia0",gpu="0",instance="192.0.2.10:9400",job="gpu-metrics",kubernetes_node="vks-np-1",namespace="default",pci_bus_id="00000000:03:00.0",pod="cuda-75454ffb9f-jpwkc""#,
    "vks-np-1 GPU-a0acdf3c-24b2-4dcd-853c-b19000000000"
)]
#[case::s13e_all_behind_one_service(
    r#"Hostname="node-02",UUID="GPU-00000000-0000-0000-0000-000000000004",device="nvidia0",gpu="0",instance="nvidia-dcgm-exporter.gpu-operator:9400""#,
    "node-02 GPU-00000000-0000-0000-0000-000000000004"
)]
#[case::s14_custom_csv(
    r#"gpu="0",UUID="GPU-9ef1b6d0-3643-5dd7-b823-c0ec20dcf2d5",device="nvidia0",modelName="Tesla T4",Hostname="551bdf382151",DCGM_FI_DEV_BRAND="NVIDIA",DCGM_FI_DEV_MINOR_NUMBER="0",DCGM_FI_DEV_SERIAL="0000000000000""#,
    "no_such_node GPU-9ef1b6d0-3643-5dd7-b823-c0ec20dcf2d5"
)]
#[case::s15_host_with_a_domain(
    r#"gpu="1",UUID="GPU-2d20791a-b4a6-ba59-97f1-e95b99fe5b49",device="nvidia1",modelName="NVIDIA A30",GPU_I_PROFILE="1g.6gb",GPU_I_ID="3",Hostname="node-a30-03.example""#,
    "node-a30-03 GPU-2d20791a-b4a6-ba59-97f1-e95b99fe5b49"
)]
#[case::uuid_and_bus_id_dropped_as_soperator_does(r#"Hostname="node-01",gpu="5",device="nvidia5""#, "node-01 index:5")]
#[case::exported_hostname_as_on_oke(
    r#"hostname="node-01",exported_hostname="node-01",gpu="5",pci_bus_id="00000000:91:00.0""#,
    "node-01 00000000:91:00.0"
)]
fn a_recorded_row_leads_to_its_node_and_gpu(#[case] labels: &str, #[case] expected: &str) {
    assert_eq!(ask(labels), expected);
}
