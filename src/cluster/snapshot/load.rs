//! A cluster file: a stream of YAML documents as `kubectl get nodes,pods,pdb,jobs -A -o yaml` prints them. JSON is YAML, so
//! `-o json` is read as well.

use std::fmt;

use serde_json::{Value, json};

/// More text than this is refused: 2,000 nodes of 20 kB are 40 MiB.
const TEXT_MAX: usize = 256 * 1024 * 1024;

/// etcd counts revisions in an int64.
const VERSION_MAX: u64 = i64::MAX as u64;

/// A cluster file that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// More text than we are willing to parse.
    #[error("{file}: {bytes} bytes are too many for a cluster file; at most {TEXT_MAX} are read")]
    TooLarge {
        /// The file.
        file: String,
        /// Its size.
        bytes: usize,
    },
    /// Not YAML, or YAML with aliases, which are not read.
    #[error("{file}:{line}:{column}: {message}")]
    Syntax {
        /// The file.
        file: String,
        /// From 1; 0 if the parser does not know.
        line: u64,
        /// From 1; 0 if the parser does not know.
        column: u64,
        /// What the parser says, with the lines around it.
        message: String,
    },
    /// An object that cannot be used.
    #[error("{file}: {place}: {problem}")]
    Object {
        /// The file.
        file: String,
        /// Where in it.
        place: Place,
        /// What is wrong.
        problem: String,
    },
    /// A cluster without a node.
    #[error("{file}: no Node in it")]
    NoNodes {
        /// The file.
        file: String,
    },
}

/// Where an object stands in a cluster file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Which document, from 1. Documents that hold nothing are not counted.
    pub document: usize,
    /// Which item of the document's list, from 1.
    pub item: Option<usize>,
    /// Kind and name, as far as they can be read.
    pub object: Option<String>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "document {}", self.document)?;
        if let Some(item) = self.item {
            write!(f, ", item {item}")?;
        }
        match &self.object {
            Some(object) => write!(f, " ({object})"),
            None => Ok(()),
        }
    }
}

/// The kinds that a snapshot tells apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Node,
    Pod,
    /// A `PodDisruptionBudget`.
    Budget,
    /// Any other object, e.g. the Job that controls a pod.
    Other,
}

/// One object of the file.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) place: Place,
    pub(super) kind: Kind,
    pub(super) raw: Value,
}

/// The objects of a file, each with `apiVersion` and `kind`, lists taken apart.
pub(super) fn objects(file: &str, text: &str) -> Result<Vec<Found>, LoadError> {
    let mut found = Vec::new();
    for (index, document) in documents(file, text)?.into_iter().enumerate() {
        let place = Place { document: index + 1, item: None, object: label(&document) };
        let error = |place: Place, problem: String| LoadError::Object { file: file.to_owned(), place, problem };
        let implied = match document.get("kind").and_then(Value::as_str) {
            Some("List") => None,
            Some("NodeList") => Some(Kind::Node),
            Some("PodList") => Some(Kind::Pod),
            _ => {
                let (kind, raw) = typed(document, None).map_err(|problem| error(place.clone(), problem))?;
                found.push(Found { place, kind, raw });
                continue;
            }
        };
        let items = match document {
            Value::Object(mut list) => list.remove("items").unwrap_or_default(),
            _ => Value::Null,
        };
        let items = match items {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            _ => return Err(error(place, "items is not a list".to_owned())),
        };
        for (index, item) in items.into_iter().enumerate() {
            let mut place = Place { item: Some(index + 1), object: label(&item), ..place };
            let (kind, raw) = typed(item, implied).map_err(|problem| error(place.clone(), problem))?;
            // The items of a typed list may lack their kind.
            place.object = label(&raw);
            found.push(Found { place, kind, raw });
        }
    }
    Ok(found)
}

fn documents(file: &str, text: &str) -> Result<Vec<Value>, LoadError> {
    if text.len() > TEXT_MAX {
        return Err(LoadError::TooLarge { file: file.to_owned(), bytes: text.len() });
    }
    // The parser's own budget is for configurations: 250,000 nodes of YAML, where 2,000 Nodes are 5 million. What has no alias
    // is never larger than its text, which is bounded above, and kubectl writes none.
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_aliases: 0,
            max_documents: TEXT_MAX,
            max_events: TEXT_MAX,
            max_nodes: TEXT_MAX,
            max_total_scalar_bytes: TEXT_MAX,
        },
    };
    serde_saphyr::from_multiple_with_options(text, options).map_err(|error| {
        let (line, column) = error.location().map_or((0, 0), |at| (at.line(), at.column()));
        // The other formatter speaks to programmers of options to set.
        let options = serde_saphyr::render_options! { formatter: &serde_saphyr::UserMessageFormatter, source_name: Some(file) };
        let message = error.render_with_options(options);
        let message = message.strip_prefix(&format!("error: line {line} column {column}: ")).unwrap_or(&message).to_owned();
        LoadError::Syntax { file: file.to_owned(), line, column, message }
    })
}

