//! A training program without GPUs: data-parallel, elastic, deterministic. It does what matters to an eviction as `torchrun` and a
//! training loop do it. The shared directory is all that workers have in common:
//!
//! - `g<N>/`: the Nth group. A worker joins the newest by claiming a free rank in it (`g<N>/rank-<R>`, created only if it is not
//!   there). When all ranks are claimed, all go on; who finds no free rank, or waits too long, begins the next group.
//! - `g<N>/at-<STEP>-<R>`: the gradient of a rank in a step. A step is done when those of all ranks are there: a rank that hangs makes
//!   all others hang. Who sees a newer group meanwhile leaves for it.
//! - `checkpoint-<STEP>-<R>`: the state of a rank after a step. A new group begins at the last step of which all ranks have one.
//! - `rank-<R>.json`: what a rank did last, for those who look on.
//! - `stop`: all end well.

use std::{
    env, fs,
    io::{ErrorKind, Write},
    path::{Path, PathBuf},
    thread::sleep,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

/// How many workers train together.
pub(crate) const RANKS: u64 = 4;
/// How many steps lie between checkpoints.
pub(crate) const CHECKPOINT_EVERY: u64 = 10;
/// The variable with the shared directory.
pub(crate) const SHARED: &str = "TRAINING_DIR";
/// The variable with the name of the worker's pod.
pub(crate) const POD: &str = "POD_NAME";
/// How long computing one step takes.
const STEP: Duration = Duration::from_millis(40);
/// How long a worker waits for the others of a new group.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(5);

/// The state after a step that follows this one: the optimizer's update from the gradients of all ranks.
fn update(state: u64, gradients: impl Iterator<Item = u64>) -> u64 {
    gradients.fold(state.rotate_left(7), u64::wrapping_add)
}

fn gradient(state: u64, step: u64, rank: u64) -> u64 {
    (state ^ step.wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(2 * rank + 3)
}

/// The state after so many steps if nothing ever goes wrong.
pub(crate) fn state_after(steps: u64) -> u64 {
    (1..=steps).fold(0, |state, step| update(state, (0..RANKS).map(|rank| gradient(state, step, rank))))
}

/// What a worker does when it does not go on.
enum Turn {
    /// There is a newer group.
    Regroup,
    /// The training is over.
    Stop,
}

/// Run as a worker, if the environment says so.
pub(crate) fn main() {
    let Some(dir) = env::var_os(SHARED).map(PathBuf::from) else { return };
    let pod = env::var(POD).expect("the name of the pod");
    loop {
        match train(&dir, &pod) {
            Turn::Regroup => {}
            Turn::Stop => return,
        }
    }
}

/// Join a group and train in it.
fn train(dir: &Path, pod: &str) -> Turn {
    let (group, rank) = join(dir, pod);
    let here = dir.join(format!("g{group}"));
    let begin = Instant::now();
    while (0..RANKS).any(|rank| !here.join(format!("rank-{rank}")).exists()) {
        if begin.elapsed() > PATIENCE {
            fs::create_dir_all(dir.join(format!("g{}", group + 1))).expect("the directory is writable");
        }
        if let Some(turn) = turn(dir, group) {
            return turn;
        }
        sleep(LOOK);
    }
    let resumed = last_checkpoint(dir);
    let state = |step: u64| read(&dir.join(format!("checkpoint-{step}-{rank}"))).map_or(0, |text| text.parse().expect("a state"));
    let mut state = if resumed == 0 { 0 } else { state(resumed) };
    let tell = |step: u64, state: u64| {
        let what = json!({"pod": pod, "group": group, "resumed": resumed, "step": step, "state": state.to_string()});
        write(&dir.join(format!("rank-{rank}.json")), &what.to_string());
    };
    println!("{pod} is rank {rank} of group {group} and goes on after step {resumed}");
    tell(resumed, state);
    for step in resumed + 1.. {
        sleep(STEP);
        write(&here.join(format!("at-{step}-{rank}")), &gradient(state, step, rank).to_string());
        let mut gradients = Vec::new();
        while gradients.len() < usize::try_from(RANKS).expect("a few") {
            match read(&here.join(format!("at-{step}-{}", gradients.len()))) {
                Some(text) => gradients.push(text.parse().expect("a gradient")),
                None => sleep(LOOK),
            }
            if let Some(turn) = turn(dir, group) {
                return turn;
            }
        }
        state = update(state, gradients.into_iter());
        if step % CHECKPOINT_EVERY == 0 {
            write(&dir.join(format!("checkpoint-{step}-{rank}")), &state.to_string());
        }
        tell(step, state);
        // All have read it who are in the step before this one.
        drop(fs::remove_file(here.join(format!("at-{}-{rank}", step.saturating_sub(2)))));
    }
    Turn::Stop
}

/// Whether the group is left, and why.
fn turn(dir: &Path, group: u64) -> Option<Turn> {
    if dir.join("stop").exists() {
        return Some(Turn::Stop);
    }
    (newest(dir) > group).then_some(Turn::Regroup)
}

/// The newest group; 0 if there is none.
fn newest(dir: &Path) -> u64 {
    let names = fs::read_dir(dir).expect("the shared directory").filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.strip_prefix('g')?.parse().ok()).max().unwrap_or_default()
}

/// Claim a rank in the newest group that has one: the group and the rank.
fn join(dir: &Path, pod: &str) -> (u64, u64) {
    let mut group = newest(dir).max(1);
    loop {
        let here = dir.join(format!("g{group}"));
        fs::create_dir_all(&here).expect("the directory is writable");
        for rank in 0..RANKS {
            match fs::File::create_new(here.join(format!("rank-{rank}"))) {
                Ok(mut file) => {
                    file.write_all(pod.as_bytes()).expect("the file is writable");
                    return (group, rank);
                }
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => panic!("{}: {e}", here.display()),
            }
        }
        group += 1;
    }
}

/// The last step of which all ranks have a checkpoint; 0 if there is none.
pub(crate) fn last_checkpoint(dir: &Path) -> u64 {
    let complete = |step: u64| (0..RANKS).all(|rank| dir.join(format!("checkpoint-{step}-{rank}")).exists());
    let mut last = 0;
    while complete(last + CHECKPOINT_EVERY) {
        last += CHECKPOINT_EVERY;
    }
    last
}

fn read(file: &Path) -> Option<String> {
    fs::read_to_string(file).ok()
}

/// Write a file that others see whole or not at all.
fn write(file: &Path, text: &str) {
    let draft = file.with_extension("draft");
    fs::write(&draft, text).and_then(|()| fs::rename(&draft, file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
}

/// What a rank did last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The pod that is the rank.
    pub(crate) pod: String,
    /// The group.
    pub(crate) group: u64,
    /// After which step the group began.
    pub(crate) resumed: u64,
    /// The last step that is done.
    pub(crate) step: u64,
    /// The state after it.
    pub(crate) state: u64,
}

/// What all ranks did last, in the order of the ranks; fewer than all if some did nothing yet.
pub(crate) fn progress(dir: &Path) -> Vec<Progress> {
    let rank = |rank: u64| {
        let told: Value = serde_json::from_str(&read(&dir.join(format!("rank-{rank}.json")))?).expect("JSON");
        let number = |key: &str| told[key].as_u64().expect("a number");
        let text = |key: &str| told[key].as_str().expect("a text").to_owned();
        Some(Progress {
            pod: text("pod"),
            group: number("group"),
            resumed: number("resumed"),
            step: number("step"),
            state: text("state").parse().expect("a state"),
        })
    };
    (0..RANKS).filter_map(rank).collect()
}
