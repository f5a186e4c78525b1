//! Eviction: which pods are asked to leave an isolated node, in which order, and what comes next. Pure, as all of the heart.

mod answer;
mod checkpoint;
mod choose;
mod gang;
mod note;
mod order;
mod plan;
mod state;
#[cfg(test)]
mod tests;
mod work;

pub use answer::EvictionAnswer;
pub use checkpoint::Call;
pub use choose::{Resident, SPARED, Spared};
pub use gang::{Framework, Gang, Loss, gang, readable};
pub use note::{Came, note_came, note_plan};
pub use plan::{Act, Look, Plan, may_evict, may_touch, plan, still, unfinished};
pub(super) use plan::{about, allows};
pub(super) use state::forget_restarts;
pub use state::{Evictee, EvicteeState, Evicting, MAX_PODS, Restart};
