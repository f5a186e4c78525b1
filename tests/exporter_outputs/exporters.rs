//! The exporters whose outputs were recorded, and what Prometheus makes of them.

/// All that a fault on a GPU may need.
pub(crate) const RULE_FILES: [&str; 9] =
    ["thresholds", "xid-classes", "normalise", "xid", "memory", "links", "fabric", "health", "thermal-power"];

/// One recorded output.
pub(crate) struct Exporter {
    /// The name of its file, without the end.
    pub(crate) sample: &'static str,
    /// The version of the exporter.
    pub(crate) version: &'static str,
    /// What is special about its labels.
    pub(crate) about: &'static str,
    /// Which of the files in `deploy/dcgm-exporter` says which fields it shows.
    pub(crate) csv: &'static str,
    /// How it shows a GPU that never had an XID.
    pub(crate) healthy: Healthy,
    /// Whether the XID has `err_code` and `err_msg`.
    pub(crate) err_code: bool,
    /// What the scrape adds, as `name=value`; a name that the exporter itself uses gets `exported_` before it.
    pub(crate) scraped: &'static [(&'static str, &'static str)],
    /// The value of `node` that must come out.
    pub(crate) node: &'static str,
}

/// A GPU without an XID.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Healthy {
    /// Reads 0: DCGM up to 4.4.1.
    Zero,
    /// Has no series: DCGM from 4.4.2 on.
    Absent,
}

/// What the chart's `ServiceMonitor` adds.
const MONITOR: &[(&str, &str)] = &[
    ("instance", "10.244.0.9:9400"),
    ("job", "dcgm-exporter"),
    ("namespace", "gpu-operator"),
    ("pod", "nvidia-dcgm-exporter-24v75"),
    ("container", "exporter"),
];
/// A scrape that leaves the labels of the workload alone (`honorLabels`).
const HONOURED: &[(&str, &str)] = &[("instance", "10.244.0.9:9400"), ("job", "dcgm-exporter")];
/// The relabelling that `deploy/dcgm-exporter/README.md` asks for.
const WITH_NODE: &[(&str, &str)] = &[("instance", "10.244.0.9:9400"), ("job", "dcgm-exporter"), ("node", "gpu-node-07")];

