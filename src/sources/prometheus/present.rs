//! Which GPUs the series of a node speak of.

use std::collections::BTreeSet;

use super::answer::Found;
use crate::{
    locate::{Gpu, gpus_of},
    policy::Locate,
    quarantine::evidence::{PresentGpu, Series},
};

/// The GPUs behind the series, each once, although two exporters or two spellings may show it.
///
/// Two series are one GPU if they share the UUID. One without a UUID is the GPU that alone has its PCI bus id or, without one, its
/// index; if that is not clear, it is left out, since counted by itself it could stand in for a GPU that is missing.
pub(super) fn present(found: Vec<Found>, rules: &Locate) -> Vec<PresentGpu> {
    let mut named: Vec<(BTreeSet<Gpu>, Series)> = found
        .into_iter()
        .map(|(labels, at)| (gpus_of(&labels, rules).into_iter().collect::<BTreeSet<Gpu>>(), at))
        .filter(|(names, _)| !names.is_empty())
        .collect();
    // UUIDs sort first, then PCI bus ids: what is better named comes before what is to be tied to it.
    named.sort_by(|(a, _), (b, _)| a.cmp(b));
    let best = named.first().and_then(|(names, _)| names.first()).map(kind);
    let mut gpus: Vec<(BTreeSet<Gpu>, Series)> = Vec::new();
    for (names, at) in named {
        let Some(first) = names.first() else { continue };
        let same: Vec<usize> = (0..gpus.len()).filter(|i| gpus.get(*i).is_some_and(|(other, _)| other.contains(first))).collect();
        match same[..] {
            [i] => {
                if let Some((other, series)) = gpus.get_mut(i) {
                    other.extend(names);
                    series.join(&at);
                }
            }
            [] if Some(kind(first)) == best => gpus.push((names, at)),
            _ => {}
        }
    }
    gpus.into_iter().map(|(names, at)| PresentGpu { names: names.into_iter().collect(), at }).collect()
}

fn kind(gpu: &Gpu) -> u8 {
    match gpu {
        Gpu::Uuid(_) => 0,
        Gpu::Pci(_) => 1,
        Gpu::Index(_) => 2,
    }
}
