//! The heart: given a node, its record and what was heard of it, what is to be written, and what becomes of each alert.
//!
//! Pure: no I/O, no clock, no randomness, and of this crate only the types of `alert`, `policy` and `locate`. The same function
//! serves the live service, replay and the property tests.

mod claim;
mod decide;
pub mod eviction;
pub mod evidence;
mod fold;
mod guard;
mod hand;
mod inherit;
mod leave;
mod ledger;
mod machine;
mod outcome;
mod patch;
mod pause;
mod reach;
mod record;
mod recurrence;
mod release;
mod room;
mod scope;
mod taken_away;
mod verdict;
mod view;

pub use claim::{Claim, ClaimState, Episode, Member, Recovery};
pub use decide::{Context, Decision, Effect, Told, decide};
pub use fold::{Heard, Rule};
pub use guard::{Candidate, GuardReport, LimitUse, Muster, Rank, Room, Severity, Turn, Waiting};
pub use hand::{Hand, HandRelease, Judgement, MAX_REASON, MAX_WHO, Offer, Refusal, Releases, Word, release_by_hand, say, signed};
pub use leave::{Belongings, Leaving};
pub use ledger::{LEDGER_VERSION, Ledger, MAX_LEDGER_BYTES, Machine, News, Open, StoredLedger, machine_key};
pub use machine::{MachineChange, MachineEvent};
pub use outcome::{Outcome, Verdict};
pub use pause::{Pause, PauseWord, Paused};
pub use reach::GpuScope;
pub use record::{Added, Before, Identity, MAX_BYTES, Record, Stored, Unknown, VERSION, read};
pub use recurrence::health;
pub use release::Known;
pub use scope::{CONTROL_PLANE, Standing, standing};
pub(crate) use view::nothing_begun;
pub use view::{NodeState, NodeView};