pub(crate) const EXPORTERS: &[Exporter] = &[
    Exporter {
        sample: "01_v2.0_k8s_pods",
        version: "2.0",
        about: "No label for the node: the scrape must add one. Blanks are printed, and empty labels of an absent pod.",
        csv: "exporter-2.6",
        healthy: Healthy::Zero,
        err_code: false,
        scraped: WITH_NODE,
        node: "gpu-node-07",
    },
    Exporter {
        sample: "02_v3.1_hostname_is_pod_name",
        version: "3.1 (before 3.1.3)",
        about: "Hostname is the exporter's pod, which the receiver maps to its node.",
        csv: "exporter-2.6",
        healthy: Healthy::Zero,
        err_code: false,
        scraped: HONOURED,
        node: "nvidia-dcgm-exporter-abcde",
    },
    Exporter {
        sample: "02b_v3.1.3_hostname_is_node_name",
        version: "3.1.3",
        about: "Hostname is the node.",
        csv: "exporter-2.6",
        healthy: Healthy::Zero,
        err_code: false,
        scraped: MONITOR,
        node: "ip-10-0-0-11",
    },
    Exporter {
        sample: "03_use_old_namespace",
        version: "1.x names",
        about: "The names of exporters before 2.0, which --use-old-namespace brings back.",
        csv: "",
        healthy: Healthy::Zero,
        err_code: false,
        scraped: HONOURED,
        node: "dcgm-exporter-aaaaa",
    },
    Exporter {
        sample: "04_v3_mig_mixed_a800",
        version: "3.x with MIG",
        about: "A row for each MIG instance, with the UUID of its GPU.",
        csv: "exporter-3.4",
        healthy: Healthy::Zero,
        err_code: false,
        scraped: MONITOR,
        node: "node-mig-01",
    },
    Exporter {
        sample: "05_v3.4_exp_xid_errors_count",
        version: "3.4",
        about: "Counts XIDs in a window of 5 minutes.",
        csv: "exporter-3.4",
        healthy: Healthy::Zero,
        err_code: false,
        scraped: MONITOR,
        node: "workstation",
    },
    Exporter {
        sample: "06_v4_h100_pods",
        version: "4.0",
        about: "The labels of an absent pod are left out, and those of the workload are exported_*.",
        csv: "exporter-4.0",
        healthy: Healthy::Zero,
        err_code: true,
        scraped: MONITOR,
        node: "node-h100-01",
    },
    Exporter {
        sample: "07_v4.2.3_mig_h100nvl",
        version: "4.2.3 with MIG",
        about: "A row for each MIG instance, with the PCI bus id.",
        csv: "exporter-4.0",
        healthy: Healthy::Zero,
        err_code: true,
        scraped: MONITOR,
        node: "node-mig-02",
    },
    Exporter {
        sample: "08_v4_vgpu_err_code0",
        version: "4.x with vGPU",
        about: "A GPU without an XID has err_code 0.",
        csv: "exporter-4.0",
        healthy: Healthy::Zero,
        err_code: true,
        scraped: MONITOR,
        node: "vks-worker-01",
    },
    Exporter {
        sample: "09_v4.5_pod_uid_empty",
        version: "4.5",
        about: "pod_uid is there and empty; the labels of the workload are its own.",
        csv: "exporter-4.0",
        healthy: Healthy::Zero,
        err_code: true,
        scraped: HONOURED,
        node: "lke-node-01",
    },
    Exporter {
        sample: "10_v4.4_dra_shared_claim",
        version: "4.4 with DRA",
        about: "A row of the same GPU for each pod that shares its claim.",
        csv: "exporter-4.0",
        healthy: Healthy::Zero,
        err_code: true,
        scraped: HONOURED,
        node: "gh200-node-01",
    },
    Exporter {
        sample: "11_gb200_nvlink_count_fields",
        version: "4.x on GB200",
        about: "Run by docker: Hostname is the id of a container, so the scrape must name the node.",
        csv: "exporter-4.0",
        healthy: Healthy::Absent,
        err_code: true,
        scraped: WITH_NODE,
        node: "gpu-node-07",
    },
    Exporter {
        sample: "12_v4.8.3_lowercase_hostname_links",
        version: "4.8.3",
        about: "hostname in lower case; rows of links have gpu_uuid and model_name; XIDs are counted since the start.",
        csv: "exporter-4.8.3",
        healthy: Healthy::Absent,
        err_code: true,
        scraped: MONITOR,
        node: "node-h100-01",
    },
    Exporter {
        sample: "13_after_prometheus_relabel",
        version: "4.x, relabelled",
        about: "Labels as a ServiceMonitor without honorLabels leaves them.",
        csv: "exporter-4.0",
        healthy: Healthy::Absent,
        err_code: true,
        scraped: &[],
        node: "node-01",
    },
    Exporter {
        sample: "14_custom_csv_label_fields",
        version: "3.1 with label fields",
        about: "Eight fields of the CSV are labels of every row.",
        csv: "exporter-3.4",
        healthy: Healthy::Zero,
        err_code: false,
        scraped: WITH_NODE,
        node: "gpu-node-07",
    },
    Exporter {
        sample: "15_v3.4_mig_a30_helm_no_driver_label",
        version: "3.4 with MIG",
        about: "Hostname with a domain, which the receiver maps to its node.",
        csv: "exporter-3.4",
        healthy: Healthy::Zero,
        err_code: false,
        scraped: MONITOR,
        node: "node-a30-03.example",
    },
    Exporter {
        sample: "16_v4.8.2_healthy_no_xid_series",
        version: "4.8.2",
        about: "A GPU without an XID has no series of it.",
        csv: "exporter-4.0",
        healthy: Healthy::Absent,
        err_code: true,
        scraped: MONITOR,
        node: "node-h100-02",
    },
    Exporter {
        sample: "17_v4.9.0_renamed_SYNTHETIC",
        version: "4.9.0",
        about: "New names and units.",
        csv: "exporter-4.9",
        healthy: Healthy::Absent,
        err_code: true,
        scraped: MONITOR,
        node: "node-h100-03",
    },
];
