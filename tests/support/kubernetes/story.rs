//! What happened when, for people to read.

use std::{
    fmt::Display,
    io::Write,
    sync::{Mutex, PoisonError},
    time::Instant,
};

/// A story. Each step is printed with its time as it comes.
#[derive(Debug)]
pub(crate) struct Story {
    begin: Mutex<Instant>,
}

impl Story {
    /// It begins now.
    pub(crate) fn begin(title: impl Display) -> Self {
        print(&format!("\n{title}\n\n"));
        Self { begin: Mutex::new(Instant::now()) }
    }

    /// From now on times count from here.
    pub(crate) fn zero(&self) {
        *self.begin.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// A step that is done.
    pub(crate) fn step(&self, what: impl Display) {
        let begin = *self.begin.lock().unwrap_or_else(PoisonError::into_inner);
        print(&format!("{:>9.3}s  {what}\n", begin.elapsed().as_secs_f64()));
    }
}

/// The end of a story.
pub(crate) fn end(what: impl Display) {
    print(&format!("\n{what}\n"));
}

/// Past the test runner, which shows nothing of a test that passes. In one piece, for other tests print as well.
fn print(text: &str) {
    std::io::stderr().write_all(text.as_bytes()).expect("standard error can be written");
}
