//! A whole fleet on virtual time: faults, losses, outages, restarts and silences at random, on the service's own code, with models of
//! Prometheus and Alertmanager that are as faithful as they are small. What is promised stands in `promises.rs`
//! and, of releases on evidence, in `proofs.rs`.
//!
//! A sequence that breaks a promise is shrunk and printed as JSON. `GPU_QUARANTINE_SIMULATION=FILE cargo test --test simulation`
//! plays that file alone, and tells what happens. `GPU_QUARANTINE_SEED=N` draws others than those of every day.

#![expect(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "helpers of tests are not seen as tests")]

mod alertmanager;
#[path = "../support/harness.rs"]
mod harness;
mod machines;
mod process;
mod prometheus;
mod promises;
mod proofs;
mod sequence;
mod source;
mod wording;
mod world;

use std::{cell::Cell, env, fs, path::Path};

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use sequence::{Sequence, sequences};

/// `make test` plays so many; `make soak` more than a thousand.
const SEQUENCES: u32 = 150;

fn number(variable: &str, otherwise: u32) -> u32 {
    env::var(variable).map_or(otherwise, |v| v.parse().unwrap_or_else(|_| panic!("{variable} is a whole number")))
}

fn read(file: &Path) -> Sequence {
    let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

#[test]
fn whatever_happens_every_promise_is_kept() {
    if let Ok(file) = env::var("GPU_QUARANTINE_SIMULATION") {
        if let Err(broken) = world::play(&read(Path::new(&file)), true) {
            panic!("{broken}");
        }
        return;
    }
    let cases = SEQUENCES.saturating_mul(number("GPU_QUARANTINE_SOAK", 1));
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 3000, ..Config::default() };
    let mut seed = [0; 32];
    seed[..4].copy_from_slice(&number("GPU_QUARANTINE_SEED", 0).to_le_bytes());
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let played = Cell::new(0_u32);
    let outcome = runner.run(&sequences(), |sequence| {
        played.set(played.get() + 1);
        world::play(&sequence, false).map_err(TestCaseError::fail)
    });
    if let Err(TestError::Fail(broken, sequence)) = &outcome {
        let text = serde_json::to_string(sequence).expect("a sequence is JSON");
        panic!(
            "{broken}\nafter {} sequences, shrunk:\n{text}\nTo see it happen, put that line into a file and run\n\
             GPU_QUARANTINE_SIMULATION=FILE cargo test --test simulation whatever -- --nocapture",
            played.get()
        );
    }
    outcome.expect("the sequences are played");
}

#[test]
fn what_once_went_wrong_or_is_subtle_stays_right() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulation/sequences");
    let files = fs::read_dir(&directory).expect("the sequences can be listed");
    let mut files: Vec<_> = files.map(|f| f.expect("a file").path()).collect();
    files.sort();
    assert!(files.len() >= 3, "the sequences are there");
    for file in files {
        if let Err(broken) = world::play(&read(&file), false) {
            panic!("{}: {broken}", file.display());
        }
    }
}
