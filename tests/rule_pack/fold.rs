//! normalise.yaml folds the labels of all exporters into `node` and `UUID`, in each rule anew: `PromQL` has no functions of one's
//! own. So a test holds them to be the same, and to look where the receiver looks.

use gpu_quarantine::policy;

use crate::{
    exported::{GENERATIONS, fields, is_of_exporter},
    pack::{no_problem, pack},
    promql::{Expr, parse},
};

/// The fold around `HOLE`, from the labels that the receiver looks at if not told otherwise.
fn template() -> Expr {
    let locate = policy::load("config.yaml", "release: {require: [resolved]}").unwrap().locate;
    let mut nodes: Vec<String> = Vec::new();
    for label in locate.node_labels.into_iter().chain(locate.hostname_labels) {
        if !nodes.contains(&label) {
            nodes.push(label);
        }
    }
    let listed = |labels: &[String]| labels.iter().map(|l| format!("{l:?}")).collect::<Vec<_>>().join(", ");
    parse(&format!(
        r#"label_replace(label_replace(label_replace(
             label_join(label_join(HOLE, "node", ";", {}), "UUID", ";", {})
           , "node", "$1", "node", ";*([^;]*).*"), "UUID", "$1", "UUID", ";*([^;]*).*"), "gpu", "", "UUID", ".+")"#,
        listed(&nodes),
        listed(&locate.uuid_labels),
    ))
}

/// What stands where the template has its hole; `None` if anything else differs.
fn inside<'a>(template: &Expr, expr: &'a Expr) -> Option<&'a Expr> {
    match (template, expr) {
        (Expr::Series { name, .. }, _) if name == "HOLE" => Some(expr),
        (Expr::Call { function, args }, Expr::Call { function: other, args: others }) => {
            let same = function == other && args.len() == others.len() && args[1..] == others[1..];
            same.then(|| inside(&args[0], &others[0]))?
        }
        _ => None,
    }
}

/// The series with a node or a GPU of its own that are not in a fold.
fn unfolded(template: &Expr, expr: &Expr) -> Vec<String> {
    if inside(template, expr).is_some() {
        return Vec::new();
    }
    let raw = expr.metrics().into_iter().filter(|m| is_of_exporter(m));
    raw.chain(expr.parts().iter().flat_map(|e| unfolded(template, e))).collect()
}

#[test]
fn every_series_of_an_exporter_is_folded_in_the_same_way() {
    let template = template();
    let rules = pack().records.iter().filter(|r| r.file == "normalise");
    no_problem(rules.flat_map(|rule| {
        let unfolded = unfolded(&template, &rule.expr);
        unfolded.into_iter().map(|m| format!("{}: {m} is not in the fold that the other rules have", rule.place()))
    }));
}

/// Both sides of each `or` in a fold, where series still differ by their names; unless a side has its name in a label.
fn joined<'a>(template: &Expr, expr: &'a Expr) -> Vec<[&'a Expr; 2]> {
    if let Some(inner) = inside(template, expr) {
        let named = |e: &Expr| e.is_call("label_replace") && e.parts().get(3) == Some(&Expr::Text("__name__".to_owned()));
        let sides = |e: &'a Expr| match e {
            Expr::Binary { operator, sides, .. } if operator == "or" && !sides.iter().any(named) => Some([&sides[0], &sides[1]]),
            _ => None,
        };
        return inner.all().into_iter().filter_map(sides).collect();
    }
    expr.parts().iter().flat_map(|e| joined(template, e)).collect()
}

#[test]
fn no_series_hides_another_one_of_the_same_gpu() {
    // `or` compares all labels but the name: of two series of one GPU it drops the second.
    let template = template();
    let rules = pack().records.iter().filter(|r| r.file == "normalise");
    let joined = rules.flat_map(|rule| joined(&template, &rule.expr).into_iter().map(move |sides| (rule, sides)));
    no_problem(joined.flat_map(|(rule, sides)| {
        let of_both = move |generation: &&&str| {
            let there = fields(generation);
            sides.iter().all(|side| side.all().into_iter().flat_map(Expr::metrics).any(|m| there.contains(&m)))
        };
        GENERATIONS.iter().filter(of_both).map(move |generation| {
            format!(
                "{}: exporter {generation} has what stands before an `or` and what it hides: name all in one selector, \
                 or put the name into a label first",
                rule.place()
            )
        })
    }));
}

#[test]
fn a_fold_that_forgets_a_label_is_found() {
    let text = &pack().records.iter().find(|r| r.name == "gpu:temperature_celsius:max").unwrap().rule.expr;
    assert!(unfolded(&template(), &parse(text)).is_empty());
    for forgotten in ["\"hostname\", ", ", \"gpu_uuid\"", ", \"gpu\", \"\", \"UUID\", \".+\""] {
        let changed = text.replacen(forgotten, "", 1);
        assert_ne!(&changed, text);
        assert_eq!(unfolded(&template(), &parse(&changed)).len(), 3, "{forgotten}");
    }
}
