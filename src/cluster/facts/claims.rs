//! The GPUs behind `ResourceClaim`s (dynamic resource allocation): a claim names devices of a driver's pool, and the driver's
//! `ResourceSlice`s say which GPU a device is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::locate::Gpu;

#[cfg(test)]
mod tests;

/// NVIDIA's driver for GPUs (<https://github.com/kubernetes-sigs/dra-driver-nvidia-gpu>).
pub(crate) const CLAIM_DRIVER: &str = "gpu.nvidia.com";

/// What the claims of one pod come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// These GPUs, perhaps none: claims may be for other things.
    Gpus(BTreeSet<Gpu>),
    /// A device of the driver is in no slice, or its GPU is not told: a MIG device without its parent, for one.
    Unknown,
}

impl Claimed {
    /// All GPUs of the pod: these, and those of `devices`, which it has by a device plugin if it asks that for `gpus`. `None` if not
    /// all of them are known: what is not listed must not pass for unused.
    pub(crate) fn beside(self, devices: Option<Vec<Gpu>>, gpus: u64) -> Option<Vec<Gpu>> {
        let Self::Gpus(mut claimed) = self else { return None };
        match devices {
            Some(devices) => claimed.extend(devices),
            None if gpus > 0 => return None,
            None => {}
        }
        Some(claimed.into_iter().collect())
    }
}

/// The GPUs that `claims` hold, by the `slices`. Objects of `resource.k8s.io`, in `v1`, `v1beta2` or `v1beta1`.
///
/// Devices that a claim has for monitoring only (`adminAccess`) are not used by its pod.
pub(crate) fn claimed_gpus(claims: &[&Value], slices: &[&Value]) -> Claimed {
    let devices = devices(slices);
    let mut gpus = BTreeSet::new();
    for result in claims.iter().flat_map(|claim| list(claim, "/status/allocation/devices/results")) {
        let is_admin = result.get("adminAccess").and_then(Value::as_bool) == Some(true);
        if is_admin || text(result, "/driver") != Some(CLAIM_DRIVER) {
            continue;
        }
        let (Some(pool), Some(device)) = (text(result, "/pool"), text(result, "/device")) else { return Claimed::Unknown };
        match devices.get(&(pool, device)) {
            Some(Some(gpu)) => drop(gpus.insert(gpu.clone())),
            _ => return Claimed::Unknown,
        }
    }
    Claimed::Gpus(gpus)
}

/// The GPU of each device by pool and name, of the latest generation of each pool: what is older is being replaced.
fn devices<'a>(slices: &[&'a Value]) -> BTreeMap<(&'a str, &'a str), Option<Gpu>> {
    let of_driver = || slices.iter().copied().filter(|slice| text(slice, "/spec/driver") == Some(CLAIM_DRIVER));
    let pool = |slice: &'a Value| Some((text(slice, "/spec/pool/name")?, slice.pointer("/spec/pool/generation")?.as_i64()?));
    let mut latest: BTreeMap<&str, i64> = BTreeMap::new();
    for (name, generation) in of_driver().filter_map(pool) {
        let known = latest.entry(name).or_insert(generation);
        *known = generation.max(*known);
    }
    let mut devices = BTreeMap::new();
    for slice in of_driver() {
        let Some((name, generation)) = pool(slice) else { continue };
        if latest.get(name) == Some(&generation) {
            devices.extend(list(slice, "/spec/devices").filter_map(|d| Some(((name, text(d, "/name")?), gpu(d)))));
        }
    }
    devices
}

/// A MIG device has a UUID of its own, and names its GPU beside it.
fn gpu(device: &Value) -> Option<Gpu> {
    // `v1beta1` has the attributes one level below.
    let attributes = device.get("attributes").or_else(|| device.pointer("/basic/attributes"))?;
    // An attribute without a domain is one of the driver's.
    let attribute = |name: &str| attributes.get(name).or_else(|| attributes.get(format!("{CLAIM_DRIVER}/{name}")));
    let uuid = |name: &str| attribute(name)?.get("string")?.as_str();
    Gpu::parse(uuid("parentUUID").or_else(|| uuid("uuid"))?).ok()
}

fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer)?.as_str()
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}
