//! Which GPU the labels of an alert speak of. Every exporter version spells it differently; here it has one spelling,
//! so that the alerts of one GPU meet in one claim.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{alert::Labels, policy};

/// No machine has as many GPUs; what is above is not an index.
const INDEX_LIMIT: u32 = 1024;

/// A GPU of a node, by the best name that its alert gives. The texts are in normal form; [`Gpu::parse`] makes them so.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Gpu {
    /// The UUID: `GPU-` and 32 lower-case hex digits in five groups. It stays with the hardware.
    Uuid(String),
    /// The PCI bus id: an eight-digit domain and upper-case hex, as `pci_bus_id` of dcgm-exporter has it. It stays with the slot.
    Pci(String),
    /// The index as NVML counts. It may change with each boot or reset, hence it is the last resort.
    Index(u32),
}

/// A text that names no GPU.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a GPU: expected a UUID (GPU-...), a PCI bus id (00000000:1B:00.0) or index:N")]
pub struct GpuError(String);

impl Gpu {
    /// Parse what [`Gpu`] prints; UUIDs and PCI bus ids also in the other spellings that labels have, which become the normal
    /// form.
    ///
    /// # Errors
    /// If it is none of them.
    pub fn parse(text: &str) -> Result<Self, GpuError> {
        uuid(text)
            .or_else(|| pci(text))
            .or_else(|| text.strip_prefix("index:").and_then(digits).map(Self::Index))
            // The text may be a hostile label value; what is shown of it stays short.
            .ok_or_else(|| GpuError(text.chars().take(64).collect()))
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uuid(text) | Self::Pci(text) => f.write_str(text),
            Self::Index(index) => write!(f, "index:{index}"),
        }
    }
}

impl TryFrom<String> for Gpu {
    type Error = GpuError;
    fn try_from(text: String) -> Result<Self, GpuError> {
        Self::parse(&text)
    }
}

impl From<Gpu> for String {
    fn from(gpu: Gpu) -> Self {
        gpu.to_string()
    }
}

/// The GPU that the labels name: by UUID, else by PCI bus id, else by index. Within a kind the first label that is well formed
/// counts; a malformed value is passed over. `None` if no label names a GPU: the alert is about the node as a whole.
///
/// A row of a MIG instance names its parent: `UUID` and `gpu` of such rows are the parent's, and `GPU_I_ID` repeats across
/// GPUs (<https://github.com/NVIDIA/dcgm-exporter/issues/317>).
#[must_use]
pub fn gpu_of(labels: &Labels, rules: &policy::Locate) -> Option<Gpu> {
    let first = |names: &[String], read: fn(&str) -> Option<Gpu>| names.iter().find_map(|n| labels.get(n).and_then(read));
    first(&rules.uuid_labels, uuid).or_else(|| first(&rules.pci_labels, pci)).or_else(|| first(&rules.index_labels, index))
}

/// Every name that the labels give to one GPU, the best first. What is malformed is passed over.
#[must_use]
pub fn gpus_of(labels: &Labels, rules: &policy::Locate) -> Vec<Gpu> {
    let all = |names: &[String], read: fn(&str) -> Option<Gpu>| -> Vec<Gpu> {
        names.iter().filter_map(|n| labels.get(n).and_then(read)).collect()
    };
    let mut gpus = [all(&rules.uuid_labels, uuid), all(&rules.pci_labels, pci), all(&rules.index_labels, index)].concat();
    gpus.sort();
    gpus.dedup();
    gpus
}

/// A UUID, or the parent of a MIG device in its form of before driver R470, `MIG-GPU-<uuid>/<gi>/<ci>`. The later `MIG-<uuid>`
/// says nothing of its parent (<https://docs.nvidia.com/datacenter/tesla/mig-user-guide/>).
fn uuid(text: &str) -> Option<Gpu> {
    let (text, bare) = match strip_prefix_any_case(text, "MIG-") {
        Some(mig) => {
            let mut parts = mig.split('/');
            let (gpu, gi, ci) = (parts.next()?, parts.next()?, parts.next()?);
            let instance = digits(gi).is_some() && digits(ci).is_some() && parts.next().is_none();
            (strip_prefix_any_case(gpu, "GPU-").filter(|_| instance)?, None)
        }
        None => (text, strip_prefix_any_case(text, "GPU-")),
    };
    let digits = bare.unwrap_or(text);
    let well_formed = digits.len() == 36
        && digits
            .bytes()
            .enumerate()
            .all(|(at, b)| if matches!(at, 8 | 13 | 18 | 23) { b == b'-' } else { b.is_ascii_hexdigit() });
    well_formed.then(|| Gpu::Uuid(format!("GPU-{}", digits.to_ascii_lowercase())))
}

