//! What must hold for every decision, whatever came before it. `support/bench.rs` holds each single decision to P1, P2, P7, the
//! bound of the record and the fixpoint; the properties here are about whole stories.

#![expect(clippy::expect_used, clippy::panic, reason = "helpers of tests are not seen as tests")]

#[path = "support/bench.rs"]
mod bench;

#[path = "decide_properties/commands.rs"]
mod commands;
#[path = "decide_properties/convergence.rs"]
mod convergence;
#[path = "decide_properties/cordoned.rs"]
mod cordoned;
#[path = "decide_properties/evidence.rs"]
mod evidence;
#[path = "decide_properties/hands.rs"]
mod hands;
#[path = "decide_properties/ownership.rs"]
mod ownership;
#[path = "decide_properties/scope.rs"]
mod scope;
#[path = "decide_properties/size.rs"]
mod size;
