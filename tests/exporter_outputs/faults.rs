//! The faults, each with the field that shows it, what is read there, and which alerts must fire when.

use super::{BACK, BEGIN, DOWN, END, EVICTED, exporters::Healthy, sample::Sample};

/// When one looks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Seen {
    /// 6 min after the first sample.
    Soon,
    /// 14 min after it, and 4 min after the pods left.
    Later,
    /// While the exporter restarts.
    Down,
    /// Half an hour after the exporter is back.
    Back,
}

/// How a field reads.
#[derive(Clone, Copy)]
pub(crate) enum Reads {
    /// A healthy and a faulty value.
    Is(u64, u64),
    /// Growing by so much each step from a value that is no fault.
    Grows(u64, u64),
    /// An XID, in the gauge.
    Xid(u64),
    /// 45 in the gauge, and this XID for so many steps in a count of the exporter.
    Counted(u64, usize),
}

/// A fault on one GPU.
pub(crate) struct Fault {
    pub(crate) about: &'static str,
    /// Every name that the field ever had.
    names: &'static [&'static str],
    reads: Reads,
    /// Its alerts, with the times at which they fire.
    alerts: &'static [(&'static str, &'static [Seen])],
    /// Whether the alert is about the node as a whole.
    pub(crate) of_the_node: bool,
    /// Whether MIG instances have the field.
    instances: bool,
}

const ALWAYS: &[Seen] = &[Seen::Soon, Seen::Later, Seen::Down, Seen::Back];
/// The exporter forgets it when it restarts; the alert is kept for half an hour.
const FORGOTTEN: &[Seen] = &[Seen::Soon, Seen::Later, Seen::Down];
/// It must last first.
const LASTING: &[Seen] = &[Seen::Later, Seen::Down, Seen::Back];
/// An event, which is over after a while.
const EVENT: &[Seen] = &[Seen::Soon, Seen::Later];

const XID: &[&str] = &["DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_XID_ERROR", "dcgm_xid_errors"];
const TEMPERATURE: &[&str] = &["DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_TEMP_CELSIUS", "dcgm_gpu_temp"];
const LIMIT: &[&str] = &["DCGM_FI_DEV_SLOWDOWN_TEMP", "DCGM_FI_DEV_GPU_TEMP_SLOWDOWN_CELSIUS"];
const REASONS: &[&str] = &["DCGM_FI_DEV_CLOCKS_EVENT_REASONS", "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"];

const fn xid(about: &'static str, xid: u64, alerts: &'static [(&'static str, &'static [Seen])]) -> Fault {
    Fault { about, names: XID, reads: Reads::Xid(xid), alerts, of_the_node: false, instances: true }
}

const fn field(
    about: &'static str,
    names: &'static [&'static str],
    reads: Reads,
    alerts: &'static [(&'static str, &'static [Seen])],
) -> Fault {
    Fault { about, names, reads, alerts, of_the_node: false, instances: false }
}