/// `domain:bus:device.function` with a domain of 4 to 8 digits (NVML prints 8, Linux 4 or more), or `bus:device.function`,
/// which stands for domain 0 in lspci and in old NVML.
fn pci(text: &str) -> Option<Gpu> {
    let hex = |s: &str, lens: std::ops::RangeInclusive<usize>| {
        (lens.contains(&s.len()) && s.bytes().all(|b| b.is_ascii_hexdigit())).then(|| u32::from_str_radix(s, 16).ok()).flatten()
    };
    let (slot, function) = text.split_once('.')?;
    let mut parts = slot.rsplit(':');
    let device = hex(parts.next()?, 2..=2).filter(|d| *d < 32)?;
    let bus = hex(parts.next()?, 2..=2)?;
    let domain = parts.next().map_or(Some(0), |d| hex(d, 4..=8))?;
    let function = hex(function, 1..=1).filter(|f| *f < 8)?;
    parts.next().is_none().then(|| Gpu::Pci(format!("{domain:08X}:{bus:02X}:{device:02X}.{function}")))
}

/// `3`, or `nvidia3`, the device file. `3.1` is GPU 3, instance 1 in some MIG outputs, and is not taken.
fn index(text: &str) -> Option<Gpu> {
    digits(text.strip_prefix("nvidia").unwrap_or(text)).map(Gpu::Index)
}

/// A small number in plain decimal; `str::parse` alone takes `+3` and `003` as well.
fn digits(text: &str) -> Option<u32> {
    let number = text.parse::<u32>().ok().filter(|n| *n < INDEX_LIMIT)?;
    (number.to_string() == text).then_some(number)
}

