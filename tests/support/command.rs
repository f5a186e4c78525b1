//! Runs the real binary from the root of the repository, and looks at what it printed.

use std::{
    io::Write,
    process::{Command, Stdio},
};

/// What a run of the program came to.
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// The output of a run that went well.
    pub(crate) fn well(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        assert_eq!(self.stderr, "");
        self.stdout
    }

    /// The message of a run that ended with that exit code.
    pub(crate) fn failed(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}", self.stderr);
        self.stderr
    }
}

/// Run the program with nothing on standard input.
pub(crate) fn run(args: &[&str]) -> Ran {
    run_with(args, "")
}

/// Run the program.
pub(crate) fn run_with(args: &[&str], stdin: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_gpu-quarantine"))
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A program that does not read it closes the pipe.
    drop(child.stdin.take().unwrap().write_all(stdin.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A command on the recorded cluster with the configuration for the recorded bodies.
pub(crate) fn on_prod_a<'a>(command: &'a str, args: &[&'a str]) -> Vec<&'a str> {
    let sources = ["--config.file", "fixtures/replay/config.yaml", "--cluster", "fixtures/clusters/prod-a.yaml"];
    [command].into_iter().chain(sources).chain(args.iter().copied()).collect()
}