pub(crate) const FAULTS: &[Fault] = &[
    Fault { instances: true, ..field("none", TEMPERATURE, Reads::Is(40, 41), &[]) },
    xid("XID 79", 79, &[("GpuXidGpuLost", FORGOTTEN)]),
    xid("XID 48", 48, &[("GpuXidMemoryUncontained", FORGOTTEN)]),
    xid("XID 94", 94, &[("GpuXidMemoryContained", FORGOTTEN)]),
    xid("XID 62", 62, &[("GpuXidResetNeeded", FORGOTTEN)]),
    xid("XID 74", 74, &[("GpuXidNvlink", FORGOTTEN)]),
    xid("XID 119", 119, &[("GpuXidFirmware", FORGOTTEN)]),
    xid("XID 54", 54, &[("GpuXidPower", FORGOTTEN)]),
    xid("XID 31, of a program", 31, &[("GpuXidApplication", EVENT)]),
    xid("XID 63, which is only noted", 63, &[("GpuXidUnclassified", ALWAYS)]),
    Fault {
        instances: true,
        ..field(
            "XID 79, hidden in the gauge by XID 45, counted for 5 min",
            &["DCGM_EXP_XID_ERRORS_COUNT"],
            Reads::Counted(79, 10),
            &[("GpuXidGpuLost", FORGOTTEN), ("GpuXidApplication", EVENT)],
        )
    },
    Fault {
        instances: true,
        ..field(
            "XID 79, hidden in the gauge by XID 45, counted since the start",
            &["DCGM_EXP_XID_ERRORS_TOTAL"],
            Reads::Counted(79, END),
            &[("GpuXidGpuLost", FORGOTTEN), ("GpuXidApplication", EVENT)],
        )
    },
    field("double-bit errors", &["DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"], Reads::Is(0, 1), &[("GpuEccDoubleBit", ALWAYS)]),
    field(
        "a row could not be remapped",
        &["DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_ROW_REMAP_FAILED"],
        Reads::Is(0, 1),
        &[("GpuRowRemapFailed", ALWAYS)],
    ),
    field("rows wait to be remapped", &["DCGM_FI_DEV_ROW_REMAP_PENDING"], Reads::Is(0, 1), &[("GpuRowRemapPending", ALWAYS)]),
    field(
        "rows were remapped, seen against an hour before",
        &["DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL"],
        Reads::Is(7, 8),
        &[("GpuRowsRemapped", &[Seen::Back])],
    ),
    field(
        "pages wait to be retired",
        &["DCGM_FI_DEV_RETIRED_PENDING", "DCGM_FI_DEV_PAGE_RETIRED_PENDING"],
        Reads::Is(0, 1),
        &[("GpuPageRetirementPending", ALWAYS)],
    ),
    field(
        "links recover",
        &["DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL"],
        Reads::Grows(3, 1),
        &[("GpuNvlinkRecoveries", ALWAYS)],
    ),
    field(
        "CRC errors",
        &["DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL"],
        Reads::Grows(1000, 6000),
        &[("GpuNvlinkCrcErrors", ALWAYS)],
    ),
    field(
        "NVLink replays",
        &["DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL"],
        Reads::Grows(500, 5),
        &[("GpuNvlinkReplays", ALWAYS)],
    ),
    field(
        "PCIe replays",
        &["DCGM_FI_DEV_PCIE_REPLAY_COUNTER", "DCGM_FI_DEV_PCIE_REPLAY_TOTAL"],
        Reads::Grows(500, 10),
        &[("GpuPcieReplays", ALWAYS)],
    ),
    Fault {
        of_the_node: true,
        ..field(
            "the fabric manager failed",
            &["DCGM_FI_DEV_FABRIC_MANAGER_STATUS"],
            Reads::Is(3, 4),
            &[("GpuFabricManagerFailed", ALWAYS)],
        )
    },
    Fault {
        of_the_node: true,
        ..field(
            "the fabric is unhealthy",
            &["DCGM_FI_DEV_FABRIC_HEALTH_SUMMARY"],
            Reads::Is(1, 2),
            &[("GpuFabricUnhealthy", ALWAYS)],
        )
    },
    field("DCGM finds it failed", &["DCGM_EXP_GPU_HEALTH_STATUS"], Reads::Is(0, 20), &[("GpuDcgmHealthFailed", ALWAYS)]),
    field(
        "the driver asks for a reset",
        &["DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION", "DCGM_FI_DEV_GPU_RECOVERY_ACTION"],
        Reads::Is(0, 1),
        &[("GpuRecoveryActionNeeded", ALWAYS)],
    ),
    Fault { instances: true, ..field("too hot", LIMIT, Reads::Is(87, 87), &[("GpuOverheated", LASTING)]) },
    field("slowed down for heat", REASONS, Reads::Is(1, 72), &[("GpuThermalSlowdown", ALWAYS)]),
    field("slowed down by the power brake", REASONS, Reads::Is(1, 136), &[("GpuPowerBrake", ALWAYS)]),
    field("slowed down by the hardware", REASONS, Reads::Is(1, 8), &[("GpuHardwareSlowdown", ALWAYS)]),
    field("slowed down by software, which is no fault", REASONS, Reads::Is(1, 4), &[]),
];

impl Fault {
    /// Whether the exporter can show it.
    pub(crate) fn possible(&self, sample: &Sample) -> bool {
        sample.field(self.names).is_some() && (self.instances || !sample.has_instances())
    }