fn strip_prefix_any_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    text.get(..prefix.len()).filter(|p| p.eq_ignore_ascii_case(prefix)).and(text.get(prefix.len()..))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;
    use crate::locate::chain::tests::rules;

    const UUID: &str = "GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab";

    fn of(pairs: &[(&str, &str)]) -> Option<String> {
        gpu_of(&pairs.iter().copied().collect(), &rules()).map(|g| g.to_string())
    }

    #[rstest]
    #[case::as_it_is("GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab")]
    #[case::in_capitals("GPU-5FD4F0A2-8A3E-5C1D-B7A1-0123456789AB")]
    #[case::prefix_in_lower_case("gpu-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab")]
    #[case::without_prefix("5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab")]
    #[case::parent_of_an_old_mig_device("MIG-GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab/7/0")]
    #[case::mig_device_in_capitals("mig-gpu-5FD4F0A2-8A3E-5C1D-B7A1-0123456789AB/13/1")]
    fn a_uuid_has_one_normal_form(#[case] value: &str) {
        assert_eq!(of(&[("UUID", value), ("gpu", "3")]).as_deref(), Some(UUID));
    }

    #[rstest]
    #[case::mig_uuid_without_a_parent("MIG-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab")]
    #[case::mig_device_without_its_instances("MIG-GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab")]
    #[case::mig_device_with_too_much("MIG-GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab/7/0/1")]
    #[case::mig_device_with_odd_instances("MIG-GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab/../x")]
    #[case::mig_of_a_bare_uuid("MIG-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab/7/0")]
    #[case::cut_short("GPU-5fd4f0a2")]
    #[case::no_hex("GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ag")]
    #[case::dash_misplaced("GPU-5fd4f0a28-a3e-5c1d-b7a1-0123456789ab")]
    #[case::prefix_twice("GPU-GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab")]
    #[case::with_a_blank("GPU-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab ")]
    #[case::not_ascii("GPÜ-5fd4f0a2-8a3e-5c1d-b7a1-0123456789ab")]
    #[case::device_name_of_gke("nvidia0")]
    fn what_is_no_uuid_of_a_gpu_leaves_the_word_to_the_next_kind(#[case] value: &str) {
        assert_eq!(of(&[("UUID", value), ("gpu", "3")]).as_deref(), Some("index:3"));
    }

    #[rstest]
    #[case::of_the_exporter("00000000:1B:00.0", "00000000:1B:00.0")]
    #[case::of_linux("0000:1b:00.0", "00000000:1B:00.0")]
    #[case::without_a_domain("1b:00.0", "00000000:1B:00.0")]
    #[case::of_a_second_socket("00000009:01:00.0", "00000009:01:00.0")]
    #[case::of_a_virtual_machine("00000000:00:06.0", "00000000:00:06.0")]
    #[case::domain_of_five_digits("10000:e1:1f.7", "00010000:E1:1F.7")]
    fn a_pci_bus_id_has_one_normal_form(#[case] value: &str, #[case] normal: &str) {
        assert_eq!(of(&[("pci_bus_id", value), ("gpu", "3")]).as_deref(), Some(normal));
    }

    #[rstest]
    #[case("1b:00")]
    #[case("1b:20.0")]
    #[case("1b:00.8")]
    #[case("1b:00.0.0")]
    #[case("000000000:1b:00.0")]
    #[case("0:0000:1b:00.0")]
    #[case(":1b:00.0")]
    #[case("+000:1b:00.0")]
    #[case("zz:00.0")]
    #[case("../1b:00.0")]
    fn a_malformed_pci_bus_id_is_passed_over(#[case] value: &str) {
        assert_eq!(of(&[("pci_bus_id", value)]), None);
    }

    #[rstest]
    #[case("0", Some("index:0"))]
    #[case("3", Some("index:3"))]
    #[case("nvidia3", Some("index:3"))]
    #[case("1023", Some("index:1023"))]
    #[case("1024", None)]
    #[case("3.1", None)]
    #[case("03", None)]
    #[case("+3", None)]
    #[case("-1", None)]
    #[case(" 3", None)]
    #[case("nvidia", None)]
    #[case("nvidia-3", None)]
    #[case("99999999999999999999", None)]
    fn an_index_is_a_small_number(#[case] value: &str, #[case] expected: Option<&str>) {
        assert_eq!(of(&[("gpu", value)]).as_deref(), expected);
    }

    #[test]
    fn the_uuid_goes_before_the_bus_id_and_that_before_the_index() {
        let all = [("gpu", "1"), ("pci_bus_id", "1b:00.0"), ("UUID", UUID)];
        assert_eq!(of(&all).as_deref(), Some(UUID));
        assert_eq!(of(&all[..2]).as_deref(), Some("00000000:1B:00.0"));
        assert_eq!(of(&all[..1]).as_deref(), Some("index:1"));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn all_names_of_one_gpu_are_told_the_best_first_and_each_once() {
        let labels = [("device", "nvidia1"), ("gpu", "1"), ("pci_bus_id", "1b:00.0"), ("uuid", UUID), ("UUID", "unknown")];
        let names: Vec<String> = gpus_of(&labels.into_iter().collect(), &rules()).iter().map(Gpu::to_string).collect();
        assert_eq!(names, [UUID, "00000000:1B:00.0", "index:1"]);
        assert_eq!(gpus_of(&[("gpu", "3.1")].into_iter().collect(), &rules()), []);
    }

    #[test]
    fn of_several_uuids_the_first_well_formed_one_counts() {
        let other = "GPU-00000000-0000-0000-0000-000000000001";
        assert_eq!(of(&[("gpu_uuid", other), ("UUID", UUID)]).as_deref(), Some(UUID));
        assert_eq!(of(&[("gpu_uuid", other), ("UUID", "unknown")]).as_deref(), Some(other));
    }

    #[test]
    fn it_is_stored_as_the_text_that_it_prints_and_nothing_else_is_read() {
        let gpu = Gpu::Index(3);
        assert_eq!(serde_json::to_string(&gpu).unwrap(), "\"index:3\"");
        assert_eq!(serde_json::from_str::<Gpu>("\"index:3\"").unwrap(), gpu);
        for text in ["3", "index:1024", "index:+1", "index:", "nvidia3", ""] {
            assert!(serde_json::from_value::<Gpu>(text.into()).is_err(), "{text:?}");
        }
        let error = Gpu::parse(&"x".repeat(1 << 20)).unwrap_err().to_string();
        assert!(error.len() < 200, "{error}");
    }

    fn gpu() -> impl Strategy<Value = Gpu> {
        prop_oneof![
            "GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}".prop_map(Gpu::Uuid),
            "[0-9A-F]{8}:[0-9A-F]{2}:[01][0-9A-F]\\.[0-7]".prop_map(Gpu::Pci),
            (0..INDEX_LIMIT).prop_map(Gpu::Index),
        ]
    }

    proptest! {
        #[test]
        fn what_it_prints_it_reads(gpu in gpu()) {
            prop_assert_eq!(Gpu::parse(&gpu.to_string()), Ok(gpu));
        }

        #[test]
        fn whatever_it_reads_is_in_normal_form(text in "(MIG-)?(GPU-)?[0-9a-fA-F:./-]{0,48}|(index:|nvidia)?[0-9.]{0,6}|\\PC*") {
            for found in [Gpu::parse(&text).ok(), uuid(&text), pci(&text), index(&text)].into_iter().flatten() {
                prop_assert_eq!(Gpu::parse(&found.to_string()), Ok(found));
            }
        }
    }
}
