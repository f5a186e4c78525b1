//! `demo`: needs no argument, no cluster and no file, and ends by itself.

use std::process::Command;

#[test]
fn the_demo_shows_isolate_observed_unchanged_resolved_and_release_in_that_order() {
    let output = Command::new(env!("CARGO_BIN_EXE_gpu-quarantine")).arg("demo").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    let mut rest = text.as_str();
    for shown in [
        "ISOLATE gpu-node-07 by policy gpu-lost",
        " observed ",
        " unchanged ",
        " resolved ",
        "gpu-node-07 is clearing, waiting for the hold-down",
        "RELEASE gpu-node-07 by policy gpu-lost",
        "gpu-node-07 is free, waiting for nothing",
        "gpu-node-07 is back in service",
    ] {
        let Some((_, after)) = rest.split_once(shown) else { panic!("{shown:?} is missing or out of order in\n{text}") };
        rest = after;
    }
    assert_eq!(text.matches("ISOLATE").count(), 1, "{text}");
    assert_eq!(text.matches("RELEASE").count(), 1, "{text}");
    assert_eq!(text.matches(", ended by resolved").count(), 2, "{text}");
}
