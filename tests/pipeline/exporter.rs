//! A DCGM exporter: what a recorded one prints, for as many GPUs as there shall be, with the faults that a test sets.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use axum::{
    Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use jiff::Timestamp;
use serde::Deserialize;

use crate::{service::now, web::Web};

/// Which recorded output the labels are taken from.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Generation {
    /// Exporter 4.5: `Hostname`, the XID is always there, labels of the pod that uses the GPU.
    V4_5,
    /// Exporter 4.8.3: `hostname`, no XID without a fault, the XIDs counted as well.
    V4_8_3,
}

type Labels = Vec<(String, String)>;

/// What all GPUs have, and the value when all is well.
const FIELDS: [(&str, u64); 11] = [
    ("DCGM_FI_DEV_GPU_TEMP", 34),
    ("DCGM_FI_DEV_FB_USED", 1),
    ("DCGM_FI_DEV_GPU_UTIL", 97),
    ("DCGM_FI_DEV_POWER_USAGE", 510),
    ("DCGM_FI_DEV_SM_CLOCK", 1980),
    ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 0),
    ("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", 0),
    (ROW_REMAP_FAILURE, 0),
    (ROW_REMAP_PENDING, 0),
    ("DCGM_FI_DEV_CLOCKS_EVENT_REASONS", 0),
    (FABRIC_MANAGER, 3),
];
const XID: &str = "DCGM_FI_DEV_XID_ERRORS";
const XIDS: &str = "DCGM_EXP_XID_ERRORS_TOTAL";
/// The field of [`Edit::RowRemapPending`].
pub(crate) const ROW_REMAP_PENDING: &str = "DCGM_FI_DEV_ROW_REMAP_PENDING";
const ROW_REMAP_FAILURE: &str = "DCGM_FI_DEV_ROW_REMAP_FAILURE";
const FABRIC_MANAGER: &str = "DCGM_FI_DEV_FABRIC_MANAGER_STATUS";

/// A change, by [`Exporter::edit`] or as JSON posted to `/edit`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Edit {
    /// A GPU has an XID, which stays.
    Xid { gpu: usize, code: u64 },
    /// Rows of memory of a GPU wait for its reset.
    RowRemapPending { gpu: usize },
    /// They are replaced.
    RowsRemapped { gpu: usize },
    /// Rows of memory of a GPU could not be replaced, which no reset repairs.
    RowRemapFailed { gpu: usize },
    /// Another GPU, which is well, is in the place of this one.
    Exchange { gpu: usize },
    /// The fabric manager of the node fails.
    FabricFailed,
    /// A GPU is gone.
    Drop { gpu: usize },
    /// All of the above is repaired. A GPU that was exchanged stays so.
    Clear,
    /// Answer 500, or no longer.
    Broken(bool),
}

#[derive(Debug)]
struct Gpus {
    host: String,
    generation: Generation,
    labels: Labels,
    count: usize,
    broken: bool,
    dropped: Vec<usize>,
    /// Which GPU is in which place, unless the first that was there still is.
    exchanged: BTreeMap<usize, usize>,
    xids: BTreeMap<usize, u64>,
    counted: BTreeMap<(usize, u64), u64>,
    changed: BTreeMap<(usize, &'static str), u64>,
    /// When it was first asked after the last edit.
    asked: Option<Timestamp>,
}

/// The exporter of one node.
#[derive(Debug)]
pub(crate) struct Exporter {
    web: Web,
    gpus: Arc<Mutex<Gpus>>,
}

impl Exporter {
    /// Start one with `count` GPUs, all well.
    pub(crate) async fn start(host: &str, generation: Generation, count: usize) -> Self {
        let gpus = Gpus {
            host: host.to_owned(),
            generation,
            labels: recorded(generation),
            count,
            broken: false,
            dropped: Vec::new(),
            exchanged: BTreeMap::new(),
            xids: BTreeMap::new(),
            counted: BTreeMap::new(),
            changed: BTreeMap::new(),
            asked: None,
        };
        let gpus = Arc::new(Mutex::new(gpus));
        let router = Router::new().route("/metrics", get(metrics)).route("/edit", post(edit)).with_state(Arc::clone(&gpus));
        Self { web: Web::start(router).await, gpus }
    }

    /// Change something.
    pub(crate) fn edit(&self, edit: Edit) {
        lock(&self.gpus).edit(edit);
    }

    /// Refuse connections.
    pub(crate) fn down(&mut self) {
        self.web.down();
    }

    /// Serve again, having forgotten the XIDs, as an exporter does that was restarted.
    pub(crate) async fn up(&mut self) {
        {
            let mut gpus = lock(&self.gpus);
            gpus.xids.clear();
            gpus.counted.clear();
        }
        self.web.up().await;
    }

    /// `host:port` of it.
    pub(crate) fn address(&self) -> String {
        self.web.address()
    }