/// The object with its `apiVersion` and `kind`, which are `implied` by a typed list. Errors if it is not one that we understand.
pub(super) fn typed(mut raw: Value, implied: Option<Kind>) -> Result<(Kind, Value), String> {
    let Value::Object(fields) = &mut raw else {
        return Err("not a map; expected an object of Kubernetes".to_owned());
    };
    let stated = match fields.get("kind") {
        None | Some(Value::Null) => None,
        Some(Value::String(kind)) if !kind.is_empty() => Some(kind.as_str()),
        Some(_) if implied.is_none() => return Err("kind is not a string, or empty".to_owned()),
        Some(_) => Some(""),
    };
    let kind = match (stated, implied) {
        (None, Some(kind)) => kind,
        (Some("Node"), None | Some(Kind::Node)) => Kind::Node,
        (Some("Pod"), None | Some(Kind::Pod)) => Kind::Pod,
        (Some(_), Some(Kind::Node)) => return Err("an item of a NodeList of another kind".to_owned()),
        (Some(_), Some(_)) => return Err("an item of a PodList of another kind".to_owned()),
        (None, None) => return Err("kind is absent; expected an object of Kubernetes".to_owned()),
        (Some(list), None) if list.ends_with("List") && fields.contains_key("items") => {
            return Err(format!("a {list} is not understood; write List, as kubectl prints it"));
        }
        (Some("PodDisruptionBudget"), None) => Kind::Budget,
        (Some(_), None) => Kind::Other,
    };
    let version = match fields.get("apiVersion") {
        None | Some(Value::Null) => None,
        Some(Value::String(version)) => Some(version.as_str()),
        Some(_) => return Err("apiVersion is not a string".to_owned()),
    };
    let version = match (kind, version) {
        (Kind::Node | Kind::Pod, None | Some("v1")) => "v1",
        // The empty selector of `v1beta1` matches nothing, where that of `v1` matches all.
        (Kind::Budget, None | Some("policy/v1")) => "policy/v1",
        (Kind::Other, Some(version)) => version,
        (Kind::Other, None) => return Err("apiVersion is absent".to_owned()),
        // Other groups have kinds of the same name, `config.openshift.io/v1` a Node for one.
        (Kind::Budget, Some(other)) => return Err(format!("apiVersion is {other:?}; expected \"policy/v1\"")),
        (Kind::Node | Kind::Pod, Some(other)) => return Err(format!("apiVersion is {other:?}; expected \"v1\"")),
    };
    let version = json!(version);
    fields.insert("apiVersion".to_owned(), version);
    match kind {
        Kind::Node => drop(fields.insert("kind".to_owned(), json!("Node"))),
        Kind::Pod => drop(fields.insert("kind".to_owned(), json!("Pod"))),
        Kind::Budget | Kind::Other => {}
    }
    Ok((kind, raw))
}

/// Kind and name for a message.
fn label(raw: &Value) -> Option<String> {
    let kind = raw.get("kind")?.as_str()?;
    let text = |path| raw.pointer(path).and_then(Value::as_str);
    let label = match (text("/metadata/namespace"), text("/metadata/name")) {
        (Some(namespace), Some(name)) => format!("{kind} {namespace}/{name}"),
        (None, Some(name)) => format!("{kind} {name}"),
        (_, None) => format!("{kind} without a name"),
    };
    Some(label)
}

/// The resourceVersion as a number; `None` if there is none. Errors if it is no revision of etcd, which is a decimal number
/// (KEP-5504): the versions that we give out must be greater.
pub(super) fn version(raw: &Value) -> Result<Option<u64>, String> {
    match raw.pointer("/metadata/resourceVersion") {
        None | Some(Value::Null) => Ok(None),
        // The wrong type is told with the facts.
        Some(Value::String(text)) => match text.parse() {
            Ok(version) if version <= VERSION_MAX && !text.starts_with('+') => Ok(Some(version)),
            _ => Err(format!("metadata.resourceVersion is {text:?}; expected a decimal number of at most 63 bits, in quotes")),
        },
        Some(_) => Ok(Some(0)),
    }
}

/// A UID in the form of a UUID, for an object that has none: the same for the same kind, name and `birth`, so that the same file
/// gives the same output.
pub(super) fn uid(kind: &str, namespace: &str, name: &str, birth: u64) -> String {
    let seed = format!("{kind}/{namespace}/{name}/{birth}");
    let (high, low) = (fnv1a(&format!("high/{seed}")), fnv1a(&format!("low/{seed}")));
    // Version 8 (RFC 9562: vendor's own) and the variant of the RFC.
    let (third, fourth) = (high & 0xfff | 0x8000, low >> 48 & 0x3fff | 0x8000);
    format!("{:08x}-{:04x}-{third:04x}-{fourth:04x}-{:012x}", high >> 32, high >> 16 & 0xffff, low & 0xffff_ffff_ffff)
}

/// FNV-1a, 64 bits: no security needed, only the same on every machine.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_uid_has_the_form_of_a_uuid_and_differs_by_what_it_is_derived_from() {
        let one = uid("Node", "", "gpu-07", 0);
        assert_eq!(one, uid("Node", "", "gpu-07", 0));
        let lengths: Vec<_> = one.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12], "{one}");
        assert_eq!(&one[14..15], "8");
        for other in [uid("Node", "", "gpu-08", 0), uid("Node", "", "gpu-07", 1), uid("Pod", "", "gpu-07", 0)] {
            assert_ne!(one, other);
        }
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8, "the vector of the FNV draft");
    }
}
