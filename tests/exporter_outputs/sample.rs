//! A recorded output: its labels, as Prometheus would store them.

use std::{collections::BTreeMap, fs};

use super::{exporters::Exporter, root, shown};

/// Labels by name.
pub(crate) type Labels = BTreeMap<String, String>;

/// The labels of the pod that uses a GPU.
const POD: [&str; 4] = ["container", "namespace", "pod", "pod_uid"];

/// What is needed of a recorded output.
pub(crate) struct Sample {
    pub(crate) exporter: &'static Exporter,
    /// The rows of one GPU: several where it has MIG instances, or pods that share it.
    rows: Vec<Labels>,
    /// A row of a link, where links have rows of their own.
    link: Option<Labels>,
    /// The names of the fields that it shows.
    fields: Vec<String>,
}

impl Sample {
    pub(crate) fn read(exporter: &'static Exporter) -> Self {
        let text = fs::read_to_string(root().join(format!("fixtures/dcgm-samples/{}.prom", exporter.sample))).unwrap();
        let all: Vec<(String, Labels)> = text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()).map(parse).collect();
        let link = all.iter().find(|(_, labels)| labels.contains_key("nvlink")).map(|(_, labels)| labels.clone());
        // 13 has five label sets; the second is the one with everything.
        let first = if exporter.scraped.is_empty() { &all[1] } else { &all[0] };
        let same = |(name, labels): &&(String, Labels)| *name == first.0 && labels.get("UUID") == first.1.get("UUID");
        let rows = all.iter().filter(same).map(|(_, labels)| without_xid(labels)).collect();
        Self { exporter, rows, link, fields: fields(exporter) }
    }

    /// Whether the exporter shows MIG instances, which lack many fields.
    pub(crate) fn has_instances(&self) -> bool {
        self.rows.iter().any(|row| row.contains_key("GPU_I_ID"))
    }

    /// The name under which the exporter shows a field, of those that the field ever had.
    pub(crate) fn field(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.fields.iter().any(|field| field == name))
    }

    /// The series of a field of a GPU, with the labels that Prometheus stores: while a pod uses it, and after.
    pub(crate) fn series(&self, field: &str, gpu: usize, extra: &[(&str, String)]) -> [Vec<String>; 2] {
        let is_link = field.contains("NVLINK");
        let rows = match &self.link {
            Some(link) if is_link => std::slice::from_ref(link),
            _ => &self.rows,
        };
        [true, false].map(|busy| {
            let row = |row: &Labels| format!("{field}{}", shown(&self.stored(row, gpu, busy, extra)));
            let mut rows: Vec<String> = rows.iter().map(row).collect();
            rows.sort();
            rows.dedup();
            rows
        })
    }

    fn stored(&self, row: &Labels, gpu: usize, busy: bool, extra: &[(&str, String)]) -> Labels {
        let mut labels = row.clone();
        for key in ["UUID", "gpu_uuid"].iter().filter(|k| row.contains_key(**k)) {
            labels.insert((*key).to_owned(), uuid(gpu));
        }
        labels.insert("gpu".to_owned(), gpu.to_string());
        if row.contains_key("device") {
            labels.insert("device".to_owned(), format!("nvidia{gpu}"));
        }
        // Old exporters leave the labels of an absent pod empty, which is the same as none.
        for name in POD.into_iter().chain(["exported_container", "exported_namespace", "exported_pod"]) {
            let of_the_scrape = self.exporter.scraped.is_empty() && POD.contains(&name);
            match (busy, labels.get(name).is_some_and(|v| !v.is_empty())) {
                (true, false) if labels.contains_key(name) && name != "pod_uid" => {
                    labels.insert(name.to_owned(), "train-0".to_owned());
                }
                (false, _) if !of_the_scrape => drop(labels.remove(name)),
                _ => {}
            }
        }
        labels.retain(|_, value| !value.is_empty());
        labels.extend(extra.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        for (name, value) in self.exporter.scraped {
            if let Some(own) = labels.insert((*name).to_owned(), (*value).to_owned()) {
                labels.insert(format!("exported_{name}"), own);
            }
        }
        labels
    }

    /// An alert as it is grouped in the tests: by name, node and GPU.
    pub(crate) fn alert(&self, name: &str, of_the_node: bool, gpu: usize) -> String {
        let mut labels = Labels::new();
        if !of_the_node {
            labels.insert("UUID".to_owned(), uuid(gpu));
        }
        labels.insert("alertname".to_owned(), name.to_owned());
        labels.insert("node".to_owned(), self.exporter.node.to_owned());
        shown(&labels)
    }
}

fn uuid(gpu: usize) -> String {
    format!("GPU-00000000-0000-0000-0000-{gpu:012}")
}

/// `name{a="b",...} value`.
fn parse(line: &str) -> (String, Labels) {
    let (name, rest) = line.split_once('{').unwrap();
    let (labels, _) = rest.rsplit_once('}').unwrap();
    let pair = |pair: &str| {
        let (name, value) = pair.trim_end_matches(',').split_once("=\"").unwrap();
        (name.to_owned(), value.strip_suffix('"').unwrap().to_owned())
    };
    (name.to_owned(), labels.split_inclusive("\",").map(pair).collect())
}

fn without_xid(labels: &Labels) -> Labels {
    let of_the_xid = ["err_code", "err_msg", "xid", "window_size_in_ms"];
    labels.iter().filter(|(name, _)| !of_the_xid.contains(&name.as_str())).map(|(n, v)| (n.clone(), v.clone())).collect()
}

/// The fields that the shipped CSV of that generation names.
fn fields(exporter: &Exporter) -> Vec<String> {
    if exporter.csv.is_empty() {
        return ["dcgm_gpu_temp", "dcgm_xid_errors", "dcgm_power_usage", "dcgm_sm_clock"].map(str::to_owned).to_vec();
    }
    let text = fs::read_to_string(root().join(format!("deploy/dcgm-exporter/{}.csv", exporter.csv))).unwrap();
    let rows = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    rows.map(|row| row.split(',').next().unwrap().trim().to_owned()).collect()
}
