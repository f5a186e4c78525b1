//! Labels of an alert to its target: a node, perhaps a GPU. A declared chain of links; each answer says which link matched,
//! and nothing is ever guessed.

mod chain;
mod gpu;
mod inventory;
mod node;
mod pod;
mod toleration;

pub use chain::{Link, Located, Unmapped, UnmappedReason, locate};
pub use gpu::{Gpu, GpuError, gpu_of, gpus_of};
pub use inventory::{HOSTNAME_LABEL, Inventory, names_in_monitoring};
pub use node::{ExporterPod, NodeFacts, NodeName, NodeNameError, Taint};
pub use pod::{Owner, OwnerObject, PodFacts, PodName, PodNameError, PodPhase};
pub use toleration::{Toleration, tolerates};
