//! A table of five columns, as wide as what stands in them.

/// The lines of a table, the first of them its head.
pub(super) fn table(head: [&str; 5], rows: impl Iterator<Item = [String; 5]>) -> Vec<String> {
    let rows: Vec<[String; 5]> = std::iter::once(head.map(str::to_owned)).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let [a, b, c, d] = [width(0), width(1), width(2), width(3)];
    rows.iter().map(|[one, two, three, four, five]| format!("{one:a$}  {two:b$}  {three:c$}  {four:d$}  {five}")).collect()
}
