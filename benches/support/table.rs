//! The table at the end: what was measured, what it should be, and whether it is.

/// Rows, in the order in which they were measured.
#[derive(Default)]
pub(crate) struct Table(Vec<[String; 4]>);

impl Table {
    /// A number with an upper bound.
    pub(crate) fn bound(&mut self, what: &str, value: f64, unit: &str, at_most: f64) {
        let verdict = if value <= at_most { "met" } else { "MISSED" };
        self.push(what, format!("{value:.2} {unit}"), format!("at most {at_most} {unit}"), verdict);
    }

    /// A number that is only told.
    pub(crate) fn tell(&mut self, what: &str, value: impl Into<String>) {
        self.push(what, value.into(), String::new(), "");
    }

    fn push(&mut self, what: &str, value: String, target: String, verdict: &str) {
        println!("  {what}: {value} {target} {verdict}");
        self.0.push([what.to_owned(), value, target, verdict.to_owned()]);
    }

    /// Print all of it.
    pub(crate) fn print(&self, title: &str) {
        println!("\n{title}\n");
        let heads = ["what", "measured", "target", ""].map(str::to_owned);
        for row in std::iter::once(&heads).chain(&self.0) {
            println!("{:<64} {:>16}  {:<18} {}", row[0], row[1], row[2], row[3]);
        }
        println!();
    }
}

/// The middle of several numbers.
pub(crate) fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}