    /// The alerts that fire then.
    pub(crate) fn alerts(&self, seen: Seen) -> impl Iterator<Item = &'static str> {
        self.alerts.iter().filter(move |(_, times)| times.contains(&seen)).map(|(alert, _)| *alert)
    }

    /// The series of a GPU with this fault, and their values in promtool's notation.
    pub(crate) fn series(&self, sample: &Sample, gpu: usize) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let mut add = |names: &[&'static str], extra: &[(&str, String)], value: &dyn Fn(usize) -> Option<u64>| {
            let field = sample.field(names).unwrap();
            let [busy, idle] = sample.series(field, gpu, extra);
            // Where nothing tells of the pod, its end is no new series.
            let evicted = if busy == idle { END } else { EVICTED };
            all.extend(busy.into_iter().map(|series| (series, notation(0, evicted, value))));
            if evicted < END {
                all.extend(idle.into_iter().map(|series| (series, notation(evicted, END, value))));
            }
        };
        let hot = self.reads.is_hot();
        add(TEMPERATURE, &[], &|step| Some(if hot && step >= BEGIN { 99 } else { 40 }));
        if let Reads::Xid(xid) | Reads::Counted(xid, _) = self.reads {
            let shown = if matches!(self.reads, Reads::Xid(_)) { xid } else { 45 };
            let had = |step| (BEGIN..DOWN).contains(&step);
            let zero = (sample.exporter.healthy == Healthy::Zero).then_some(0);
            if sample.exporter.err_code {
                let code = |xid: u64| [("err_code", xid.to_string()), ("err_msg", format!("XID {xid}"))];
                add(XID, &code(shown), &|step| had(step).then_some(shown));
                if zero.is_some() {
                    add(XID, &code(0), &|step| if had(step) { None } else { zero });
                }
            } else {
                add(XID, &[], &|step| if had(step) { Some(shown) } else { zero });
            }
        }
        match self.reads {
            Reads::Is(healthy, faulty) if self.names != TEMPERATURE => {
                // A field of the exporter's own verdict has a row for each watch.
                let watch = [("health_watch", "MEM".to_owned())];
                let extra: &[_] = if self.names[0].starts_with("DCGM_EXP_") { &watch } else { &[] };
                add(self.names, extra, &|step| Some(if step < BEGIN { healthy } else { faulty }));
            }
            Reads::Grows(from, by) => {
                add(self.names, &[], &|step| Some(from + by * (step.max(BEGIN) - BEGIN) as u64));
            }
            Reads::Counted(xid, steps) => {
                let until = DOWN.min(BEGIN + steps);
                add(self.names, &[("xid", xid.to_string())], &|step| (BEGIN..until).contains(&step).then_some(1));
            }
            Reads::Is(..) | Reads::Xid(_) => {}
        }
        all
    }
}

impl Reads {
    fn is_hot(self) -> bool {
        matches!(self, Self::Is(limit, same) if limit == same)
    }
}

/// What a series reads from one step up to another, in promtool's notation. Nothing is scraped while the exporter restarts.
fn notation(from: usize, to: usize, value: &dyn Fn(usize) -> Option<u64>) -> String {
    let at = |step: usize| if (from..to).contains(&step) && !(DOWN..BACK).contains(&step) { value(step) } else { None };
    let mut parts: Vec<String> = Vec::new();
    let mut step = 0;
    while step < END {
        let first = at(step);
        // As many steps as go on with the same difference.
        let difference = first.zip(at(step + 1)).map_or(0, |(a, b)| b.saturating_sub(a));
        let follows = |n: &usize| step + n < END && at(step + n) == first.map(|a| a + difference * *n as u64);
        let more = (1..END).take_while(follows).count();
        match first {
            // Prometheus marks a series that is not scraped any more.
            None if step > 0 && at(step - 1).is_some() => {
                parts.push("stale".to_owned());
                if more > 0 {
                    parts.push(format!("_x{more}"));
                }
            }
            None => parts.push(format!("_x{}", more + 1)),
            Some(a) if more == 0 => parts.push(a.to_string()),
            Some(a) if difference == 0 => parts.push(format!("{a}x{more}")),
            Some(a) => parts.push(format!("{a}+{difference}x{more}")),
        }
        step += more + 1;
    }
    while parts.last().is_some_and(|p| p.starts_with('_')) {
        parts.pop();
    }
    parts.join(" ")
}