    /// When it was first asked after the last edit.
    pub(crate) fn asked(&self) -> Option<Timestamp> {
        lock(&self.gpus).asked
    }
}

fn lock(gpus: &Mutex<Gpus>) -> MutexGuard<'_, Gpus> {
    gpus.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn metrics(State(gpus): State<Arc<Mutex<Gpus>>>) -> (StatusCode, String) {
    let mut gpus = lock(&gpus);
    gpus.asked.get_or_insert_with(now);
    if gpus.broken { (StatusCode::INTERNAL_SERVER_ERROR, "NVML failed".to_owned()) } else { (StatusCode::OK, gpus.text()) }
}

async fn edit(State(gpus): State<Arc<Mutex<Gpus>>>, body: String) -> (StatusCode, String) {
    match serde_json::from_str(&body) {
        Ok(edit) => {
            lock(&gpus).edit(edit);
            (StatusCode::OK, String::new())
        }
        Err(e) => (StatusCode::BAD_REQUEST, e.to_string()),
    }
}

impl Gpus {
    fn edit(&mut self, edit: Edit) {
        match edit {
            Edit::Xid { gpu, code } => {
                self.xids.insert(gpu, code);
                *self.counted.entry((gpu, code)).or_default() += 1;
            }
            Edit::RowRemapPending { gpu } => drop(self.changed.insert((gpu, ROW_REMAP_PENDING), 1)),
            Edit::RowsRemapped { gpu } => drop(self.changed.remove(&(gpu, ROW_REMAP_PENDING))),
            Edit::RowRemapFailed { gpu } => drop(self.changed.insert((gpu, ROW_REMAP_FAILURE), 1)),
            Edit::Exchange { gpu } => {
                self.xids.remove(&gpu);
                self.counted.retain(|(of, _), _| *of != gpu);
                self.changed.retain(|(of, _), _| *of != gpu);
                *self.exchanged.entry(gpu).or_insert(gpu) += 1000;
            }
            Edit::FabricFailed => self.changed.extend((0..self.count).map(|gpu| ((gpu, FABRIC_MANAGER), 4))),
            Edit::Drop { gpu } => self.dropped.push(gpu),
            Edit::Clear => {
                self.dropped.clear();
                self.xids.clear();
                self.counted.clear();
                self.changed.clear();
            }
            Edit::Broken(broken) => self.broken = broken,
        }
        self.asked = None;
    }

    fn text(&self) -> String {
        let shown: Vec<usize> = (0..self.count).filter(|gpu| !self.dropped.contains(gpu)).collect();
        let mut text = String::new();
        let mut family = |name: &str, rows: Vec<(Labels, u64)>| {
            if !rows.is_empty() {
                writeln!(text, "# HELP {name} As recorded.\n# TYPE {name} gauge").expect("a String can be written");
            }
            for (labels, value) in rows {
                let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value:?}")).collect();
                writeln!(text, "{name}{{{}}} {value}", labels.join(",")).expect("a String can be written");
            }
        };
        for (name, well) in FIELDS {
            let row = |gpu: &usize| (self.labels_of(*gpu), self.changed.get(&(*gpu, name)).copied().unwrap_or(well));
            family(name, shown.iter().map(row).collect());
        }
        let always = matches!(self.generation, Generation::V4_5);
        let row = |gpu: &usize| {
            let code = self.xids.get(gpu).copied().or(always.then_some(0))?;
            let of_the_xid = [("err_code", code.to_string()), ("err_msg", format!("Error {code}"))];
            Some((with(self.labels_of(*gpu), &of_the_xid), code))
        };
        family(XID, shown.iter().filter_map(row).collect());
        if matches!(self.generation, Generation::V4_8_3) {
            let row = |((gpu, code), count): (&(usize, u64), &u64)| {
                shown.contains(gpu).then(|| (with(self.labels_of(*gpu), &[("xid", code.to_string())]), *count))
            };
            family(XIDS, self.counted.iter().filter_map(row).collect());
        }
        text
    }

    /// The recorded labels, as they are for this GPU.
    fn labels_of(&self, gpu: usize) -> Labels {
        let ours = |(name, value): &(String, String)| {
            let value = match name.as_str() {
                "gpu" => gpu.to_string(),
                "device" => format!("nvidia{gpu}"),
                "UUID" => uuid(&self.host, self.exchanged.get(&gpu).copied().unwrap_or(gpu)),
                "pci_bus_id" => format!("00000000:{:02X}:00.0", 0x10 + gpu),
                "Hostname" | "hostname" => self.host.clone(),
                _ => value.clone(),
            };
            (name.clone(), value)
        };
        self.labels.iter().map(ours).collect()
    }
}

/// The UUID of a GPU.
pub(crate) fn uuid(host: &str, gpu: usize) -> String {
    let of_the_host = host.bytes().fold(0_u32, |n, byte| n.wrapping_mul(31).wrapping_add(u32::from(byte)));
    format!("GPU-{of_the_host:08x}-8a3e-5c1d-b7a1-{gpu:012}")
}

fn with(mut labels: Labels, more: &[(&str, String)]) -> Labels {
    labels.extend(more.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
    labels
}

/// The labels of the recorded output's first GPU, without those of an XID.
fn recorded(generation: Generation) -> Labels {
    let file = match generation {
        Generation::V4_5 => "09_v4.5_pod_uid_empty.prom",
        Generation::V4_8_3 => "12_v4.8.3_lowercase_hostname_links.prom",
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/dcgm-samples").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let line = text.lines().find(|line| line.starts_with("DCGM_FI_DEV_")).expect("a sample");
    let (_, rest) = line.split_once('{').expect("labels");
    let (labels, _) = rest.rsplit_once('}').expect("labels");
    let pair = |pair: &str| {
        let (name, value) = pair.trim_end_matches(',').split_once("=\"").expect("a label");
        (name.to_owned(), value.strip_suffix('"').expect("a quoted value").to_owned())
    };
    labels.split_inclusive("\",").map(pair).filter(|(name, _)| !name.starts_with("err_")).collect()
}
